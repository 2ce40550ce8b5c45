"""What the checks of a conversion have in common: how far two ways to run the network are apart, sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks._reproducing import Misfit, measure_misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import numpy as np

    from parityscope.bench import Bench
    from parityscope.examination import Examination


def misfit_by_sample(
    known: Examination, bench: Bench, first: Callable[[Any], Any], second: Callable[[Any], Any]
) -> dict[int, Misfit]:
    """The misfit of `second` to `first` on every sample; `bench.reference` and `bench.candidate` will do as sides."""
    return {
        index: measure_misfit(known, _run_on_sample(bench, first, index), _run_on_sample(bench, second, index))
        for index in bench.samples
    }


def worst_misfit(known: Examination, bench: Bench, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Misfit:
    """The largest misfit of any sample."""
    return max(misfit_by_sample(known, bench, first, second).values(), key=lambda one: one.over)


def _run_on_sample(bench: Bench, run: Callable[[Any], Any], index: int) -> Mapping[str, np.ndarray]:
    by_place = run in {bench.reference, bench.candidate}
    found: Mapping[str, np.ndarray] = run(index if by_place else bench.inputs(index))
    return found
