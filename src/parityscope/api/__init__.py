"""The verbs of the command line as Python functions, on what a program has in its hands.

A model may be a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`; a candidate a target as on the command line, a callable,
a session of ONNX Runtime, or its answers as arrays; inputs a path, one sample, or any iterable of samples (`given` says how
each is taken). Results are records (`results`); `asserting` is for tests, `pytest_plugin` for those of pytest.
"""

from __future__ import annotations
