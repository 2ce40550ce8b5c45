"""An IR -> an ONNX file that computes the same, whose values and nodes are called as in the IR.

It is written for the opset of the reference, so that differences can be put into the reference's file, and lies in a folder of
this process. What an operator cannot be said by is a node in `UNREAD`, with its inputs and results.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from parityscope.backends.openvino_ir.bodies import RECURRENT, translators_of_bodies
from parityscope.backends.openvino_ir.operators import ELEMENT_TYPES, SAME, TRANSLATORS
from parityscope.backends.openvino_ir.reading import read_openvino_file
from parityscope.backends.openvino_ir.writing import OnnxWriter, UntranslatedError
from parityscope.case.mending import UNREAD
from parityscope.errors import ParityError
from parityscope.private_folders import lasting_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.backends.openvino_ir.operators import Translator

_OLDEST = 13  # the opset from which on axes may be inputs and every type has its operators
_IR_VERSION = 10
_PACKED = {"i4": np.int8, "u4": np.uint8, "i2": np.int8, "u2": np.uint8, "u1": np.uint8}  # as one element a byte
_INTEGERS = frozenset({"i8", "u8", *_PACKED})
_INLINE = 1 << 26  # bytes of constants, chosen: more lie in a file beside the graph, which holds 2 GiB at most


def translated_file(path: Path, opset: int) -> Path:
    """The ONNX file of an IR; the same one as long as both its files are the same.

    Raises:
        ParityError: OpenVINO is not there, or cannot read it.
    """
    marks = []
    for one in (path, path.with_suffix(".bin")):
        try:
            found = one.stat()
        except OSError:
            continue
        marks.append((str(one.absolute()), found.st_ino, found.st_size, found.st_mtime_ns))
    return _translate_once(path, max(opset, _OLDEST), tuple(marks))


@functools.lru_cache(maxsize=8)
def _translate_once(path: Path, opset: int, marks: tuple[Any, ...]) -> Path:
    try:
        import openvino as ov
    except ImportError as error:
        raise ParityError(
            f"{path.name} is a model of OpenVINO, which cannot be imported: {error}",
            where=str(path),
            fix="pip install 'parityscope[openvino]'",
        ) from error
    if not path.is_file():
        raise ParityError(f"there is no model at {path}", where=str(path), fix="give the .xml, with its .bin beside it")
    model = _write_model(read_openvino_file(ov.Core(), path), opset, path)
    name = hashlib.sha256(repr(marks).encode()).hexdigest()[:16]
    found = lasting_folder("translated") / f"{path.stem}-{opset}-{name}.onnx"
    held = sum(len(one.raw_data) for one in model.graph.initializer)
    onnx.save(model, found, save_as_external_data=held > _INLINE, location=f"{found.stem}.bin", size_threshold=1024)
    return found


def _write_model(model: Any, opset: int, path: Path) -> onnx.ModelProto:
    write, names = OnnxWriter(opset), _Names(model)
    write.taken |= names.all
    inputs = []
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind == "Parameter":
            inputs.append(_declare_value(names.name_of(node.output(0)), node.output(0), path))
        elif kind == "Constant":
            array = _constant_of(node)
            if array is not None:
                write.add_constant(array, names.name_of(node.output(0)))
            else:
                _write_unread(write, OpenvinoNode(node, names))
        elif kind != "Result":
            _write_operation(write, OpenvinoNode(node, names))
    order = {names.name_of(one): place for place, one in enumerate(model.inputs)}
    inputs.sort(key=lambda value: order.get(value.name, len(order)))
    outputs = []
    for port in model.outputs:
        source = names.name_of(port.get_node().input_value(0))
        name = names.outputs[port.get_node().get_friendly_name()]
        if name != source:
            write.nodes.append(helper.make_node("Identity", [source], [name]))
        outputs.append(_declare_value(name, port, path))
    read = {name for node in write.nodes for name in node.input}
    constants = [one for one in write.constants if one.name in read]
    graph = helper.make_graph(write.nodes, path.stem, inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset)]
    if any(node.domain == UNREAD for node in write.nodes):
        imports.append(helper.make_opsetid(UNREAD, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION, producer_name="openvino")


class _Names:
    """What values are called: by a name that they have, that of an output first."""

    def __init__(self, model: Any) -> None:
        self.outputs: dict[str, str] = {}
        self._known: dict[tuple[str, int], str] = {}
        self.all: set[str] = set()
        for port in model.outputs:
            node = port.get_node()
            source = node.input_value(0)
            name = min(port.get_names() or source.get_names() or {node.get_friendly_name()})
            key = _key_of_port(source)
            while name in self.all:
                name += "'"
            self.outputs[node.get_friendly_name()] = name
            self.all.add(name)
            if source.get_node().get_type_name() != "Parameter":
                self._known.setdefault(key, name)

    def name_of(self, port: Any) -> str:
        """The name of a value."""
        key = _key_of_port(port)
        if key not in self._known:
            name = min(port.get_names())
            while name in self.all:
                name += "'"
            self.all.add(name)
            self._known[key] = name
        return self._known[key]


def _key_of_port(port: Any) -> tuple[str, int]:
    return port.get_node().get_friendly_name(), port.get_index()


class OpenvinoNode:
    """An operator of an IR as a translator sees it: its kind, the names of what it reads and gives, its attributes."""

    def __init__(self, node: Any, names: _Names | _BodyNames) -> None:
        self._node = node
        self.kind: str = node.get_type_name()
        self.name: str = node.get_friendly_name()
        self.inputs = [names.name_of(node.input_value(place)) for place in range(node.get_input_size())]
        self.outputs = [names.name_of(port) for port in node.outputs()]
        self._attributes = node.get_attributes()

    @property
    def body_holder(self) -> Any:
        """The operator of OpenVINO's, which has bodies."""
        return self._node

    def get_attribute(self, name: str, *default: Any) -> Any:
        """An attribute, as OpenVINO gives it."""
        if name not in self._attributes and not default:
            raise UntranslatedError(f"it has no {name}")
        return self._attributes.get(name, *default)

    def in_type(self, place: int) -> str:
        """The element type of an input, in OpenVINO's short words."""
        return str(self._node.input_value(place).get_element_type().get_type_name())

    def out_type(self, place: int) -> str:
        """The element type of a result."""
        return str(self._node.output(place).get_element_type().get_type_name())

    def count_readers(self, place: int) -> int:
        """How many inputs read the value that is read here."""
        return len(self._node.input_value(place).get_target_inputs())

    def in_shape(self, place: int, *, known: bool = True) -> list[int]:
        """The shape of an input, -1 for a size that is not known, which must not be if `known`."""
        shape = self._node.input_value(place).get_partial_shape()
        if shape.rank.is_dynamic:
            raise UntranslatedError("the rank of what it reads is not known")
        sizes = [-1 if one.is_dynamic else int(one.get_length()) for one in shape]
        if known and -1 in sizes:
            raise UntranslatedError("the shape of what it reads is not known")
        return sizes

    def maybe_constant(self, place: int) -> np.ndarray | None:
        """The elements of an input that is a constant, kept in another type or not."""
        source, kind = self._node.input_value(place).get_node(), self.in_type(place)
        while source.get_type_name() == "Convert":
            source = source.input_value(0).get_node()
        found = _constant_of(source) if source.get_type_name() == "Constant" else None
        wanted = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32}.get(kind)
        return found if found is None or wanted is None else found.astype(wanted)

    def known_constant(self, place: int) -> np.ndarray:
        """The elements of an input that must be a constant."""
        found = self.maybe_constant(place)
        if found is None:
            raise UntranslatedError(f"its input {place} is computed")
        return found

    def held_integers(self, place: int) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Integers of eight bits or fewer that an input comes from, and what is subtracted from them; None for another input."""
        source, zero = self._node.input_value(place).get_node(), None
        if source.get_type_name() == "Subtract":
            zero = OpenvinoNode.maybe_constant(_node_of_constants(source), 1)
            source = source.input_value(0).get_node() if zero is not None else source
        if source.get_type_name() != "Convert":
            return None
        held = source.input_value(0).get_node()
        if held.get_type_name() != "Constant" or held.get_element_type().get_type_name() not in _INTEGERS:
            return None
        values = _constant_of(held)
        return None if values is None else (values, zero)


def _node_of_constants(node: Any) -> OpenvinoNode:
    """A node of which only constants are asked."""
    found = object.__new__(OpenvinoNode)
    found._node = node
    return found


def _constant_of(node: Any) -> np.ndarray | None:
    """The elements of a Constant; None where no type of ONNX has them."""
    import ml_dtypes

    kind = node.get_element_type().get_type_name()
    if kind in _PACKED:
        return _unpack_elements(np.array(node.data), kind, list(node.get_output_shape(0)))
    if kind not in ELEMENT_TYPES or kind == "string":
        return None
    data = np.array(node.data)
    return data.view(ml_dtypes.bfloat16) if kind == "bf16" else data


def _unpack_elements(held: np.ndarray, kind: str, shape: list[int]) -> np.ndarray:
    """One element a byte of several a byte: the first in the lowest bits, of single bits in the highest."""
    bits, count = int(kind[1:]), int(np.prod(shape, dtype=np.int64))
    raw = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
    if raw.size != count:
        order = range(8 - bits, -1, -bits) if bits == 1 else range(0, 8, bits)
        raw = np.stack([(raw >> shift) & ((1 << bits) - 1) for shift in order], axis=1).reshape(-1)[:count]
        if kind.startswith("i"):
            raw = np.where(raw >> (bits - 1), raw.astype(np.int16) - (1 << bits), raw)
    return raw.astype(_PACKED[kind]).reshape(shape)


def _declare_value(name: str, port: Any, path: Path) -> onnx.ValueInfoProto:
    kind = port.get_element_type().get_type_name()
    if kind not in ELEMENT_TYPES:
        raise ParityError(
            f"{name} is {kind}, which has no type of ONNX", where=str(path), fix="convert it with another type there"
        )
    shape = port.get_partial_shape()
    sizes = None if shape.rank.is_dynamic else [None if one.is_dynamic else one.get_length() for one in shape]
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[kind], sizes)


def _write_operation(write: OnnxWriter, node: OpenvinoNode) -> None:
    first, constants, write.stem = len(write.nodes), len(write.constants), node.name
    try:
        made = _translate_node(write, node)
    except (UntranslatedError, RuntimeError, ValueError, LookupError, TypeError):  # OpenVINO's and ONNX's too
        del write.nodes[first:], write.constants[constants:]
        _write_unread(write, node)
        return
    write.name_results(made[: len(node.outputs)], node.outputs, first, node.name)


def _translate_node(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.kind in _TABLE:
        return _TABLE[node.kind](write, node)
    if node.kind not in SAME:
        raise UntranslatedError("its kind is not known")
    return write.emit(SAME[node.kind], node.inputs, outputs=len(node.outputs))


class _BodyNames:
    """What the values of a body are called: its parameters as they are `given`, others by the operator around and their own."""

    def __init__(self, stem: str, taken: set[str], given: dict[tuple[str, int], str]) -> None:
        self._stem, self._taken, self._known = stem, taken, given

    def name_of(self, port: Any) -> str:
        """The name of a value."""
        key = _key_of_port(port)
        if key not in self._known:
            name = f"{self._stem}/{key[0]}" + (f".{key[1]}" if key[1] else "")
            while name in self._taken:
                name += "'"
            self._taken.add(name)
            self._known[key] = name
        return self._known[key]


def _write_body(write: OnnxWriter, body: Any, given: Mapping[int, str]) -> list[str]:
    """Writes the nodes of a body; the names of its results.

    Raises:
        UntranslatedError: an operator in it has no translation.
    """
    stem = write.stem
    parameters = body.get_parameters()
    called = {_key_of_port(parameters[place].output(0)): name for place, name in given.items()}
    names = _BodyNames(stem, write.taken, called)
    for each in body.get_ordered_ops():
        kind = each.get_type_name()
        if kind == "Constant":
            array = _constant_of(each)
            if array is None:
                raise UntranslatedError("a constant in its body has no type of ONNX")
            write.add_constant(array, names.name_of(each.output(0)))
        elif kind not in {"Parameter", "Result"}:
            node = OpenvinoNode(each, names)
            first, write.stem = len(write.nodes), f"{stem}/{node.name}"
            made = _translate_node(write, node)
            write.name_results(made[: len(node.outputs)], node.outputs, first, f"{stem}/{node.name}")
    write.stem = stem
    return [names.name_of(one.input_value(0)) for one in body.get_results()]


_TABLE: dict[str, Translator] = {**TRANSLATORS, **RECURRENT, **translators_of_bodies(_write_body)}


def _write_unread(write: OnnxWriter, node: OpenvinoNode) -> None:
    write.nodes.append(helper.make_node(node.kind, node.inputs, node.outputs, name=node.name, domain=UNREAD))
