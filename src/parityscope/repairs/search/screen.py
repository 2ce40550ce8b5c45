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
from parityscope.light_dataclasses import replace
from parityscope.operators import STANDARD, of_exactness, of_kind, with_trait
from parityscope.repairs.search.records import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import MagnitudeRange

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
    screen = RangeScreen(model, lambda value: ranges.get(str(value.name)), format_named(low), margin)
    lost = screen.vanishing(model.graph)
    found: list[Flag] = []
    for index, node in enumerate(computing_nodes(model)):
        name = node_name(node, index)
        reasons = (
            *_flag_by_operator(node, name, unwritable, screen.number_format),
            *(replace(one, node=name, text=f"it {one.text}") for one in screen.reasons(node, lost)),
            *([within[name]] if name in within else []),
        )
        found.extend(reasons[:1])
        for inner in inner_nodes(node):
            own = inner.name or ""
            beside = (
                *_flag_by_operator(inner, own, unwritable, screen.number_format),
                *([within[own]] if own in within else []),
            )
            found.extend(beside[:1])
    return tuple(found)


def _flag_by_operator(node: ir.Node, name: str, unwritable: Collection[str], number_format: Format) -> Iterator[Flag]:
    if name in unwritable:
        text = f"{node.op_type} has no {number_format.title} at this opset"
        yield Flag(node=name, op_type=node.op_type, blame="operator", text=text)


class RangeScreen:
    """Why the numbers of a node cannot be in a format: `known` gives the range of a value, `margin` as `flag_nodes` has it."""

    def __init__(
        self, model: ir.Model, known: Callable[[ir.Value], MagnitudeRange | None], number_format: Format, margin: float
    ) -> None:
        self.number_format = number_format
        self._known, self._margin = known, margin
        self._parameters = {one.name: one for one in changed_parameters(model, number_format)}
        self._exact = exact_uses(model)

    def vanishing(self, nodes: Iterable[ir.Node]) -> dict[ir.Value, float]:
        """Tensors with elements that round to zero and reach a pole among `nodes`, with their smallest magnitude."""
        return _vanishing_tensors(nodes, self._known, self.number_format)

    def reasons(self, node: ir.Node, lost: Mapping[ir.Value, float]) -> Iterator[Flag]:
        """Flags by what a node reads and gives, the gravest first, that name it nowhere; `lost` is what vanishes around it."""
        reads = [
            value for place, value in enumerate(node.inputs) if value is not None and (node, place) not in self._exact
        ]
        for value in reads:
            yield from self._by_parameter(node, value)
        for value in (*node.outputs, *reads):
            yield from self._by_size(node, value)
        for value in (one for one in (*node.outputs, *node.inputs) if one is not None):
            if value in lost:
                text = (
                    f"{_verb(node, value)} {lost[value]:.3g}, which becomes 0 in {self.number_format.title} on its way to a "
                    "denominator, logarithm or root"
                )
                yield self._flag(node, value, text, lost[value])

    def _by_parameter(self, node: ir.Node, value: ir.Value) -> Iterator[Flag]:
        changed, title = self._parameters.get(str(value.name)), self.number_format.title
        if changed is None:
            return
        if changed.overflowed:
            fate = f"{changed.value:.4g}, beyond {title}'s {self.number_format.largest:.5g}"
        elif changed.flushed == changed.elements:
            fate = f"{changed.value:.3g}, which becomes 0 in {title}"
        else:
            return
        yield replace(self._flag(node, value, f"reads {changed.role} {fate}", changed.value), blame="parameter")

    def _by_size(self, node: ir.Node, value: ir.Value) -> Iterator[Flag]:
        held, most = self._known(value), self.number_format.largest
        if held is None or not is_float(value) or held.largest * self._margin <= most:
            return
        beyond = held.largest > most
        where = "beyond" if beyond else f"within a factor {self._margin:g} of"
        text = f"{_verb(node, value)} {held.largest:.4g}, {where} {self.number_format.title}'s {most:.5g}"
        yield replace(self._flag(node, value, text, held.largest), overflows=beyond)

    def _flag(self, node: ir.Node, value: ir.Value, text: str, size: float) -> Flag:
        return Flag(node="", op_type=node.op_type, blame="activation", text=text, tensor=str(value.name), value=size)


def _verb(node: ir.Node, value: ir.Value) -> str:
    return "gives" if value.producer() is node else "reads"


def _vanishing_tensors(
    nodes: Iterable[ir.Node], range_of: Callable[[ir.Value], MagnitudeRange | None], number_format: Format
) -> dict[ir.Value, float]:
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
