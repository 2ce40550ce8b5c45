"""What the backend `torch` needs: loading a network, binding its inputs and outputs, watching its modules."""
