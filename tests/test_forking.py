"""A child that is forked from a process with threads: it finds no lock that nobody will give back, and has pools of its own."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from parityscope.comparison.measure import measure_pair
from parityscope.comparison.warming import warm_kernels
from parityscope.evaluation.rounding import FloatRounding
from parityscope.forking import Forked, fork_child, kept_pool, started_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

_PATIENCE_S = 240  # of a child that takes milliseconds
_FORKS = 200
_PAUSE_S = 0.002  # between two pieces of work of a busy thread, so that its neighbours get on too
_LARGE = np.linspace(-3, 3, 1 << 18, dtype=np.float32)  # elements: rounded, and compared, by more than one thread
_TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[16, 16] x) => (float[16, 16] y) { y = MatMul(x, x) }'
_MODEL = onnx.parser.parse_model(_TEXT).SerializeToString()
_X = np.eye(16, dtype=np.float32)


def _session(threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(_MODEL, options, providers=["CPUExecutionProvider"])


def _round_large() -> None:
    FloatRounding("f16")(_LARGE)


def _measure_large() -> None:
    measure_pair(_LARGE, _LARGE, channel_axis=None, threads=2)


@contextlib.contextmanager
def _busy(*works: Callable[[], object]) -> Iterator[None]:
    """Each of these is done over and over by a thread of its own."""
    stopped = threading.Event()

    def go_on(work: Callable[[], object]) -> None:
        while not stopped.wait(_PAUSE_S):
            work()

    threads = [threading.Thread(target=go_on, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _found_by(child: Forked) -> bytes:
    try:
        return os.read(child.pipe, 100) if select.select([child.pipe], [], [], _PATIENCE_S)[0] else b"it hangs"
    finally:
        child.end()


def test_children_of_busy_threads_round_compare_and_run() -> None:
    ran = _session(2)

    def work() -> bytes:
        _round_large()
        _measure_large()
        _session(1).run(None, {"x": _X})
        return b"done"

    assert work() == b"done"  # imported and compiled, before there are threads
    with _busy(_round_large, _measure_large, lambda: ran.run(None, {"x": _X})):
        found = [b""]
        while len(found) <= _FORKS and found[-1] in {b"", b"done"}:
            found.append(_found_by(fork_child(work)))
    assert found[1:] == [b"done"] * _FORKS


def test_a_child_has_pools_of_its_own_and_its_parent_keeps_its() -> None:
    pool = kept_pool("kept", 1)
    assert pool.submit(os.getpid).result() == os.getpid()
    child = fork_child(lambda: str(kept_pool("kept", 1).submit(os.getpid).result()).encode())
    assert _found_by(child) == str(child.number).encode()
    assert kept_pool("kept", 1) is pool
    assert pool.submit(os.getpid).result() == os.getpid()


def test_a_fork_waits_for_what_imports_and_compiles() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def import_something() -> None:
        begun.set()
        goes_on.wait()

    thread = started_thread("importing", import_something)
    begun.wait()
    threading.Timer(0.2, goes_on.set).start()
    assert _found_by(fork_child(lambda: b"done")) == b"done"
    assert not thread.is_alive()
    warm_kernels()
    assert _found_by(fork_child(lambda: bytes(f"{measure_pair(_X, _X, channel_axis=None).count}", "ascii"))) == b"256"
