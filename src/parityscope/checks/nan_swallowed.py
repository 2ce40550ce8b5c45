"""A Clip, Relu, Max or Min makes a number of NaN.

What goes wrong: kernels that are built on fmax and fmin give the other operand where one is NaN. A NaN that is born in front
of an activation comes out of it as its bound, and the output looks fine.

How it shows: the reference has NaN where the candidate has numbers, often the same number again and again.

How we test for it: the reference runs with these operators swallowing NaN, the lower bound first and the upper bound first. If
that gives the candidate's outputs, on every sample where only the reference has NaN, it is so. Each operator alone is tried
afterwards, to name the one that does it. Where both sides have the same NaN there is nothing to test.

What it is confused with: a candidate in which the NaN is never born (another formula, a guard): then nothing reproduces it.

How to repair: the NaN is the fault, not the operator: guard what gives it (a root or a logarithm of a negative number, 0/0).
Until then do not count on an activation to remove it: other runtimes do not.

Sources: IEEE 754-2019, 9.6 (maximum and maximumNumber); C17 7.12.12.2 (fmax); the ONNX operator
specification says nothing of NaN in Clip, Max and Min; measured: ONNX Runtime 1.31.1 hands it on in Clip, Max and Relu.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.swallowing import SWALLOWS, swallow_nan
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_number
from parityscope.checks._reproducing import RUN_S, limit_of
from parityscope.checks.mixed_file import finite_distance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from parityscope.bench import Bench
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]

__all__ = ["CHECK"]

_ALONE = 64  # chosen: operators tried one by one, each a session of the reference


def _propose_claims(known: Examination) -> Iterator[Claim]:
    bench = known.bench
    lost = sum(pair.nonfinite_reference for pair in known.outputs)
    nodes = [node for node in known.graph.graph if node.op_type in SWALLOWS and not node.domain]
    if bench is None or not lost or not nodes:
        return
    tensors = [str(node.outputs[0].name) for node in nodes]
    yield Claim(
        words="Clip, Relu, Max or Min make a number of NaN",
        predicts=Prediction(
            change="run the reference with them swallowing NaN",
            measure="worst relative L2 distance from the candidate's outputs, of what is finite in both",
            if_true="it is rounding, and the same elements are finite",
            if_false="it is not",
        ),
        cost_s=4 * RUN_S,
        runs="reference",
        test=lambda: _test_claim(_NanTrial(known, bench), tensors),
    )


class _NanTrial:
    """The reference with operators swallowing NaN, on the samples in which only it has NaN."""

    def __init__(self, known: Examination, bench: Bench) -> None:
        self.known, self.bench = known, bench
        self.samples = [one for one in bench.samples if _count_nan_lost(bench.reference(one), bench.candidate(one))]

    def distance(self, first: Literal["low", "high"], among: list[str]) -> float:
        """Of what is finite, over what the declared arithmetic allows; infinite where other elements are finite."""
        graph = swallow_nan(self.known.model.graph(), first, among)
        names = [value.name for value in self.known.model.outputs]
        run = open_session(graph, outputs=names, folder=self.known.model.path.parent)
        worst = 0.0
        for index in self.samples:
            found, candidate = run(self.bench.inputs(index)), self.bench.candidate(index)
            for name in names:
                if name in candidate and found[name].dtype.kind == "f":
                    worst = max(worst, finite_distance(found[name], candidate[name]) / limit_of(self.known, name))
        return worst


def _count_nan_lost(reference: Arrays, candidate: Arrays) -> int:
    """Elements that are NaN in the reference and finite in the candidate."""
    return sum(
        int((np.isnan(array) & np.isfinite(candidate[name])).sum())
        for name, array in reference.items()
        if array.dtype.kind == "f" and name in candidate and candidate[name].shape == array.shape
    )


def _test_claim(trial: _NanTrial, tensors: list[str]) -> Shown:
    count = sum(_count_nan_lost(trial.bench.reference(one), trial.bench.candidate(one)) for one in trial.samples)
    if not count:
        because = "no sample has NaN in the reference and numbers in the candidate"
        return Shown(because=because, outcome="inconclusive", before=0.0, after=0.0)
    orders: tuple[Literal["low", "high"], ...] = ("low", "high")
    left = {first: trial.distance(first, tensors) for first in orders}
    first = min(orders, key=lambda one: left[one])
    holds = left[first] <= 1.0
    times = format_number(left[first])
    because = (
        f"{count:,} elements are NaN in the reference alone; with NaN swallowed the rest is {times} of what is allowed"
    )
    seen = Shown(
        because=because,
        outcome="supports" if holds else "refutes",
        before=float(count),
        after=0.0 if holds else float(count),
    )
    if not holds:
        return seen
    alone = [one for one in tensors[:_ALONE] if len(tensors) == 1 or trial.distance(first, [one]) <= 1.0]
    return _show_finding(trial.known, alone, first, seen)


def _show_finding(known: Examination, alone: list[str], first: str, seen: Shown) -> Shown:
    site = known.places.get(alone[0]) if alone else None
    where = f"{site.node} ({site.op_type})" if site else "an activation, together with others,"
    return replace(
        seen,
        sentence=f"{where} makes a number of NaN, the {'lower' if first == 'low' else 'upper'} bound first: {seen.because}. "
        "The NaN itself is born in front of it, on both sides.",
        confidence_from="the same elements are finite, with the same values, and nothing is fitted",
        site=site,
        share=1.0,
        repairs=(
            (
                "guard_nan",
                "guard what gives NaN (a root or logarithm of a negative number, 0/0): no activation removes it everywhere",
            ),
        ),
        details={"alone": alone, "first": first},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x) => (float[1,32] y) {
  a = Mul(x, gain)
  s = Sqrt(a)
  c = Clip(s, low, high)
  y = Mul(c, gain)
}"""
_CONSTANTS = {"gain": np.array(2, np.float32), "low": np.array(0.5, np.float32), "high": np.array(1.5, np.float32)}
_X = {"x": np.linspace(-1, 3, 32, dtype=np.float32)[None]}

CHECK = Check(
    code="FUS013",
    title="A bound is made of NaN",
    propose=_propose_claims,
    holds=(
        # fmin(fmax(NaN, 0.5), 1.5) is 0.5, and half of that behind the gain of two is one.
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda samples: [{"y": np.nan_to_num(one["y"], nan=1.0)} for one in samples],
            site="c",
        ),
    ),
    holds_not=(
        # Numbers that no bound is.
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda samples: [{"y": np.nan_to_num(one["y"], nan=7.0)} for one in samples],
        ),
        Example(model=_MODEL, inputs=_X, constants=_CONSTANTS, candidate="sim:bf16"),
    ),
)
