"""The nodes that an assignment names, as each tool points at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import node_name
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A node: the name it is kept by, its own (may be empty), its operator, its format, and the tensors at its border.

    `outputs` are those of floats.
    """

    key: str
    own: str
    op_type: str
    format_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def layer(self) -> str:
        """What TensorRT's ONNX parser calls the node's first layer (onnx-tensorrt, importerUtils.cpp, getNodeName)."""
        return self.own or f"node_of_{self.outputs[0] if self.outputs else ''}"


def locate_nodes(kept: Mapping[str, str], model: ir.Model) -> list[Placed]:
    """The nodes of `kept` in the order of the graph.

    Raises:
        ParityError: the model has no node of that name.
    """
    model.graph.sort()
    found: dict[str, list[Placed]] = {}
    nodes = [node for node in model.graph if node.op_type != "Constant"]
    for index, node in enumerate(nodes):
        name = node_name(node, index)
        for key in (name, f"{name}#{index}"):
            if key in kept:
                found.setdefault(key, []).append(_place_node(node, key, kept[key]))
    unknown = sorted(set(kept) - set(found))
    if unknown:
        raise ParityError(
            f"the model has no node {unknown[0]!r}", fix="take names from `parityscope run --all-tensors`"
        )
    return [placed for each in found.values() for placed in each]


def split_named(nodes: Iterable[Placed]) -> tuple[list[Placed], list[Skip]]:
    """Those that have a name of their own, and a note on those that have none."""
    every = list(nodes)
    without = [placed.key for placed in every if not placed.own]
    notes = [
        Skip(
            what=f"node {name}",
            reason="it has no name in the model, and the tool points at nodes by name",
            fix="give it one (node.name = ...) and save the model",
        )
        for name in without
    ]
    return [placed for placed in every if placed.own], notes


def refuse_other_formats(nodes: Iterable[Placed], tool: str) -> None:
    """Refuses formats other than FP32 for tools that only know "not converted".

    Raises:
        ParityError: a node is kept in another one.
    """
    for placed in nodes:
        if placed.format_name != "f32":
            raise ParityError(
                f"{tool} keeps nodes in FP32 only, and {placed.key!r} is to be in {placed.format_name}",
                fix="keep it in f32, or write a strongly typed model",
            )


def _place_node(node: ir.Node, key: str, format_name: str) -> Placed:
    return Placed(
        key=key,
        own=node.name or "",
        op_type=node.op_type,
        format_name=format_name,
        inputs=tuple(str(value.name) for value in node.inputs if value is not None),
        outputs=tuple(str(value.name) for value in node.outputs if value.name and _is_float(value)),
    )


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()
