"""The verbs of the command line as Python functions, on what a program has in its hands.

A model may be a path, bytes, an `onnx.ModelProto`, an `onnx_ir.Model`, or a network of torch; a candidate a target as on the
command line, a callable, a module of torch, a session of ONNX Runtime, or its answers as arrays; inputs a path, one sample, or
any iterable of samples (`given` says how each is taken). Results are records (`results`): what makes a study gives a `Result`,
the other verbs a `Report` with what they found as `record`. `shared` is the work that commands and functions have in common;
`asserting` is for tests, `pytest_plugin` for those of pytest.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Commands whose function has another name.
CALLED_OTHERWISE: Mapping[str, str] = MappingProxyType({"list": "list_plugins", "report": "load_report"})
# Commands that are no function, and why.
WITHOUT: Mapping[str, str] = MappingProxyType(
    {
        "completion": "it is for a shell",
        "mcp": "it answers an assistant until it is ended",
        "new": "it writes a file for an editor to go on with",
        "open": "it starts a viewer; a notebook shows a result itself",
        "serve": "it answers a browser until it is ended",
    }
)
