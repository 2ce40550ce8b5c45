"""One FP32 run per sample: which nodes cannot be low whatever else is, and what is to blame.

* parameter: a constant (initializer or Constant node) overflows in the format, or vanishes as a whole (an epsilon);
* activation: a tensor that the node reads or writes is larger than the format's largest number over the margin, or one
  that goes into a denominator, a logarithm or a root underflows to zero on its way there;
* operator: it has no such format at the model's opset, by its ONNX schema (`arithmetic.typed` knows).

Integers are never looked at: a token number above 65504 keeps no table in FP32. What steers an operator (the scales of
Resize) is kept by engines.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic import format_named
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.gating import inner_nodes
from parityscope.arithmetic.sites import exact_uses, is_float
from parityscope.case.graph import computing_nodes, constant_value, node_name
from parityscope.expectation.lockstep import LockstepPlan, run_layers
from parityscope.expectation.parameters import changed_parameters
from parityscope.operators import STANDARD, of_exactness, of_kind, with_trait
from parityscope.repairs.search.records import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import ChangedParameter, MagnitudeRange

__all__ = ["flag_nodes", "ranges_of", "vanishing_tensors"]

_NONE: Mapping[str, Flag] = MappingProxyType({})

# Operators and inputs that a zero sends to infinity or NaN; and the root, which makes of squares that vanished a zero where
# a number of the format stood: sqrt(x²) is 0 in FP16 for every x below 1.7e-4.
_POLES = {one.name: one.pole for one in STANDARD.values() if one.pole is not None and one.name != "Pow"} | {"Sqrt": 0}
# What may stand between the tensor that underflows and the pole: x² -> mean -> + epsilon -> root -> divisor.
_SUMS = (of_kind("reduction") & of_exactness("sums")) - {"ReduceL1", "ReduceLogSumExp"}
_ON_THE_WAY = _SUMS | with_trait("guards") | {"Mul", "Pow"} | {"Sqrt"}
# Small terms of what does not vanish itself may vanish without harm: 1 + r², or max(x, a number).
_COVERING = _SUMS | with_trait("guards")


def ranges_of(model: Model, inputs: Inputs, threads: int, progress: Progress) -> dict[str, MagnitudeRange]:
    """The range of every float tensor that nodes compute, over all samples of `inputs`.

    Raises:
        ParityError: the reference cannot run.
    """
    plan = LockstepPlan(model=model, inputs=inputs, targets={}, threads=threads, introduced=False)
    return run_layers(plan, progress).ranges


def flag_nodes(
    model: ir.Model,
    ranges: Mapping[str, MagnitudeRange],
    low: str,
    margin: float,
    unwritable: Collection[str] = (),
    within: Mapping[str, Flag] = _NONE,
) -> tuple[Flag, ...]:
    """The nodes that must stay in full precision, each once, in topological order, those of bodies behind the one around.

    `model` has uniquely named nodes; `margin` is by how much another sample may exceed the ranges seen; `unwritable`
    are the nodes whose operator has no such format; `within` are flags that bodies raise (`within.flagged_within`).
    """
    infer_types(model)
    number_format = format_named(low)
    parameters = {one.name: one for one in changed_parameters(model, number_format)}
    exact = exact_uses(model)
    lost = vanishing_tensors(model.graph, lambda value: ranges.get(str(value.name)), number_format)
    found: list[Flag] = []
    for index, node in enumerate(computing_nodes(model)):
        name = node_name(node, index)
        reasons = (
            *_flag_by_operator(node, name, unwritable, number_format),
            *_flag_by_parameter(node, name, parameters, exact, number_format),
            *_flag_by_activation(node, name, ranges, exact, number_format, margin),
            *_flag_by_underflow(node, name, lost, number_format),
            *([within[name]] if name in within else []),
        )
        found.extend(reasons[:1])
        for inner in inner_nodes(node):
            own = inner.name or ""
            beside = (
                *_flag_by_operator(inner, own, unwritable, number_format),
                *([within[own]] if own in within else []),
            )
            found.extend(beside[:1])
    return tuple(found)


def _flag_by_operator(node: ir.Node, name: str, unwritable: Collection[str], number_format: Format) -> Iterator[Flag]:
    if name in unwritable:
        text = f"{node.op_type} has no {number_format.title} at this opset"
        yield Flag(node=name, op_type=node.op_type, blame="operator", text=text)


def _flag_by_parameter(
    node: ir.Node,
    name: str,
    parameters: Mapping[str, ChangedParameter],
    exact: frozenset[tuple[ir.Node, int]],
    number_format: Format,
) -> Iterator[Flag]:
    for index, value in enumerate(node.inputs):
        changed = parameters.get(str(value.name)) if value is not None and (node, index) not in exact else None
        if changed is None:
            continue
        if changed.overflowed:
            text = f"its {changed.role} holds {changed.value:.4g}, beyond {number_format.title}'s {number_format.largest:.5g}"
        elif changed.flushed == changed.elements:
            text = f"its {changed.role} {changed.value:.3g} becomes 0 in {number_format.title}"
        else:
            continue
        yield Flag(
            node=name, op_type=node.op_type, blame="parameter", text=text, tensor=changed.name, value=changed.value
        )


def _flag_by_activation(
    node: ir.Node,
    name: str,
    ranges: Mapping[str, MagnitudeRange],
    exact: frozenset[tuple[ir.Node, int]],
    number_format: Format,
    margin: float,
) -> Iterator[Flag]:
    reads = [value for index, value in enumerate(node.inputs) if value is not None and (node, index) not in exact]
    for value, verb in [*((one, "gives") for one in node.outputs), *((one, "reads") for one in reads)]:
        held = ranges.get(str(value.name))
        if held is None or not is_float(value) or held.largest * margin <= number_format.largest:
            continue
        beyond = held.largest > number_format.largest
        where = "beyond" if beyond else f"within a factor {margin:g} of"
        yield Flag(
            node=name,
            op_type=node.op_type,
            blame="activation",
            text=f"it {verb} {held.largest:.4g}, {where} {number_format.title}'s {number_format.largest:.5g}",
            tensor=str(value.name),
            value=held.largest,
            overflows=beyond,
        )


def _flag_by_underflow(
    node: ir.Node, name: str, lost: Mapping[ir.Value, float], number_format: Format
) -> Iterator[Flag]:
    for value in (*node.outputs, *node.inputs):
        if value is not None and value in lost:
            yield Flag(
                node=name,
                op_type=node.op_type,
                blame="activation",
                text=f"{lost[value]:.3g} becomes 0 in {number_format.title} on its way to a denominator, logarithm or root",
                tensor=str(value.name),
                value=lost[value],
            )


def vanishing_tensors(
    nodes: Iterable[ir.Node], range_of: Callable[[ir.Value], MagnitudeRange | None], number_format: Format
) -> dict[ir.Value, float]:
    """Tensors with elements that round to zero and reach a pole among `nodes`, with their smallest magnitude."""
    found: dict[ir.Value, float] = {}
    stack = [
        node.inputs[_POLES[node.op_type]]
        for node in nodes
        if node.op_type in _POLES and len(node.inputs) > _POLES[node.op_type]
    ]
    seen: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value is None or value in seen or constant_value(value) is not None:
            continue
        seen.add(value)
        held = range_of(value)
        # Exact zeros are the model's own; only what becomes zero by rounding is lost.
        if held is not None and held.smallest and held.to_zero(number_format) < 0:
            found[value] = held.smallest
        producer = value.producer()
        harmless = producer is not None and producer.op_type in _COVERING and value not in found
        if producer is not None and producer.op_type in _ON_THE_WAY and not harmless:
            stack.extend(producer.inputs)
    return found
