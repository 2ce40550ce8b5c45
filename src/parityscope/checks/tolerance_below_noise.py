"""The budget asks for more than FP32 itself keeps.

What goes wrong: a tolerance is copied from a unit test (1e-5, say) onto a deep network. Two honest FP32 evaluations of it,
which add in different orders, are further apart than that.

How it shows: the budget fails on every runtime, whatever is repaired.

How we test for it: the FP32 noise floor of the output is predicted and measured on these samples. A candidate whose error lies
within it and which the budget still refuses has been refused for being FP32. The model is also run in another honest way
(the optimizer off) and held against the same budget.

What it is confused with: a candidate that is beyond both; then the budget is not what fails it, and nothing is claimed here.

How to repair: leave the budget out, so that the declared arithmetic judges, or raise it above the noise floor that is told.

Sources: Polygraphy's default of 1e-5 and the threads it leads to (NVIDIA/TensorRT issues 3135, 1565); error models in
docs/numerics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import is_simulation
from parityscope.backends.targets import parse_target
from parityscope.case.policy import budgets_for
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.comparison import measure_all, measure_pair
from parityscope.comparison.distance import error_distance
from parityscope.comparison.tolerance import count_outside
from parityscope.errors import ParityError
from parityscope.expectation.grades import margin_of
from parityscope.plain_numbers import format_number
from parityscope.records import Budget, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Bench
    from parityscope.examination import Examination
    from parityscope.records import Pair

_LOWER = (
    "rel_l2",
    "max_abs",
    "mean_abs",
    "ulp_max",
)  # metrics of which less is better, measured again on the other run


def _propose_claims(known: Examination) -> Iterator[Claim]:
    # The floor of a model that is half precision by its own types is that precision's: DAT009 tells of it.
    if known.policy is None or (known.bench is not None and any(map(_is_simulation_target, known.bench.peers))):
        return
    for pair in known.outputs:
        floor = pair.expected.get("f32")
        if pair.verdict != "beyond" or floor is None or pair.nonfinite_candidate or pair.nonfinite_reference:
            continue
        budgets = [one for one in budgets_for(known.policy, pair.site.tensor) if one.metric in pair.measurements]
        if budgets:
            yield _make_claim(known, pair, budgets, floor)


def _make_claim(known: Examination, pair: Pair, budgets: list[Budget], floor: float) -> Claim:
    return Claim(
        words=f"the budget of output {pair.site.tensor} is below the FP32 noise floor",
        predicts=Prediction(
            change="run the model in another honest FP32 way: the optimizer off",
            measure="the candidate's error against the noise floor, and the budget against the other run",
            if_true="the error lies within the floor",
            if_false="the error lies above it",
        ),
        test=lambda: _test_claim(known, pair, budgets, floor),
    )


def _test_claim(known: Examination, pair: Pair, budgets: list[Budget], floor: float) -> Shown:
    measured = pair.value("rel_l2")
    limit = floor * margin_of("f32")
    if not measured <= limit:
        because = (
            f"the error is {format_number(measured)} and FP32 noise explains {format_number(limit)}: the "
            "budget is not alone"
        )
        return Shown(because=because, outcome="refutes", before=measured, after=limit)
    said = ", ".join(_describe_budget(one) for one in budgets)
    because = (
        f"{said} is asked for; the error is {format_number(measured)} (relative L2), and FP32 noise explains "
        f"{format_number(limit)}"
    )
    other = _honest_run_outside(known.bench, pair.site.tensor, budgets)
    if other:
        because += f"; {other} fails the same budget"
    return Shown(
        because=because,
        before=measured,
        after=limit,
        sentence=f"Output {pair.site.tensor} is refused for being FP32: {because}.",
        confidence=1.0 if other else 0.9,
        confidence_from="another honest run fails too" if other else "the predicted floor; another run was within",
        site=pair.site,
        share=1.0,
        repairs=(
            (
                "raise_budget",
                "leave the budget out, so that the declared arithmetic judges, or raise it above what rounding makes",
                f"--budget {pair.site.tensor}:rel_l2={limit:.2g}",
            ),
        ),
        details={"floor": floor, "measured": measured, "budgets": [one.metric for one in budgets]},
    )


def _describe_budget(budget: Budget) -> str:
    if budget.tolerance is not None:
        return f"atol {budget.tolerance.atol:g} and rtol {budget.tolerance.rtol:g} in every element"
    return f"{budget.metric} {budget.limit:g}"


def _is_simulation_target(target: str) -> bool:
    return is_simulation(parse_target(target))


def _honest_run_outside(bench: Bench | None, output: str, budgets: list[Budget]) -> str:
    """The honest run of the reference's model that breaks one of the budgets; "" if none does."""
    if bench is None:
        return ""
    for target, run in bench.peers.items():
        if _is_simulation_target(target):
            continue
        for index in bench.samples:
            try:
                found = run(bench.inputs(index)).get(output)
            except ParityError:
                break
            reference = bench.reference(index).get(output)
            if found is not None and reference is not None and _breaks_budget(reference, found, budgets):
                return target
    return ""


def _breaks_budget(reference: np.ndarray, other: np.ndarray, budgets: list[Budget]) -> bool:
    if reference.shape != other.shape:
        return False
    statistics = measure_pair(reference, other, channel_axis=None)
    if error_distance(statistics) == 0.0:
        return False
    found = measure_all(statistics)
    for budget in budgets:
        if budget.tolerance is not None:
            broken = count_outside(reference, other, budget.tolerance).count > 0
        else:
            measured = budget.metric in _LOWER and budget.metric in found
            broken = measured and found[budget.metric].value > budget.limit
        if broken:
            return True
    return False


# A hundred thousand terms of one sign: FP32 sums of them in two orders agree to a few 1e-7.
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4096] x) => (float[2,16] y) {
  a = MatMul(x, w)
  y = Mul(a, a)
}"""
_RNG = np.random.default_rng(63)
_W = {"w": _RNG.random((4096, 16)).astype(np.float32)}
_X = {"x": _RNG.random((2, 4096)).astype(np.float32)}
_TIGHT = (Budget(output="", metric="rel_l2", limit=1e-9, reason="an example"),)
_EQUAL = (
    Budget(output="", metric="outside", limit=0, reason="an example", tolerance=Tolerance(atol=1e-12, rtol=1e-12)),
)

CHECK = Check(
    code="DAT006",
    title="The budget asks for more than FP32 keeps",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, constants=_W, candidate="openvino:f32", budgets=_TIGHT, site="y"),
        Example(model=_MODEL, inputs=_X, constants=_W, candidate="openvino:f32", budgets=_EQUAL, site="y"),
    ),
    holds_not=(
        # Beyond the floor too, or a budget that FP32 keeps, or none.
        Example(model=_MODEL, inputs=_X, constants=_W, candidate="sim:bf16", budgets=_TIGHT),
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_W,
            candidate="openvino:f32",
            budgets=(Budget(output="", metric="rel_l2", limit=1e-3, reason="an example"),),
        ),
        Example(model=_MODEL, inputs=_X, constants=_W, candidate="openvino:f32"),
    ),
)
