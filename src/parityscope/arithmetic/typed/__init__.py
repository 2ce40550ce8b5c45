"""Writes a precision assignment down as a strongly typed ONNX model: Casts, and constants stored in their type.

In: a model, a low format, and the nodes that are not to be in it. Out: a model whose own types say what every node
computes in, which is all that TensorRT 11 takes, and what TensorRT 10 takes as strongly typed and ONNX Runtime as it is.

* A node computes in the low format, or in the one that `keep` gives it. Operators that only move numbers, or read them
  without giving any, are in the format of what they read; where they read several, in FP32.
* One Cast for each tensor and type that crosses from one format to another, right behind its producer; none between
  nodes of one format, none for constants. Casts of the model that have nothing left to do are taken out.
* Constants are rounded to nearest even and stored in their type, once for every format that reads them; what is lost by
  that is a note, and is not mended behind the reader's back.
* Inputs that steer an operator (scales of Resize, of quantization) and shape arithmetic stay exact. So do operators
  that have no such format at the model's opset: they stay in FP32, with a note.
* Products may take their operands in FP8 E4M3 besides (`eighths`), whatever their own format; then `low` may be "f32".
* Control flow has one format for what it takes, carries and gives, and a node inside has that unless its own name says
  otherwise; with `inside` the nodes of If, Loop and Scan are low unless their own names say so.

What the model already has in float16 or bfloat16 stays as it is. `simulation.detype` of what is written computes what
the switchable graph predicts for the same assignment, bit for bit.

Inputs and outputs of a typed model: the same names, and the types that they had.

What a typed model says about itself, and what its writer has to say beside it.

`metadata_props` of the model: `parityscope.low`, the format; `parityscope.kept`, a JSON object of the nodes that are
not in it, each with its format and the reason. Every such node carries `parityscope.kept` of its own as well.
"""

from __future__ import annotations

import json
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.graphs import Names, redirect_uses
from parityscope.arithmetic.typed._assigning import assign_formats
from parityscope.arithmetic.typed._preparing import typable_copy
from parityscope.arithmetic.typed._writing import Casting, Writing
from parityscope.arithmetic.typed.constants import HALF
from parityscope.arithmetic.typed.eighths import quantize_operands
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_numbers import list_first
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.typed._writing import Refusal
    from parityscope.arithmetic.typed.constants import RoundingLoss

__all__ = ["HALF", "KEPT_FORMATS", "TypedModel", "typed_model"]

_KEY = "parityscope.kept"
_NAMED = 5  # names that a note lists before it says how many more there are. Chosen.


def label_kept_nodes(
    model: ir.Model, low: str, kept: Mapping[ir.Node, str], names: Mapping[ir.Node, str], why: Mapping[str, str]
) -> None:
    """Writes which nodes are kept, in what and why, into the model's and the nodes' metadata."""
    told = {}
    for node, format_name in kept.items():
        name = names.get(node) or node.name or str(node.outputs[0].name)
        reason = why.get(name, "asked for")
        node.metadata_props[_KEY] = f"{format_name}: {reason}"
        told[name] = {"format": format_name, "reason": reason}
    model.metadata_props["parityscope.low"] = low
    model.metadata_props[_KEY] = json.dumps(told, sort_keys=True)


