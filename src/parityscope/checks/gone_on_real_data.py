"""The error belongs to the test data: on real samples the same deployment is as good as its arithmetic.

What goes wrong: the test drives the network where no real sample goes: random pixels, values of another scale, an image
whose normalization was forgotten on both sides. There, sums cancel and exponentials saturate, and honest rounding grows.

How it shows: a large error, and a deployment that works in use.

How we test for it: with real samples at hand (`--real DATA`) the inputs are held against them: the part of the elements
outside the range of the real ones, and the Kolmogorov-Smirnov distance between the two. Then the experiment that
decides: reference and candidate are both run on the real samples. If their error there is what the declared arithmetic
explains, the test data is the cause.

What it is confused with: a failure that only some real samples reach; give more of them. A candidate that is a recording
cannot be run on other samples, and then only the statistics are told.

How to repair: test on real data: `--inputs` in place of `--real`.

Sources: NVIDIA/TensorRT issues 4361 (random input into a vision encoder), 2940 and 4647; TensorRT's advice to measure
accuracy on real inputs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import Misfit, bad_samples, measure_misfit, show_refuted, show_supported
from parityscope.checks.statistics import ks_distance
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Bench
    from parityscope.case import Inputs
    from parityscope.examination import Examination

_LOOKED_AT = 4  # real samples: a deployment that is right on four is right on most, and each costs a run of both sides
# Elements outside the range of the real ones that are no chance: a sample has its extremes, and a few more lie beyond.
_OUTSIDE = 0.01
# Distance between the two distributions from which nobody would take one for the other. Chosen: half.
_APART = 0.5
_FEW = 64  # values: fewer tell no distribution


def _propose_claims(known: Examination) -> Iterator[Claim]:
    if known.real is None:
        return
    told = list(_describe_unlike_inputs(known, known.real))
    if told:
        yield Claim(
            words="the inputs are unlike the real ones",
            predicts=Prediction(
                measure="elements outside the range of the real samples, and the Kolmogorov-Smirnov distance",
                if_true=f"more than {format_percent(_OUTSIDE)}, or a distance above {_APART:g}",
                if_false="less",
            ),
            test=lambda: _unlike_finding(told, Shown(because="; ".join(told))),
        )
    bench = known.bench
    if bench is not None and bench.answers is not None:
        yield _make_claim(known, known.real, bench)


def _describe_unlike_inputs(known: Examination, real: Inputs) -> Iterator[str]:
    ours = [known.inputs.sample(index).arrays for index in known.inputs.indices[:_LOOKED_AT]]
    theirs = [real.sample(index).arrays for index in real.indices[:_LOOKED_AT]]
    for name in ours[0]:
        given, wanted = (np.concatenate([each[name].reshape(-1) for each in side]) for side in (ours, theirs))
        if given.dtype.kind not in "fiu" or min(given.size, wanted.size) < _FEW:
            continue
        low, high = float(wanted.min()), float(wanted.max())
        outside = float(((given < low) | (given > high)).mean())
        apart = ks_distance(given, wanted)
        if outside > _OUTSIDE or apart > _APART:
            yield (
                f"{format_percent(outside)} of {name} lie outside the real samples' range {format_number(low)} to "
                f"{format_number(high)} "
                f"(Kolmogorov-Smirnov distance {apart:.2g})"
            )


def _make_claim(known: Examination, real: Inputs, bench: Bench) -> Claim:
    return Claim(
        words="on real samples the error is gone",
        predicts=Prediction(
            change="run both sides on the real samples",
            measure="worst relative L2 error of the outputs",
            if_true="it is what the declared arithmetic explains",
            if_false="it is as large as on the given samples",
        ),
        cost_s=1.0,
        runs="candidate",
        test=lambda: _test_claim(known, real, bench),
    )


def _test_claim(known: Examination, real: Inputs, bench: Bench) -> Shown:
    before = max(
        (measure_misfit(known, bench.reference(index), bench.candidate(index)) for index in bench.samples),
        key=lambda one: one.over,
    )
    if bench.answers is None or not bad_samples(known, bench):
        return show_refuted(None, "no sample's outputs tell enough")
    after = Misfit(error=0.0, over=0.0)
    for index in real.indices[:_LOOKED_AT]:
        arrays = real.sample(index).arrays
        found = measure_misfit(known, bench.outputs(arrays), bench.answers(arrays))
        after = max(after, found, key=lambda one: one.over)
    if not after.fits:
        because = (
            f"on the real samples the error is {format_number(after.error)}, on the given ones "
            f"{format_number(before.error)}"
        )
        return show_refuted(before, because, after=after.error)
    because = (
        f"it is {format_number(before.error)} on the given samples and {format_number(after.error)} on the real ones"
    )
    seen = show_supported(before, after, because)
    share = after.share(before) if math.isfinite(before.error) else 1.0
    return replace(
        seen,
        sentence=f"The error belongs to the test data: {because}, which the declared arithmetic explains.",
        confidence_from="the share of the error, in squares, that is gone on real samples",
        share=share,
        repairs=(("real_inputs", "test on the real samples", "--inputs REAL"),),
        details={"given": before.error, "real": after.error},
    )


def _unlike_finding(told: list[str], seen: Shown) -> Shown:
    return replace(
        seen,
        title="The inputs are unlike the real samples",
        role="information",
        sentence=f"The inputs are unlike the real samples: {'; '.join(told)}.",
        confidence_from="counted, not estimated",
        repairs=(("real_inputs", "test on the real samples", "--inputs REAL"),),
        details={"told": told},
    )


# Two numbers that undo each other: beside a large one, small inputs vanish.
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,128] x) => (float[N,128] y) {
  a = Add(x, far)
  b = Sub(a, far)
  y = Tanh(b)
}"""
_FAR = {"far": np.full(128, 1.0, np.float32)}
_RNG = np.random.default_rng(61)
_REAL = {"x": _RNG.normal(size=(3, 128)).astype(np.float32)}
_WILD = {"x": (_RNG.normal(size=(3, 128)) * 1e-4).astype(np.float32)}

# The candidate's number is 64 times as large.
_COARSE = _MODEL.replace("g (", "coarse (").replace("far)", "farther)")
_FARTHER = {**_FAR, "farther": np.full(128, 64.0, np.float32)}

CHECK = Check(
    code="DAT004",
    title="The error belongs to the test data, not to the deployment",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            candidate_model=_COARSE,
            candidate="ort?optimization=disabled",
            inputs=_WILD,
            real=_REAL,
            constants=_FARTHER,
            declared="f16",
        ),
    ),
    holds_not=(
        # Real samples that are like the given ones, on which the candidate is as wrong.
        Example(
            model=_MODEL,
            candidate_model=_MODEL.replace("Tanh", "Sigmoid"),
            candidate="ort?optimization=disabled",
            inputs=_REAL,
            real={"x": _REAL["x"][::-1].copy()},
            constants=_FAR,
        ),
        Example(model=_MODEL, inputs=_REAL, real=_REAL, constants=_FAR, candidate="sim:bf16"),
    ),
)
