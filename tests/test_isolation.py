"""Whatever a candidate's process does, it becomes one error with a fix, exit code 2, no study and no process left over.

Programs (`command`) misbehave by themselves. The runtime in a child process (`isolate=on`) is killed while it runs, or
made to crash by a library of custom operators that does so in native code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command_line import read_study
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError
from proving.home import marked_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { h = Tanh(x)  y = Mul(h, x) }'
X = np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)
HEAD = """
import json, os, resource, signal, sys, time
from pathlib import Path
import numpy as np
source, sink = (Path(word) for word in sys.argv[1:])
"""
RIGHT = HEAD + "x = np.load(source / '000000.npz')['x']\nnp.savez(sink / '000000.npz', y=np.tanh(x) * x)\n"
COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
_MARK = "PARITYSCOPE_TEST_MARK"
PATIENCE_S = 60.0  # chosen: what takes longer than this on a busy machine hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A folder with a model and a sample, where every process that a command starts carries a mark of its own."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def script(self, text: str) -> str:
        """The target that runs a Python text."""
        path = self.folder / "infer.py"
        path.write_text(text, encoding="utf-8")
        return f"command?run={quote(f'{sys.executable} {path}')}"

    def start(self, *words: str, prepare: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """`parityscope` on the model and the sample, in a process group of its own as a shell would start it."""
        return subprocess.Popen(
            [sys.executable, "-m", "parityscope", words[0], "small.onnx", "--inputs", "x.npz", *words[1:]],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.temporary), _MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,  # noqa: PLW1509 - limits of the child alone; it runs before any thread
            start_new_session=True,
        )

    def run(self, *words: str, prepare: Callable[[], None] | None = None) -> tuple[int, str]:
        """(exit code, stderr)."""
        process = self.start(*words, prepare=prepare)
        _, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    def compare(self, candidate: str, prepare: Callable[[], None] | None = None) -> tuple[int, str]:
        return self.run("compare", "--candidate", candidate, "--study", "study", prepare=prepare)

    def processes(self) -> list[int]:
        """Every living process that carries the mark."""
        return marked_processes(_MARK, self.mark)

    def assert_clean(self, *, temporary: bool = True) -> None:
        """No study, no part of one, no process, and (unless a process was killed) nothing among temporary files."""
        assert not (self.folder / "study").exists()
        wait_until(lambda: not self.processes(), "processes are left over")
        if temporary:
            assert list(self.folder.glob(".study*")) == []
            assert list(self.temporary.glob("parityscope*")) == []


def wait_until(true: Callable[[], object], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    onnx.save(onnx.parser.parse_model(SMALL), tmp_path / "small.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    (tmp_path / "tmp").mkdir()
    desk = Desk(folder=tmp_path)
    yield desk
    for process in desk.processes():
        os.kill(process, signal.SIGKILL)


def assert_one_error(said: str, problem: str) -> None:
    """One problem, its fix, and nothing that looks like our own failure."""
    assert problem in said
    assert said.count("parityscope: ") == 1
    assert said.count("  fix:   ") == 1
    assert "Traceback (most recent call last)" not in said.partition("its last words")[0]
    assert "bug of Parityscope" not in said


# Programs


def test_a_good_program_is_within_and_leaves_nothing(desk: Desk) -> None:
    status, said = desk.compare(desk.script(RIGHT))
    assert status == 0, said
    assert (desk.folder / "study" / "study.json").is_file()
    shutil.rmtree(desk.folder / "study")
    desk.assert_clean()


NOISY_END = "print('warming up'); print('no weights', file=sys.stderr); sys.exit(3)"
ALLOCATE = "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); np.ones(1 << 30)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL on sample x.npz"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV on sample x.npz"),
        ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV on sample x.npz"),
        ("os.abort()", "was killed by SIGABRT on sample x.npz"),
        (NOISY_END, "failed with exit code 3 on sample x.npz"),
        (ALLOCATE, "failed with exit code 1 on sample x.npz"),
        ("", "ended well but wrote no outputs (it wrote: nothing)"),
        ("(sink / 'y.npy').touch()", "wrote no outputs (it wrote: y.npy)"),
        ("(sink / '000000.npz').write_bytes(b'')", "wrote a file that is no good"),
        ("(sink / '000000.npz').write_bytes(os.urandom(999))", "wrote a file that is no good"),
        ("(sink / '000000.npz').write_bytes(b'PK\\x03\\x04' + os.urandom(999))", "wrote a file that is no good"),
        ("(sink / '000000.safetensors').write_bytes(os.urandom(999))", "wrote a file that is no good"),
        ("np.savez(sink / '000000.npz', y=np.array([print], object))", "wrote a file that is no good"),
        ("np.savez(sink / '000000.npz', y=np.zeros((1, 4), 'V3'))", "nothing says what that means"),
    ],
)
def test_every_way_that_a_program_fails_has_its_words(desk: Desk, text: str, problem: str) -> None:
    model = load_model(desk.folder / "small.onnx")
    with (
        open_target(model, parse_target(desk.script(HEAD + text)), Capture()) as session,
        pytest.raises(ParityError, match=re.escape(problem)) as raised,
    ):
        session.run(Sample(index=0, name="x.npz", arrays={"x": X}))
    assert raised.value.fix


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL on sample x.npz"),
        ("(sink / '000000.npz').write_bytes(b'PK\\x03\\x04' + os.urandom(999))", "wrote a file that is no good"),
        ("np.savez(sink / '000000.npz', z=np.zeros((1, 4)))", "no output could be compared"),
    ],
)
def test_a_program_that_fails_is_one_error(desk: Desk, text: str, problem: str) -> None:
    status, said = desk.compare(desk.script(HEAD + text))
    assert status == 2
    assert_one_error(said, problem)
    assert ("out of memory kills with SIGKILL" in said) == ("SIGKILL" in problem)
    desk.assert_clean()


def test_a_program_is_quoted_when_it_fails(desk: Desk) -> None:
    status, said = desk.compare(desk.script(HEAD + "print('x' * 10**7)\n" + NOISY_END))
    assert status == 2
    assert_one_error(said, "failed with exit code 3 on sample x.npz")
    assert "its last words: " in said
    # What Python prints to a file is written at the end; what goes to stderr comes first.
    assert "no weights" in said or "warming up" in said
    assert len(said) < 10_000
    desk.assert_clean()


HANG = """
import subprocess
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("started").write_text(str(helper.pid))
time.sleep(600)
"""


def test_a_program_that_hangs_is_killed_with_what_it_started(desk: Desk) -> None:
    start = time.monotonic()
    status, said = desk.compare(desk.script(HEAD + HANG) + "&timeout=2")
    assert status == 2
    assert time.monotonic() - start < PATIENCE_S / 2
    assert_one_error(said, "took longer than 2 s on sample x.npz")
    assert (desk.folder / "started").exists()
    desk.assert_clean()


def test_nan_is_a_result_and_not_a_failure(desk: Desk) -> None:
    status, said = desk.compare(desk.script(RIGHT.replace("np.tanh(x) * x", "x * np.float32('nan')")))
    assert status == 1, said
    document = read_study(desk.folder / "study")
    assert document["verdict"] == "beyond"
    (output,) = document["outputs"]
    assert output["nonfinite"] == {"reference": 0, "candidate": 4, "agreeing": 0}
    assert output["rel_l2"] == "Infinity"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("command?run=%22open", "run= cannot be split into words"),
        ("command?run=./nowhere", "there is no program './nowhere'"),
        ("command?run=./no-shebang", "cannot be started: Exec format error"),
        ("ort?timeout=inf", "timeout='inf' is not a number of seconds"),
        ("ort?timeout=soon", "timeout='soon' is not a number of seconds"),
    ],
)
def test_a_target_that_cannot_start(desk: Desk, target: str, problem: str) -> None:
    (desk.folder / "no-shebang").write_text("exit 0\n", encoding="utf-8")
    (desk.folder / "no-shebang").chmod(0o755)
    model = load_model(desk.folder / "small.onnx")
    with (
        contextlib.chdir(desk.folder),
        pytest.raises(ParityError, match=re.escape(problem)) as raised,
        open_target(model, parse_target(target), Capture()) as session,
    ):
        session.run(Sample(index=0, name="x.npz", arrays={"x": X}))
    assert raised.value.fix


def test_bfloat16_in_an_npz_is_understood(desk: Desk) -> None:
    text = RIGHT.replace("y=np.tanh(x) * x", "y=(np.tanh(x) * x).astype(__import__('ml_dtypes').bfloat16)")
    status, said = desk.compare(desk.script(text).replace("command", "command:bf16"))
    assert status == 0, said


# A runtime in a child process


def slow_model() -> onnx.ModelProto:
    """y = x + 1 + 1 + ... in a Loop that never comes to its end."""
    body = helper.make_graph(
        [helper.make_node("Add", ["before", "one"], ["after"]), helper.make_node("Identity", ["going"], ["still"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [1, 4]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [1, 4]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.array(2**62), "steps"), numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def slow(desk: Desk) -> Path:
    path = desk.folder / "slow.onnx"
    onnx.save(slow_model(), path)
    return path


def workers(parent: int) -> list[int]:
    """Processes that run a runtime, under guardians that `parent` started."""
    above: dict[int, int] = {}
    lines: dict[int, bytes] = {}
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            above[int(place.name)] = int((place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            lines[int(place.name)] = (place / "cmdline").read_bytes()
    named = [one for one, line in lines.items() if b"backends._worker" in line and b"_guardian.py" not in line]
    return [one for one in named if above.get(above.get(one, 0)) == parent]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_runtime_that_is_killed_while_it_runs_is_one_error(slow: Path, number: signal.Signals) -> None:
    model = load_model(slow)
    sample = Sample(index=0, name="first", arrays={"x": X})
    with open_target(model, parse_target("ort?isolate=on"), Capture()) as session:
        (worker,) = workers(os.getpid())
        killer = threading.Timer(0.5, os.kill, (worker, number))
        killer.start()
        with pytest.raises(ParityError, match=f"ort was killed by {number.name} on sample first") as raised:
            session.run(sample)
        killer.join()
        assert ("out of memory" in raised.value.fix) == (number == signal.SIGKILL)
        # Asked again, it says so again, and does not hang.
        with pytest.raises(ParityError, match=f"ort was killed by {number.name} on sample first"):
            session.run(sample)
    assert workers(os.getpid()) == []


def test_a_runtime_that_hangs_is_one_error(desk: Desk, slow: Path) -> None:
    status, said = desk.compare(f"ort?model={slow}&timeout=1")
    assert status == 2
    assert_one_error(said, "took longer than 1 s on sample x.npz")
    desk.assert_clean()


def test_a_model_that_hangs_before_its_tensors_are_paired_is_one_error(desk: Desk) -> None:
    model = slow_model()
    model.graph.node[0].output[0] = "looped"  # a tensor of no such name in the reference is paired by running both here
    model.graph.node.append(helper.make_node("Tanh", ["looped"], ["y"]))
    onnx.save(model, desk.folder / "named.onnx")
    status, said = desk.compare(f"ort?model={desk.folder / 'named.onnx'}&timeout=2")
    assert status == 2
    assert_one_error(said, "took longer than 2 s on sample x.npz")
    desk.assert_clean()


def test_a_runtime_that_is_killed_under_the_command_line(desk: Desk, slow: Path) -> None:
    process = desk.start("compare", "--candidate", f"ort?model={slow}&isolate=on", "--study", "study")
    found: list[int] = []

    def running() -> bool:
        assert process.poll() is None
        found[:] = [worker for parent in desk.processes() for worker in workers(parent)]
        return bool(found) and seconds_of_cpu(found[0]) > 2.0  # it is past its imports, and in the Loop

    wait_until(running, "the runtime never started")
    os.kill(found[0], signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert_one_error(said, "was killed by SIGKILL on sample x.npz")
    desk.assert_clean()


def seconds_of_cpu(process: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@pytest.fixture
def crashing_library(desk: Desk) -> Path:
    """A library of custom operators that writes to address 8 when ONNX Runtime loads it."""
    if not COMPILER:
        pytest.skip("no C compiler (cc, gcc, clang) on PATH")
    source = desk.folder / "crash.c"
    source.write_text(
        "void *RegisterCustomOps(void *options, const void *api) { *(volatile int *)8 = 1; return 0; }\n",
        encoding="utf-8",
    )
    library = desk.folder / "libcrash.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def test_a_native_crash_of_a_runtime_in_a_child_process(desk: Desk, crashing_library: Path) -> None:
    status, said = desk.compare(f"ort?custom_ops={crashing_library}&isolate=on")
    assert status == 2
    assert_one_error(said, "was killed by SIGSEGV on loading the model")
    desk.assert_clean()


def test_a_native_crash_without_isolation_still_is_one_error(desk: Desk, crashing_library: Path) -> None:
    status, said = desk.compare(f"ort?custom_ops={crashing_library}")
    assert status == 2
    assert_one_error(said, "a runtime crashed: the process was killed by SIGSEGV")
    assert "isolate=on" in said
    desk.assert_clean(temporary=False)  # who is killed cleans nothing up


def test_of_a_session_that_aborts_behind_the_verdict_what_was_known_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not COMPILER:
        pytest.skip("no C compiler (cc, gcc, clang) on PATH")
    source, library, kept = desk.folder / "abort.c", desk.folder / "libabort.so", desk.folder / ".study.part"
    source.write_text(
        "#include <stdlib.h>\n#include <unistd.h>\n"
        "void *RegisterCustomOps(void *options, const void *api)\n"
        '{ if (access(getenv("ABORTS_ONCE_THERE_IS"), F_OK) == 0) abort(); return 0; }\n',
        encoding="utf-8",
    )
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    onnx.save(onnx.parser.parse_model(SMALL.replace("Tanh", "Sigmoid")), desk.folder / "other.onnx")
    words = ["diagnose", "--candidate", f"ort?model=other.onnx&custom_ops={library}", "--study", "study"]
    monkeypatch.setenv("ABORTS_ONCE_THERE_IS", str(kept / "study.json"))
    status, said = desk.run(*words)
    assert status == 2
    assert_one_error(said, "the process was killed by SIGABRT; what was known is kept in ")
    assert "parityscope report " in said
    report = [sys.executable, "-m", "parityscope", "report", str(kept), "--format", "json"]
    document = json.loads(subprocess.run(report, capture_output=True, text=True, check=False).stdout)
    assert document["verdict"] == "beyond"
    assert document["outputs"][0]["verdict"] == "beyond"
    (lost,) = [skip for skip in document["skipped"] if skip["asked"]]
    assert "the process ended" in lost["reason"]
    monkeypatch.setenv("ABORTS_ONCE_THERE_IS", str(desk.folder / "nothing"))
    status, said = desk.run(*words)
    assert status == 1, said
    assert not kept.exists()
    document = read_study(desk.folder / "study")
    assert any(finding["role"] == "cause" for finding in document["findings"])


def test_a_loader_that_crashes_is_one_error(desk: Desk) -> None:
    (desk.folder / "loader.py").write_text(
        "import ctypes\ndef samples():\n    ctypes.string_at(0)\n    yield {}\n", encoding="utf-8"
    )
    status, said = desk.run("compare", "--candidate", "ort", "--inputs", "loader.py:samples", "--study", "study")
    assert status == 2
    assert_one_error(said, "killed by SIGSEGV")
    desk.assert_clean(temporary=False)


def test_a_runtime_without_memory_is_one_error(desk: Desk) -> None:
    # 2^36 float32 are 256 GiB, beyond the limit below and beyond what the limit leaves out.
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) <int64[1] n = {68719476736}> '
    text += "{ big = ConstantOfShape(n)  sum = ReduceSum(big)  y = Add(x, sum) }"
    onnx.save(onnx.parser.parse_model(text), desk.folder / "greedy.onnx")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))

    for option in ("", "&isolate=on"):
        status, said = desk.compare(f"ort?optimization=disabled&model=greedy.onnx{option}", prepare=limited)
        assert status == 2
        assert_one_error(said, "alloc")
        desk.assert_clean()


def test_what_lies_in_the_working_directory_is_not_imported(desk: Desk) -> None:
    for name in ("json", "numpy", "onnxruntime", "parityscope", "safetensors", "select"):
        (desk.folder / f"{name}.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    model = load_model(desk.folder / "small.onnx")
    sample = Sample(index=0, name="first", arrays={"x": X})
    with contextlib.chdir(desk.folder), open_target(model, parse_target("ort?isolate=on"), Capture()) as session:
        found = session.run(sample)["y"]
    np.testing.assert_allclose(found, np.tanh(X) * X, rtol=1e-6)


# A full disk


def files_up_to(nbytes: int) -> Callable[[], None]:
    """No file of a process may grow beyond `nbytes`: writing more fails as it does on a full disk (EFBIG)."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))

    return limited


