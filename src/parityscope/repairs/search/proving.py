"""The certificate: the written model, freshly loaded, on samples that the search never saw.

Each held-out sample is run once as a deployment would. The samples nearest to the budget are drawn again, so that a
lucky draw cannot pass: with the sums of products in another order, and with inputs moved by one part in ten million (the
reference is run on the moved inputs too). An input whose values are all integers stays: a mask of 0 and 1 has no
neighbours, and the model itself multiplies what is put between them by 3.4e38.

Statement: if the share of inputs that meet the budget were less than p, then n clean samples would have a probability
of less than p^n. So n clean samples say "at least p" with confidence 1 - p^n, whatever the distribution (S. S. Wilks,
Determination of sample sizes for setting tolerance limits, Ann. Math. Statist. 12, 1941): 59 for 95 %/95 %, 22 for
90 %/90 %. With several attempts on the same samples the union bound gives 1 - attempts p^n. It takes the held-out
samples for a random choice of those in use.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.case.inputs import Sample
from parityscope.evaluation.simulating import open_simulation
from parityscope.evaluation.switching import Switchboard
from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.judging import worst_excess
from parityscope.repairs.search.records import Certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from parityscope.backends.onnxruntime_running import Run
    from parityscope.backends.recording import Progress
    from parityscope.case import Model
    from parityscope.repairs.search.judging import Yardstick

LEVELS = (0.95, 0.90)  # shares that are claimed, each with a confidence of the same size; below the last nothing is
DRAWN_AGAIN = 8  # samples, the nearest to the budget. Chosen
_DRAWS = 3  # of those: as they are, with inputs moved, with sums in another order
_ORDER = 20240229  # seed of the other order of sums; any would do, a fixed one can be repeated
_JITTER = 1e-7  # relative; a little over half a unit in the last place of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What opens the written model: as it is deployed, and again with another order of summation.

    They are opened one after the other, since each holds the weights more than once.

    Raises:
        ParityError: the runtime refuses it.
    """

    plain: Callable[[], Run]
    again: Callable[[], Run]


def draws_of(written: Model, threads: int, kept: tuple[str, Collection[str]] | None = None, full: str = "f32") -> Draws:
    """What opens the file anew, faithful to its types.

    A file without types of its own is run as a runtime would convert it: `kept` says to which format, and which nodes
    it leaves in FP32. `full` is what products in FP32 take their operands in.
    """

    def opened(threads: int, order: int | None) -> Run:
        if kept is None:
            found = arrange_precision(written.graph(), None if full == "f32" else full)
            return open_simulation(found, threads=threads, order=order)
        board = Switchboard(written.graph(), kept[0], threads=threads, full=full, order=order)
        assignment = np.array([node.name not in kept[1] for node in board.graph.nodes], np.bool_)
        return lambda arrays: board.run(Sample(index=0, name="", arrays=arrays), assignment)

    return Draws(plain=lambda: opened(threads, None), again=lambda: opened(1, _ORDER))


def certify_written(
    draws: Draws,
    reference: Callable[[Sample], Mapping[str, np.ndarray]],
    samples: Sequence[Sample],
    held: Yardstick,
    *,
    attempts: int,
    seed: int,
    progress: Progress,
) -> Certificate:
    """Runs every sample, then the nearest to the budget again, and says what that proves.

    Raises:
        ParityError: the runtime refuses the model, or fails.
    """
    over, run = [], draws.plain()
    for position, sample in enumerate(samples):
        progress("certifying", position, len(samples))
        over.append(worst_excess(held, reference(sample), run(sample.arrays)))
    nearest = sorted(range(len(over)), key=lambda place: -over[place])[:DRAWN_AGAIN]
    random = np.random.default_rng(seed)
    for place in nearest:
        moved = _move_sample(samples[place], random)
        over[place] = max(over[place], worst_excess(held, reference(moved), run(moved.arrays)))
    del run
    again = draws.again()
    for place in nearest:
        sample = samples[place]
        over[place] = max(over[place], worst_excess(held, reference(sample), again(sample.arrays)))
    progress("certifying", len(samples), len(samples))
    return certificate_of(over, attempts=attempts)


def certificate_of(over: Sequence[float], *, attempts: int = 1) -> Certificate:
    """What held-out samples say: `over` holds the excess of each, in units of the budget."""
    failures = sum(1 for value in over if not value <= 1)
    level = next((one for one in LEVELS if not failures and len(over) >= samples_needed(one, attempts)), None)
    share = level or LEVELS[0]
    sure = 0.0 if failures else confidence_of_share(len(over), share, attempts)
    return Certificate(
        excess=tuple(over),
        draws=_DRAWS,
        attempts=attempts,
        failures=failures,
        worst=max(over, default=math.nan),
        p95=_excess_quantile(over, 0.95),
        share=share,
        confidence=sure,
        certified=level is not None,
        statement=_state_certificate(over, failures, share, sure, attempts, certified=level is not None),
    )


def confidence_of_share(count: int, share: float, attempts: int = 1) -> float:
    """How sure `count` clean samples make "at least `share` of them meet the budget": 1 - attempts share^count."""
    return max(0.0, 1.0 - attempts * share**count)


def samples_needed(level: float, attempts: int = 1) -> int:
    """The fewest clean samples for a share and a confidence of `level`: attempts level^n <= 1 - level."""
    return math.ceil(math.log((1 - level) / attempts) / math.log(level) - 1e-12)


def _state_certificate(
    over: Sequence[float], failures: int, share: float, sure: float, attempts: int, *, certified: bool
) -> str:
    count = len(over)
    plural = "" if count == 1 else "s"
    if not count:
        return f"{samples_needed(LEVELS[-1])} more samples, held out, would certify it for 90 % of samples like these."
    if failures:
        return f"Not certified: {failures} of {count} held-out sample{plural} beyond the budget."
    tries = f" ({attempts} attempts)" if attempts > 1 else ""
    if certified:
        said = f"at least {share:.0%} of such inputs meet the budget, with {math.floor(sure * 100)} % confidence{tries}"
        nearest = f"The worst of them makes {max(over):.2g} times the error allowed"
        return f"All {count} held-out samples meet the budget: {said}. {nearest}; a rarer input may miss."
    fewest = samples_needed(LEVELS[-1], attempts)
    met = "The one held-out sample meets the budget" if count == 1 else f"All {count} held-out samples meet the budget"
    return (
        f"{met}. That {LEVELS[-1]:.0%} of inputs like these do takes {fewest} such samples to say with as much confidence, "
        f"{LEVELS[0]:.0%} takes {samples_needed(LEVELS[0], attempts)}."
    )


def _excess_quantile(over: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the samples do not exceed; NaN without samples."""
    return sorted(over)[math.ceil(share * len(over)) - 1] if over else math.nan


def _move_sample(sample: Sample, random: np.random.Generator) -> Sample:
    """The sample with float inputs moved by at most `_JITTER`, relative; inputs of integers (masks, ids) stay."""
    arrays = {
        name: (array * (1 + _JITTER * random.uniform(-1, 1, array.shape))).astype(array.dtype)
        if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array))
        else array
        for name, array in sample.arrays.items()
    }
    return Sample(index=sample.index, name=sample.name, arrays=arrays, original=sample.original)
