"""The verbs on what a program has in its hands: models in memory, arrays, callables; results as records; parity as a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import parityscope as ps
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Infer = Callable[[dict[str, np.ndarray]], np.ndarray]

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,8] x) => (float[1,4] y) { a = MatMul(x, w) b = Add(a, c) y = Tanh(b) }'
RANDOM = np.random.default_rng(5)
W = RANDOM.standard_normal((8, 4)).astype(np.float32)
C = np.full(4, 0.5, np.float32)
X = RANDOM.standard_normal((6, 1, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    return parse_network(TEXT, {"w": W, "c": C})


def right(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.tanh(arrays["x"] @ W + C)


def without_bias(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.tanh(arrays["x"] @ W)


class Foreign:
    """An array of another library: it knows DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **asked: Any) -> object:
        return self._array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Rows:
    """A data set as frameworks have it: a length, and items."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        return (X[index],)


def streamed() -> Iterator[dict[str, np.ndarray]]:
    yield from ({"x": x} for x in X)


INPUTS = {
    "one sample": ({"x": X[0]}, 1),
    "one array": (X[0], 1),
    "a list of arrays": (list(X), len(X)),
    "a list of dicts": ([{"x": x} for x in X], len(X)),
    "a data set": (Rows(), len(X)),
    "arrays of another library": ([{"x": Foreign(x)} for x in X], len(X)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_in_any_form_are_the_same_samples(name: str, proto: onnx.ModelProto) -> None:
    inputs, count = INPUTS[name]
    found = ps.compare(proto, candidate=right, inputs=inputs)
    assert (found.verdict, found.document["inputs"]["samples"]) == ("within", count)
    assert found.outputs[0].rel_l2 == ps.compare(proto, candidate=right, inputs=list(X[:count])).outputs[0].rel_l2


def test_a_generator_is_read_once_and_compared_whole(proto: onnx.ModelProto) -> None:
    assert ps.compare(proto, candidate=right, inputs=streamed()).document["inputs"]["samples"] == len(X)


def test_models_in_memory_are_the_model(proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    forms = [proto, proto.SerializeToString(), ir.from_proto(proto), tmp_path / "m.onnx", str(tmp_path / "m.onnx")]
    found = [ps.compare(model, candidate="sim:f16", inputs=X[0]).outputs[0].rel_l2 for model in forms]
    assert len(set(found)) == 1
    assert found[0] is not None
    assert 1e-6 < found[0] < 1e-2


CANDIDATES = {
    "a dict by name": lambda arrays: {"y": right(arrays)},
    "a list in order": lambda arrays: [right(arrays)],
    "an array": right,
    "the answers": [right({"x": x}) for x in X],
    "the answers by name": [{"y": right({"x": x})} for x in X],
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidates_in_any_form_are_judged(name: str, proto: onnx.ModelProto) -> None:
    assert ps.compare(proto, candidate=CANDIDATES[name], inputs=list(X)).verdict == "within"


def test_a_session_is_run_as_it_is(proto: onnx.ModelProto) -> None:
    other = parse_network(TEXT, {"w": W, "c": C * 2})
    session = onnxruntime.InferenceSession(other.SerializeToString(), providers=["CPUExecutionProvider"])
    assert ps.compare(proto, candidate=session, inputs=list(X)).verdict == "beyond"


def test_a_reference_may_be_a_function_too(proto: onnx.ModelProto) -> None:
    assert ps.compare(proto, reference=right, candidate="ort", inputs=list(X)).verdict == "within"


MISTAKES = {
    "no model": (lambda _model: ps.compare(3, candidate="ort"), "is no model"),
    "no candidate": (lambda model: ps.compare(model, candidate=3, inputs=X[0]), "is no candidate"),
    "no data": (lambda model: ps.compare(model, candidate="ort", inputs=3), "is no data"),
    "no array": (lambda model: ps.compare(model, candidate="ort", inputs=[{"x": object()}]), "no array of numbers"),
    "two arrays": (lambda model: ps.compare(model, candidate="ort", inputs=[(X[0], X[1])]), "the model takes 1"),
    "two outputs": (lambda model: ps.compare(model, candidate=lambda _: [1, 2], inputs=X[0]), "the model has 1"),
    "a failing candidate": (lambda model: ps.compare(model, candidate=lambda a: a["z"], inputs=X[0]), "KeyError"),
    "too few answers": (lambda model: ps.compare(model, candidate=[right({"x": X[0]})], inputs=list(X)), "1 answers"),
    "a budget of NaN": (
        lambda model: ps.compare(model, candidate="ort", inputs=X[0], budgets={"rel_l2": np.nan}),
        "METRIC=",
    ),
    "a budget in words": (
        lambda model: ps.compare(model, candidate="ort", inputs=X[0], budgets={"rel_l2": "a"}),
        "METRIC=",
    ),
    "memory in words": (
        lambda model: ps.compare(model, candidate="ort", inputs=X[0], memory="8G"),
        "memory is a number",
    ),
    "no metric": (lambda model: ps.compare(model, candidate="ort", inputs=X[0], budgets={"l7": 1}), "no metric 'l7'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_error_with_a_fix(name: str, proto: onnx.ModelProto) -> None:
    make, words = MISTAKES[name]
    with pytest.raises(ps.ParityError) as caught:
        make(proto)
    assert words in str(caught.value)
    assert "fix:" in str(caught.value)


@pytest.mark.parametrize("infer", [right, without_bias])
def test_an_output_that_a_function_calls_otherwise_is_mapped(infer: Infer, proto: onnx.ModelProto) -> None:
    held = {"candidate": lambda arrays: {"scores": infer(arrays)}, "inputs": list(X)}
    found = ps.diagnose(proto, mapping={"y": "scores"}, **held)
    assert found.verdict == ("within" if infer is right else "beyond")
    assert [one.role for one in found.findings].count("cause") == (infer is not right)
    with pytest.raises(ps.ParityError, match=r"did not give 'score' back \(it gave: scores\)"):
        ps.compare(proto, mapping={"y": "score"}, **held)
    with pytest.raises(ps.ParityError, match="the reference's graph has no tensor 'z'"):
        ps.compare(proto, mapping={"z": "scores"}, **held)


def test_an_output_that_a_recording_calls_otherwise_is_mapped(proto: onnx.ModelProto, tmp_path: Path) -> None:
    np.savez(tmp_path / "out.npz", scores=right({"x": X[0]}))
    held = {"candidate": f"saved?path={tmp_path}/out.npz", "inputs": X[0]}
    assert ps.compare(proto, mapping={"y": "scores"}, **held).verdict == "within"
    with pytest.raises(ps.ParityError, match="map=score:y does not go from a recorded name"):
        ps.compare(proto, mapping={"y": "score"}, **held)


def fails_on(which: int) -> Infer:
    def infer(arrays: dict[str, np.ndarray]) -> np.ndarray:
        if np.array_equal(arrays["x"], X[which]):
            raise RuntimeError("out of memory")
        return right(arrays)

    return infer


@pytest.mark.parametrize("which", [0, 3])
def test_a_sample_that_a_function_fails_on_is_told_and_the_others_are_compared(
    which: int, proto: onnx.ModelProto
) -> None:
    found = ps.compare(proto, candidate=fails_on(which), inputs=list(X))
    assert (found.verdict, int(found.exit)) == ("incomplete", 3)
    with pytest.raises(ps.ParityFailure, match="not everything could be judged") as caught:
        found.raise_if_beyond()
    assert caught.value.result is found
    assert found.document["outputs"][0]["samples"] == len(X) - 1
    (lost,) = found.document["skipped"]
    assert lost["what"] == f"sample item {which}"
    assert "RuntimeError: out of memory" in lost["reason"]


def test_a_function_of_a_file_may_fail_on_a_sample_too(proto: onnx.ModelProto, tmp_path: Path) -> None:
    (tmp_path / "deploy.py").write_text(
        "import numpy as np\n"
        f"W, C = np.array({W.tolist()}, np.float32), np.float32(0.5)\n"
        "def infer(arrays):\n"
        f"    assert arrays['x'][0, 0] != np.float32({float(X[2, 0, 0])!r}), 'no such row'\n"
        "    return np.tanh(arrays['x'] @ W + C)\n"
    )
    found = ps.compare(proto, candidate=f"python?call={tmp_path}/deploy.py:infer", inputs=list(X))
    assert (found.verdict, int(found.exit)) == ("incomplete", 3)
    assert "no such row" in found.document["skipped"][0]["reason"]


def test_a_budget_decides(proto: onnx.ModelProto) -> None:
    held = {"candidate": "sim:f16", "inputs": list(X)}
    verdicts = [ps.compare(proto, budgets={"y:rel_l2": limit}, **held).verdict for limit in (1e-2, 1e-8)]
    assert verdicts == ["within", "beyond"]


def test_a_result_is_a_record(proto: onnx.ModelProto, tmp_path: Path) -> None:
    found = ps.diagnose(proto, candidate=without_bias, inputs=list(X))
    assert found.verdict == "beyond"
    assert "beyond" in repr(found)
    assert "\n" not in repr(found)
    assert len(str(found).splitlines()) <= 15
    assert found.findings[0].role == "cause"
    assert "bias" in found.findings[0].claim or "c" in found.findings[0].claim
    assert found.tensors.to_dicts()[0]["name"] == "y"
    assert found.tensors[:1][0] == found.tensors[0]
    assert found._repr_html_().startswith("<iframe srcdoc=")
    with pytest.raises(AssertionError, match="Why"):
        found.raise_if_beyond()
    saved = found.save(tmp_path / "study")
    again = ps.load_study(tmp_path / "study")
    assert (again.findings, again.tensors.to_dicts()) == (found.findings, found.tensors.to_dicts())
    assert saved.folder == again.folder
    assert (tmp_path / "study" / "report.html").stat().st_size > 10_000
    found.save(tmp_path / "study.json")
    whole = ps.load_study(tmp_path / "study.json")
    assert (whole.findings, whole.outputs.to_dicts()) == (found.findings, found.outputs.to_dicts())
    assert str(whole) == str(found)
    assert not re.search(r"^ +\w+ .*:$", str(found), re.MULTILINE), "nothing is announced that does not follow"


@pytest.mark.parametrize("ending", ["", ".json"])
def test_what_compares_alone_says_that_it_made_no_experiment(
    ending: str, proto: onnx.ModelProto, tmp_path: Path
) -> None:
    found = ps.compare(proto, candidate=without_bias, inputs=list(X))
    found.save(tmp_path / f"study{ending}")
    for told in (found, ps.load_study(tmp_path / f"study{ending}")):
        assert "this command compares outputs alone and makes no experiments" in " ".join(str(told).split())
        assert f"{len(X)} samples of Python (list)" in " ".join(str(told).split())


def test_tensors_of_every_layer_come_behind_the_outputs(proto: onnx.ModelProto) -> None:
    found = ps.compare(proto, candidate="sim:f16", inputs=list(X), all_tensors=True)
    assert [(row.name, row.is_output) for row in found.tensors] == [("y", True), ("a", False), ("b", False)]


def test_parity_is_asserted_with_the_reason(proto: onnx.ModelProto) -> None:
    assert ps.assert_parity(proto, candidate=right, inputs=streamed()).verdict == "within"
    with pytest.raises(ps.ParityFailure) as caught:
        ps.assert_parity(proto, candidate=without_bias, inputs=streamed())
    assert "Why" in str(caught.value)
    assert caught.value.result is not None
    assert caught.value.result.findings
    with pytest.raises(AssertionError) as short:
        ps.assert_parity(proto, candidate=without_bias, inputs=list(X), why=False)
    assert "expected rounding error" in str(short.value)


def test_nothing_heavy_is_imported_before_a_verb_is_asked_for() -> None:
    text = (
        "import sys, parityscope; print(sorted({'numpy', 'onnx', 'onnxruntime', 'numba', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


USER_TESTS = """
import numpy as np
import onnx.parser

