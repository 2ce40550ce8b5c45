"""How long a run of ONNX Runtime in this process may take.

A target's `timeout=SECONDS` ends the child that runs it; what is run of its model here (to pair tensors by value) is ended by the
runtime itself, which looks between two nodes whether it is to go on.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ended_in_time", "is_limited", "limited_runs"]

_seconds: ContextVar[float | None] = ContextVar("seconds", default=None)


@contextlib.contextmanager
def limited_runs(seconds: float | None) -> Iterator[None]:
    """Inside, each run may take at most so long; None is no limit."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def is_limited() -> bool:
    """Whether a run has a limit now."""
    return _seconds.get() is not None


@contextlib.contextmanager
def ended_in_time() -> Iterator[Any]:
    """The options of one run, or None where it has no limit.

    Raises:
        ParityError: the run was ended because its time was over.
    """
    import onnxruntime as ort

    limit = _seconds.get()
    if limit is None:
        yield None
        return
    options = ort.RunOptions()
    timer = threading.Timer(limit, setattr, (options, "terminate", True))
    timer.start()
    try:
        yield options
    except Exception as error:
        if not options.terminate:
            raise
        fix = "raise timeout= in the target, or look for a loop that does not end"
        raise ParityError(f"a run of the model took longer than {limit:g} s", fix=fix) from error
    finally:
        timer.cancel()
