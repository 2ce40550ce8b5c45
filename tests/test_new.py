"""Every scaffold works as it is: its contract, the linter, the type checker, and registration as it is printed."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import in_a_process, read_study
from parityscope.backends.contract import check_backend
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.cli import main, run_command
from parityscope.cli.scaffolding import KINDS, folder_of, module_path, text_of
from parityscope.comparison import Metric
from parityscope.comparison.metric import all_metrics
from parityscope.linting.contract import check_examples as check_rule
from parityscope.records import Finding, Measurement
from parityscope.repairs import Repair, known_repairs
from parityscope.report import Renderer, known_renderers
from parityscope.testing.check_contract import check_examples
from parityscope.testing.metric_contract import check_metric
from parityscope.testing.renderer_contract import check_renderer
from parityscope.testing.repair_contract import check_repair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from parityscope.case import Model
    from parityscope.comparison import Statistics

ROOT = Path(__file__).resolve().parents[1]
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y) <float two = {2.0}, float[2,3] shift = {0, 1, 2, 3, 4, 5}> {
  square = Pow(x, two)
  y = Add(square, shift)
}"""
X = np.array([[0.1, -1.5, 3.0], [1e-3, 7.25, -2.0]], np.float32)
POW = Finding(code="t", title="", role="cause", claim="", confidence=1.0, confidence_from="", details={"node": "Pow#0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A package of somebody else's with one new plug-in of each kind, and what was printed for each."""

    folder: Path
    printed: Mapping[str, str]

    def entry_points(self, *kinds: str) -> str:
        """The lines that register plug-ins, as an installed package holds them: the tables that were printed for it."""
        return "".join(
            textwrap.dedent(re.findall(r"(?m)^    \[project.*\n.*\n", self.printed[kind])[0]) for kind in kinds
        )


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    folder = tmp_path_factory.mktemp("site") / "outside"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Plug-ins of somebody else."""\n', encoding="utf-8")
    printed = {kind: printed_by("new", kind, f"my_{kind}", "--folder", str(folder)) for kind in KINDS}
    return Outside(folder=folder, printed=printed)


@pytest.fixture
def plugins(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, ModuleType]:
    monkeypatch.syspath_prepend(outside.folder.parent)
    return {kind: importlib.import_module(f"outside.my_{kind}") for kind in KINDS}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return load_model(tmp_path / "model.onnx")


def printed_by(*words: str) -> str:
    """What a command says on stdout, run here: a process of its own for each kind takes most of this file's time."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run_command([*words]) == 0
    return said.getvalue()


def new(kind: str, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return in_a_process("new", kind, name, "--folder", str(folder))


def installed(site: Path, tables: str) -> None:
    """Makes of `site` a folder with an installed package that has these entry points."""
    info = site / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n", encoding="utf-8")
    # entry_points.txt has the same lines without quotation marks and without the prefix of the table.
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in tomllib.loads(tables)["project"]["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")


def run(*words: str, folder: Path = ROOT, **environment: str) -> str:
    if (path := os.environ.get("PYTHONPATH")) and "PYTHONPATH" in environment:  # of a checkout that is not installed
        environment["PYTHONPATH"] += os.pathsep + path
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_metric_keeps_its_contract_and_counts_signs(plugins: Mapping[str, ModuleType]) -> None:
    metric = plugins["metric"].METRIC
    check_metric(metric)
    state = metric.start()
    # Signs differ at 0 and 4 (NaN on one side only); zero has none; two NaN agree.
    reference = np.array([-1.0, 2.0, 0.0, np.nan, 1.0, -1e-300])
    candidate = np.array([1.0, 3.0, -5.0, np.nan, np.nan, -1e-300])
    assert metric.update(state, reference, candidate) == (2, 6)


def test_the_backend_keeps_its_contract(plugins: Mapping[str, ModuleType], model: Model) -> None:
    backend, sample = plugins["backend"].BACKEND, Sample(index=0, name="x", arrays={"x": X})
    check_backend(backend, model, sample, replace(parse_target("ort"), backend="my_backend"))


def test_the_check_finds_its_examples(
    outside: Outside, plugins: Mapping[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The chain asks the checks that are registered. Only this one is: metrics are remembered as long as the process.
    installed(tmp_path / "site", outside.entry_points("check"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    check_examples(plugins["check"].CHECK, tmp_path / "examples")


def test_the_rule_finds_its_examples(plugins: Mapping[str, ModuleType], tmp_path: Path) -> None:
    check_rule(plugins["rule"].RULE, tmp_path)


def test_the_repair_keeps_its_contract(plugins: Mapping[str, ModuleType], model: Model, tmp_path: Path) -> None:
    check_repair(plugins["repair"].REPAIR, model, POW, {"x": X}, tmp_path)
    assert [node.op_type for node in load_model(tmp_path / "my_repair.onnx").graph().graph] == ["Mul", "Add"]


def test_the_renderer_keeps_its_contract(plugins: Mapping[str, ModuleType], tmp_path: Path) -> None:
    renderer = plugins["renderer"].RENDERER
    check_renderer(renderer, tmp_path)
    text = renderer.render(
        {"verdict": "beyond", "outputs": [{"name": "a|<b>", "rel_l2": "Infinity", "verdict": "beyond"}]}
    )
    assert text.splitlines()[-1] == "| a\\|&lt;b> | ∞ |  | beyond |"


def test_type_checker(outside: Outside) -> None:
    files = [str(path) for path in sorted(outside.folder.glob("*.py"))]
    run("-m", "mypy", "--config-file", "pyproject.toml", "--strict", *files)


def test_linter_elsewhere(outside: Outside) -> None:
    chosen = "E,F,W,I,B,UP,SIM,TC,RUF,ANN,ARG,D1"
    run("-m", "ruff", "check", "--isolated", "--line-length=120", f"--select={chosen}", ".", folder=outside.folder)
    run("-m", "ruff", "format", "--isolated", "--line-length=120", "--check", ".", folder=outside.folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a", "a_name_of_forty_letters_is_the_longest_a"])
def test_linter_in_our_own_folder(kind: str, name: str) -> None:
    place = folder_of(KINDS[kind]).relative_to(ROOT) / f"{name}.py"
    for words in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(place), "-"]
        text = text_of(kind, name, inside=True)
        done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_printed_registers_all_of_them(outside: Outside, tmp_path: Path) -> None:
    installed(tmp_path, outside.entry_points(*KINDS))
    code = (
        "import json; from parityscope.cli.scaffolding import CATALOGUES; "
        "print(json.dumps({kind: list(names()) for kind, names in CATALOGUES.items()}))"
    )
    path = os.pathsep.join([str(outside.folder.parent), str(tmp_path)])
    found = json.loads(run("-c", code, PYTHONPATH=path))
    for kind, what in KINDS.items():
        assert ("USR001" if kind in {"check", "rule"} else f"my_{kind}") in found[what.catalogue]


def test_a_registered_metric_and_check_reach_the_study(outside: Outside, model: Model, tmp_path: Path) -> None:
    installed(tmp_path / "site", outside.entry_points("metric", "renderer"))
    np.savez(tmp_path / "x.npz", x=X)
    path = os.pathsep.join([str(outside.folder.parent), str(tmp_path / "site")])
    words = ["--candidate", "ort?optimization=disabled", "--inputs", str(tmp_path / "x.npz"), "--budget", "my_metric=0"]
    words += ["--format", "my_renderer", "--study", str(tmp_path / "study")]
    printed = run("-m", "parityscope", "compare", str(model.path), *words, PYTHONPATH=path)
    assert "| y |" in printed
    output = read_study(tmp_path / "study")["outputs"][0]
    assert output["measurements"]["my_metric"]["value"] == 0
    assert "my_metric 0 against 0" in output["reason"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("kept", encoding="utf-8")
    done = new("metric", "mine", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fix:" in done.stderr
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize(
    ("kind", "name", "fix"),
    [
        ("widget", "mine", "metric, backend"),
        ("metric", "My-Metric", "write my_metric"),
        ("metric", "_hidden", "write hidden"),
        ("metric", "lambda", "write my_plugin"),
        ("metric", "4x", "write my_plugin"),
        ("metric", "m" * 41, "write " + "m" * 40),
        ("metric", "snr", "another name"),  # of a file
        ("metric", "snr_db", "another name"),  # of the metric in it
        ("backend", "ort", "another name"),
        ("check", "underflow", "another name"),
        ("renderer", "as_json", "another name"),
    ],
)
def test_names_that_cannot_be(
    kind: str, name: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    with pytest.raises(SystemExit) as end:
        main(["new", kind, name, "--folder", str(tmp_path)])
    assert end.value.code == 2
    assert fix in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    done = new("metric", "mine", tmp_path / "none")
    assert done.returncode == 2
    assert "mkdir" in done.stderr


def test_dotted_names(tmp_path: Path) -> None:
    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    assert module_path(inner / "mine.py") == "mine"
    (inner / "__init__.py").touch()
    assert module_path(inner / "mine.py") == "two.mine"
    (tmp_path / "one" / "__init__.py").touch()
    assert module_path(inner / "mine.py") == "one.two.mine"


def test_code_is_the_next_that_is_free() -> None:
    assert '"USR001"' in text_of("check", "mine", inside=True)


# The contracts themselves: every plug-in of ours keeps them, and one that does not is named.
@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_our_metrics_keep_the_contract(metric: Metric) -> None:
    check_metric(metric)


@pytest.mark.parametrize("name", sorted(known_renderers()))
def test_our_renderers_keep_the_contract(name: str, tmp_path: Path) -> None:
    check_renderer(known_renderers()[name], tmp_path)


def test_our_repair_keeps_the_contract(tmp_path: Path) -> None:
    names = ("scale", "bias", "mean", "variance")
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,3] x) => (float[1,2,3] y)
<float[2] scale = {{1, 2}}, float[2] bias = {{0, -1}}, float[2] mean = {{0.5, 3}}, float[2] variance = {{4, 1e8}}> {{
  y = BatchNormalization(x, {", ".join(names)})
}}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    finding = replace(POW, details={"node": "BatchNormalization#0"})
    inputs = {"x": np.arange(6, dtype=np.float32).reshape(1, 2, 3)}
    check_repair(
        known_repairs()["fold_batch_normalization"], load_model(tmp_path / "model.onnx"), finding, inputs, tmp_path
    )


def _changing(state: list[int], reference: np.ndarray, candidate: np.ndarray) -> list[int]:
    state[0] += reference.size
    return state


def _measured(value: float) -> Callable[[Statistics], Measurement]:
    return lambda statistics: Measurement(metric="m", value=value, unit="u", count=statistics.count)


BROKEN = Metric(name="m", unit="u", better="lower", perfect=0.0, finish=_measured(0.0))


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (replace(BROKEN, start=lambda: [0]), "all are needed"),
        (replace(BROKEN, finish=_measured(1.0)), "is 1.0 for equal float32"),
        (replace(BROKEN, finish=lambda _: None), "no measurement of its own name"),
        (BROKEN, "perfect for a candidate that is NaN"),
        (replace(BROKEN, start=lambda: [0], update=_changing, combine=lambda one, _: one), "changes the state"),
        (
            replace(
                BROKEN,
                start=lambda: 0.0,
                update=lambda state, r, c: state + float(np.abs(c - r).sum()),
                combine=lambda _, other: other,
                finish=lambda statistics: replace(_measured(0.0)(statistics), value=statistics.states.get("m", 0.0)),
            ),
            "when cut at",
        ),
    ],
)
def test_a_broken_metric_is_named(metric: Metric, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_metric(metric)


def _adding(graph: Any, _: Finding) -> str:
    graph.graph.node(0).op_type = "Add"
    return "adds"


@pytest.mark.parametrize(
    ("apply", "sentence"),
    [
        (lambda _, __: None, "cannot be applied to the finding"),
        (_adding, "a node that is not there"),
        (
            lambda graph, found: _adding(graph, found) if found.details["node"] == "Pow#0" else None,
            "changes output 'y'",
        ),
    ],
)
def test_a_broken_repair_is_named(apply: Any, sentence: str, model: Model, tmp_path: Path) -> None:
    repair = Repair(name="broken", title="", risk="", apply=apply)
    with pytest.raises(AssertionError, match=sentence):
        check_repair(repair, model, POW, {"x": X}, tmp_path)


@pytest.mark.parametrize(
    ("suffix", "render", "sentence"),
    [
        ("txt", lambda _: "text", "begins with no dot"),
        (".txt", lambda _: "", "no text"),
        (".txt", lambda document: str(document.pop("verdict")), "changes the document"),
        (".json", lambda _: "NaN", "not JSON"),
        (".json", lambda _: "{", "does not write JSON"),
        (".html", lambda document: str(document.get("outputs")), "markup"),
    ],
)
def test_a_broken_renderer_is_named(suffix: str, render: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_renderer(Renderer(name="broken", suffix=suffix, render=render), tmp_path)
