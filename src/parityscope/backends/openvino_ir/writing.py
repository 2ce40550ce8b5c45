"""Nodes and constants of an ONNX graph, written one after the other for one opset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence


class UntranslatedError(Exception):
    """An operator cannot be said in those of ONNX; the text says why."""


class OnnxWriter:
    """The nodes and constants so far. `emit` puts each parameter where the opset has it: it is an attribute, or an input."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.taken: set[str] = set()
        self.stem = ""

    def knows(self, op_type: str) -> bool:
        """Whether the opset has an operator."""
        return onnx.defs.has(op_type, self.opset)

    def emit(self, op_type: str, inputs: Sequence[str], *, outputs: int = 1, **parameters: Any) -> list[str]:
        """Writes a node and gives the names of its results.

        A parameter is a number, a text, a list, an array, or (`str` of a value that is computed) the name of an input; None is
        left out.

        Raises:
            UntranslatedError: the opset lacks the operator, or computes no such parameter.
        """
        if not self.knows(op_type):
            raise UntranslatedError(f"opset {self.opset} has no {op_type}")
        schema = onnx.defs.get_schema(op_type, self.opset)
        places = {one.name: place for place, one in enumerate(schema.inputs)}
        given, attributes = list(inputs), {}
        for name, value in parameters.items():
            if value is None:
                continue
            if name in schema.attributes:
                if isinstance(value, str) and schema.attributes[name].type != onnx.defs.OpSchema.AttrType.STRING:
                    raise UntranslatedError(f"{name} of {op_type} is computed, and opset {self.opset} has it fixed")
                attributes[name] = value.tolist() if isinstance(value, np.ndarray) else value
            elif name in places:
                given += [""] * (places[name] + 1 - len(given))
                given[places[name]] = value if isinstance(value, str) else self.add_constant(value)
            else:
                raise UntranslatedError(f"{op_type} of opset {self.opset} has no {name}")
        made = [self.fresh_name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, given, made, name=made[0], **attributes))
        return made

    def emit_one(self, op_type: str, *inputs: str, **parameters: Any) -> str:
        """The one result of a node."""
        return self.emit(op_type, inputs, **parameters)[0]

    def add_constant(self, value: Any, name: str = "") -> str:
        """A constant; plain integers are int64 and plain numbers float32."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        name = name or self.fresh_name()
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def fresh_name(self) -> str:
        """A name that no value has, after the operator that is being said."""
        count = 1
        while (name := f"{self.stem}/{count}") in self.taken:
            count += 1
        self.taken.add(name)
        return name

    def name_results(self, made: Sequence[str], wanted: Sequence[str], first: int, name: str) -> None:
        """Gives results their names: those of nodes from `first` on are renamed, others passed on; the last node is `name`."""
        own = {output for node in self.nodes[first:] for output in node.output}
        called = {old: new for old, new in zip(made, wanted, strict=True) if old in own and made.count(old) == 1}
        for node in self.nodes[first:]:
            for field in (node.input, node.output):
                field[:] = [called.get(each, each) for each in field]
        for old, new in zip(made, wanted, strict=True):
            if old not in called:
                self.nodes.append(helper.make_node("Identity", [old], [new]))
        if len(self.nodes) > first:
            self.nodes[-1].name = name