@pytest.fixture
def wide(desk: Desk) -> Path:
    """A sample whose tensors take 256 KiB each, and a model for it."""
    onnx.save(onnx.parser.parse_model(SMALL.replace("[1, 4]", "[1, 65536]")), desk.folder / "small.onnx")
    x = np.random.default_rng(3).standard_normal((1, 65536)).astype(np.float32)
    np.savez(desk.folder / "x.npz", x=x)
    return desk.folder


@pytest.mark.parametrize(
    ("words", "nbytes"),
    [
        (("compare", "--candidate", "ort", "--study", "study"), 1 << 10),  # study.json
        (("localize", "--candidate", "openvino:f32", "--study", "study"), 1 << 17),  # captured tensors
        (("run", "--target", "ort", "-o", "study"), 1 << 17),  # the recording
    ],
)
def test_a_full_disk_is_one_error(desk: Desk, wide: Path, words: tuple[str, ...], nbytes: int) -> None:
    if "openvino:f32" in words:
        pytest.importorskip("openvino")
    status, said = desk.run(*words)  # it works, and what compiles code and keeps it has done so
    assert status == 0, said
    shutil.rmtree(desk.folder / "study")
    status, said = desk.run(*words, prepare=files_up_to(nbytes))
    assert status == 2
    assert_one_error(said, "File too large")
    desk.assert_clean()


