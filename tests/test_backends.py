"""Every backend keeps one contract, and every way that a runtime can end badly becomes an error with a fix."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import onnx
import pytest

from parityscope.backends import Capture, Probe, Session, backend_named
from parityscope.backends.contract import check_backend
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.records import Target

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y, int64[2] size) {
    h = Tanh(x)  y = Mul(h, x)  size = Shape(y) }"""
SAMPLE = Sample(index=0, name="first", arrays={"x": np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)})
SCRIPT = """
import json, sys
import numpy as np, onnxruntime
source, sink = sys.argv[1:]
path = json.load(open(source + "/manifest.json"))["model"]
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
values = session.run(None, dict(np.load(source + "/000000.npz")))
np.savez(sink + "/000000.npz", **{out.name: value for out, value in zip(session.get_outputs(), values)})
"""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """The command target that runs a Python text."""

    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return f"command?run={quote(f'{sys.executable} {path}')}"

    return write


def outputs_of(model: Model, text: str) -> Mapping[str, np.ndarray]:
    with open_target(model, parse_target(text), Capture()) as session:
        return {name: np.array(array) for name, array in session.run(SAMPLE).items()}


def check(model: Model, text: str) -> None:
    target = parse_target(text)
    check_backend(backend_named(target.backend), model, SAMPLE, target)


@pytest.mark.parametrize("target", ["ort", "openvino:f32", "sim:f16"])
def test_runtimes_keep_the_contract(model: Model, target: str) -> None:
    if target.startswith("openvino"):
        pytest.importorskip("openvino")
    check(model, target)


def test_a_program_keeps_the_contract(model: Model, script: Callable[[str], str]) -> None:
    check(model, script(SCRIPT))


def test_a_recording_keeps_the_contract(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "outputs.npz", **outputs_of(model, "ort"))
    check(model, f"saved?path={tmp_path / 'outputs.npz'}")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda arrays: {"y": arrays["y"]}, "does not give output 'size'"),
        (lambda arrays: {**arrays, "y": arrays["y"].astype(np.float64)}, "as float64, declared is float32"),
        (lambda arrays: {**arrays, "y": arrays["y"][0]}, r"in shape \[4\]"),
        (lambda arrays: {**arrays, "y": arrays["y"] + np.random.default_rng().random()}, "runs the same sample again"),
        (lambda arrays: {**arrays, "w": arrays["y"]}, "nobody asked for: w"),
    ],
)
def test_a_broken_promise_is_named(
    model: Model, change: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]], sentence: str
) -> None:

    real = backend_named("ort")

    @contextlib.contextmanager
    def opened(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
        with real.open(model, target, capture) as session:
            yield replace(session, run=lambda sample: change(session.run(sample)))

    with pytest.raises(AssertionError, match=sentence):
        check_backend(replace(real, open=opened), model, SAMPLE, parse_target("ort"))


def test_a_probe_that_says_nothing_is_named(model: Model) -> None:
    with pytest.raises(AssertionError, match="neither a version nor a problem"):
        check_backend(replace(backend_named("ort"), probe=Probe), model, SAMPLE, parse_target("ort"))


def test_a_child_process_gives_the_same(model: Model) -> None:
    plain, isolated = outputs_of(model, "ort"), outputs_of(model, "ort?isolate=on")
    assert list(isolated) == list(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(isolated[name], array, strict=True)


@pytest.mark.parametrize(
    ("text", "option", "problem"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "", "killed by SIGKILL on sample first"),
        ("import time; time.sleep(60)", "&timeout=1", "took longer than 1 s on sample first"),
        ("print('done')", "", "wrote no outputs"),
        ("import sys; sys.exit(7)", "", "failed with exit code 7"),
    ],
)
def test_a_program_that_ends_badly(
    model: Model, script: Callable[[str], str], text: str, option: str, problem: str
) -> None:
    with pytest.raises(ParityError, match=problem) as raised:
        outputs_of(model, script(text) + option)
    assert raised.value.fix


def test_a_program_that_is_not_there(model: Model) -> None:
    with pytest.raises(ParityError, match="there is no program") as raised:
        outputs_of(model, "command?run=./nowhere/infer.sh")
    assert raised.value.fix


@pytest.mark.parametrize(
    "target",
    [
        "ort?isolate=On",
        "sim:f16?isolate=evil",
        "ort?threads=٣",
        "openvino?threads=x",
        "sim:f16?threads=99999999999999999999",
    ],
)
def test_values_that_no_option_has_are_refused(model: Model, target: str) -> None:
    name = target.partition("?")[2].partition("=")[0]
    with pytest.raises(ParityError, match=f"{name}=.* is not"), open_target(model, parse_target(target), Capture()):
        pass
