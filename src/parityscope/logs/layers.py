"""The engine's layers and tensors as a log prints them.

Three layouts:

* `Layer(CaskConvolution): Conv_0 + Relu_1, Tactic: 0x0, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]`   "Engine Layer Information", 8 to
  10 (newer ones write the types as `x (Half[1,3,8,8])`);
* `Name: Conv_0, LayerType: CaskConvolution, Inputs: [ { Name: x, Location: Device, Dimensions: [1,3,8,8], Format/Datatype:
  Half }], Outputs: [...], ..., TacticName: ..., Metadata: [ONNX Layer: Conv_0]`   with detailed profiling verbosity, up to 10;
* the same with `Datatype: Half, Format: (Linear) ...` apart, and a part `Constants`   11 and RTX.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from parityscope.logs.names import metadata_nodes, name_nodes
from parityscope.logs.records import EngineLayer, EngineTensor, IOTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES = "Float|Half|BFloat16|BF16|Int8|UInt8|Int32|Int64|Int4|Bool|FP8|Fp8|FP4|Fp4|E8M0"
_PLAIN = re.compile(r"Layer\(([^)]*)\): (.*)$")
# What stands behind a tensor's name: its name is what lies between the tensor before it and this.
_PLAIN_TYPE = re.compile(rf"[\[(]({_TYPES})[\[(]([^\[\]()]*)[\])][\])]")
_TENSOR_MARK = "{ Name: "
_TENSOR = re.compile(r"(?>(.*?)(?:, Location: \w+)?, Dimensions: \[)([^\[\]]*)\]([^{}]*)\}")
_DATATYPE = re.compile(r"(?:Format/)?Datatype: ([^,}]+)")
_TACTIC = re.compile(r", TacticName: ([^,]*)")
_IO = re.compile(
    r"\s*Name: (.*?), IOMode: (Input|Output)(?:, DataType: (\w+))?(?:, Dimensions: \[([^\]]*)\])?",
)
_IN_WORDS = (
    ("FP32", "Float"),
    ("FP16", "Half"),
    ("BF16", "BFloat16"),
    ("Int8", "Int8"),
    ("INT8", "Int8"),
    ("FP8", "FP8"),
    ("Int32", "Int32"),
    ("INT32", "Int32"),
    ("Int64", "Int64"),
    ("INT64", "Int64"),
    ("Bool", "Bool"),
)


def plain_layer(text: str, line: int) -> EngineLayer | None:
    """The layer of a line `Layer(KIND): NAME, Tactic: T, INPUTS -> OUTPUTS`; None if it is no such line."""
    found = _PLAIN.match(text)
    if found is None:
        return None
    name, _, rest = found[2].partition(", Tactic: ")
    tactic, _, tensors = rest.partition(", ")
    inputs, _, outputs = (" " + tensors).partition(" -> ")
    return EngineLayer(
        name=name,
        kind=found[1],
        inputs=tuple(_plain_tensors(inputs)),
        outputs=tuple(_plain_tensors(outputs)),
        nodes=name_nodes(name),
        told=False,
        tactic=tactic,
        line=line,
    )


def detailed_layer(text: str, line: int) -> EngineLayer | None:
    """The layer of a line `Name: NAME, LayerType: KIND, Inputs: [...], ...`; None if it is no such line."""
    head, kind_mark, rest = text.partition(", LayerType: ")
    kind, inputs_mark, rest = rest.partition(", Inputs: [")
    if not (head.startswith("Name: ") and kind_mark and inputs_mark):
        return None
    inputs, _, rest = rest.partition("], Outputs: [")
    outputs = rest.partition("], ")[0] if "}], " not in rest else rest.partition("}], ")[0] + "}"
    name = head[len("Name: ") :]
    nodes = metadata_nodes(rest.rpartition(", Metadata: ")[2])
    tactic = _TACTIC.search(rest)
    return EngineLayer(
        name=name,
        kind=kind,
        inputs=tuple(_tensors_in_text(inputs.partition("], Constants: [")[0])),
        outputs=tuple(_tensors_in_text(outputs)),
        nodes=nodes or name_nodes(name),
        told=bool(nodes),
        tactic=tactic[1].strip() if tactic else "",
        line=line,
    )


def io_tensor(text: str) -> IOTensor | None:
    """The tensor of a line of the part "I/O Tensors:"; None if it is no such line."""
    found = _IO.match(text)
    if found is None:
        return None
    mode: Literal["input", "output"] = "input" if found[2] == "Input" else "output"
    return IOTensor(name=found[1], mode=mode, dtype=found[3] or "", dimensions=found[4] or "")


def type_word(text: str) -> str:
    """The type in words such as "Row major linear FP16 format"; the words themselves if there is none in them."""
    return next((dtype for word, dtype in _IN_WORDS if word in text), text)


def _plain_tensors(text: str) -> Iterator[EngineTensor]:
    start = 0
    for found in _PLAIN_TYPE.finditer(text):
        name = text[start : found.start()].strip().removeprefix(",").lstrip()
        start = found.end()
        if name:
            yield EngineTensor(name=name, dtype=found[1], dimensions=found[2])


def _tensors_in_text(text: str) -> Iterator[EngineTensor]:
    for found in filter(None, map(_TENSOR.match, text.split(_TENSOR_MARK)[1:])):
        dtype = _DATATYPE.search(found[3])
        yield EngineTensor(name=found[1], dtype=type_word(dtype[1].strip()) if dtype else "", dimensions=found[2])
