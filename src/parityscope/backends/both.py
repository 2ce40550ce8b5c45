"""Reference and candidate opened side by side, or one after the other where both together would be too large.

Side by side is faster: what a runtime does to a model when it loads it keeps one core busy. But a runtime holds the weights once
more, so two large models are never open at the same time: the reference answers every sample first, its answers are kept (in
files where they are large), and the candidate opens when it has gone.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import model_of, open_target
from parityscope.errors import ParityError
from parityscope.memory import allowed_memory
from parityscope.spilling import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np

    from parityscope.backends import Session
    from parityscope.case import Model, Sample
    from parityscope.records import Target

_PLAIN = Capture()


def fit_together(model: Model, reference: Target, candidate: Target) -> bool:
    """Whether both may be open at once: what the smaller one adds is no more than the memory allowed for tensors."""
    return min(_weights_held(model, target) for target in (reference, candidate)) <= allowed_memory()


@contextlib.contextmanager
def open_both(
    model: Model,
    reference: Target,
    candidate: Target,
    samples: Iterable[Sample] | None = None,
    ours: Capture = _PLAIN,
    theirs: Capture = _PLAIN,
) -> Iterator[tuple[Session, Session]]:
    """A session of each target, opened at the same time, or the reference's as it answered `samples` before.

    Without `samples` nobody knows beforehand what will be asked: both are open then, however large they are.
    The thread that opened the candidate stays until both are closed: a child process ends with the thread that started it.

    Raises:
        ParityError: as for `open_target`; the reference's error comes first.
    """
    if samples is not None and not fit_together(model, reference, candidate):
        answered = _answer_beforehand(model, reference, samples, ours)
        with open_target(model, candidate, theirs) as their:
            yield answered, their
        return
    with ThreadPoolExecutor(1, thread_name_prefix="opening") as other, contextlib.ExitStack() as opened:
        beside = contextlib.ExitStack()
        opened.callback(lambda: other.submit(beside.close).result())
        coming = other.submit(beside.enter_context, open_target(model, candidate, theirs))
        try:
            mine = opened.enter_context(open_target(model, reference, ours))
        finally:
            failure = coming.exception()  # waits, so that nothing opens any more once an error leaves here
        if failure is not None:
            raise failure
        yield mine, coming.result()


def _weights_held(model: Model, target: Target) -> int:
    """Bytes of weights that a session of the target holds on this machine, as far as is known."""
    runtime = backend_named(target.backend)
    return 0 if runtime.recorded or not runtime.reads_model else model_of(model, target).nbytes


def _answer_beforehand(model: Model, target: Target, samples: Iterable[Sample], capture: Capture) -> Session:
    """A session that is closed, and gives what it gave on each of `samples`; on one that it failed on it fails again."""
    keeper = Keeper()
    answers: dict[int, Mapping[str, np.ndarray] | ParityError] = {}
    with open_target(model, target, capture) as session:
        started = time.perf_counter()
        for sample in samples:
            try:
                found = session.run(sample)
            except ParityError as error:
                answers[sample.index] = error
                break  # whoever asks for it in order asks for nothing behind it
            answers[sample.index] = {name: keeper.keep(array) for name, array in found.items()}
        spent = time.perf_counter() - started

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        answer = answers[sample.index]
        if isinstance(answer, ParityError):
            raise answer
        return answer

    return replace(session, run=run, inspect=None, spent=spent)