MODEL = onnx.parser.parse_model(\'<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { y = Tanh(x) }\')
X = [np.linspace(-1, 1, 4, dtype=np.float32)[None]]
SCALE = 1.0

def test_right(parity):
    parity(MODEL, candidate=lambda a: np.tanh(a["x"]) * np.float32(SCALE), inputs=X, budgets={"rel_l2": 0.1})

def test_wrong(parity):
    parity(MODEL, candidate=lambda a: np.sin(a["x"]), inputs=X)
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    plugin = ["-p", "parityscope.api.pytest_plugin", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_fixture_fails_with_the_answer_and_its_report(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(USER_TESTS, encoding="utf-8")
    done = run_pytest(tmp_path, "test_it.py", "--junitxml=out.xml")
    assert "1 failed, 1 passed" in done.stdout
    assert "Why" in done.stdout
    cases = ET.parse(tmp_path / "out.xml").iter("testcase")  # noqa: S314 - our own test run wrote it
    (failed,) = [case for case in cases if case.get("name") == "test_wrong"]
    (report,) = [one.get("value") for one in failed.iter("property") if one.get("name") == "parity_report"]
    assert report == str(tmp_path / "parity-reports" / "test_it-test_wrong" / "report.html")
    assert ps.load_study(tmp_path / "parity-reports" / "test_it-test_wrong").verdict == "beyond"


def test_an_error_that_grew_fails_though_it_is_within(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(USER_TESTS.replace("SCALE = 1.0", "SCALE = 1.001"), encoding="utf-8")
    assert "1 passed" in run_pytest(tmp_path, "test_it.py", "-k", "right", "--parity-update").stdout
    assert (tmp_path / "parity" / "test_it-test_right.json").is_file()
    (tmp_path / "test_it.py").write_text(USER_TESTS.replace("SCALE = 1.0", "SCALE = 1.01"), encoding="utf-8")
    done = run_pytest(tmp_path, "test_it.py", "-k", "right")
    assert "1 failed" in done.stdout
    assert "worse than the baseline" in done.stdout
    (tmp_path / "parity" / "test_it-test_right.json").write_text("[]", encoding="utf-8")
    assert "no baseline of parity" in run_pytest(tmp_path, "test_it.py", "-k", "right").stdout


@pytest.mark.parametrize("target", ["ort", right, "the session"], ids=["a target", "a callable", "a session"])
def test_run_gives_the_outputs_of_every_sample_as_arrays(target: Any, proto: onnx.ModelProto) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    given = ps.run(proto, target=session if target == "the session" else target, inputs=list(X))
    assert [list(one) for one in given] == [["y"]] * len(X)
    for one, x in zip(given, X, strict=True):
        np.testing.assert_allclose(one["y"], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
        assert one["y"].flags.writeable


def test_run_gives_what_lies_inside_where_that_is_asked_for(proto: onnx.ModelProto) -> None:
    (given,) = ps.run(proto, inputs=X[0], all_tensors=True)
    assert {"a", "b", "y"} <= set(given)
    np.testing.assert_allclose(given["b"], X[0] @ W + C, rtol=1e-5, atol=1e-6)
    with pytest.raises(ps.ParityError, match="no backend"):
        ps.run(proto, target="nowhere", inputs=X[0])


def test_repair_writes_a_model_that_keeps_its_budget(tmp_path: Path) -> None:
    text = TEXT.replace("a = MatMul(x, w) b = Add(a, c) y = Tanh(b)", "a = Add(x, e) b = Log(a) y = MatMul(b, w)")
    model = parse_network(text, {"e": np.float32(1e-10), "w": W})
    samples = [np.abs(x) * (np.arange(8) > 0) for x in X]
    found = ps.repair(model, inputs=samples, low="f16", output=tmp_path / "fixed.onnx")
    assert found.verdict == "unproved"  # six samples are too few to certify anything
    assert found.record.kept
    assert (found.exit, found.document["output"]) == (0, str(tmp_path / "fixed.onnx"))
    assert ps.compare(model, candidate="sim:f16", inputs=samples).verdict == "beyond"
    wanted, given = ps.run(model, inputs=samples), ps.run(tmp_path / "fixed.onnx", target="sim", inputs=samples)
    for one, other in zip(wanted, given, strict=True):
        assert np.linalg.norm(other["y"] - one["y"]) <= 1e-2 * np.linalg.norm(one["y"])
    with pytest.raises(ps.ParityError, match="exists"):
        ps.repair(model, inputs=samples, output=tmp_path / "fixed.onnx")
