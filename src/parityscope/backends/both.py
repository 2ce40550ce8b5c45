"""Reference and candidate opened side by side: what a runtime does to a model when it loads it keeps one core busy."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.opening import open_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.backends import Session
    from parityscope.case import Model
    from parityscope.records import Target

__all__ = ["open_both"]

_PLAIN = Capture()


@contextlib.contextmanager
def open_both(
    model: Model, reference: Target, candidate: Target, ours: Capture = _PLAIN, theirs: Capture = _PLAIN
) -> Iterator[tuple[Session, Session]]:
    """A session of each target, opened at the same time.

    The thread that opened the candidate stays until both are closed: a child process ends with the thread that started it.

    Raises:
        ParityError: as for `open_target`; the reference's error comes first.
    """
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
