"""A child that is forked from a process with threads: it finds no lock that nobody will give back, and has pools of its own."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from parityscope.comparison.measure import measure_pair
from parityscope.comparison.warming import warm_kernels
from parityscope.evaluation.rounding import FloatRounding
from parityscope.fork_server import contained_child
from parityscope.forking import Forked, fork_child, kept_pool, started_thread
from parityscope.memory import allow_memory, allowed_memory
from test_outputs_alone import NETWORK, diagnose, findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

_PATIENCE_S = 240  # of a child that takes milliseconds
_FORKS = 60
_PAUSE_S = 0.002  # between two pieces of work of a busy thread, so that its neighbours get on too
_LARGE = np.linspace(-3, 3, 1 << 18, dtype=np.float32)  # elements: rounded, and compared, by more than one thread
_TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[16, 16] x) => (float[16, 16] y) { y = MatMul(x, x) }'
_MODEL = onnx.parser.parse_model(_TEXT).SerializeToString()
_X = np.eye(16, dtype=np.float32)


def _session(threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(_MODEL, options, providers=["CPUExecutionProvider"])


def _session_of_one() -> None:
    _session(1)


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


def fork_beside_busy_threads() -> None:
    """Forks children that do what threads do here just then; each of them gets its work done."""
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


@pytest.mark.story
def test_children_of_busy_threads_round_compare_and_run() -> None:
    # In a fresh process: a fork of one that has run many tests takes five times as long, and the threads are busy until the last.
    words = "import conftest, test_forking; test_forking.fork_beside_busy_threads()"
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    warm_kernels(1, 1 << 30)
    assert _found_by(fork_child(lambda: bytes(f"{measure_pair(_X, _X, channel_axis=None).count}", "ascii"))) == b"256"


def _import_and_run(name: str, shared: int) -> bytes:
    os.write(shared, b"begun")
    importlib.import_module(name)
    _session(1).run(None, {"x": _X})
    return b"done"


def _tell_state(shared: int) -> bytes:
    del shared
    return json.dumps([os.getcwd(), os.environ["OF_THE_TEST"], allowed_memory()]).encode()  # noqa: PTH109 - as it is


def _kill_itself(shared: int) -> bytes:
    del shared
    os.kill(os.getpid(), signal.SIGSEGV)
    return b"done"


def test_beside_threads_of_others_a_child_finds_no_lock_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread is in the middle of an import, and a fork would keep the lock of the module for ever; another opens sessions.

    The process that forks was started before the module's folder was known.
    """
    monkeypatch.setenv("OF_THE_TEST", "is set")
    with _busy(_session_of_one):
        assert _found_by(contained_child(_tell_state, (), 0, ()))
    flag = tmp_path / "flag"
    text = f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists():\n    time.sleep(0.01)\n"
    (tmp_path / "imported_slowly.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importing = threading.Thread(target=importlib.import_module, args=("imported_slowly",))
    importing.start()
    with _busy(lambda: _session(2)), tempfile.TemporaryFile() as shared:
        children = [
            contained_child(_import_and_run, ("imported_slowly",), shared.fileno(), ("onnxruntime",)) for _ in range(8)
        ]
        flag.touch()
        assert [_found_by(child) for child in children] == [b"done"] * len(children)
        shared.seek(0)
        assert shared.read() == b"begun" * len(children)
    importing.join()
    sys.modules.pop("imported_slowly")


def test_a_child_beside_threads_of_others_knows_what_a_fork_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_TEST", "is set")
    before = allowed_memory()
    allow_memory(123 << 20)
    try:
        alone = _found_by(contained_child(_tell_state, (), 0, ()))
        with _busy(_session_of_one):
            beside = _found_by(contained_child(_tell_state, (), 0, ()))
    finally:
        allow_memory(before)
    assert json.loads(alone) == json.loads(beside) == [str(tmp_path), "is set", 123 << 20]


def test_a_child_beside_threads_of_others_may_die_and_the_next_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_TEST", "is set")
    with _busy(_session_of_one):
        assert _found_by(contained_child(_kill_itself, (), 0, ())) == b""
        assert json.loads(_found_by(contained_child(_tell_state, (), 0, ())))[1] == "is set"


def test_a_cause_is_searched_for_beside_threads_of_others_without_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: Callable[[], bytes]) -> Forked:
        raise AssertionError(work)

    monkeypatch.setattr("parityscope.fork_server.fork_child", refuse)
    with _busy(_session_of_one):
        found = findings(diagnose(tmp_path, NETWORK.replace("LeakyRelu<alpha = 0.1>", "Relu")))[0]
    assert (found["code"], found["role"], found["site"]["tensor"]) == ("FUS014", "cause", "h")