# Interruptions


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupted_run_leaves_nothing(desk: Desk, number: signal.Signals, group: bool) -> None:
    process = desk.start("compare", "--candidate", desk.script(HEAD + HANG), "--study", "study")
    wait_until((desk.folder / "started").exists, "the program never started")
    assert len(desk.processes()) >= 4  # ours, the one that works, the program and its helper
    (os.killpg if group else os.kill)(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    desk.assert_clean()


def test_an_interrupted_child_process_ends_too(desk: Desk, slow: Path) -> None:
    process = desk.start("compare", "--candidate", f"ort?model={slow}&isolate=on", "--study", "study")
    wait_until(lambda: [one for parent in desk.processes() for one in workers(parent)], "the runtime never started")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    desk.assert_clean()


def test_no_process_outlives_a_killed_one(desk: Desk, slow: Path) -> None:
    process = desk.start("compare", "--candidate", f"ort?model={slow}&isolate=on", "--study", "study")
    wait_until(lambda: [one for parent in desk.processes() for one in workers(parent)], "the runtime never started")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    desk.assert_clean(temporary=False)


# What a program starts, and leaves

ESCAPES = """
import subprocess
code = "import os, time; open('escaped', 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True, close_fds=True, stdout=subprocess.DEVNULL)
while not (Path("escaped").exists() and Path("escaped").read_text()):
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("end", "status", "limit"),
    [(RIGHT.removeprefix(HEAD), 0, 30), ("sys.exit(3)", 2, 30), ("time.sleep(600)", 2, 8)],
    ids=["success", "failure", "time limit"],
)
def test_what_left_its_session_ends_with_the_program(desk: Desk, end: str, status: int, limit: int) -> None:
    found, said = desk.compare(desk.script(HEAD + ESCAPES + end) + f"&timeout={limit}")
    assert found == status, said
    assert (desk.folder / "escaped").exists()
    wait_until(lambda: not desk.processes(), "a process that left its session is left over")


def test_what_left_its_session_ends_when_we_are_killed(desk: Desk) -> None:
    process = desk.start("compare", "--candidate", desk.script(HEAD + ESCAPES + "time.sleep(600)"), "--study", "study")
    wait_until((desk.folder / "escaped").exists, "the program never started")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not desk.processes(), "a process that left its session is left over")


def test_what_a_killed_guardian_leaves_is_ended_by_the_next_command(desk: Desk) -> None:
    process = desk.start("compare", "--candidate", desk.script(HEAD + ESCAPES + "time.sleep(600)"), "--study", "study")
    wait_until((desk.folder / "escaped").exists, "the program never started")
    (guardian,) = [one for one in desk.processes() if b"_guardian.py" in Path(f"/proc/{one}/cmdline").read_bytes()]
    escaped = int((desk.folder / "escaped").read_text(encoding="utf-8"))
    os.kill(guardian, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert desk.processes() in ([], [escaped])
    status, said = desk.compare(desk.script(RIGHT))
    assert status == 0, said
    wait_until(lambda: not desk.processes(), "what the killed guardian left is left over")


def test_what_a_program_prints_without_end_is_bounded(desk: Desk) -> None:
    flood = HEAD + "while True: print('x' * 10**6, flush=True)"
    started = time.monotonic()
    found, said = desk.compare(desk.script(flood) + "&timeout=2")
    assert found == 2
    assert time.monotonic() - started < PATIENCE_S
    assert len(said) < 10_000
    assert sum(path.stat().st_size for path in desk.folder.rglob("*") if path.is_file()) < 32 << 20
    desk.assert_clean()
