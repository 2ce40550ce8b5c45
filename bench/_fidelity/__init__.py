"""Parts of `bench/fidelity.py`: the inputs, and the engines whose tensors are observed."""
