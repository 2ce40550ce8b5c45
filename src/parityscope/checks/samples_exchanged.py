"""The candidate's outputs belong to other samples.

What goes wrong: answers come back in the order in which they are ready, files are listed in another order (10 before 2), a data
loader shuffles, a queue drops or repeats a sample: each answer is right, and stands beside another sample's reference.

How it shows: every sample is wrong by as much as two samples differ, in every precision alike; aggregate scores that need no
pairing are right.

How we test for it: the reference runs on up to 64 samples, as far as ten seconds go, and each wrong output of the candidate is
held against all of them. The claim holds if every wrong sample that was looked at has the answer of exactly one other, all
outputs together, to what the declared arithmetic explains, and that is not always the sample before's, which is an old
output (BND003).

What it is confused with: samples with equal inputs, which are not told apart and not named; inputs that were exchanged
together between two samples, which look the same from outside.

How to repair: write each answer under its sample's own name or number, and pair by it.

Sources: Python's manual (os.listdir: in arbitrary order; concurrent.futures.as_completed: as they complete).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S, Misfit, bad_samples, measure_misfit, show_refuted, show_supported
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

_MOST = 64  # chosen: samples whose reference is looked at; a network of 100 MFLOP runs so many in two seconds
_SECONDS = 10.0  # chosen: what that may take; of a slow model fewer are looked at, those around the wrong ones first
_FEWEST = 2  # wrong samples: one alone may be anything


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if len(known.inputs.indices) < _FEWEST or len(bench.samples) < _FEWEST:
        return
    yield Claim(
        words="the outputs belong to other samples",
        predicts=Prediction(
            change=f"run the reference on up to {_MOST} samples, and hold each wrong output against all of them",
            measure="worst relative L2 distance to the nearest",
            if_true="each has the answer of exactly one other sample",
            if_false="some have none",
        ),
        cost_s=RUN_S * min(_MOST, len(known.inputs.indices)),
        runs="reference",
        test=lambda: _test_claim(known, bench),
    )


def _test_claim(known: Examination, bench: Bench) -> Shown:
    bad = bad_samples(known, bench)
    if len(bad) < _FEWEST:
        return show_refuted(None, "fewer than two samples tell enough")
    befores = {index: measure_misfit(known, bench.reference(index), bench.candidate(index)) for index in bad}
    before = max(befores.values(), key=lambda one: one.error)
    answered = _reference_outputs(known, bench, bad)
    order: dict[int, int] = {}
    after = Misfit(error=0.0, over=0.0)
    for index in bad:
        held = {
            other: measure_misfit(known, outputs, bench.candidate(index))
            for other, outputs in answered.items()
            if other != index
        }
        fits = [other for other, left in held.items() if left.explains(befores[index])]
        if len(fits) != 1:
            whose = "no other" if not fits else f"{len(fits)} others"
            return show_refuted(before, f"what sample {index} has is the answer of {whose}, {len(answered)} known")
        order[index] = fits[0]
        after = max(after, held[fits[0]], key=lambda one: one.error)
    if all(other == index - 1 for index, other in order.items()):
        return show_refuted(before, "each is the sample before's: an old output")
    said = ", ".join(f"sample {index} has sample {other}'s" for index, other in order.items())
    because = f"{said}; so the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
    return _show_finding(order, after.share(before), show_supported(before, after, because))


def _reference_outputs(known: Examination, bench: Bench, bad: Sequence[int]) -> dict[int, Mapping[str, np.ndarray]]:
    """The reference's outputs by sample: those of the bench, and those around them."""
    answered: dict[int, Mapping[str, np.ndarray]] = {index: bench.reference(index) for index in bench.samples}
    others = [index for index in known.inputs.indices if index not in answered]
    started = time.perf_counter()
    for index in sorted(others, key=lambda one: abs(one - bad[0]))[: _MOST - len(answered)]:
        if time.perf_counter() - started > _SECONDS:
            break
        try:
            answered[index] = bench.outputs(known.inputs.sample(index).arrays)
        except ParityError:
            continue
    return answered


def _show_finding(order: Mapping[int, int], share: float, seen: Shown) -> Shown:
    return replace(
        seen,
        sentence=f"The outputs belong to other samples: {seen.because}.",
        confidence_from="the share of the error, in squares, that the other samples' answers explain with nothing fitted",
        share=share,
        repairs=(("pair_samples", "write each answer under its sample's own name or number, and pair by it"),),
        details={"order": {str(index): other for index, other in order.items()}},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,24] x) => (float[N,24] y) { y = Exp(x) }"""
_X = {"x": np.random.default_rng(68).normal(size=(4, 24)).astype(np.float32)}


def _sort_by_name(samples: Samples) -> Samples:
    """In the order of names that are sorted as text, say."""
    return [samples[place] for place in (2, 0, 3, 1)]


CHECK = Check(
    code="BND006",
    title="Outputs belong to other samples",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, outputs_fault=_sort_by_name),
        Example(model=_MODEL, inputs=_X, outputs_fault=lambda samples: [*samples[1:], samples[0]]),
    ),
    holds_not=(
        # Old outputs, and one that is wrong beside the exchange.
        Example(model=_MODEL, inputs=_X, outputs_fault=lambda samples: [samples[0], *samples[:-1]]),
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=lambda samples: [
                {"y": each["y"] * (1 + place % 2)} for place, each in enumerate(_sort_by_name(samples))
            ],
        ),
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", declared="f32"),
    ),
)
