"""Every tensor of both sides compared while both run: nothing is written to disk and nothing is localized.

Both targets run chunk by chunk with the same tensors marked, so that memory holds one chunk of each; outputs of these
runs are not judged (the undisturbed ones are). While a chunk runs and is measured, the sessions of the next one open, unless
both models are too large for that.
What a chunk showed is noted before the next one runs, and an interrupted comparison goes on from there (`_chunk_notes.py`).
A candidate whose process dies of what it was asked to show is asked by halves, as when tensors are recorded.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from parityscope.backends import Capture, backend_named
from parityscope.backends.both import fit_together, open_both
from parityscope.backends.opening import model_of, shapes_for
from parityscope.backends.recording import AskedTensors, observable_tensors, reason_of_death
from parityscope.backends.sizing import plan_chunks
from parityscope.comparison import channel_axis, measure_pair, merge_statistics
from parityscope.errors import ParityError
from parityscope.records import Skip
from parityscope.study._chunk_notes import Measured, notebook_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Executor, Future

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.examination import Examination
    from parityscope.records import Target

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

    # Nothing is to be resumed behind the last chunk.
    notes = (
        notebook_of(examination.folder / "compared", (reference, candidate), pairing, case.inputs.indices)
        if len(chunks) > 1
        else None
    )
    kept = {number: notes.kept(number, chunk) if notes else None for number, chunk in enumerate(chunks)}
    left = [number for number, measured in kept.items() if measured is None]
    asking = AskedTensors(target=candidate)
    parts = _PartsLeft({number: tuple(chunks[number]) for number in left})
    with _PairOpener(examination) as opener, ThreadPoolExecutor(_THREADS) as pool:
        while parts.left:
            number, part = parts.next(asking.most)
            progress("comparing tensors", number, len(chunks))
            try:
                with opener.sessions(asking.target, part) as sessions:
                    opener.begin(asking.target, parts.behind(len(part), asking.most))
                    parts.add(number, _measured_chunk(case, sessions, part, pairing, pool), len(part))
            except ParityError as error:
                if not error.over:
                    raise
                asking = asking.after_death(len(part))
                given_up = parts.left[number] if asking.over else part if len(part) == 1 else ()
                reason = reason_of_death(error)
                parts.add(number, Measured(totals={}, problems=dict.fromkeys(given_up, reason)), len(given_up))
            if number not in parts.left:
                kept[number] = parts.measured[number]
                if notes and parts.left:
                    notes.keep(number, chunks[number], parts.measured[number])
    progress("comparing tensors", len(chunks), len(chunks))
    for each in kept.values():
        if each is not None:
            totals.update(each.totals)
            problems.update(each.problems)
    return totals, [Skip(what=f"tensor {name}", reason=problem) for name, problem in problems.items()]


class _PartsLeft:
    """What of each chunk is still to be asked for, and what was measured of it: a chunk may have to be asked for in parts."""

    def __init__(self, left: dict[int, tuple[str, ...]]) -> None:
        self.left = left
        self.measured = {number: Measured(totals={}, problems={}) for number in left}

    def next(self, most: int) -> tuple[int, tuple[str, ...]]:
        """The chunk, and its next tensors, `most` of them (0: all)."""
        number, names = next(iter(self.left.items()))
        return number, names[: most or None]

    def behind(self, asked: int, most: int) -> tuple[str, ...]:
        """What comes after the `asked` tensors that are next; nothing at the end."""
        rest, *others = self.left.values()
        following = [names for names in (rest[asked:], *others) if names]
        return following[0][: most or None] if following else ()

    def add(self, number: int, found: Measured, count: int) -> None:
        """Adds what became of the next `count` tensors of a chunk."""
        before = self.measured[number]
        self.measured[number] = Measured(
            totals={**before.totals, **found.totals}, problems={**before.problems, **found.problems}
        )
        self.left[number] = self.left[number][count:]
        if not self.left[number]:
            del self.left[number]


class _PairOpener:
    """Opens both sides with tensors marked; while one pair is used, the next one opens where both models have room for that."""

    def __init__(self, examination: Examination) -> None:
        self._case, self._reference, self._pairing = examination.case, examination.reference, examination.names
        self._ahead = fit_together(self._case.model, self._reference, examination.candidate)
        self._shapes = shapes_for(self._case.model, examination.candidate, self._case.inputs)
        self._executor = ThreadPoolExecutor(1)
        self._asked: tuple[Target, tuple[str, ...]] | None = None
        self._coming: Future[tuple[ExitStack, Session, Session]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        self._executor.shutdown()

    def begin(self, candidate: Target, part: tuple[str, ...]) -> None:
        """Begins to open what is needed next, unless that is nothing or there is no room for it yet."""
        if part and self._ahead:
            self._submit(candidate, part)

    @contextmanager
    def sessions(self, candidate: Target, part: tuple[str, ...]) -> Iterator[tuple[Session, Session]]:
        """Both sides, the candidate as this target."""
        coming = self._coming
        if coming is None or self._asked != (candidate, part):
            self._drop()
            coming = self._submit(candidate, part)
        self._asked = self._coming = None
        stack, ours, theirs = coming.result()
        with stack:
            yield ours, theirs

    def _submit(self, candidate: Target, part: tuple[str, ...]) -> Future[tuple[ExitStack, Session, Session]]:
        self._asked = candidate, part
        self._coming = self._executor.submit(self._open, candidate, part)
        return self._coming

    def _drop(self) -> None:
        if self._coming is not None and self._coming.exception() is None:
            self._coming.result()[0].close()
        self._asked = self._coming = None

    def _open(self, candidate: Target, part: tuple[str, ...]) -> tuple[ExitStack, Session, Session]:
        stack = ExitStack()
        partners = tuple(dict.fromkeys(self._pairing[name] for name in part))
        captures = Capture(tensors=part), Capture(tensors=partners, shapes=self._shapes)
        case = self._case
        return stack, *stack.enter_context(open_both(case.model, self._reference, candidate, case.inputs, *captures))


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
