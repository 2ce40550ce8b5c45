"""Every verb of the command line as a function: its record, its forms, its files, and the same document as `--format json`."""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import parityscope as ps
from command_line import exit_status
from parityscope.api import CALLED_OTHERWISE, WITHOUT, options
from parityscope.cli.shell.app import COMMANDS, command
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,8] x) => (float[1,4] y) { a = MatMul(x, w) b = Add(a, c) y = Tanh(b) }'
RANDOM = np.random.default_rng(5)
W = RANDOM.standard_normal((8, 4)).astype(np.float32)
C = np.full(4, 0.5, np.float32)
X = RANDOM.standard_normal((6, 1, 8)).astype(np.float32)
OVERFLOW = np.float32(1e6)  # beyond 65504, FP16's largest
PIPELINE = """reference = "ort"
candidate = "ort"
[[stage]]
name = "all"
model = "m.onnx"
"""
CHECKS = 'declared = "f16"\n[[check]]\nname = "half"\nmodel = "m.onnx"\ncandidate = "sim:f16"\ninputs = "x.npz"\n'
MATRIX = 'declared = "f16"\n[matrix]\nmodels = ["m.onnx"]\ntargets = ["sim:f16"]\ninputs = "x.npz"\n'


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    return parse_network(TEXT, {"w": W, "c": C})


