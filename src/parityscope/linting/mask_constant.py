"""A constant stands for infinity.

What goes wrong: attention masks add or select -1e9, -3.4e38 (FP32's lowest number) or -inf before a Softmax. In FP16
everything beyond 65,504 becomes -infinity (in BF16, FP32's lowest number does too: it rounds up).

When it is harmless: exp(-infinity) is 0, and so is exp(-1e9): as long as one element of the row is not masked, Softmax
gives the same. A maximum or top-k ignores both, and Sigmoid, Tanh or Clip give the same for both.

When it is harmful: a row that is masked as a whole (padding in a batch, an empty prompt) gives NaN instead of equal
weights, since -inf - (-inf) is NaN. And if the mask is made by multiplication, (1 - mask) * -1e9, then 0 * -inf
is NaN for every element that is *not* masked, unless the converter saturates.

How it shows: NaN from the first Softmax on; only for some batches in the first case, always in the second.

How we test for it: the way from the constant to a Softmax, attention, maximum or top-k is followed through the graph.
It contributes where one of the two harmful cases is possible and the FP32 model had none; else it is information.

What it is confused with: a weight beyond range (RNG101).

How to repair: use -1e4 (fits FP16, and exp(-1e4) is 0 in every format) or select with Where instead of multiplying.

Sources: IEEE 754-2019, sections 7.2 (0 * infinity and infinity - infinity are invalid) and 7.4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.scanning import value_in_format
from parityscope.linting import Rule, RuleExample
from parityscope.linting._masks import goal_of
from parityscope.linting._telling import format_plural, make_finding, offer_by_hand
from parityscope.linting._walk import computing_readers
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.arithmetic import Format
    from parityscope.linting._masks import Goal
    from parityscope.linting.records import FileConstant, Place, Sheet
    from parityscope.records import Finding, Role


def _look(sheet: Sheet) -> Iterator[Finding]:
    for constant in sheet.constants:
        formats = [each for each in sheet.computing if _changes_constant(constant, each)]
        if not formats and not constant.numbers.infinite:
            continue
        goals = [
            (sheet.place(node), goal_of(constant, node, position))
            for node, position in computing_readers(constant.value)
        ]
        held = [(place, goal) for place, goal in goals if goal is not None]
        if held:
            yield _show_finding(constant, formats, held)


def _changes_constant(constant: FileConstant, number_format: Format) -> bool:
    loss = constant.numbers.losses.get(number_format.name)
    return loss is not None and loss.beyond > 0


def _show_finding(constant: FileConstant, formats: list[Format], held: list[tuple[Place, Goal]]) -> Finding:
    worst = float(constant.numbers.worst) if formats else -math.inf
    role, why = _judge_goals(formats, held)
    first, goal = held[0]
    fates = ", ".join(f"{format_number(value_in_format(worst, each))} in {each.title}" for each in formats)
    becoming = f" becomes {fates}" if fates else " is the same in every format"
    return make_finding(
        role,
        f"{first.node.op_type} {first.name} reads {constant.name!r} = {format_number(worst)} as infinity for "
        f"{goal.node.op_type}; it{becoming}. {why}",
        because=f"{constant.name} was followed through the graph to {format_plural(len(held), 'place')} where infinity "
        f"does what a huge number does",
        places=list(dict.fromkeys(place for place, _ in held)),
        details={
            "parameter": constant.name,
            "inside": constant.inside,
            "value": worst,
            "becomes": {each.name: value_in_format(worst, each) for each in formats},
            "multiplied": any(goal.multiplied for _, goal in held),
        },
        repairs=()
        if role == "information"
        else (
            offer_by_hand(
                "finite_mask",
                f"replace {constant.name} by {'-' if worst < 0 else ''}10000, which every format holds and whose "
                "exponential is 0 all the same; select with Where instead of multiplying",
            ),
        ),
    )


def _judge_goals(formats: list[Format], held: list[tuple[Place, Goal]]) -> tuple[Role, str]:
    if formats and any(goal.multiplied for _, goal in held):
        return "contributing", (
            "It is multiplied by what may be 0, and 0 times infinity is NaN for every element that is not masked; "
            "only a converter that saturates avoids it."
        )
    if formats and any(goal.normalizes for _, goal in held):
        return "contributing", (
            "That is harmless for a row with one element that is not masked; a row that is masked as a whole becomes "
            "NaN, where FP32 gave equal weights."
        )
    if any(goal.normalizes for _, goal in held):
        return "information", "A row that is masked as a whole is NaN in FP32 already; no format changes that."
    return "information", f"Harmless: {held[0][1].node.op_type} treats infinity as any huge number."


_ADD = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, bool[2,4] keep) => (float[2,4] y) {
  a = Where(keep, x, low)
  y = Softmax <axis = 1> (a)
}"""
_MUL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, float[2,4] mask) => (float[2,4] y) {
  drop = Sub(one, mask)
  far = Mul(drop, low)
  b = Unsqueeze(far, axes)
  c = Squeeze(b, axes)
  a = Add(x, c)
  y = Softmax <axis = 1> (a)
}"""
_TOP = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, bool[2,4] keep) => (int64[2,1] y) {
  a = Where(keep, x, low)
  y = ArgMax <axis = 1> (a)
}"""
_AXES: dict[str, np.ndarray] = {"one": np.array(1, np.float32), "axes": np.array([0], np.int64)}

RULE = Rule(
    code="RNG104",
    title="A constant stands for infinity",
    look=_look,
    holds=(
        RuleExample(model=_ADD, constants={"low": np.array(-1e9, np.float32)}, role="contributing", node="Where#0"),
        RuleExample(
            model=_ADD, constants={"low": np.array(np.finfo(np.float32).min)}, formats=("bf16",), role="contributing"
        ),
        RuleExample(model=_ADD, constants={"low": np.array(-np.inf, np.float32)}, role="information"),
        RuleExample(
            model=_MUL, constants={**_AXES, "low": np.array(-1e9, np.float32)}, role="contributing", node="Mul#1"
        ),
        RuleExample(model=_TOP, constants={"low": np.array(-1e9, np.float32)}, role="information"),
    ),
    holds_not=(
        RuleExample(model=_ADD, constants={"low": np.array(-1e4, np.float32)}),
        RuleExample(model=_ADD, constants={"low": np.array(-1e9, np.float32)}, formats=("bf16",)),
        RuleExample(model=_TOP.replace("ArgMax", "ArgMin"), constants={"low": np.array(-1e9, np.float32)}),
    ),
)
