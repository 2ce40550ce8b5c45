"""The backend `triton` against real processes that speak the KServe V2 protocol: kserve_server.py (HTTP), kserve_grpc_server.py.

Triton itself runs in a container and cannot run here. What is tested is our side: the requests, the checks against the
metadata, and that a server which is down, slow, dead, failing or of another model is one clear error.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import in_a_process
from parityscope.backends import Capture, backend_named
from parityscope.backends.contract import check_backend
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case import Model

SERVERS = {"http": "kserve_server.py", "grpc": "kserve_grpc_server.py"}
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, int64[N] k) => (float[N, 4] y, int64[2] size) {
    h = Tanh(x)  y = Mul(h, x)  size = Shape(y) }"""
ROW = np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)
SAMPLE = Sample(index=0, name="first", arrays={"x": ROW, "k": np.array([7], np.int64)})
START_LIMIT_S = 60.0  # of importing ONNX Runtime on a busy machine


@pytest.fixture
def model(tmp_path: Path) -> Model:
    pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def serving(model: Model, folder: Path, protocol: str, mode: str = "") -> Iterator[str]:
    """A server's target while the block lasts."""
    told = folder / f"port-{mode}"
    script = str(Path(__file__).with_name(SERVERS[protocol]))
    words = [sys.executable, script, str(model.path), str(told), *([mode] if mode else [])]
    with subprocess.Popen(words) as process:
        try:
            end = time.monotonic() + START_LIMIT_S
            while not (told.exists() and told.read_text(encoding="utf-8")):
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.02)
            yield f"triton?url=127.0.0.1:{told.read_text(encoding='utf-8')}&name=net&protocol={protocol}"
        finally:
            process.terminate()


def run(model: Model, text: str) -> Mapping[str, np.ndarray]:
    with open_target(model, parse_target(text), Capture()) as session:
        return {name: np.array(array) for name, array in session.run(SAMPLE).items()}


def refusal(model: Model, text: str) -> ParityError:
    with pytest.raises(ParityError) as found:
        run(model, text)
    assert found.value.fix
    return found.value


def test_without_the_client_the_backend_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient", None)
    assert backend_named("triton").probe().fix == "pip install 'parityscope[triton]'"


def test_a_server_keeps_the_contract_and_gives_the_same_bits(model: Model, tmp_path: Path, protocol: str) -> None:
    with serving(model, tmp_path, protocol) as text:
        check_backend(backend_named("triton"), model, SAMPLE, parse_target(text))
        ours, theirs = run(model, "ort"), run(model, text)
        assert {name: array.tobytes() for name, array in theirs.items()} == {
            name: array.tobytes() for name, array in ours.items()
        }
        with open_target(model, parse_target(f"{text}&version=3"), Capture()) as session:
            assert session.environment["triton"] == "triton 2.50.0"
            assert session.environment["model version"] == "3"
        assert "no version 2 of the model, it has 3" in refusal(model, f"{text}&version=2").problem
        assert "unknown model" in refusal(model, text.replace("name=net", "name=other")).problem


def test_an_output_in_halves_comes_as_declared(model: Model, tmp_path: Path, protocol: str) -> None:
    with serving(model, tmp_path, protocol, "half") as text:
        found = run(model, text)["y"]
    assert found.dtype == np.float32
    assert np.array_equal(found, run(model, "ort")["y"].astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("served", "problem"),
    [
        (
            TEXT.replace("float[N, 4] x", "float[N, 4] z").replace("(x)", "(z)").replace("h, x", "h, z"),
            "it has no input x",
        ),
        (TEXT.replace(", int64[N] k", ""), "it has no input k"),
        (TEXT.replace("int64[N] k", "float[N] k"), "input k is FP32 in the server and INT64 in the model"),
        (TEXT.replace("[N, 4] x", "[N, 5] x").replace("[N, 4] y", "[N, 5] y"), r"input x has shape [-1, 5]"),
        (TEXT.replace(", int64[2] size", ""), "it gives no output size"),
    ],
)
def test_another_model_is_told_before_a_request(
    model: Model, tmp_path: Path, protocol: str, served: str, problem: str
) -> None:
    onnx.save(onnx.parser.parse_model(served), tmp_path / "served.onnx")
    with serving(load_model(tmp_path / "served.onnx"), tmp_path, protocol) as text:
        assert problem in refusal(model, text).problem


@pytest.mark.parametrize(
    ("mode", "more", "problem"),
    [
        ("slow", "&wait=0.5", "the server took longer than 0.5 s when answering sample first"),
        ("dead", "", "the server is there and not alive"),
        ("failing", "", "CUDA out of memory"),
        ("batched", "", "input x has shape [-1, -1, 4] in the server"),
        ("dying", "", "the server broke off when answering sample first"),
        ("lying", "", "output y came as float16, and the server's metadata says FP32"),
    ],
)
def test_a_server_that_cannot_answer_is_one_error(
    model: Model, tmp_path: Path, protocol: str, mode: str, more: str, problem: str
) -> None:
    with serving(model, tmp_path, protocol, mode) as text:
        assert problem in refusal(model, text + more).problem


def test_another_version_that_answers_meanwhile_is_one_error(model: Model, tmp_path: Path, protocol: str) -> None:
    with (
        serving(model, tmp_path, protocol, "moving") as text,
        open_target(model, parse_target(text), Capture()) as session,
    ):
        session.run(SAMPLE)
        with pytest.raises(ParityError, match="version 4 of the model answered sample first, and not version 3"):
            session.run(SAMPLE)


def test_a_whole_study_of_a_server(model: Model, tmp_path: Path, protocol: str) -> None:
    # A study opens its sides in one thread and runs them in others.
    data = tmp_path / "x.npz"
    np.savez(data, x=ROW, k=np.array([7], np.int64))
    with serving(model, tmp_path, protocol) as text:
        options = ["--inputs", str(data), "--candidate", text, "--study", str(tmp_path / "study")]
        done = in_a_process("compare", str(model.path), *options)
    assert (done.returncode, done.stdout[:1]) == (0, "✓"), done.stderr


@pytest.mark.parametrize(("asked", "other"), [("http", "grpc"), ("grpc", "http")])
def test_the_port_of_the_other_protocol_is_told(model: Model, tmp_path: Path, asked: str, other: str) -> None:
    with serving(model, tmp_path, other) as text:
        found = refusal(model, text.replace(f"protocol={other}", f"protocol={asked}") + "&wait=20")
    assert found.problem == f"what answers there does not speak {asked}"
    assert f"protocol={other}" in found.fix


def test_a_server_that_is_down_is_one_error(model: Model, protocol: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = refusal(model, f"triton?url=127.0.0.1:{port}&name=net&protocol={protocol}&wait=20")
    assert "no server answers" in found.problem
    assert {"http": "HOST:8000", "grpc": "HOST:8001"}[protocol] in found.fix


def test_a_target_that_cannot_be_meant_is_one_error(model: Model) -> None:
    assert "none of Triton's" in refusal(model, "triton?name=net&protocol=https").problem
    assert "scheme" in refusal(model, "triton?url=http%3A//localhost:8000&name=net").problem
    assert "needs the name" in refusal(model, "triton").problem
    assert "url='gpu' is not HOST:PORT" in refusal(model, "triton?url=gpu&name=net").problem
    assert refusal(model, "triton?url=gpu:x&name=net&protocol=grpc").fix == "write url=gpu:8001"
    assert "wait='0' is not a number of seconds" in refusal(model, "triton?name=net&wait=0").problem
