"""A file -> a `Sheet`: every node with its place, every constant with its numbers, read once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic import format_named
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.scanning import Numbers, float_numbers, integer_numbers
from parityscope.case.graph import named_bodies
from parityscope.case.model import dtype_name, read_graph
from parityscope.errors import ParityError
from parityscope.linting.records import FileConstant, Place, Sheet
from parityscope.operators import of_kind, with_trait
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from parityscope.arithmetic import Format

_FEW = 4096  # elements that rules may look at one by one; chosen: every scalar, row of channels and small table
_LARGE_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32})
_SIXTEEN_BITS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
# ConstantOfShape fills a tensor with one number: it is read as a constant of one element.
_MAKE = frozenset({"Constant", "ConstantOfShape"})
# These read or write 16-bit floats without computing in them: a file that only stores weights so computes in FP32.
_STORES = with_trait("computes nothing") | of_kind("control flow") | {"DequantizeLinear"}


def read_sheet(path: str | Path, formats: Sequence[str]) -> Sheet:
    """Reads the file at `path`; a constant whose data cannot be read becomes a `Skip`.

    Raises:
        ParityError: there is no such file or format, or it is no ONNX model.
    """
    path = Path(path)
    wanted = tuple(dict.fromkeys(format_named(name) for name in formats))
    model = read_graph(path)
    model.graph.sort()
    infer_types(model)
    places = tuple(_places_of_nodes(model))
    skipped: list[Skip] = []
    constants = tuple(_constants_of_model(model, wanted, skipped))
    return Sheet(
        path=path,
        nbytes=path.stat().st_size + _external_nbytes(constants),
        model=model,
        formats=wanted,
        places=places,
        constants=constants,
        typed=_typed_formats(places),
        skipped=tuple(skipped),
        by_value={id(constant.value): constant for constant in constants},
        by_node={id(place.node): place for place in places},
    )


def _places_of_nodes(model: ir.Model) -> Iterator[Place]:
    index = -1
    for node in model.graph:
        if node.op_type == "Constant":
            continue
        index += 1  # as in case.graph: Constant nodes do not count
        yield from _places_with_bodies(node, node.name or f"{node.op_type}#{index}", index, "")
    for function in model.functions.values():
        for position, node in enumerate(function):
            if node.op_type != "Constant":
                yield from _places_with_bodies(node, node.name or f"{node.op_type}#{position}", -1, function.name)


def _places_with_bodies(node: ir.Node, name: str, index: int, inside: str) -> Iterator[Place]:
    yield Place(node=node, name=name, index=index, inside=inside)
    for label, body in named_bodies(node):
        # The name of a node that has none of its own tells already what it is inside of.
        path = f"{inside}/{name}/{label}".lstrip("/") if node.name else f"{name}/{label}"
        for position, inner in enumerate(body):
            if inner.op_type != "Constant":
                unnamed = f"{path}/{inner.op_type}#{position}"
                yield from _places_with_bodies(inner, inner.name or unnamed, index, path)


def _constants_of_model(model: ir.Model, formats: tuple[Format, ...], skipped: list[Skip]) -> Iterator[FileConstant]:
    for label, graph in _all_graphs(model):
        held = [(value, value.const_value) for value in getattr(graph, "initializers", {}).values()]
        held += [(node.outputs[0], _tensor_in_node(node)) for node in graph if node.op_type in _MAKE and node.outputs]
        for value, tensor in held:
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            try:
                yield _read_constant(value, tensor, formats, label)
            except (OSError, ValueError, TypeError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                fix = "put the data file back beside the model, whole, under the name that the model gives"
                skipped.append(Skip(what=f"constant {value.name}", reason=reason, fix=fix, asked=True))


def _all_graphs(model: ir.Model) -> Iterator[tuple[str, Iterable[ir.Node]]]:
    """The main graph, every body and every function, with the path of what holds each."""
    stack: list[tuple[str, Iterable[ir.Node]]] = [("", model.graph)]
    stack.extend((function.name, function) for function in model.functions.values())
    while stack:
        label, graph = stack.pop()
        yield label, graph
        for node in graph:
            stack.extend(
                (f"{label}/{node.name or node.op_type}/{name}".lstrip("/"), body) for name, body in named_bodies(node)
            )


def _tensor_in_node(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None for strings and for attributes of a function's caller."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value":
            return attribute.as_tensor()
        if name in {"value_float", "value_floats"}:
            return ir.tensor(np.asarray(attribute.value, np.float32), name=node.outputs[0].name)
        if name in {"value_int", "value_ints"}:
            return ir.tensor(np.asarray(attribute.value, np.int64), name=node.outputs[0].name)
    return None


def _read_constant(value: ir.Value, tensor: ir.TensorProtocol, formats: tuple[Format, ...], label: str) -> FileConstant:
    few = tensor.size <= _FEW
    array: np.ndarray | None = None
    numbers = Numbers(losses={})
    if tensor.dtype.is_floating_point():
        array = tensor.numpy()
        numbers = float_numbers([array], _narrower_formats(formats, tensor.dtype))
    elif few or tensor.dtype in _LARGE_INTEGERS:
        array = tensor.numpy()
        numbers = integer_numbers(array)
    kept = np.array(array) if few and array is not None else None
    if isinstance(tensor, ir.ExternalTensor):
        array = None
        tensor.release()  # the next constant maps the file anew: memory stays at one constant
    return FileConstant(
        name=str(value.name),
        value=value,
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape.numpy()),
        size=tensor.size,
        numbers=numbers,
        few=kept,
        inside=label,
    )


def _narrower_formats(formats: tuple[Format, ...], dtype: ir.DataType) -> tuple[Format, ...]:
    """The formats that do not hold every number of `dtype`."""
    try:
        own = format_named(dtype_name(dtype))
    except ParityError:  # float4, or float8 without zero: smaller than anything asked for
        return ()
    return tuple(each for each in formats if not each.contains(own))


def _typed_formats(places: Sequence[Place]) -> frozenset[str]:
    found: set[str] = set()
    for place in places:
        if place.node.op_type not in _STORES:
            types = {None if value is None else value.dtype for value in place.node.inputs}
            found.update(dtype_name(dtype) for dtype in types & _SIXTEEN_BITS if dtype is not None)
    return frozenset(found)


def _external_nbytes(constants: Sequence[FileConstant]) -> int:
    return sum(
        constant.value.const_value.nbytes
        for constant in constants
        if isinstance(constant.value.const_value, ir.ExternalTensor)
    )
