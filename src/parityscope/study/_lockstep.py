"""Every tensor of both sides compared while both run: nothing is written to disk and nothing is localized.

Both targets run chunk by chunk with the same tensors marked, so that memory holds one chunk of each; outputs of these
runs are not judged (the undisturbed ones are).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend
from parityscope.backends.recording import model_of, observable, open_target, plan_chunks
from parityscope.comparison import channel_axis, measure_pair
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.records import Target

__all__ = ["compare_tensors"]

_THREADS = 2  # the pass is limited by memory bandwidth beyond that


def compare_tensors(
    case: Case,
    reference: Target,
    candidate: Target,
    pairing: Mapping[str, str],
    *,
    memory: int,
    progress: Progress,
) -> tuple[dict[str, Statistics], list[Skip]]:
    """Statistics of every intermediate tensor on both sides, over all samples, and what could not be compared."""
    if not backend(candidate.backend).observes:
        return {}, [Skip(what="intermediate tensors", reason=f"{candidate.backend} shows none", asked=True)]
    known = set(observable(model_of(case.model, candidate)))
    names = [name for name in observable(case.model) if pairing.get(name) in known]
    totals: dict[str, Statistics] = {}
    problems: dict[str, str] = {}
    first = next(iter(case.inputs))
    # A quarter for each side's chunk; the rest is what the runtimes hold themselves.
    chunks = plan_chunks(case.model, first, names, memory // 4)
    for number, chunk in enumerate(chunks):
        progress("comparing tensors", number, len(chunks))
        partners = tuple(dict.fromkeys(pairing[name] for name in chunk))
        with (
            open_target(case.model, reference, Capture(tensors=tuple(chunk))) as ours,
            open_target(case.model, candidate, Capture(tensors=partners)) as theirs,
            ThreadPoolExecutor(_THREADS) as pool,
        ):
            for sample in case.inputs:
                expected, found = ours.run(sample), theirs.run(sample)

                def measure(
                    name: str,
                    expected: Mapping[str, np.ndarray] = expected,
                    found: Mapping[str, np.ndarray] = found,
                ) -> tuple[str, Statistics | str]:
                    return name, _measured(expected.get(name), found.get(pairing[name]))

                for name, part in pool.map(measure, chunk):
                    if isinstance(part, str):
                        problems.setdefault(name, part)
                    else:
                        totals[name] = totals[name].merge(part) if name in totals else part
    progress("comparing tensors", len(chunks), len(chunks))
    return totals, [Skip(what=f"tensor {name}", reason=problem) for name, problem in problems.items()]


def _measured(expected: np.ndarray | None, found: np.ndarray | None) -> Statistics | str:
    if expected is None:
        return "the reference did not give it back"
    if found is None:
        return "the candidate did not give it back"
    if expected.shape != found.shape:
        return f"its shape is {list(expected.shape)} in the reference and {list(found.shape)} in the candidate"
    try:
        return measure_pair(expected, found, channel_axis=channel_axis(expected.ndim))
    except ValueError as error:
        return str(error)
