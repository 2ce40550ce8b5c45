"""A fused Clip lost a bound, told from outputs alone.

What goes wrong: the kernel that takes over a product and the activation behind it knows an activation with one bound, and
the other one is gone. TensorRT 10.12 and 10.13 make a ReLU of MatMul, Add and Clip(0, 6).

How it shows: outputs that are too large where activations saturate, in every precision alike; nothing fails.

How we test for it: the reference runs with a bound taken away: all upper bounds, those behind the same operators (a rule of a
fusion holds wherever it applies), and each alone. The prediction is the whole output vector and nothing in it is fitted. It is
accepted as everywhere: what is left is what the declared arithmetic explains, and a tenth of the error at most, on every
sample that is wrong. All are one session, whose bounds are inputs.

What it is confused with: where tensors were captured the layer is looked at itself (FUS002), and this is not tried; a bound
that no value of these samples reaches leaves no trace.

How to repair: write the bound as Min and Max, keep the Clip out of the fusion, or update the runtime.

Sources: NVIDIA/TensorRT issues 4606 (MatMul, Add, Clip) and 3938 (Conv, Clip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.bounds import feeds, loosened
from parityscope.backends._onnxruntime import open_session
from parityscope.checks import Check, Example, Proposal, Result
from parityscope.checks._common import number
from parityscope.checks._reproducing import RUN_S, Misfit, bad_samples, misfit, refuted, supported
from parityscope.records import Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.arithmetic.bounds import Bound
    from parityscope.checks import Bench, Scene
    from parityscope.records import Evidence

    Run = Callable[[int, tuple[Bound, ...]], Mapping[str, np.ndarray]]

__all__ = ["CHECK"]

_CODE = "FUS012"
_TITLE = "A Clip lost its bound"
_MOST = 200  # chosen: bounds tried alone; a network of 100 MFLOP runs 30 times a second
_SHOWN = 4  # bounds in a claim (chosen); the details hold them all


def _propose(scene: Scene) -> Iterator[Proposal]:
    bench = scene.bench
    if bench is None or scene.localization is not None:
        return
    graph = scene.model.graph()
    bounds = loosened(graph)
    if not bounds:
        return
    tried = list(_hypotheses(bounds))
    experiment = Experiment(
        check=_CODE,
        claim="a Clip or Relu lost a bound",
        change=f"run the reference without a bound: {len(tried)} ways",
        measure="worst relative L2 error of the outputs",
        if_true="one way reproduces the candidate on every wrong sample",
        if_false="none does",
        cost_s=RUN_S * len(tried),
        runs="reference",
    )

    def test() -> Result:
        outputs = [value.name for value in scene.model.outputs]
        run = open_session(graph, outputs=outputs, folder=scene.model.path.parent)
        trial = _Trial(scene, bench, lambda index, lost: run({**bench.inputs(index), **feeds(bounds, lost)}))
        return _tested(trial, tried, experiment)

    yield Proposal(experiment=experiment, test=test)


def _hypotheses(bounds: Sequence[Bound]) -> Iterator[tuple[Bound, ...]]:
    """Which bounds are lost together: rules of a fusion before single accidents, none of them twice."""
    upper, lower = [one for one in bounds if one.upper], [one for one in bounds if not one.upper]
    groups = [tuple(side) for side in (upper, lower)]
    for behind in dict.fromkeys(one.behind for one in bounds):
        groups += [tuple(one for one in side if one.behind == behind) for side in (upper, lower)]
    groups += [(one,) for one in (*upper, *lower)][:_MOST]
    yield from dict.fromkeys(group for group in groups if group)


class _Trial:
    """The reference with bounds taken away, held against the candidate."""

    def __init__(self, scene: Scene, bench: Bench, run: Run) -> None:
        self.scene, self.bench, self.run = scene, bench, run
        self.samples = bad_samples(scene, bench)
        self.before = {one: misfit(scene, bench.reference(one), bench.candidate(one)) for one in self.samples}

    def measure(self, index: int, lost: tuple[Bound, ...]) -> Misfit:
        return misfit(self.scene, self.run(index, lost), self.bench.candidate(index))

    def worst(self, lost: tuple[Bound, ...]) -> Misfit | None:
        """What is left at most of the wrong samples; None if one of them is not explained."""
        left = []
        for index in self.samples:
            left.append(self.measure(index, lost))
            if not left[-1].explains(self.before[index]):
                return None
        return max(left, key=lambda one: one.over)


def _tested(trial: _Trial, tried: list[tuple[Bound, ...]], experiment: Experiment) -> Result:
    if not trial.samples:
        return refuted(experiment, None, "no sample's outputs tell enough")
    before = max(trial.before.values(), key=lambda one: one.over)
    many = "1 sample" if len(trial.samples) == 1 else f"{len(trial.samples)} samples"
    nearest = before
    for lost in tried:
        after = trial.worst(lost)
        if after is None:
            first = trial.measure(trial.samples[0], lost)
            nearest = min(nearest, first, key=lambda one: one.over)
            continue
        because = f"the error falls from {number(before.error)} to {number(after.error)} on {many}"
        evidence = supported(experiment, before, after, because)
        return Result(evidence=evidence, finding=_finding(trial.scene, lost, after.share(before), evidence))
    because = f"the nearest of {len(tried)} ways leaves {number(nearest.error)} of {number(before.error)}"
    return refuted(experiment, before, because, after=nearest.error)


def _finding(scene: Scene, lost: tuple[Bound, ...], share: float, evidence: Evidence) -> Finding:
    more = len(lost) - _SHOWN
    listed = ", ".join(one.words for one in lost[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    together = {one.behind for one in lost}
    rule = f", all behind {together.pop()}" if len(lost) > 1 and len(together) == 1 and together != {""} else ""
    site = scene.places.get(lost[0].tensor)
    return Finding(
        code=_CODE,
        title=_TITLE,
        role="cause",
        claim=f"Without {listed}{rule}, the reference gives the candidate's outputs: {evidence.because}.",
        confidence=share,
        confidence_from="the share of the error, in squares, that the lost bound explains with nothing fitted",
        site=site,
        share=share,
        evidence=(evidence,),
        repairs=(
            OfferedRepair(
                repair="min_and_max",
                text=f"write {lost[0].tensor!r} as Min and Max, or keep it out of the fusion: make it or what it reads an output",
            ),
            OfferedRepair(repair="update_runtime", text="run it in another version of the runtime"),
        ),
        details={
            "bounds": [{"tensor": one.tensor, "upper": one.upper, "value": one.value} for one in lost],
            "behind": lost[0].behind,
        },
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,32] x) => (float[4,8] y) {
  a = MatMul(x, w1)
  b = Add(a, b1)
  c = Clip(b, low, high)
  d = MatMul(c, w2)
  e = Relu(d)
  y = MatMul(e, w3)
}"""
_RNG = np.random.default_rng(93)
_CONSTANTS = {
    "w1": _RNG.normal(size=(32, 24)).astype(np.float32),
    "b1": _RNG.normal(size=24).astype(np.float32),
    "w2": _RNG.normal(size=(24, 16)).astype(np.float32),
    "w3": _RNG.normal(size=(16, 8)).astype(np.float32),
    "low": np.array(0, np.float32),
    "high": np.array(6, np.float32),
}
_X = {"x": _RNG.normal(size=(4, 32)).astype(np.float32)}


def _spoilt(edit: tuple[str, str]) -> Mapping[str, np.ndarray]:
    """What the model gives when its text is edited so."""
    import onnx_ir as ir
    from onnx import numpy_helper, parser

    model = parser.parse_model(_MODEL.replace(*edit))
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in _CONSTANTS.items())
    return open_session(ir.serde.deserialize_model(model), outputs=["y"])(_X)


CHECK = Check(
    code=_CODE,
    title=_TITLE,
    propose=_propose,
    holds=(
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda _: [_spoilt(("(b, low, high)", "(b, low)"))],
            site="c",
        ),
    ),
    holds_not=(
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_CONSTANTS,
            outputs_fault=lambda _: [_spoilt(("e = Relu(d)", "e = Tanh(d)"))],
        ),
        Example(model=_MODEL, inputs=_X, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"),
    ),
)
