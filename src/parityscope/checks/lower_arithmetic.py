"""The outputs look like a coarser arithmetic than the one declared.

What goes wrong: the deployment computes in TF32, FP16 or BF16 although it is said to compute in something finer: a
default switch (TF32 on NVIDIA GPUs, BF16 on CPUs with AMX), a converted file, or a wish that was not honoured.

How it shows: the error is spread over all layers, each a little, with the size that the coarser format predicts.

How we test for it: the error that each format's rounding causes at each output is predicted by simulating it on these samples.
Where only formats coarser than the declared arithmetic cover the measured error, one of them is the claim: what the layers were
seen to compute in, else the nearest in size. What leaves an output unexplained, is not what the layers show, or stands beside
layers that explain the error is not called the cause. Where no layer was seen, the error must point where the simulated one
does as well, by enough numbers that chance is excluded: weights round alike everywhere, and an error of that size that points
elsewhere, or in an output of a few numbers, may have another reason. A simulated error that is 99 % of the candidate's, in
squares, explains it, and no other reason is searched for long; else a change that describes more of it goes first. Where not the
whole network computes so, each product is simulated in the format alone, and the set is named whose errors add up to the
candidate's. An error that none covers acquits them: each is refuted, with how much too small it is.

What it is confused with: a small bug at one place (then one suspect holds most of the share); an ill-conditioned
network that amplifies FP32 noise (then the FP32 floor, measured on equivalent reference runs, is high too).

How to repair: declare the precision if it is meant (`--declared bf16`), else switch it off: TF32 with the builder flag
or the provider option, BF16 with the precision hint.

Sources: residual sizes by format: numerics notes in docs/numerics.md; simulation measured against real engines.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.sites import PRODUCTS as SUMMED
from parityscope.checks import Check, Claim, Correction, Example, Prediction, Shown
from parityscope.checks._common import format_percent, is_mostly_variation, leading_suspects
from parityscope.checks._examples import PRODUCTS, product_arrays
from parityscope.checks._partly import ErrorLikeness, ProductsFound, find_products, likeness_of_errors
from parityscope.checks._reproducing import RUN_S
from parityscope.errors import ParityError
from parityscope.expectation.grades import margin_of
from parityscope.light_dataclasses import replace
from parityscope.plain_numbers import format_number, list_first
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination
    from parityscope.records import Pair

_ORDER = ("f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "int8")
# What is suspected first where an engine differs in FP32, and mostly innocent.
_SUSPECTED = ("tf32", "f16", "bf16")
_QUANTITIES = {"rel_l2": "relative L2 error", "mismatch_share": "share of unequal elements"}
# Of measured and predicted error, the smaller over the larger: what a cause needs where no layer was seen. Chosen.
_SAME_SIZE = 2 / 3
_POINTED = 0.5  # of the squared error, in the direction of the simulated one: then it may be of another size. Chosen
# Bits that the simulated error must save of the measured one. Chosen: chance saves so many once in a million.
_SURE_BITS = 20.0
_REPRODUCED = 0.99  # of the squared error: what the simulated one explains leaves nothing, as in checks/_reproducing.py
_PART = 0.7  # of the squared error, at least, that a set of products explains where it is the cause; chosen
_NAMED = 3  # products, in a sentence; chosen
_FINER = 0.01  # of a format's rounding: a product that errs by less is not computed in it, by 100 times more has another fault
# A suspect that alone holds half of the output error is a place; rounding has none.
_ONE_PLACE = 0.5


def _propose_claims(known: Examination) -> Iterator[Claim]:
    yield from _claim_coarser_format(known)
    yield from _claims_refuted(known)


def _claim_coarser_format(known: Examination) -> Iterator[Claim]:
    coarser = [pair for pair in known.outputs if _is_coarser(pair.grade, known.declared)]
    if not coarser or known.verdict != "beyond":
        return
    named = _nearest_format(coarser, _formats_seen_inside(known) or set(_ORDER), known.declared)
    worst = max(coarser, key=lambda pair: _measured_error(pair) / (pair.expected.get(known.declared) or math.inf))
    because = (
        f"measured {format_number(_measured_error(worst))}; predicted "
        f"{format_number(worst.expected.get(named, math.nan))} for {named} and "
        f"{format_number(worst.expected.get(known.declared, math.nan))} for {known.declared}"
    )
    blind = known.localization is None and known.bench is not None and named in known.bench.simulated
    yield Claim(
        words=f"the candidate computes in {named}, not in {known.declared}",
        predicts=Prediction(
            change="none: simulate each format's rounding on the same samples",
            measure=f"{_QUANTITIES[_grading_metric(worst)]} predicted for {named} at output {worst.site.tensor}",
            if_true="it covers the measured error, and no single place holds most of it",
            if_false="it does not",
        ),
        cost_s=RUN_S * len(known.bench.samples) if blind and known.bench is not None else 0.0,
        test=lambda: (
            _show_variation(known, worst)
            if is_mostly_variation(known)
            else _show_finer(worst, named, finer)
            if (finer := _count_finer_products(known, named, worst))
            else _show_finding(known, worst, named, Shown(because=because))
        ),
    )


def _nearest_format(pairs: list[Pair], among: set[str], declared: str) -> str:
    """Of the formats that cover all of these outputs, those `among` them first, the one nearest to their errors."""
    coarser = [name for name in _ORDER if _is_coarser(name, declared)]
    covering = [name for name in coarser if all(_covers_error(name, pair) for pair in pairs)]
    covering = covering or [max((str(pair.grade) for pair in pairs), key=_ORDER.index)]

    def distance(name: str) -> float:
        return sum(
            abs(math.log(_measured_error(pair) / pair.expected[name])) for pair in pairs if pair.expected.get(name)
        )

    return min([name for name in covering if name in among] or covering, key=distance)


def _formats_seen_inside(known: Examination) -> set[str]:
    """The coarser formats that most of the introduced error is known to come from, layer by layer; none where that is not known.

    What one layer introduced may be explained by several formats: then it speaks for each.
    """
    weights: dict[str, float] = {}
    for suspect in leading_suspects(known):
        explanation = known.explanations.get(suspect.site.tensor)
        if explanation is None or explanation.status != "explained" or explanation.by[0].family != "arithmetic":
            continue
        for name in {each.hypothesis.partition("_")[0] for each in explanation.by}:
            if _is_coarser(name, known.declared):
                weights[name] = weights.get(name, 0.0) + suspect.introduced**2
    return {name for name, weight in weights.items() if weight == max(weights.values())}


def _covers_error(name: str, pair: Pair) -> bool:
    return _measured_error(pair) <= margin_of(name) * pair.expected.get(name, 0.0)


def _claims_refuted(known: Examination) -> Iterator[Claim]:
    """Each arithmetic that is suspected first and is too small for the worst output, and by how much."""
    wrong = [pair for pair in known.beyond if np.isfinite(pair.value("rel_l2"))]
    if not wrong or known.verdict != "beyond":
        return
    worst = max(wrong, key=lambda pair: pair.value("rel_l2"))
    measured = worst.value("rel_l2")
    for name in _SUSPECTED:
        expected = worst.expected.get(name, 0.0)
        if _is_coarser(name, known.declared) and 0.0 < margin_of(name) * expected < measured:
            because = (
                f"measured {format_number(measured)}; {name} explains {format_number(expected)}, "
                f"{measured / expected:.3g} times less"
            )
            shown = Shown(because=because, outcome="refutes", before=measured, after=measured)
            yield Claim(
                words=f"the candidate computes in {name}, not in {known.declared}",
                predicts=Prediction(
                    change="none: simulate each format's rounding on the same samples",
                    measure=f"relative L2 error predicted for {name} at output {worst.site.tensor}",
                    if_true="it covers the measured error",
                    if_false="it is too small",
                ),
                test=functools.partial(_show_unchanged, shown),
            )


def _show_variation(known: Examination, worst: Pair) -> Shown:
    """Rounding is the same in every run."""
    measured = _measured_error(worst)
    because = (
        f"measured {format_number(measured)}, most of which changes from run to run: two runs of the candidate differ by "
        f"{format_number(known.compared.spread)}"
    )
    return Shown(because=because, outcome="refutes", before=measured, after=measured)


def _count_finer_products(known: Examination, named: str, worst: Pair) -> int:
    """How many products were seen inside, where none rounds as a format does; 0 where one may, or looking changed them."""
    if known.localization is None or named not in _SUSPECTED or 2 * known.disturbance >= _measured_error(worst):
        return 0
    unit = FORMATS[named].unit_roundoff
    sizes = [one.introduced for one in known.localization.suspects if one.site.op_type in SUMMED]
    finer = sum(size < _FINER * unit for size in sizes)
    rounded = sum(_FINER * unit <= size <= unit / _FINER for size in sizes)
    return finer if finer > 1 and not rounded else 0


def _show_finer(worst: Pair, named: str, products: int) -> Shown:
    """Rounding is in every product."""
    measured = _measured_error(worst)
    because = f"none of {products} products that were seen inside rounds as {named} does"
    return Shown(because=because, outcome="refutes", before=measured, after=measured)


def _show_unchanged(shown: Shown) -> Shown:
    return shown


def _show_finding(known: Examination, worst: Pair, named: str, seen: Shown) -> Shown:
    expected = worst.expected.get(named, 0.0)
    measured = _measured_error(worst)
    ratio = min(measured, expected) / max(measured, expected) if measured and expected else 0.0
    alone = not _is_error_elsewhere(known) and (_formats_seen_inside(known) or {named}) >= {named}
    alone = alone and all(_covers_error(named, pair) for pair in known.beyond)
    likeness = _likeness_of_format(known, named) if alone else None
    pointed = likeness is not None and likeness.cosine**2 >= _POINTED
    alone = alone and (known.localization is not None or ratio >= _SAME_SIZE or pointed)
    alone = alone and (likeness is None or likeness.bits >= _SURE_BITS)
    found, skipped = (None, ()) if alone else _find_products(known)
    if found is not None:
        return _show_products(known, seen, found)
    beside = ""
    if likeness is not None and not alone:
        beside = (
            f" Where the error points does not prove it: a cosine of {likeness.cosine:.2g} with the simulated error, "
            f"over about {likeness.numbers:.2g} numbers."
        )
    return replace(
        seen,
        role="cause" if alone else "contributing",
        sentence=f"{known.declared} is declared, and the error has the size of {named} rounding: {seen.because}.{beside}",
        confidence=ratio if alone else ratio / 2,
        confidence_from="the smaller over the larger of measured and predicted error"
        + ("" if alone else ", halved because that is not all that is seen"),
        share=_share_of_error(known, likeness) if alone else None,
        repairs=(
            ("declare", f"if {named} is meant, declare it; else switch it off in the runtime", f"--declared {named}"),
        ),
        details={
            "grade": named,
            "expected": dict(worst.expected),
            "measured": measured,
            **({} if likeness is None else {"explains": likeness.cosine**2}),
        },
        correction=Correction(words=f"grants the candidate {named}", declared=named),
        skipped=skipped,
    )


def _find_products(known: Examination) -> tuple[ProductsFound | None, tuple[Skip, ...]]:
    """Where no layer was seen: the products whose errors in a coarser format add up to the candidate's; what was left out."""
    bench = known.bench
    if known.localization is not None or bench is None:
        return None, ()
    sure: list[ProductsFound] = []
    skipped: list[Skip] = []
    for precision in _SUSPECTED:
        # The first two keep as many bits; what they explain the next, which keeps fewer, does not.
        if (
            precision not in bench.simulated
            or not _is_coarser(precision, known.declared)
            or (sure and precision == "bf16")
        ):
            continue
        with contextlib.suppress(ParityError):
            found = find_products(known, bench, precision)
            if isinstance(found, Skip):
                skipped.append(found)
            elif found is not None and found.explained >= _PART and found.bits >= _SURE_BITS:
                sure.append(found)
    return max(sure, key=lambda one: one.bits, default=None), tuple(skipped)


