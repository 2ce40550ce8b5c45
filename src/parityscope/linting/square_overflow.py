"""A normalization or activation is taken apart, and a step of it overflows in the number format.

What goes wrong: a LayerNormalization exported as Pow, ReduceMean, Sqrt and Div squares its input. In FP16 the square
overflows from |x| = 255.9 on (the square root of 65,504), long before x itself does, and the whole row becomes 0 or
NaN. An exponential overflows from x = 11.09 on: a Softmax without subtraction of the maximum, a Softplus as
log(1 + exp(x)).

How it shows: NaN or Inf, or rows of zeros, begins at Pow, Exp or the Div behind, for inputs with a few large elements
(the last layers of a transformer).

How we test for it: squares (Pow by 2, a tensor times itself), cubes and exponentials are found, and what follows them
says what they are part of. The magnitude from which on the step overflows is arithmetic. Whether the data reaches it
only a run can tell (`predict`, RNG002), so that it contributes. Cubes of a tanh-GELU are information: tanh(infinity)
is 1, so that their overflow changes nothing. So is a Softmax that subtracts its maximum, which is left out.

What it is confused with: an activation that is itself beyond range (RNG002).

How to repair: export with the fused operator (LayerNormalization from opset 17, RMSNormalization from 23, Softmax,
Gelu from 20), whose kernels compute in FP32, or keep the nodes from the square to the division in FP32.

Sources: NVIDIA TensorRT, warning "Running layernorm after self-attention with FP16 Reduce or Pow may cause overflow";
ONNX operators LayerNormalization-17, RMSNormalization-23, Gelu-20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, make_finding, name_places, offer_by_hand, offer_proof
from parityscope.linting._walk import is_same_value, kept_in_fp32, node_behind, nodes_ahead, number_of
from parityscope.operators import with_trait
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding, Role

_SUMS = frozenset({"ReduceMean", "ReduceSum", "GlobalAveragePool"})
_REACH = 8  # nodes between the square and the root behind it: reductions, divisions by a count, an epsilon
_BETWEEN = _SUMS | with_trait("guards") | {"Mul", "Div"}
_FUSED = {
    "LayerNormalization": "export it as LayerNormalization (opset 17)",
    "RMSNormalization": "export it as RMSNormalization (opset 23), or keep it in FP32",
    "Softmax": "export it as Softmax, or subtract the maximum of the row first",
    "Softplus": "export it as Softplus",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OverflowStep:
    """A node that raises to `power` (0: the exponential), what it is part of, and whether the model keeps it in FP32."""

    place: Place
    power: int
    part_of: str
    kept: bool


def _find_steps(sheet: Sheet) -> Iterator[_OverflowStep]:
    """Every step of the file that may overflow before its input does."""
    for place in sheet.places:
        power = _power_of_node(sheet, place.node)
        if power is None:
            continue
        part_of = {0: _part_of_exponential, 2: _part_of_square, 3: _part_of_cube}[power](place.node)
        if part_of:
            yield _OverflowStep(place=place, power=power, part_of=part_of, kept=kept_in_fp32(sheet, place, 0))


def _power_of_node(sheet: Sheet, node: ir.Node) -> int | None:
    if node.op_type == "Exp":
        return 0
    if node.op_type == "Mul" and not node.domain and is_same_value(input_at(node, 0), input_at(node, 1)):
        return 2
    if node.op_type == "Pow":
        exponent = number_of(sheet, input_at(node, 1))
        return {2.0: 2, 3.0: 3}.get(exponent) if exponent is not None else None
    return None


def _part_of_square(node: ir.Node) -> str:
    summed = [each for each in nodes_ahead(node) if each.op_type in _SUMS]
    if not summed or not _leads_to_root(summed[0], _REACH):
        return "a square" if summed or node.op_type == "Pow" else ""
    source = node_behind(input_at(node, 0))
    if source is not None and source.op_type == "Sub":
        return "LayerNormalization"
    return "RMSNormalization" if summed[0].op_type == "ReduceMean" else "an L2 norm"


def _leads_to_root(node: ir.Node, reach: int) -> bool:
    frontier = [node]
    for _ in range(reach):
        following = list(dict.fromkeys(each for held in frontier for each in nodes_ahead(held)))
        if any(each.op_type in {"Sqrt", "Pow"} for each in following):
            return True
        frontier = [each for each in following if each.op_type in _BETWEEN]
    return False


def _part_of_cube(node: ir.Node) -> str:
    following = nodes_ahead(node)
    for _ in range(4):
        if any(each.op_type == "Tanh" for each in following):
            return "GELU"
        following = [
            behind_it for each in following if each.op_type in {"Mul", "Add"} for behind_it in nodes_ahead(each)
        ]
    return ""


def _part_of_exponential(node: ir.Node) -> str:
    following = nodes_ahead(node)
    source = node_behind(input_at(node, 0))
    if any(each.op_type == "ReduceSum" for each in following):
        return "" if source is not None and source.op_type == "Sub" and _is_maximum(input_at(source, 1)) else "Softmax"
    if any(each.op_type == "Add" and any(then.op_type == "Log" for then in nodes_ahead(each)) for each in following):
        return "Softplus"
    return ""


def _is_maximum(value: ir.Value | None) -> bool:
    """Whether a value is the maximum of a row, also where it is bounded from below (as JAX does, by -infinity)."""
    node = node_behind(value)
    if node is not None and node.op_type == "Max":
        return any(_is_maximum(each) for each in node.inputs)
    return node is not None and node.op_type == "ReduceMax"


def _look(sheet: Sheet) -> Iterator[Finding]:
    found: dict[str, list[_OverflowStep]] = {}
    for step in _find_steps(sheet):
        if not step.kept:
            found.setdefault(step.part_of, []).append(step)
    for number_format in sheet.computing:
        if number_format.emax >= 127:  # the range of FP32: the step overflows there no earlier than in the reference
            continue
        for part_of, held in found.items():
            yield _show_finding(sheet, number_format, part_of, held)


def _show_finding(sheet: Sheet, number_format: Format, part_of: str, held: list[_OverflowStep]) -> Finding:
    limit = _largest_safe_input(held[0], number_format)
    harmless = part_of == "GELU"
    role: Role = "information" if harmless or part_of == "a square" else "contributing"
    places = [step.place for step in held]
    noun = part_of if part_of.startswith(("a ", "an ")) else f"{part_of} taken apart"
    after = " That is harmless: tanh of infinity is 1, as of any number above 9." if harmless else ""
    opset = f" (this file has opset {sheet.opset})" if sheet.opset else ""
    fused = _FUSED.get(part_of)
    return make_finding(
        role,
        f"{format_plural(len(held), 'time')} {noun} ({name_places(places)}): the {_name_power(held[0])} overflows in "
        f"{number_format.title} from "
        f"{'x' if held[0].power == 0 else '|x|'} = {limit:.4g} on, although x fits up to "
        f"{format_number(number_format.largest)}.{after}",
        because=f"the {_name_power(held[0])} of {limit:.4g} is {number_format.title}'s largest finite value",
        places=places,
        details={"part_of": part_of, "format": number_format.name, "overflows_from": limit},
        repairs=()
        if role == "information"
        else (
            offer_by_hand("fused_operator", f"{fused or 'keep these nodes in FP32'}{opset if fused else ''}"),
            offer_proof(sheet, "measure", "see whether real samples reach it", number_format),
        ),
    )


def _largest_safe_input(step: _OverflowStep, number_format: Format) -> float:
    return math.log(number_format.largest) if step.power == 0 else number_format.largest ** (1.0 / step.power)


def _name_power(step: _OverflowStep) -> str:
    return {0: "exponential", 2: "square", 3: "cube"}[step.power]


_LN = """<ir_version: 8, opset_import: ["" : 13]> g (float[1,8] x) => (float[1,8] y) {
  mean = ReduceMean <axes = [1]> (x)
  centred = Sub(x, mean)
  squared = Pow(centred, two)
  variance = ReduceMean <axes = [1]> (squared)
  safe = Add(variance, epsilon)
  root = Sqrt(safe)
  y = Div(centred, root)
}"""
_CONSTANTS = {"two": np.array(2, np.float32), "epsilon": np.array(1e-3, np.float32)}
_SOFTMAX = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  power = Exp(x)
  total = ReduceSum(power, axes)
  y = Div(power, total)
}"""
_STABLE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  top = ReduceMax <axes = [1]> (x)
  below = Sub(x, top)
  power = Exp(below)
  total = ReduceSum(power, axes)
  y = Div(power, total)
}"""
_BOUNDED = _STABLE.replace("below = Sub(x, top)", "bounded = Max(floor, top) below = Sub(x, bounded)")
_GELU = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  cube = Pow(x, three)
  scaled = Mul(cube, small)
  both = Add(x, scaled)
  y = Tanh(both)
}"""
_AXES = {"axes": np.array([1], np.int64)}

RULE = Rule(
    code="RNG105",
    title="A step of a normalization or activation overflows",
    look=_look,
    holds=(
        RuleExample(model=_LN, constants=_CONSTANTS, role="contributing", node="Pow#2"),
        RuleExample(model=_SOFTMAX, constants=_AXES, role="contributing", node="Exp#0"),
        RuleExample(
            model=_GELU,
            constants={"three": np.array(3, np.float32), "small": np.array(0.044715, np.float32)},
            role="information",
        ),
    ),
    holds_not=(
        RuleExample(model=_LN, constants=_CONSTANTS, formats=("bf16",)),
        RuleExample(model=_STABLE, constants=_AXES),
        RuleExample(model=_BOUNDED, constants={**_AXES, "floor": np.array(-np.inf, np.float32)}),
        RuleExample(
            model=_GELU,
            constants={"three": np.array(3, np.float32), "small": np.array(0.044715, np.float32)},
            role="contributing",
        ),
    ),
)
