"""Exit code 0 is earned: it is sent by who did the work, and only after something was compared."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import exit_status, in_a_process, in_this_process, read_study
from parityscope.cli import guard_exit_code
from parityscope.errors import ParityError
from parityscope.testing.networks import write_network

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
    assert guard_exit_code(lambda: eval(given)) == 2  # noqa: S307 - our own words
    assert "ended without a verdict" in capsys.readouterr().err


def test_an_exit_that_somebody_calls_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert guard_exit_code(lambda: sys.exit(0)) == 2
    assert "ended without a verdict" in capsys.readouterr().err


@pytest.mark.parametrize("made", ["ImportError('initialization failed')", "OSError(5, 'a read that was broken off')"])
def test_an_interruption_that_native_code_makes_another_error_of_stays_one(desk: Path, made: str) -> None:
    """A signal while a C extension is imported ends as an ImportError, which is nobody's bug."""
    text = (
        "import os, signal, time\ndef samples():\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n"
        f"        time.sleep(300)\n    except KeyboardInterrupt:\n        raise {made} from None\n"
    )
    (desk / "load.py").write_text(text, encoding="utf-8")
    done = in_a_process("compare", "m.onnx", "--inputs", "load.py:samples", "--candidate", "ort", folder=desk)
    assert done.returncode == 130
    assert "interrupted" in done.stderr
    assert "Traceback" not in done.stderr


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