def _show_products(known: Examination, seen: Shown, found: ProductsFound) -> Shown:
    """A few products in a format; the whole of it is not granted for them."""
    sites = [known.places.get(name) for name in found.products]
    names = [site.node or site.tensor if site else name for name, site in zip(found.products, sites, strict=True)]
    because = (
        f"these alone, simulated in {found.format}, explain {format_percent(found.explained)} of the squared error"
    )
    return replace(
        seen,
        because=because,
        after=found.explained,
        sentence=f"{len(names)} of {found.all} convolutions and matrix products compute in {found.format}, where "
        f"{known.declared} is declared ({list_first(names, _NAMED)}); {because}.",
        confidence=found.explained,
        confidence_from="the part of the squared error that they explain",
        share=found.explained,
        site=sites[0],
        repairs=(
            (
                "declare",
                f"switch {found.format} off for these nodes (another algorithm or kernel), or declare it if it is meant",
                f"--declared {found.format}",
            ),
        ),
        details={"grade": found.format, "products": list(found.products), "explains": found.explained},
    )


def _share_of_error(known: Examination, likeness: ErrorLikeness | None) -> float | None:
    """The part of the error that the format makes, where layers were seen or the simulated error is the candidate's.

    Else size is all that speaks for it, and whatever reproduces the outputs goes first.
    """
    if known.localization is not None:
        return 1.0
    explained = 0.0 if likeness is None else likeness.cosine**2
    return explained if explained >= _REPRODUCED else None


