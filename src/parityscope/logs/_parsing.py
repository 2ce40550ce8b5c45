"""What a log says about inputs, outputs and refused nodes: lines of the ONNX parser and of trtexec."""

from __future__ import annotations

import re
from typing import Literal

from parityscope.logs.records import IOTensor, Unparsed

__all__ = ["network_tensor", "refused_node"]

_ADDED = re.compile(r"Adding network input: (.+?) with dtype: (\w+), dimensions: \(([^()]*)\)")
_MARKED = re.compile(r"Marking (?:.+?) as output: (.+)$")
_BINDING = re.compile(
    r"^(?>.*?(input|output) binding for )(.+?) with dimensions (\S+?)(?: is created\.?)?$", re.IGNORECASE
)
_IN_NODE = re.compile(r"^(?>.*?In node (\d+))(?: with name: (.*?) and operator: (\S+))? \((\w+)\): (\w+): (.*)$")
_ASSERTED = re.compile(r"ModelImporter\.cpp:\d+: (?:--- End node|ERROR: )(.*)$|While parsing node number (\d+) \[(\S+)")


def network_tensor(text: str) -> IOTensor | None:
    """The input or output that a line names; None if it names none."""
    if "binding for " in text and (found := _BINDING.search(text)) is not None:
        mode: Literal["input", "output"] = "input" if found[1].lower() == "input" else "output"
        return IOTensor(name=found[2], mode=mode, dimensions=found[3])
    if text.startswith("Adding network input: ") and (found := _ADDED.match(text)) is not None:
        return IOTensor(name=found[1], mode="input", dtype=found[2], dimensions=found[3])
    if text.startswith("Marking ") and (found := _MARKED.match(text)) is not None:
        return IOTensor(name=found[1], mode="output")
    return None


def refused_node(text: str) -> Unparsed | None:
    """The node that the parser refused; None for other lines.

    For example `In node 3 with name: n and operator: Foo (importer): UNSUPPORTED_NODE: why`.
    """
    if found := _IN_NODE.search(text):
        return Unparsed(node=found[2] or f"node {found[1]}", operator=found[3] or "", reason=f"{found[5]}: {found[6]}")
    if (found := _ASSERTED.search(text)) and found[2]:
        return Unparsed(node=f"node {found[2]}", operator=found[3], reason="refused by the parser")
    return None
