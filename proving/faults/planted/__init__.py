"""The faults, one a file; a file's docstring says what really happens in such a deployment, its last line is the fault."""
