"""Sessions of whole files that are kept for who asks for the same again: ONNX Runtime takes longer than linearly to open one.

20,000 nodes take 9 seconds, and an examination runs a file undisturbed for its outputs, for its layers, for each corrected
copy and for each repair that is tried. Kept is only what can answer a second time as if it was opened anew: files without
chance (whose generators go on), without control flow (whose bodies are not looked through) and of operators that are known
here; and only as far as their weights together take half of `--memory`. Sessions end with the process; one that was forked
opens its own and leaves the parent's alone.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from parityscope.memory import allowed_memory
from parityscope.operators import OPERATORS, of_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from parityscope.backends.onnxruntime_running import Run
    from parityscope.case import Model

_KEPT = 4  # chosen: both sides, a corrected copy, a repaired file
_SHARE = 2  # of the memory allowed for tensors one in so many may be weights that are kept; chosen
_CHANGING = of_kind("random", "control flow")
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})  # no other, and so no function of the model's own
_sessions: OrderedDict[Hashable, tuple[int, Run]] = OrderedDict()  # bytes of graph and weights, the session
_inherited: list[OrderedDict[Hashable, tuple[int, Run]]] = []
_locks = [threading.Lock()]  # `_sessions`, by one thread at a time; the last is in use


def _leave_inherited() -> None:
    """When forked: the parent's sessions are neither used nor ended, whose end waits for threads that are not there."""
    _locks.append(threading.Lock())  # a thread that is not here may hold the other
    _inherited.append(_sessions.copy())
    _sessions.clear()


os.register_at_fork(after_in_child=_leave_inherited)


def kept_session(model: Model, options: Hashable, opened: Callable[[], Run]) -> Run | None:
    """The session that `opened` gives, or gave for the same model and `options` in this process; None if it is not to be kept."""
    room = allowed_memory() // _SHARE - model.nbytes
    if room < 0 or not _answers_alike(model):
        return None
    key = model.path, model.sha256, options
    with _locks[-1]:
        if key in _sessions:
            _sessions.move_to_end(key)
            return _sessions[key][1]
        while _sessions and (len(_sessions) >= _KEPT or sum(nbytes for nbytes, _ in _sessions.values()) > room):
            _sessions.popitem(last=False)
    run = opened()  # outside of it, as that takes long; of two threads that open the same the later one's is kept
    with _locks[-1]:
        _sessions[key] = model.nbytes, run
    return run


def _answers_alike(model: Model) -> bool:
    kinds = {site.op_type for site in model.sites.values()}
    return kinds <= OPERATORS.keys() and not kinds & _CHANGING and model.opsets.keys() <= _DOMAINS