STAGES = {
    "localization": "parityscope.study.layers.observe_layers",
    "causes": "parityscope.study.causes.test_causes",
    "expected error": "parityscope.expectation.expecting.expect_error",
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_is_skipped_with_its_reason_and_the_verdict_stands(
    stage: str, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared was compared: 1 stays 1, and what cannot be judged without the stage is not within."""
    home, _, name = STAGES[stage].rpartition(".")

    def fail(*_: object, **__: object) -> None:
        raise ParityError("planted to fail", fix="none")

    monkeypatch.setattr(importlib.import_module(home), name, fail)
    onnx.save(onnx.parser.parse_model(SMALL.replace("Tanh", "Sin")), desk / "other.onnx")
    inputs = ("--inputs", str(desk / "x.npz"), "--quiet", "--study", str(desk / "study"))
    model = str(desk / "m.onnx")
    other = ("--candidate", f"ort?model={desk / 'other.onnx'}", "--budget", "rel_l2=1e-3")
    assert exit_status("diagnose", model, *other, *inputs) == 1
    held = read_study(desk / "study")
    assert [one["reason"] for one in held["skipped"] if one["what"].startswith(stage)] == ["planted to fail"]


@pytest.mark.parametrize("candidate", ["ort", "ort?model=m.onnx"])
def test_the_same_on_both_sides_is_said_and_the_verdict_stands(desk: Path, candidate: str) -> None:
    done = in_this_process("compare", "m.onnx", "--inputs", "x.npz", "--candidate", candidate, folder=desk)
    assert done.returncode == 0
    assert "Both sides are the same target and model." in done.stdout


def test_another_model_is_not_the_same(desk: Path) -> None:
    onnx.save(onnx.parser.parse_model(SMALL.replace("Tanh", "Sin")), desk / "other.onnx")
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "ort?model=other.onnx")
    assert "Both sides are the same" not in in_this_process(*words, folder=desk).stdout


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
    done = in_this_process(*words, folder=desk)
    assert done.returncode == 3
    assert why in " ".join(done.stdout.split())


def test_where_the_reference_itself_is_not_finite_is_said(desk: Path) -> None:
    """The rest was compared, and agrees."""
    body = "r = Constant <value_floats = [0.0, 1.0, 1.0, 1.0]> () y = Div (x, r)"
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), desk / "m.onnx")
    words = ("--inputs", "x.npz", "--candidate", "ort?optimization=disabled", "--all")
    done = in_this_process("compare", "m.onnx", *words, folder=desk)
    assert done.returncode == 0
    told = " ".join(done.stdout.split())
    assert "1 elements of output y: the reference itself gives NaN or infinity there" in told


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("a = Constant <value_ints = [0]> () y = Slice (x, a, a)", 3, "it has no elements"),
        ("z = Constant <value_float = 0.0> () s = Mul (x, z) y = Div (s, s)", 3, "all its values are NaN or infinite"),
        ("y = Tanh (x)", 0, "No output is predicted to be lost"),
    ],
)
def test_a_prediction_of_nothing_earns_nothing(desk: Path, body: str, status: int, said: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[N, 4] y) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), desk / "m.onnx")
    done = in_this_process("predict", "m.onnx", "--inputs", "x.npz", "--formats", "f16", folder=desk)
    assert done.returncode == status
    assert said in " ".join(done.stdout.split())


def test_one_lost_sample_is_a_lost_output(desk: Path) -> None:
    """The pooled error of an output is that of its largest sample; FP16 flushes the small one to zero."""
    text = SMALL.replace("[1, 4]", "[1, 32]").replace("Tanh(x)", "Mul(x, x)")
    onnx.save(onnx.parser.parse_model(text), desk / "m.onnx")
    (desk / "s").mkdir()
    for index, size in enumerate((10.0, 10.0, 1e-5)):
        np.savez(desk / "s" / f"{index}.npz", x=np.full((1, 32), size, np.float32))
    done = in_this_process("predict", "m.onnx", "--inputs", "s", "--formats", "f16", folder=desk)
    assert done.returncode == 1


def test_a_repair_that_loses_a_small_part_is_refuted(desk: Path) -> None:
    """Class scores beside boxes in pixels: all scores are nought after it, and the pooled error has become smaller."""
    scales = np.array([500.0, 500.0, 500.0, 1.0], np.float32)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 50, 4] x) => (float[1, 50, 4] y) { y = Mul(x, k) }'
    (desk / "s").mkdir()
    generator = np.random.default_rng(5)
    for index in range(8):
        np.savez(desk / "s" / f"{index}.npz", x=generator.standard_normal((1, 50, 4)).astype(np.float32))
    for name, factors in (("m", scales), ("before", scales * 1.01), ("after", scales * [1, 1, 1, 0])):
        model = onnx.parser.parse_model(text)
        model.graph.initializer.append(onnx.numpy_helper.from_array(factors.astype(np.float32), "k"))
        onnx.save(model, desk / f"{name}.onnx")
    words = ("--before", "ort?model=before.onnx", "--after", "ort?model=after.onnx", "--inputs", "s", "--no-timing")
    done = in_this_process("verify", "m.onnx", *words, folder=desk)
    assert done.returncode == 1
    told = " ".join(done.stdout.split())
    assert "ndex 3 of axis 2 of output y is far worse: its error went from 0.01 to 1" in told


def test_between_infinities_no_difference_is_told(desk: Path) -> None:
    (desk / "s").mkdir()
    for index in range(8):
        np.savez(desk / "s" / f"{index}.npz", x=np.full((1, 4), index + 1, np.float32))
    onnx.save(onnx.parser.parse_model(SMALL.replace("Tanh(x)", "Identity(x)")), desk / "m.onnx")
    broken = SMALL.replace("y = Tanh(x)", "z = Constant <value_float = 0.0> () y = Div(x, z)")
    onnx.save(onnx.parser.parse_model(broken), desk / "before.onnx")
    words = ("--before", "ort?model=before.onnx", "--after", "ort", "--inputs", "s", "--no-timing")
    done = in_this_process("verify", "m.onnx", *words, folder=desk)
    assert done.returncode == 0
    assert "went from infinity to 0" in " ".join(done.stdout.split())
    assert "-infinity" not in done.stdout


def test_whoever_ignores_the_end_of_children_gets_a_verdict(desk: Path) -> None:
    """Of an ignored SIGCHLD no child can be waited for, and every program seems to have ended well."""
    lines = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    asked = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate")
    for candidate, status in (("ort", 0), ("command?run=false", 2)):
        words = [sys.executable, "-c", lines, sys.executable, "-m", "parityscope", *asked, candidate]
        done = subprocess.run(words, cwd=desk, capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mebibytes", [60, 120])
def test_a_lack_of_memory_is_said(desk: Path, mebibytes: int) -> None:
    """Whatever it is that gets none: an import, a thread, a library that ends the process."""
    limited = f"ulimit -v {mebibytes << 10}; exec {sys.executable} -m parityscope compare m.onnx --inputs x.npz --candidate ort"
    done = subprocess.run(["bash", "-c", limited], cwd=desk, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "  fix:   raise the limit (ulimit -v unlimited)" in done.stderr


# A vision transformer: patches, a table of positions that is resized to as many, attention, a multilayer perceptron.
_TRANSFORMER = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 3, H, W] x) => (float[1, 5] y) {
  p = Conv <kernel_shape = [4, 4], strides = [4, 4]> (x, kernel) s = Shape (p)
  hw = Slice (s, two, four) nc = Slice (s, nought, two)
  sizes = Concat <axis = 0> (nc, hw) t = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel"> (table, , , sizes)
  a = Add (p, t) f = Reshape (a, flat) h = Transpose <perm = [0, 2, 1]> (f) m = ReduceMean <axes = [-1]> (h) c = Sub (h, m)
  q2 = Mul (c, c) v = ReduceMean <axes = [-1]> (q2) e = Add (v, eps) r = Sqrt (e) n = Div (c, r)
  q = MatMul (n, wq) k = MatMul (n, wk) u = MatMul (n, wv) kt = Transpose <perm = [0, 2, 1]> (k) l = MatMul (q, kt)
  w = Softmax <axis = -1> (l) o = MatMul (w, u) b = Add (h, o) i = MatMul (b, w1) z = Erf (i) g1 = Mul (i, z)
  j = MatMul (g1, w2) d = Add (b, j) pooled = ReduceMean <axes = [1], keepdims = 0> (d) y = MatMul (pooled, head) }"""


def test_a_vision_transformer_is_compared_and_looked_into(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    rng = np.random.default_rng(5)
    shapes = {"kernel": (16, 3, 4, 4), "table": (1, 16, 3, 3), "wq": (16, 16), "wk": (16, 16), "wv": (16, 16)}
    shapes |= {"w1": (16, 32), "w2": (32, 16), "head": (16, 5)}
    constants = {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    constants |= {"two": np.array([2]), "four": np.array([4]), "nought": np.array([0]), "eps": np.float32(1e-5)}
    write_network(desk / "m.onnx", _TRANSFORMER, constants | {"flat": np.array([1, 16, -1])})
    wrong = _TRANSFORMER.replace("Softmax <axis = -1>", "Softmax <axis = 1>")
    write_network(desk / "wrong.onnx", wrong, constants | {"flat": np.array([1, 16, -1])})
    np.savez(desk / "x.npz", x=rng.standard_normal((1, 3, 24, 24)).astype(np.float32))
    asked = ("m.onnx", "--inputs", "x.npz", "--quiet")
    assert exit_status("compare", *asked, "--candidate", "ort?optimization=disabled") == 0
    assert exit_status("predict", *asked, "--formats", "f16,bf16") in {0, 1}
    told = ("--candidate", "ort?optimization=disabled&model=wrong.onnx", "--study", "told")
    assert exit_status("diagnose", *asked, *told) == 1
    assert read_study(desk / "told")["suspects"][0]["site"]["op_type"] == "Softmax"


def test_a_resize_to_computed_sizes_is_looked_into(desk: Path) -> None:
    """As `interpolate(size=...)` is exported: the sizes have no known length, and layers are compared all the same."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 2, H, W] x) => (float[1, 2, P, Q] y) {
      s = Shape (x) a = Constant <value_ints = [2]> () b = Constant <value_ints = [4]> () hw = Slice (s, a, b)
      two = Constant <value_ints = [2, 2]> () d = Mul (hw, two) z = Constant <value_ints = [0]> () nc = Slice (s, z, a)
      sizes = Concat <axis = 0> (nc, d) k = Tanh (x) r = Resize <mode = "linear"> (k, , , sizes) y = Sigmoid (r) }"""
    for name, changed in (("m", text), ("changed", text.replace("Sigmoid", "Tanh"))):
        onnx.save(onnx.parser.parse_model(changed), desk / f"{name}.onnx")
    np.savez(desk / "x.npz", x=np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32))
    words = ("diagnose", "m.onnx", "--inputs", "x.npz", "--candidate", "ort?model=changed.onnx", "--format", "json")
    done = in_this_process(*words, folder=desk)
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"][0]["site"]["op_type"] == "Sigmoid"


def test_where_memory_is_scarce_nothing_starts_threads() -> None:
    """Of several threads one may get no memory, and ONNX Runtime then waits for ever: a command gets one core instead."""
    script = "import sys; from parityscope.cli.shell.supervise import supervise_work; from parityscope.evaluation.machine import "
    script += "usable_cores; sys.exit(supervise_work(usable_cores))"
    limited = f"ulimit -v {1 << 20}; exec {sys.executable} -c '{script}'"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
