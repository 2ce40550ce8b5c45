"""Every tensor of both sides compared while both run: nothing is written to disk and nothing is localized.

Both targets run chunk by chunk with the same tensors marked, so that memory holds one chunk of each; outputs of these
runs are not judged (the undisturbed ones are). While a chunk runs and is measured, the sessions of the next one open, unless
both models are too large for that.
What a chunk showed is noted before the next one runs, and an interrupted comparison goes on from there (`_chunk_notes.py`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend_named
from parityscope.backends.both import fit_together, open_both
from parityscope.backends.opening import model_of
from parityscope.backends.recording import observable_tensors
from parityscope.backends.sizing import plan_chunks
from parityscope.comparison import channel_axis, measure_pair, merge_statistics
from parityscope.records import Skip
from parityscope.study._chunk_notes import Measured, notebook_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Executor

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.examination import Examination

__all__ = ["compare_tensors"]

_THREADS = 2  # the pass is limited by memory bandwidth beyond that


def compare_tensors(examination: Examination) -> tuple[dict[str, Statistics], list[Skip]]:
    """Statistics of every intermediate tensor on both sides, over all samples, and what could not be compared.

    The notes of a run that can be resumed are kept in the examination's folder.
    """
    case, reference, candidate = examination.case, examination.reference, examination.candidate
    pairing, progress = examination.names, examination.progress
    if not backend_named(candidate.backend).observes:
        return {}, [Skip(what="intermediate tensors", reason=f"{candidate.backend} shows none", asked=True)]
    known = set(observable_tensors(model_of(case.model, candidate)))
    names = [name for name in observable_tensors(case.model) if pairing.get(name) in known]
    totals: dict[str, Statistics] = {}
    problems: dict[str, str] = {}
    first = next(iter(case.inputs))
    # Half for each side's chunk.
    chunks = plan_chunks(case.model, first, names, examination.request.memory // 2)

    def opened(chunk: Mapping[str, int]) -> tuple[ExitStack, Session, Session]:
        stack = ExitStack()
        partners = tuple(dict.fromkeys(pairing[name] for name in chunk))
        captures = Capture(tensors=tuple(chunk)), Capture(tensors=partners)
        return stack, *stack.enter_context(open_both(case.model, reference, candidate, case.inputs, *captures))

    # Nothing is to be resumed behind the last chunk.
    notes = (
        notebook_of(examination.folder / "compared", (reference, candidate), pairing, case.inputs.indices)
        if len(chunks) > 1
        else None
    )
    kept = {number: notes.kept(number, chunk) if notes else None for number, chunk in enumerate(chunks)}
    left = [number for number, measured in kept.items() if measured is None]
    ahead = fit_together(case.model, reference, candidate)
    with ThreadPoolExecutor(1) as opener, ThreadPoolExecutor(_THREADS) as pool:
        following = opener.submit(opened, chunks[left[0]]) if left else None
        for position, number in enumerate(left):
            progress("comparing tensors", number, len(chunks))
            if following is None:
                break
            stack, ours, theirs = following.result()
            later = left[position + 1 :]
            following = opener.submit(opened, chunks[later[0]]) if later and ahead else None
            with stack:
                measured = _measured_chunk(case, (ours, theirs), chunks[number], pairing, pool)
            if later and not ahead:
                following = opener.submit(opened, chunks[later[0]])
            if notes and later:
                notes.keep(number, chunks[number], measured)
            kept[number] = measured
    progress("comparing tensors", len(chunks), len(chunks))
    for each in kept.values():
        if each is not None:
            totals.update(each.totals)
            problems.update(each.problems)
    return totals, [Skip(what=f"tensor {name}", reason=problem) for name, problem in problems.items()]


def _measured_chunk(
    case: Case, sessions: tuple[Session, Session], chunk: Iterable[str], pairing: Mapping[str, str], pool: Executor
) -> Measured:
    totals: dict[str, Statistics] = {}
    problems: dict[str, str] = {}
    reference, candidate = sessions
    for sample in case.inputs:
        for name, part in _measured_on(reference.run(sample), candidate.run(sample), chunk, pairing, pool):
            if isinstance(part, str):
                problems.setdefault(name, part)
            else:
                totals[name] = merge_statistics(totals[name], part) if name in totals else part
    return Measured(totals=totals, problems=problems)


def _measured_on(
    expected: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    names: Iterable[str],
    pairing: Mapping[str, str],
    pool: Executor,
) -> list[tuple[str, Statistics | str]]:
    """Statistics of each tensor on one sample, or why there are none; nothing of the sample outlives the call."""

    def measure(name: str) -> tuple[str, Statistics | str]:
        return name, _measure_tensor(expected.get(name), found.get(pairing[name]))

    return list(pool.map(measure, names))


def _measure_tensor(expected: np.ndarray | None, found: np.ndarray | None) -> Statistics | str:
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
