"""Outputs that are sequences, optionals or maps -> tensors that say the same: what they hold is compared element by element.

The graph is given nodes behind such an output, and the tensors that these give are the outputs in its place:

- a list of maps, as ZipMap gives for classifiers: a matrix under the output's name, a column for each key in sorted order, and
  the keys as `NAME[keys]`. Two files that list the same classes in another order are the same.
- a sequence that is put together of single tensors: each under its place, `NAME[0]`, `NAME[1]` ...
- any other sequence or optional: all numbers one after the other as `NAME[values]`, and the shapes that they have, one after the
  other, as `NAME[shapes]`. An optional that holds nothing has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from parityscope.case.declaring import gives_other_values
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_ML = "ai.onnx.ml"
_KEYS = ("classlabels_int64s", "classlabels_strings")


def open_outputs(message: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """A copy of the message with tensors as outputs.

    Raises:
        ParityError: a map is made by no ZipMap, so that its keys are not known.
    """
    model = onnx.ModelProto()
    model.CopyFrom(message)
    makers = {name: node for node in model.graph.node for name in node.output if name}
    outputs = list(model.graph.output)
    del model.graph.output[:]
    for value in outputs:
        work = _Opening(model.graph, value.name)
        if not gives_other_values(onnx.GraphProto(output=[value])):
            model.graph.output.append(value)
        elif (maker := makers.get(value.name)) is not None and maker.op_type == "ZipMap" and maker.domain == _ML:
            model.graph.output.extend(work.open_map(maker))
        elif maker is not None and maker.op_type == "SequenceConstruct":
            model.graph.output.extend(work.name_elements(maker, value.type.sequence_type.elem_type))
        else:
            model.graph.output.extend(work.open_value(value, path))
    read = {name for node in model.graph.node for name in node.input}
    for node in [node for node in model.graph.node if node.op_type == "ZipMap" and not read & set(node.output)]:
        model.graph.node.remove(node)
    return model


class _Opening:
    """The nodes behind one output; names begin with its."""

    def __init__(self, graph: onnx.GraphProto, name: str) -> None:
        self.graph, self.name = graph, name

    def open_map(self, node: onnx.NodeProto) -> list[onnx.ValueInfoProto]:
        """The matrix that a ZipMap reads, its columns in the order of the sorted keys, and these."""
        attribute = next(one for one in node.attribute if one.name in _KEYS and (one.ints or one.strings))
        keys = list(attribute.ints) or [one.decode("utf-8", "replace") for one in attribute.strings]
        order = sorted(range(len(keys)), key=lambda place: keys[place])
        name, held = (
            f"{self.name}[keys]",
            np.array([keys[place] for place in order], object if attribute.strings else np.int64),
        )
        kind = TensorProto.STRING if attribute.strings else TensorProto.INT64
        values = self.name
        if list(order) == list(range(len(keys))):
            made = helper.make_node("Identity", [node.input[0]], [values], name=values)
        else:
            places = self._add_constant("order", np.array(order, np.int64))
            made = helper.make_node("Gather", [node.input[0], places], [values], name=values, axis=-1)
        node.output[0] = f"{self.name}::maps"
        given = self._add_constant("keys", held)
        self.graph.node.extend([made, helper.make_node("Identity", [given], [name], name=name)])
        return [
            helper.make_tensor_value_info(values, TensorProto.FLOAT, [None, len(keys)]),
            helper.make_tensor_value_info(name, kind, [len(keys)]),
        ]

    def name_elements(self, node: onnx.NodeProto, kind: onnx.TypeProto) -> list[onnx.ValueInfoProto]:
        """Each tensor that a sequence is put together of."""
        found = []
        for place, source in enumerate(node.input):
            name = f"{self.name}[{place}]"
            self.graph.node.append(helper.make_node("Identity", [source], [name], name=name))
            found.append(onnx.ValueInfoProto(name=name, type=kind))
        return found

    def open_value(self, value: onnx.ValueInfoProto, path: Path) -> list[onnx.ValueInfoProto]:
        """All numbers of an output and all shapes, one after the other."""
        nodes: list[onnx.NodeProto] = []
        element = _element_type(value.type)
        if element is None:
            raise ParityError(
                f"nothing could be compared: the keys of the map {value.name!r} are not known",
                where=str(path),
                fix="cut the model before it, so that its outputs are tensors or maps that a ZipMap makes",
                incomparable=True,
            )
        results = self._flatten(value.name, value.type, element, nodes)
        names = [f"{self.name}[values]", f"{self.name}[shapes]"]
        nodes += [
            helper.make_node("Identity", [one], [name], name=name) for one, name in zip(results, names, strict=True)
        ]
        self.graph.node.extend(nodes)
        kinds = (element, TensorProto.INT64)
        return [helper.make_tensor_value_info(name, kind, [None]) for name, kind in zip(names, kinds, strict=True)]

    def _flatten(self, source: str, kind: onnx.TypeProto, element: int, nodes: list[onnx.NodeProto]) -> tuple[str, str]:
        """The names of all numbers and of all shapes of `source`, whatever it is."""
        stem = f"{source}::{len(source)}" if "::" in source else f"{source}::"
        which = kind.WhichOneof("value")
        if which == "tensor_type":
            line = self._add_constant("line", np.array([-1], np.int64))
            nodes.append(helper.make_node("Reshape", [source, line], [f"{stem}flat"]))
            nodes.append(helper.make_node("Shape", [source], [f"{stem}shape"]))
            return f"{stem}flat", f"{stem}shape"
        empty = self._add_constant("nothing", np.zeros(0, _numpy_of(element)))
        nowhere = self._add_constant("no_shape", np.zeros(0, np.int64))
        results = f"{stem}values", f"{stem}shapes"
        inner: list[onnx.NodeProto] = []
        if which == "optional_type":
            item = f"{stem}held"
            inner.append(helper.make_node("OptionalGetElement", [source], [item]))
            found = self._flatten(item, kind.optional_type.elem_type, element, inner)
            there = _body("there", inner, [], found, element)
            absent = [helper.make_node("Identity", [one], [f"{one}::{stem}"]) for one in (empty, nowhere)]
            gone = _body("gone", absent, [], [node.output[0] for node in absent], element)
            nodes.append(helper.make_node("OptionalHasElement", [source], [f"{stem}has"]))
            nodes.append(helper.make_node("If", [f"{stem}has"], results, then_branch=there, else_branch=gone))
            return results
        turn, go, before = f"{stem}turn", f"{stem}go", [f"{stem}before", f"{stem}shapes_before"]
        item = f"{stem}item"
        inner.append(helper.make_node("SequenceAt", [source, turn], [item]))
        found = self._flatten(item, kind.sequence_type.elem_type, element, inner)
        after = [f"{stem}after", f"{stem}shapes_after"]
        inner += [
            helper.make_node("Concat", [old, new], [both], axis=0)
            for old, new, both in zip(before, found, after, strict=True)
        ]
        inner.append(helper.make_node("Identity", [go], [f"{stem}on"]))
        body = _body("each", inner, [turn, go, *before], [f"{stem}on", *after], element)
        nodes.append(helper.make_node("SequenceLength", [source], [f"{stem}count"]))
        nodes.append(helper.make_node("Loop", [f"{stem}count", "", empty, nowhere], results, body=body))
        return results

    def _add_constant(self, what: str, array: np.ndarray) -> str:
        name = f"{self.name}::{what}"
        if all(one.name != name for one in self.graph.initializer):
            self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name


def _body(
    name: str, nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str], element: int
) -> onnx.GraphProto:
    """A body that reads a turn and a condition first, if anything, and whose last two values are numbers and shapes."""
    kinds = [TensorProto.INT64, TensorProto.BOOL, element, TensorProto.INT64]
    shapes: list[list[None]] = [[], [], [None], [None]]
    declared = list(zip(kinds, shapes, strict=True))
    reads = [helper.make_tensor_value_info(one, *kind) for one, kind in zip(inputs, declared, strict=False)]
    gives = [
        helper.make_tensor_value_info(one, *kind) for one, kind in zip(outputs, declared[-len(outputs) :], strict=True)
    ]
    return helper.make_graph(nodes, name, reads, gives)


def _element_type(kind: onnx.TypeProto) -> int | None:
    """The element type of what lies innermost; None where that is a map."""
    while (which := kind.WhichOneof("value")) in {"sequence_type", "optional_type"}:
        kind = getattr(kind, which).elem_type
    return int(kind.tensor_type.elem_type) if which == "tensor_type" else None


def _numpy_of(element: int) -> np.dtype[np.generic]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element))
