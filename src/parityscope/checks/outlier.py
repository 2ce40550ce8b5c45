"""The verdict on an output rests on a few elements of very many.

What goes wrong: one element of millions is far off, and a metric in which one element decides (the largest absolute or
relative difference) says that the whole output is wrong. It may be a race or a single overflow, or an element that no use
of the output ever reads; it is not what a wrong layer looks like.

How it shows: a huge largest difference, a cosine near one, a mean error of next to nothing.

How we test for it: no run. The largest errors of the output are taken away one after the other, up to sixteen and never more
than one in 10,000; if then 99 % of the squared error is gone and what is left is what the declared arithmetic explains, the
elements are named.

What it is confused with: an error at a bound, in a channel or in a tail (FUS002, BND003), which have a shape; a
lost range at that element (RNG002), which is a cause of its own and then goes first; a layer before that introduces half of
the error or more, which a saturated Softmax gathers in few elements: then this is a fact about the output and no cause.

How to repair: look at those elements. Judge by a metric of what the output is for (`--metric`, docs/verify.md), or by one in
which all elements count (`rel_l2`), and keep the outlier as a known fact.

Sources: NVIDIA/TensorRT issue 4361: 251.31 at (0, 77, 2526), one element of 2,363,392; the histogram bin that holds it has
a count of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S, limit_of
from parityscope.comparison.distance import distance_between
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

_FEW = 16  # elements that can be listed
_SHARE = 1e-4  # of the elements: a fault of a layer, a channel or a row holds more
_HELD = 0.99  # of the squared error, so that rounding everywhere else does not hide them
_ONE_PLACE = 0.5  # a layer that holds half of the output error is where it comes from


def outliers_of(reference: np.ndarray, candidate: np.ndarray, limit: float) -> tuple[tuple[int, ...], ...]:
    """The places of the elements (floats, both of one shape) that hold nearly all of the error, worst first.

    None if they are more than sixteen or more than one in 10,000, if the others err by more than `limit` (relative L2), or
    if an element is not finite.
    """
    if reference.shape != candidate.shape or reference.dtype.kind != "f":
        return ()
    most = min(_FEW, int(reference.size * _SHARE))
    r, c = (side.reshape(-1).astype(np.float64) for side in (reference, candidate))
    if most < 1 or not (np.isfinite(r).all() and np.isfinite(c).all()):
        return ()
    energy = np.square(c - r)
    total = float(energy.sum())
    top = np.argpartition(energy, energy.size - most)[energy.size - most :]
    order = top[np.argsort(energy[top])[::-1]]
    held = np.cumsum(energy[order])
    needed = int(np.searchsorted(held, _HELD * total)) + 1
    if total == 0.0 or needed > most:
        return ()
    left = c.copy()
    left[order[:needed]] = r[order[:needed]]
    if distance_between(r, left) > limit:
        # More of the same few may be needed to come down to rounding.
        left[order] = r[order]
        if distance_between(r, left) > limit:
            return ()
        needed = most
    named = order[:needed][energy[order[:needed]] > 0]
    return tuple(tuple(int(i) for i in np.unravel_index(int(place), reference.shape)) for place in named)


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    for pair in known.beyond:
        large = int(np.prod(pair.shape, dtype=np.int64)) * _SHARE >= 1.0
        if pair.dtype.startswith(("float", "bfloat")) and large:
            yield _make_claim(known, bench, pair.site.tensor)


def _make_claim(known: Examination, bench: Bench, output: str) -> Claim:
    return Claim(
        words=f"a few elements make output {output} beyond",
        predicts=Prediction(
            change="none: leave the largest errors out",
            measure="share of the squared error in them, and the relative L2 error of all others",
            if_true=f"at least {format_percent(_HELD)}, and what the arithmetic explains",
            if_false="the others are wrong too",
        ),
        cost_s=RUN_S * 2 * len(bench.samples),
        test=lambda: _test_claim(known, bench, output),
    )


def _test_claim(known: Examination, bench: Bench, output: str) -> Shown:
    limit = limit_of(known, output)
    named: list[tuple[int, tuple[tuple[int, ...], ...]]] = []
    worst, least, size = 0.0, 0.0, 0
    held: tuple[float, ...] = ()  # what the first one is and should be
    for index in bench.samples:
        reference, candidate = bench.reference(index).get(output), bench.candidate(index).get(output)
        if reference is None or candidate is None or (error := distance_between(reference, candidate)) <= limit:
            continue
        places = outliers_of(reference, candidate, limit)
        if not places:
            return Shown(because="the others are wrong too", outcome="refutes", before=error, after=error)
        held = held or (float(candidate[places[0]]), float(reference[places[0]]))
        worst = max(worst, *(abs(float(candidate[place]) - float(reference[place])) for place in places))
        kept = np.array(candidate, copy=True)
        for place in places:
            kept[place] = reference[place]
        least = max(least, distance_between(reference, kept))
        size = reference.size
        named.append((index, places))
    if not named:
        return Shown(because="no sample is beyond", outcome="inconclusive", before=0.0, after=0.0)
    index, places = named[0]
    off, first = format_number(worst), list(places[0])
    words = (
        f"one element of {size:,} ({first}) is {format_number(held[0])} where the reference has {format_number(held[1])}"
        if len(places) == 1
        else f"{len(places)} of {size:,} elements (first {first}) are off by up to {off}"
    )
    others = (
        f"all others are within {format_percent(least)}, which rounding explains" if least else "all others are equal"
    )
    because = f"on sample {index} {words}, and {others}"
    before = max(distance_between(bench.reference(each)[output], bench.candidate(each)[output]) for each, _ in named)
    share = max(0.0, 1.0 - (least / before) ** 2)
    blamed = known.localization.suspects if known.localization else ()
    elsewhere = any((one.share or 0.0) >= _ONE_PLACE and one.site.tensor != output for one in blamed)
    return Shown(
        because=because,
        before=before,
        after=least,
        # What a layer spreads over few elements of an output, as a saturated Softmax does, is that layer's error.
        role="information" if elsewhere else "cause",
        sentence=f"Output {output}: {because}: rounding does not do that (a bad write, a race, a damaged file?).",
        confidence_from="the share of the squared error in the elements named",
        site=known.places.get(output) or Site(tensor=output, node="", op_type="Input", index=-1),
        share=share,
        repairs=(
            (
                "look_there",
                "if a second run is wrong at the same element, look at the code that writes it, else at a race or at the file",
            ),
        ),
        details={
            "elements": [list(place) for place in places],
            "of": size,
            "largest": worst,
            "without": least,
            "samples": len(named),
        },
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,40,600] x) => (float[N,40,600] y) { y = Tanh(x) }"""
_X = {"x": np.random.default_rng(64).normal(size=(2, 40, 600)).astype(np.float32)}


def _deployment_off_at(places: tuple[tuple[int, int], ...]) -> Callable[[Samples], Samples]:
    """A deployment whose output has other values at a few places."""

    def fault(samples: Samples) -> Samples:
        found = []
        for each in samples:
            y = each["y"].copy()
            for place in places:
                y[(0, *place)] += np.float32(251.31)
            found.append({"y": y})
        return found

    return fault


def _shift_some_elements(samples: Samples) -> Samples:
    return [{"y": np.where(np.arange(600) < 30, each["y"] + np.float32(5), each["y"])} for each in samples]


CHECK = Check(
    code="DAT007",
    title="The verdict rests on a few elements of very many",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_off_at(((7, 253),)), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_off_at(((7, 253), (39, 0))), site="y"),
    ),
    holds_not=(
        # A twentieth of every row, all of them, or none.
        Example(model=_MODEL, inputs=_X, outputs_fault=_shift_some_elements),
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", declared="f32"),
        Example(model=_MODEL, inputs=_X, candidate="sim:f16"),
    ),
)