def skips_of_refused(refusals: Sequence[Refusal]) -> list[Skip]:
    """Nodes that could not be in their format, by operator and reason."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in refusals:
        grouped.setdefault((one.op_type, one.format_name, one.why), []).append(one.name)
    return [
        Skip(
            what=f"{FORMATS[held].title} of {_count_nodes(names, op_type)}: {list_first(names, _NAMED)}",
            reason=f"kept in FP32: {why}",
        )
        for (op_type, held, why), names in grouped.items()
    ]


def skips_of_parted(model: ir.Model) -> list[Skip]:
    """A note where Casts stand between DequantizeLinear and what computes with its numbers."""
    found = [
        str(user.outputs[0].name)
        for node in model.graph.all_nodes()
        if node.op_type == "DequantizeLinear"
        for user, _ in node.outputs[0].uses()
        if user.op_type == "Cast"
    ]
    if not found:
        return []
    return [
        Skip(
            what=f"{len(found)} Casts behind DequantizeLinear: {list_first(found, _NAMED)}",
            reason="a runtime that makes integer kernels of DequantizeLinear and what follows may not look through them",
            fix="keep the products that read quantized numbers in FP32",
        )
    ]


def skips_of_losses(losses: Sequence[RoundingLoss]) -> list[Skip]:
    """Constants that a format cannot hold: those that overflow one by one, those that only lose tiny values together."""
    notes = [_skip_of_overflow(loss) for loss in losses if loss.overflowing]
    for name, held in FORMATS.items():
        tiny = [loss for loss in losses if loss.format_name == name and loss.vanishing]
        if tiny:
            values = sum(loss.vanishing for loss in tiny)
            among = sum(loss.elements for loss in tiny)
            notes.append(
                Skip(
                    what=f"{values} of {among} values of {len(tiny)} constants in {held.title}: "
                    f"{list_first([loss.constant for loss in tiny], _NAMED)}",
                    reason=f"below half of {held.smallest_subnormal:.3g} they become zero of their own sign",
                )
            )
    return notes


def _skip_of_overflow(loss: RoundingLoss) -> Skip:
    held = FORMATS[loss.format_name]
    return Skip(
        what=f"{loss.overflowing} of {loss.elements} values of constant {loss.constant} in {held.title}",
        reason=f"up to {loss.largest:.3g} in magnitude, beyond {held.largest:.6g}, they become infinite",
        fix="keep the node that reads it in FP32, or bring its values into range",
    )


def _count_nodes(names: Sequence[str], op_type: str) -> str:
    return f"{len(names)} {op_type} {'node' if len(names) == 1 else 'nodes'}"


def type_outputs(model: ir.Model, names: Sequence[str], writing: Writing) -> None:
    """Gives the outputs their types and their `names`."""
    known = writing.assigning
    graph = model.graph
    for position, name in enumerate(names):
        value = graph.outputs[position]
        if value in known.origin:
            value = writing.casting.as_type(value, known.origin[value])
            graph.outputs[position] = value
        if value.name != name:
            graph.outputs[position] = _value_under_name(graph, value, name, writing)


def bypass_idle_casts(model: ir.Model) -> None:
    """Takes Casts out that have nothing left to do, unless a graph gives back what they give."""
    for node in list(model.graph.all_nodes()):
        source, graph = (node.inputs[0] if node.inputs else None), node.graph
        if node.op_type != "Cast" or node.domain or source is None or graph is None:
            continue
        result = node.outputs[0]
        if source.dtype is not None and source.dtype == result.dtype and not result.is_graph_output():
            redirect_uses(list(result.uses()), source)
            graph.remove(node, safe=True)


def told_apart(model: ir.Model) -> None:
    """Gives nodes that share a name, which ONNX Runtime refuses, names of their own."""
    taken = {node.name for node in model.graph.all_nodes()}
    seen: set[str] = set()
    for index, node in enumerate(model.graph.all_nodes()):
        name = node.name or ""
        if name and name in seen:
            numbers = (f"{name}#{number}" for number in count(index))
            node.name = next(each for each in numbers if each not in taken)
            taken.add(node.name)
        seen.add(name)


def _value_under_name(graph: ir.Graph, value: ir.Value, name: str, writing: Writing) -> ir.Value:
    """The value under `name`, which another one may have had."""
    holder = next((one for node in graph for one in node.outputs if one.name == name), None)
    if holder is not None:
        holder.name = writing.casting.names.fresh(name, "stored")
    if value.producer() is not None and sum(one is value for one in graph.outputs) == 1:
        value.name = name
        return value
    node = ir.Node("", "Identity", [value], num_outputs=1, name=f"typed::{name}")
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
    graph.append(node)
    return node.outputs[0]


KEPT_FORMATS = ("f32", "bf16", "f16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedModel:
    """A strongly typed model, how many Casts it has more than the original, and what there is to say about it.

    `formats` is what each node that decides really computes in, by its name: what `keep` says, and FP32 where the
    operator has no low format.
    """

    model: ir.Model
    casts: int
    notes: tuple[Skip, ...]
    formats: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def typed_model(
    model: ir.Model,
    low: str,
    keep: Mapping[str, str],
    *,
    reasons: Mapping[str, str] | None = None,
    products: Mapping[str, Scalings] = MappingProxyType({}),
    inside: bool = False,
) -> TypedModel:
    """A copy with its nodes in `low` but for those in `keep`, its borders as they are; `model` is only put in topological order.

    Args:
        model: The graph, in FP32 (FP64 too) or mixed already.
        low: "f16" or "bf16"; "f32" where only products change.
        keep: Names of nodes, as `case.graph.node_name` and a switchable graph give them, with "f32", "bf16" or "f16".
        reasons: Why a node is kept, by its name, for the model's metadata.
        inside: Whether nodes in the bodies of If, Loop and Scan decide for themselves, by names that are unique in the model.
        products: The products of the main graph whose operands are in FP8, by the name of the node, with their scales.

    Raises:
        ParityError: a format is not one of those, no node of that name decides, or bfloat16 needs a newer opset than
            the model can be converted to.
    """
    _check_assignment(low, keep, alone=bool(products))
    copy, notes = typable_copy(model, {low, *keep.values(), *(["f8e4m3"] if products else [])})
    before = _count_casts(copy)
    outputs = [str(value.name) for value in copy.graph.outputs]
    known = assign_formats(copy, low, keep, inside=inside)
    casting = Casting(names=Names(copy))
    writing = Writing(assigning=known, casting=casting, opsets=copy.opset_imports)
    writing.visit(copy.graph)
    unknown = sorted(set(keep) - known.used)
    if unknown:
        raise ParityError(
            f"{unknown[0]!r} is no node that has a format of its own",
            fix="take names of nodes that compute: operators that only move numbers follow what they read",
        )
    type_outputs(copy, outputs, writing)
    bypass_idle_casts(copy)
    casting.settle()
    quantize_operands(copy, model, products)
    why = {**{one.name: one.why for one in writing.refusals}, **(reasons or {})}
    label_kept_nodes(copy, low, writing.kept, {node: name for name, node in known.decided.items()}, why)
    told_apart(copy)
    return TypedModel(
        model=copy,
        casts=_count_casts(copy) - before,
        notes=(*notes, *skips_of_refused(writing.refusals), *skips_of_losses(casting.losses), *skips_of_parted(copy)),
        formats=MappingProxyType(writing.formats),
    )


def _check_assignment(low: str, keep: Mapping[str, str], *, alone: bool) -> None:
    if low not in HALF and not (low == "f32" and alone):
        raise ParityError(f"{low!r} is no format to write a model in", fix=f"use one of: {', '.join(HALF)}")
    for name, held in keep.items():
        if held not in KEPT_FORMATS:
            raise ParityError(
                f"{held!r} is no format to keep {name!r} in", fix=f"use one of: {', '.join(KEPT_FORMATS)}"
            )


def _count_casts(model: ir.Model) -> int:
    return sum(node.op_type == "Cast" and not node.domain for node in model.graph.all_nodes())