@pytest.fixture(scope="module")
def broken() -> onnx.ModelProto:
    return parse_network(TEXT, {"w": W, "c": C * OVERFLOW})


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proto: onnx.ModelProto, broken: onnx.ModelProto) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(proto, "m.onnx")
    onnx.save(broken, "broken.onnx")
    np.savez("x.npz", x=X[0])
    Path("build.log").write_text("[I] TensorRT version: 10.3.0\n[W] something\n", encoding="utf-8")
    Path("parityscope.toml").write_text(CHECKS, encoding="utf-8")
    Path("matrix.toml").write_text(MATRIX, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_is_a_function_or_says_why_not(verb: str) -> None:
    if verb in WITHOUT:
        assert len(WITHOUT[verb].split()) > 3
        assert verb not in ps.__all__
        return
    function = getattr(ps, CALLED_OTHERWISE.get(verb, verb))
    assert callable(function)
    assert function.__name__ in ps.__all__
    assert function.__doc__


def test_every_name_is_there_and_listed() -> None:
    assert set(ps.__all__) <= set(dir(ps))
    assert all(getattr(ps, name) is not None for name in ps.__all__)


REPORTS: dict[str, Callable[[], Any]] = {
    "look m.onnx --inputs x.npz": lambda: ps.look("m.onnx", inputs="x.npz"),
    "predict m.onnx --inputs x.npz --formats f16 --draws 1": lambda: ps.predict(
        "m.onnx", inputs="x.npz", formats=["f16"], draws=1
    ),
    "lint m.onnx": lambda: ps.lint("m.onnx"),
    "lint broken.onnx --formats fp16": lambda: ps.lint("broken.onnx", formats=["fp16"]),
    "log build.log": lambda: ps.log("build.log"),
    "list": ps.list_plugins,
    "list repairs": lambda: ps.list_plugins("repairs"),
    "explain": ps.explain,
    "explain rng001": lambda: ps.explain("rng001"),
    "check --no-causes --study checked": lambda: ps.check(causes=False, study="again"),
}


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on who asked, where it was kept, and how long it took."""
    text = json.dumps(document).replace("checked/", "again/")
    held: dict[str, Any] = json.loads(text)
    for one in (held, *held.get("pairs", ())):
        for key in ("command", "seconds"):
            one.pop(key, None)
        one.pop("study", None)
    held.get("lint", {}).pop("command", None)
    return held


@pytest.mark.parametrize("words", REPORTS)
def test_a_function_gives_what_its_command_prints(words: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = exit_status(*words.split(), "--format", "json", "--quiet")
    printed = json.loads(capsys.readouterr().out)
    found = REPORTS[words]()
    assert isinstance(found, ps.Report)
    assert plain(found.to_dict()) == plain(printed)
    assert int(found.exit) == status
    assert found.verdict in {"within", "beyond", "incomplete", "error"}
    assert "\n" not in repr(found)
    assert repr(found).startswith("<")
    assert found._repr_html_().startswith("<iframe srcdoc=")
    for ending in (".html", ".json", ".md", ".txt"):
        assert found.save(f"told{ending}") is found
        with pytest.raises(ps.ParityError, match="exists already"):
            found.save(f"told{ending}")
    assert json.loads((desk / "told.json").read_text(encoding="utf-8")) == found.to_dict()
    assert (desk / "told.txt").read_text(encoding="utf-8").rstrip("\n")


def test_an_ending_that_says_no_form_of_it_is_refused() -> None:
    with pytest.raises(ps.ParityError, match="cannot be written as") as told:
        ps.list_plugins().save("told.sarif")
    assert ".html" in told.value.fix


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda m: ps.compare(m, candidate="ort", tolerance=1), "did you mean 'budgets'?"),
        (lambda m: ps.diagnose(m, candidate="ort", time=3), "did you mean 'seconds'?"),
        (lambda m: ps.run(m, candidate="ort"), "did you mean 'target'?"),
        (lambda m: ps.predict(m, sampels=3), "did you mean 'samples'?"),
        (lambda m: ps.lint(m, wholly="x"), "it takes model, formats"),
        (lambda m: ps.compare(m, candidate="ort", budgets="rel_l2=1e-3"), "give a dict"),
    ],
)
def test_an_argument_that_is_not_there_is_told_with_the_nearest(
    ask: Callable[[onnx.ModelProto], object], told: str, proto: onnx.ModelProto
) -> None:
    with pytest.raises(ps.ParityError, match=re.escape(told)):
        ask(proto)


def test_one_text_stands_for_a_list_of_one(proto: onnx.ModelProto, broken: onnx.ModelProto) -> None:
    told = [[one.claim for one in ps.lint(broken, formats=formats).findings] for formats in ("f16", ["f16"])]
    assert told[0] == told[1] != []
    found = ps.compare(broken, candidate="ort", inputs={"x": X[0]}, match="y")
    assert found.exit == 0
    assert ps.compare(proto, candidate=lambda _: np.zeros((1, 4), np.float32), inputs={"x": X[0]}).exit == 1


def test_beyond_raises_with_the_answer(proto: onnx.ModelProto) -> None:
    ps.lint(proto).raise_if_beyond()
    small = parse_network(TEXT.replace("Add(a, c)", "Div(a, c)"), {"w": W, "c": np.full(4, 1e-8, np.float32)})
    found = ps.lint(small)  # FP16 makes a 0 of what is divided by
    assert (found.verdict, found.exit) == ("beyond", 1)
    assert found.findings[0].role == "cause"
    assert found.record.broken
    with pytest.raises(ps.ParityFailure, match="RNG"):
        found.raise_if_beyond()


def test_a_report_in_a_folder_is_read_again(proto: onnx.ModelProto, tmp_path: Path) -> None:
    found = ps.predict(proto, inputs=list(X), formats=["f16"]).save(tmp_path / "forecast")
    again = ps.load_report(tmp_path / "forecast")
    assert (again.to_dict(), str(again)) == (found.to_dict(), str(found))
    assert again.save(tmp_path / "again.html")
    ps.compare(proto, candidate="ort", inputs=list(X)).save(tmp_path / "study").save(tmp_path / "study.md")
    assert isinstance(ps.load_report(tmp_path / "study"), ps.Result)
    with pytest.raises(ps.ParityError, match="not a study"):
        ps.load_study(tmp_path / "forecast")


def test_the_forecast_is_typed(proto: onnx.ModelProto) -> None:
    found = ps.predict(
        proto, inputs=list(X), formats=["f16", "fp8"], dynamic_range={"x": 4.0}, outputs_only=True, samples=2
    )
    assert [one.precision for one in found.record.formats] == ["f16", "fp8"]
    assert found.record.samples == 2
    assert ps.look(proto, inputs=list(X)).record.samples == len(X)


def test_verify_takes_budgets_and_metrics_of_any_form(proto: onnx.ModelProto) -> None:
    def is_positive(outputs: dict[str, np.ndarray], labels: object) -> np.ndarray:
        return (outputs["y"] > 0).mean(axis=-1)

    found = ps.verify(
        proto, before="sim:bf16", after="ort", inputs=list(X), budgets={"rel_l2": 1e-2}, metrics=[is_positive], timing=0
    )
    assert found.exit == 0
    assert "is_positive" in {one["name"] for one in found.document["quantities"]}


def test_diff_is_a_report(proto: onnx.ModelProto, tmp_path: Path) -> None:
    held = {"inputs": list(X), "declared": "f16"}
    before, after = (ps.compare(proto, candidate=name, **held) for name in ("sim:f16", "sim:bf16"))
    found = ps.diff(before, after)
    assert (found.verdict, found.record.verdict, found.exit) == ("worse", "worse", 1)
    assert ps.diff(after, before).verdict == "better"


def test_an_experiment_of_a_study_of_named_files_runs_again(desk: Path) -> None:
    study = ps.diagnose("m.onnx", candidate="ort?model=broken.onnx", inputs="x.npz").save("study")
    (first, *_) = ps.experiment(study).document["experiments"]
    again = ps.experiment("study", first["identity"])
    assert (again.verdict, again.record.same) == ("within", True)
    with pytest.raises(ps.ParityError, match="no experiment"):
        ps.experiment(study, "X-9")


def test_a_finding_is_reduced_to_a_zip(proto: onnx.ModelProto, tmp_path: Path) -> None:
    other = parse_network(TEXT.replace("Tanh", "Sigmoid"), {"w": W, "c": C})
    onnx.save(other, tmp_path / "other.onnx")
    target = f"ort?model={tmp_path / 'other.onnx'}"
    found = ps.reduce(proto, candidate=target, inputs=list(X), output=tmp_path / "proof.zip")
    assert found.document["nodes"]["after"] == 1
    with zipfile.ZipFile(tmp_path / "proof.zip") as packed:
        assert {"model.onnx", "reproduce.py", "proof.json"} <= set(packed.namelist())
    with pytest.raises(ps.ParityError, match="exists already"):
        ps.reduce(proto, candidate=target, inputs=list(X), output=tmp_path / "proof.zip")
    with pytest.raises(ps.ParityError, match="no candidate"):
        ps.reduce(proto, output=tmp_path / "none.zip")


def test_a_typed_model_is_evaluated(proto: onnx.ModelProto) -> None:
    half = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,8] x) => (float[1,8] y)'
        " { h = Cast<to = 10>(x) t = Tanh(h) y = Cast<to = 1>(t) }"
    )
    found = ps.evaluate(half, inputs=list(X))
    assert isinstance(found, ps.Result)
    assert "CLAIM" in {one.code for one in found.findings}
    assert found.outputs[0].rel_l2
    with pytest.raises(ps.ParityError, match="holds no value of float16"):
        ps.evaluate(proto, inputs=list(X))
    assert ps.evaluate(proto, reference=proto, inputs=list(X)).verdict == "within"


def test_two_functions_that_prepare_images_part(tmp_path: Path) -> None:
    from PIL import Image

    for place in range(2):
        pixels = RANDOM.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{place}.png")
    found = ps.preprocessing(
        lambda image: image.astype(np.float32) / 255,
        lambda image: image.astype(np.float32)[..., ::-1] / 255,
        images=tmp_path,
    )
    assert (found.verdict, found.exit) == ("beyond", 1)
    assert found.record.first is not None
    assert ps.preprocessing(np.float32, np.float32, images=tmp_path, samples=1).record.images == 1


def test_the_cells_of_a_matrix_and_its_last_run(desk: Path) -> None:
    first = ps.matrix("matrix.toml", causes=False)
    assert (first.verdict, len(first.record), first.record[0].folder) == ("within", 1, None)
    assert ps.matrix("matrix.toml", causes=False, study="kept").record[0].folder == Path(
        "kept", first.record[0].pair.name
    )


def test_doctor_tells_what_runs_here() -> None:
    found = ps.doctor()
    assert "onnxruntime" in found.record["packages"]
    assert "ready" in str(found)


def test_repair_takes_metrics_policies_plans_and_settings(tmp_path: Path) -> None:
    text = TEXT.replace("a = MatMul(x, w) b = Add(a, c) y = Tanh(b)", "a = Add(x, e) b = Log(a) y = MatMul(b, w)")
    model = parse_network(text, {"e": np.float32(1e-10), "w": W})
    samples = [np.abs(x) * (np.arange(8) > 0) for x in X]

    def largest(reference: dict[str, np.ndarray], candidate: dict[str, np.ndarray]) -> float:
        return float(np.abs(reference["y"] - candidate["y"]).max())

    found = ps.repair(
        model,
        inputs=samples,
        candidate="openvino:f16",
        budgets={"rel_l2": 0.05, "largest": 10.0},
        metrics=[largest],
        settings=["polygraphy"],
        output=tmp_path / "fixed.onnx",
    )
    assert found.record.kept
    assert {one.name for one in tmp_path.glob("fixed*")} > {"fixed.onnx", "fixed.plan.toml"}
    again = ps.repair(model, inputs=samples, plan=tmp_path / "fixed.plan.toml", budgets={"rel_l2": 0.05})
    assert again.record.kept == found.record.kept
    policy = ps.repair(model, inputs=samples, policy=_policy(0.05), low="f16", search_samples=2, held_out=2)
    assert policy.record.kept


def _policy(limit: float) -> Any:
    from parityscope.records import Budget, Policy

    return Policy(budgets=(Budget(output="", metric="rel_l2", limit=limit, reason="a test"),))


REFUSED = {
    "a metric without a budget": ({"metrics": ["top1"]}, "has no budget"),
    "a margin that loosens": ({"margin": 0.5}, "makes no sense"),
    "no settings of that kind": (
        {"settings": ["other"], "output": "fixed.onnx", "types": "f32"},
        "no settings of kind",
    ),
    "no such consent": ({"consents": ["anything"]}, "no repair that asks for it"),
    "types of another name": ({"types": "weak"}, "is not known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_repair_cannot_be_asked_is_refused(name: str, desk: Path, proto: onnx.ModelProto) -> None:
    asked, words = REFUSED[name]
    with pytest.raises(ps.ParityError, match=words):
        ps.repair(proto, inputs=list(X), **asked)


# How an answer is handed over: a result's methods are for that.
HANDING_OVER = {
    "--format",
    "--output",
    "--quiet",
    "--all",
    "--ladder",
    "--keep-tensors",
    "--redact",
    "--study",
    "--help",
}
# Options of a command -> what its function calls them.
RENAMED = {
    "--budget": "budgets",
    "--metric": "metrics",
    "--map": "mapping",
    "--time": "seconds",
    "--state": "states",
    "--loop": "drive",
    "--consent": "consents",
    "--no-range-repairs": "range_repairs",
    "--no-causes": "causes",
    "--no-timing": "timing",
}
# Of one command alone.
RENAMED_IN = {
    ("verify", "--time"): "timing",
    ("log", "--profile"): "profiles",
    ("network", "--candidate"): "target",
}
# Options that a program has no use for, and why.
NOT_IN_PYTHON = {("doctor", "--prepare"): "it compiles beforehand what a program compiles when it is first needed"}


@pytest.mark.parametrize("verb", sorted(set(COMMANDS) - set(WITHOUT) - {"report"}))
def test_a_function_takes_what_its_command_takes(verb: str) -> None:
    made: Any = command().commands[verb]  # type: ignore[attr-defined]
    function = getattr(ps, CALLED_OTHERWISE.get(verb, verb))
    taken: set[str] = set()
    for one in inspect.signature(function).parameters.values():
        several = re.fullmatch(r"Unpack\[(\w+)\]", str(one.annotation))
        taken |= set(getattr(options, several[1]).__annotations__) if several else {one.name}
    words = {word for one in made.params for word in one.opts if word.startswith("--")} - HANDING_OVER
    wanted = {word: RENAMED_IN.get((verb, word)) or RENAMED.get(word) or word[2:].replace("-", "_") for word in words}
    assert {word for word, name in wanted.items() if name not in taken and (verb, word) not in NOT_IN_PYTHON} == set()
