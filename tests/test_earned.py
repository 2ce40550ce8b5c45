"""Exit code 0 is earned: it is sent by who did the work, and only after something was compared."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import in_a_process
from parityscope.cli import guarded

if TYPE_CHECKING:
    from pathlib import Path

SMALL = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { y = Tanh(x) }'


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(SMALL), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    return tmp_path


@pytest.mark.parametrize("call", ["os._exit(0)", "os._exit(1)", "os._exit(130)"])
def test_who_ends_the_process_gives_no_verdict(desk: Path, call: str) -> None:
    (desk / "load.py").write_text(f"import os\ndef samples():\n    {call}\n", encoding="utf-8")
    done = in_a_process("compare", "m.onnx", "--inputs", "load.py:samples", "--candidate", "ort", folder=desk)
    assert done.returncode == 2
    assert "ended without a verdict" in done.stderr
    assert "  fix:   " in done.stderr


def test_a_loader_that_leaves_a_process_behind_keeps_nobody_waiting(desk: Path) -> None:
    """A process that was forked in between holds the pipe of the verdict open; the verdict is read all the same."""
    text = (
        "import os, time, numpy as np\ndef samples():\n    if os.fork() == 0:\n"
        "        os.close(1); os.close(2); time.sleep(60); os._exit(0)\n"
        "    yield {'x': np.ones((1, 4), np.float32)}\n"
    )
    (desk / "load.py").write_text(text, encoding="utf-8")
    done = in_a_process("compare", "m.onnx", "--inputs", "load.py:samples", "--candidate", "ort", folder=desk)
    assert done.returncode == 0


@pytest.mark.parametrize("given", ["None", "'within'"])
def test_what_is_no_exit_code_is_no_verdict(capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert guarded(lambda: eval(given)) == 2  # noqa: S307 - our own words
    assert "ended without a verdict" in capsys.readouterr().err


def test_an_exit_that_somebody_calls_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: sys.exit(0)) == 2
    assert "ended without a verdict" in capsys.readouterr().err


def test_an_interruption_stays_one(desk: Path) -> None:
    """Ctrl-C reaches both processes: 130, and not an end without a verdict."""
    text = "import time\ndef samples():\n    print('begun', flush=True)\n    time.sleep(300)\n"
    (desk / "load.py").write_text(text, encoding="utf-8")
    words = [
        sys.executable,
        "-m",
        "parityscope",
        "compare",
        "m.onnx",
        "--inputs",
        "load.py:samples",
        "--candidate",
        "ort",
    ]
    with subprocess.Popen(words, cwd=desk, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == "begun\n"  # what a loader prints goes to stderr
        started.send_signal(signal.SIGINT)
        assert started.wait(120) == 130
        assert "interrupted" in started.stderr.read()


@pytest.mark.parametrize("candidate", ["ort", "ort?model=m.onnx"])
def test_the_same_on_both_sides_is_said_and_the_verdict_stands(desk: Path, candidate: str) -> None:
    done = in_a_process("compare", "m.onnx", "--inputs", "x.npz", "--candidate", candidate, folder=desk)
    assert done.returncode == 0
    assert "Both sides are the same target and model." in done.stdout


def test_another_model_is_not_the_same(desk: Path) -> None:
    onnx.save(onnx.parser.parse_model(SMALL.replace("Tanh", "Sin")), desk / "other.onnx")
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "ort?model=other.onnx")
    assert "Both sides are the same" not in in_a_process(*words, folder=desk).stdout


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("z = Constant <value_float = 0.0> () s = Mul (x, z) y = Div (s, s)", "NaN or infinite on both sides"),
        ("a = Constant <value_ints = [0]> () y = Slice (x, a, a)", "it has no elements"),
    ],
)
def test_outputs_that_cannot_be_compared_earn_nothing(desk: Path, body: str, why: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[N, 4] y) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), desk / "m.onnx")
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "ort?optimization=disabled")
    done = in_a_process(*words, folder=desk)
    assert done.returncode == 3
    assert why in " ".join(done.stdout.split())