def _likeness_of_format(known: Examination, named: str) -> ErrorLikeness | None:
    """As `likeness_of_errors`; None where layers were seen, which say more, or where nothing can be simulated."""
    bench = known.bench
    if known.localization is not None or bench is None or named not in bench.simulated:
        return None
    simulated = bench.simulated[named]
    try:
        return likeness_of_errors(known, bench, lambda index: simulated(bench.inputs(index)))
    except ParityError:
        return None


def _is_error_elsewhere(known: Examination) -> bool:
    """Whether one place, or layers that are known to compute another function, hold most of the error."""
    suspects = known.localization.suspects if known.localization else ()
    shares = {one.site.tensor: one.share or 0.0 for one in suspects}
    wrong = (name for name, found in known.explanations.items() if found.status == "explained" and found.is_bug)
    return max(shares.values(), default=0.0) >= _ONE_PLACE or sum(shares.get(name, 0.0) for name in wrong) >= _ONE_PLACE


def _grading_metric(pair: Pair) -> str:
    """What an output is graded by: integers and booleans have no relative error."""
    return next(name for name in _QUANTITIES if name in pair.measurements)


def _measured_error(pair: Pair) -> float:
    return pair.value(_grading_metric(pair))


def _is_coarser(grade: str | None, declared: str) -> bool:
    return grade in _ORDER and declared in _ORDER and _ORDER.index(grade) > _ORDER.index(declared)


_W, _X = product_arrays(5)

CHECK = Check(
    code="ACC001",
    title="The outputs look like a coarser arithmetic than the one declared",
    propose=_propose_claims,
    holds=(Example(model=PRODUCTS, inputs=_X, candidate="sim:bf16", declared="f32", constants=_W),),
    holds_not=(Example(model=PRODUCTS, inputs=_X, candidate="sim:bf16", constants=_W),),
)
