"""Samples drawn until it is sure whether samples like these keep their budgets (`comparison.sequential`): `--until-sure`.

A sample is bad if an output misses a budget on it alone, cannot be compared, or is not given. Samples are taken in an order
drawn with the seed, task by task, and after each task is looked; whoever does the tasks, the same are taken. A task is read
from front to back, which is what files are made for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.sequential import decide_rate
from parityscope.errors import ParityError
from parityscope.examination import Sampling
from parityscope.records import Finding, Skip
from parityscope.workers import group_samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.case import Inputs
    from parityscope.examination import Examination
    from parityscope.records import Pair, Policy
    from parityscope.study.sample_tasks import Found

COVERAGE = 0.95  # the share of samples that is to keep the budgets, as `verify` has it (verification/verifying.py)


def draw_order(policy: Policy, seed: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """What puts samples in an order that says nothing of them.

    Raises:
        ParityError: there is no budget that a sample could keep or miss.
    """
    if not policy.budgets:
        raise ParityError(
            "nothing says what a sample has to keep, so that nothing can become sure",
            fix="add --budget rel_l2=1e-2, or leave --until-sure out",
        )

    def draw(indices: tuple[int, ...]) -> tuple[int, ...]:
        drawn = tuple(np.random.default_rng(seed).permutation(indices).tolist())
        return tuple(index for group in group_samples(drawn) for index in sorted(group))

    return draw


def is_sure(examination: Examination, found: Found) -> bool:
    """Whether no more samples have to be taken."""
    sampling = sampling_of(examination, found)
    return sampling is not None and sampling.decided != "open"


def sampling_of(examination: Examination, found: Found) -> Sampling | None:
    """What is sure after the samples so far; None where all are to be taken."""
    confidence = examination.request.until_sure
    if not confidence:
        return None
    failed = {one.index for one in found.failed}
    missed = len(failed.union(*found.misses.values()))
    answered = failed.union(found.compared)
    return Sampling(
        confidence=confidence,
        coverage=COVERAGE,
        taken=tuple(index for index in examination.case.inputs.indices if index in answered),
        count=len(examination.case.inputs.indices),
        bad={name: len(missed) for name, missed in found.misses.items()},
        missed=missed,
        decided=decide_rate(missed, len(answered), 1 - COVERAGE, confidence),
    )


def keep_drawn(inputs: Inputs, sampling: Sampling) -> Inputs:
    """The inputs that are left: of those that were drawn the ones that were answered, and what is told of the others.

    Raises:
        ParityError: none of them can be judged.
    """
    groups, drawn = group_samples(inputs.indices), 0
    while drawn < len(groups) and (sampling.decided == "open" or set(sampling.taken).difference(*groups[:drawn])):
        drawn += 1
    settled = inputs.settle(sorted(index for group in groups[:drawn] for index in group))
    answered = set(sampling.taken)
    return replace(settled, indices=tuple(index for index in settled.indices if index in answered))


def judge_sampling(known: Examination, outputs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """The outputs, of which the one that most samples missed is beyond if too many do for sure."""
    sampling = known.compared.sampling
    if sampling is None or sampling.decided != "above" or not sampling.bad:
        return outputs
    worst = max(sampling.bad, key=lambda name: sampling.bad[name])
    apart = (
        f"{sampling.missed} of {len(sampling.taken)} samples miss a budget: sure at {100 * sampling.confidence:g} % "
        f"that fewer than {100 * sampling.coverage:g} % of samples like these keep their budgets"
    )
    return tuple(
        replace(pair, verdict="beyond", apart=apart) if pair.site.tensor == worst and pair.verdict == "within" else pair
        for pair in outputs
    )


def skips_of_sampling(known: Examination) -> tuple[Skip, ...]:
    """That it did not become sure."""
    sampling = known.compared.sampling
    if sampling is None or sampling.decided != "open":
        return ()
    return (
        Skip(
            what=f"whether {100 * sampling.coverage:g} % of samples like these keep their budgets",
            reason=f"it is not sure at {100 * sampling.confidence:g} % after all {len(sampling.taken)} samples, of which "
            f"{sampling.missed} miss one",
            fix="give more samples",
            asked=True,
        ),
    )


def findings_of_sampling(known: Examination) -> tuple[Finding, ...]:
    """What became sure, and after how many samples."""
    sampling = known.compared.sampling
    if sampling is None or sampling.decided == "open":
        return ()
    share, sure = f"{100 * sampling.coverage:g} %", f"{100 * sampling.confidence:g} %"
    claim = (
        f"{sampling.missed} of {len(sampling.taken)} samples, drawn from {sampling.count}, miss a budget. At least {share} of "
        f"samples like these keep their budgets: that is sure at {sure}, however often was looked."
        if sampling.decided == "below"
        else f"{sampling.missed} of {len(sampling.taken)} samples, drawn from {sampling.count}, miss a budget. Fewer than "
        f"{share} of samples like these keep their budgets: that is sure at {sure}, however often was looked."
    )
    return (
        Finding(
            code="SURE",
            title="Samples were drawn until it was sure",
            role="information",
            claim=claim,
            confidence=sampling.confidence,
            confidence_from="a test that may be looked at after every sample (Ville's inequality)",
            details={"samples": len(sampling.taken), "missed": sampling.missed, "of": sampling.count},
        ),
    )
