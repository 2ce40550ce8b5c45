"""An epsilon vanishes in the number format.

What goes wrong: a small constant guards a division, a logarithm or a square root against zero: x / sqrt(v + 1e-12),
log(p + 1e-10). In FP16 what is at most 2^-25 = 3e-8 becomes 0 and guards nothing; what is below 6.1e-5 is subnormal and
keeps fewer digits. Converters that replace vanishing numbers by the smallest subnormal (6e-8) change the function
instead: log(6e-8) is -16.6, log(1e-10) is -23.

How it shows: NaN or infinity where the guarded value is exactly zero, or underflows to zero (a variance below 3e-8, a
probability below 3e-8); else nothing.

How we test for it: constants that are added to, or bound (Max, Clip) a value which then goes into Log, Sqrt, Pow,
Reciprocal or a divisor. It is a cause where the guarded value surely reaches zero (it comes from Relu, Softmax, a
Clip at zero, a boolean); else it contributes, as only data can tell. Subnormal ones, and epsilon attributes of
normalization operators (whose kernels hold them in FP32), are information.

What it is confused with: activations beyond range (RNG002), which a vanished epsilon leads to.

How to repair: raise it to a number that the format holds, with care (the function changes), keep the nodes from the
addition to the division in FP32, or use BF16, whose smallest number is FP32's.

Sources: IEEE 754-2019, sections 7.3 (division by zero) and 7.5 (underflow); ONNX Runtime, float16.py
(min_positive_val 5.96e-8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.scanning import value_in_format
from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, make_finding, name_places, offer_by_hand, offer_proof
from parityscope.linting._walk import attribute_value, computing_readers, kept_in_fp32, node_behind, number_of
from parityscope.operators import with_trait
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding, OfferedRepair, Role

_GUARDING = with_trait("guards")
_LARGEST_EPSILON = 1e-2  # chosen: what is larger changes the function visibly and guards nothing
# Operators whose output is exactly zero on ordinary data; Softmax underflows to it in 16 bits.
_ZEROS = with_trait("gives zeros")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EpsilonGuard:
    """A constant (`name`, `value` > 0) that `place` adds or bounds by, `before` the operator that must not meet zero.

    `source` is the operator that makes the guarded value and `meets_zero` whether that surely gives zeros; `kept` that
    the model keeps the node in FP32 itself.
    """

    place: Place
    name: str
    value: float
    before: str
    source: str
    meets_zero: bool
    kept: bool


def _find_guards(sheet: Sheet) -> Iterator[_EpsilonGuard]:
    """Every guard in the file."""
    for place in sheet.places:
        node = place.node
        if node.op_type not in _GUARDING or node.domain or len(node.inputs) < 2:
            continue
        for position, value in enumerate(node.inputs[:2]):
            epsilon = number_of(sheet, value)
            if epsilon is None or not 0 < epsilon < _LARGEST_EPSILON or (node.op_type == "Clip" and position != 1):
                continue
            before = _operator_guarded(sheet, node)
            if before:
                source = node_behind(node.inputs[1 - position])
                yield _EpsilonGuard(
                    place=place,
                    name=str(value.name) if value is not None else "",
                    value=epsilon,
                    before=before,
                    source=source.op_type if source is not None else "an input",
                    meets_zero=source is not None and _gives_zeros(sheet, source),
                    kept=kept_in_fp32(sheet, place, position),
                )


def _operator_guarded(sheet: Sheet, guarding: ir.Node) -> str:
    """The operator behind a node that zero would break; "" when there is none."""
    for node, position in (each for output in guarding.outputs[:1] for each in computing_readers(output)):
        if node.op_type in {"Log", "Reciprocal"} or (node.op_type == "Div" and position == 1):
            return node.op_type
        power = number_of(sheet, input_at(node, 1)) if node.op_type == "Pow" and position == 0 else None
        if power is not None and power < 0:
            return "Pow"
        root = node.op_type == "Sqrt" or (power is not None and power < 1)
        if root and (further := _operator_guarded(sheet, node)):
            return f"{node.op_type} and {further}"
    return ""


def _gives_zeros(sheet: Sheet, node: ir.Node) -> bool:
    if node.op_type == "Clip":
        return number_of(sheet, input_at(node, 1)) == 0.0
    if node.op_type == "Max":
        return any(number_of(sheet, value) == 0.0 for value in node.inputs)
    if node.op_type == "Cast":  # a boolean as 0 or 1; integers may be sizes, which are never 0
        source = node.inputs[0]
        return source is not None and source.dtype is not None and source.dtype.name == "BOOL"
    return node.op_type in _ZEROS


def _look(sheet: Sheet) -> Iterator[Finding]:
    for number_format in sheet.computing:
        groups: dict[tuple[float, str, bool], list[_EpsilonGuard]] = {}
        for guard in _find_guards(sheet):
            if guard.value < number_format.smallest_normal and not guard.kept:
                groups.setdefault((guard.value, guard.before, guard.meets_zero), []).append(guard)
        for held in groups.values():
            yield _finding_of_constant(sheet, number_format, held)
        yield from _findings_of_attributes(sheet, number_format)


def _finding_of_constant(sheet: Sheet, number_format: Format, held: list[_EpsilonGuard]) -> Finding:
    first = held[0]
    left = value_in_format(first.value, number_format)
    role: Role = "information" if left else "cause" if first.meets_zero else "contributing"
    fate = "0" if left == 0 else f"{format_number(left, digits=5)}, a subnormal number with fewer digits"
    effect = ""
    if left == 0:
        effect = (
            f". {first.source} gives exact zeros, so that {first.before} meets 0"
            if first.meets_zero
            else f". {first.before} meets 0 wherever the guarded value is 0 or underflows"
        )
    places = [guard.place for guard in held]
    return make_finding(
        role,
        (
            f"{name_places(places)}: {format_number(first.value)} guards {first.before} and becomes {fate} in "
            f"{number_format.title}{effect}"
        ),
        because=f"{number_format.title}'s smallest normal number is {format_number(number_format.smallest_normal)}, its smallest "
        f"number {format_number(number_format.smallest_subnormal)}; half of that and less rounds to 0",
        places=places,
        details={
            "parameter": first.name,
            "value": first.value,
            "format": number_format.name,
            "becomes": left,
            "guards": first.before,
        },
        repairs=() if role == "information" else _offer_repairs(sheet, first, number_format),
    )


def _offer_repairs(sheet: Sheet, guard: _EpsilonGuard, number_format: Format) -> tuple[OfferedRepair, ...]:
    raised = format_number(number_format.smallest_normal)
    return (
        offer_by_hand("keep_in_fp32", f"keep {guard.place.name} and {guard.before} behind it in FP32, or use BF16"),
        offer_by_hand(
            "raise_epsilon", f"raise {guard.name} to {raised} or more; this changes the function, so measure the task"
        ),
        offer_proof(sheet, "measure", "see whether it bites, on real samples", number_format),
    )


def _findings_of_attributes(sheet: Sheet, number_format: Format) -> Iterator[Finding]:
    groups: dict[float, list[Place]] = {}
    for place in sheet.places:
        value = attribute_value(place.node, "epsilon", None)
        if value is not None and 0 < value < number_format.smallest_normal:
            groups.setdefault(value, []).append(place)
    for value, places in groups.items():
        left = value_in_format(value, number_format)
        yield make_finding(
            "information",
            f"epsilon {format_number(value)} of {format_plural(len(places), 'normalization')} "
            f"({name_places(places)}) would become "
            f"{format_number(left, digits=5)} in {number_format.title}. Kernels of these operators hold it in FP32; it is lost "
            "only where the operator is taken apart and computed in the format",
            because="the attribute is below the smallest normal number of the format",
            places=places,
            details={"value": value, "format": number_format.name, "becomes": left},
        )


_LOG = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  floor = Relu(x)
  safe = Add(floor, epsilon)
  y = Log(safe)
}"""
_NORM = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  squared = Mul(x, x)
  mean = ReduceMean <axes = [1]> (squared)
  safe = Add(mean, epsilon)
  root = Sqrt(safe)
  y = Div(x, root)
}"""
_LN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  y = LayerNormalization <epsilon = 0.000000000001> (x, s)
}"""
_MAX = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  p = Softmax(x)
  safe = Clip(p, epsilon)
  y = Log(safe)
}"""
_PLAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  safe = Add(x, epsilon)
  y = Tanh(safe)
}"""
_TWELVE = {"epsilon": np.array(1e-12, np.float32)}

RULE = Rule(
    code="RNG103",
    title="An epsilon vanishes in the number format",
    look=_look,
    holds=(
        RuleExample(model=_LOG, constants=_TWELVE, role="cause", node="Add#1"),
        RuleExample(model=_MAX, constants=_TWELVE, role="cause", node="Clip#1"),
        RuleExample(model=_NORM, constants=_TWELVE, role="contributing", node="Add#2"),
        # 1e-6 is subnormal in FP16, and so far from zero that it still guards.
        RuleExample(model=_NORM, constants={"epsilon": np.array(1e-6, np.float32)}, role="information"),
        RuleExample(model=_LN, constants={"s": np.ones(8, np.float32)}, role="information"),
    ),
    holds_not=(
        RuleExample(model=_LOG, constants={"epsilon": np.array(1e-3, np.float32)}),
        RuleExample(model=_LOG, constants=_TWELVE, formats=("bf16",)),
        RuleExample(model=_NORM, constants=_TWELVE, role="cause"),
        RuleExample(model=_PLAIN, constants=_TWELVE),
    ),
)
