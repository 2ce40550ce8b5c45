"""The page of the JSON documents names every key that the documents hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import read_study
from golden import documents
from parityscope.cli import main
from parityscope.study.schema import problem_of, study_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE = Path(__file__).parent.parent / "docs" / "documents.md"
# Maps whose keys are names of the user's or of the runtime's: formats, metrics, tensors, options, variables, stages.
OPEN = {
    *(
        "asked",
        "decisions",
        "details",
        "environment",
        "expected",
        "graph_views",
        "mapping",
        "measurements",
        "plots",
        "settings",
    ),
    *("states", "statistics", "timings"),
}
# A division by a BatchNormalization's variance that FP16 cannot hold, then a state that is fed back.
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[1, 4, 3, 3] x, float[1, 4, 3, 3] h) => (float[1, 4, 3, 3] y, float[1, 4, 3, 3] next)
<float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}, float[4] variance = {90000000, 90000000, 90000000, 90000000}> {
  wide = Mul(x, big)
  normal = BatchNormalization(wide, ones, zeros, zeros, variance)
  sum = Add(normal, h)
  y = Relu(sum)
  next = Tanh(sum)
}""".replace("<float[4] ones", "<float big = {10000}, float[4] ones")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    onnx.save(onnx.parser.parse_model(MODEL), folder / "m.onnx")
    draw = np.random.default_rng(0)
    (folder / "samples").mkdir()
    for place in range(3):
        arrays = {name: draw.normal(size=(1, 4, 3, 3)).astype(np.float32) for name in ("x", "h")}
        np.savez(folder / "samples" / f"{place}.npz", **arrays)
    (folder / "stages.toml").write_text(
        'inputs = "samples"\n[[stage]]\nname = "one"\nmodel = "m.onnx"\ncandidate = "sim:f16"\n', encoding="utf-8"
    )
    (folder / "build.log").write_text("[I] TensorRT version: 10.3.0\n[W] something\n", encoding="utf-8")
    return folder


def keys(value: Any) -> Iterator[str]:
    """The keys of plain data, without those inside maps whose keys are names."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield key
            if key not in OPEN:
                yield from keys(held)
    elif isinstance(value, list):
        for held in value:
            yield from keys(held)


def named(part: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9]+)`", part))


def printed(desk: Path, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    with pytest.raises(SystemExit) as ended:
        main([*typed.split(), "--quiet"] if not typed.startswith("doctor") else typed.split())
    assert ended.value.code in {0, 1, 3}
    return json.loads(capsys.readouterr().out)


def test_every_key_of_a_study_is_on_the_page(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = PAGE.read_text(encoding="utf-8").partition("## A study")[2].partition("## Other documents")[0]
    asked = "diagnose m.onnx --inputs samples --candidate sim:f16?overflow=saturate --state next=h --steps 20"
    shown = printed(desk, f"{asked} --budget rel_l2=0.001 --study s --format json", monkeypatch, capsys)
    held = read_study(desk / "s")
    found = set(keys(held)) | {key for made in (documents.detector(16), documents.incomplete()) for key in keys(made)}
    # The study is one that has what the page tells of: a cause with repairs, suspects, calls, and a budget.
    assert held["findings"]
    assert held["suspects"]
    assert held["calls"]
    assert {"changing", "spread"} <= set(held["candidate"])
    assert found - named(study) == set()
    # The schema knows each of them, and the page each of the schema's.
    schema = study_schema()
    assert problem_of(held) == ""
    assert list(unknown(held, schema, schema)) == []
    assert set(names(schema)) - named(study) == set()
    # What the page says is left out of --format json is left out, and nothing else.
    left = named(PAGE.read_text(encoding="utf-8").partition("- strict JSON")[0]) & set(held)
    assert set(held) - set(shown) == left


def unknown(value: Any, form: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a study that its schema does not name, where it names any."""
    if "$ref" in form:
        form = schema["definitions"][form["$ref"].rpartition("/")[2]]
    for one in form.get("anyOf", ()):
        yield from unknown(value, one, schema)
    if isinstance(value, list) and "items" in form:
        for held in value:
            yield from unknown(held, form["items"], schema)
    elif isinstance(value, dict) and form.get("type") == "object":
        for key, held in value.items():
            inner = form.get("properties", {}).get(key, form.get("additionalProperties"))
            if inner is not None:
                yield from unknown(held, inner, schema)
            elif "properties" in form:
                yield key


def names(form: Any) -> Iterator[str]:
    """The keys that a schema names."""
    if isinstance(form, dict):
        yield from form.get("properties", {})
        for held in form.values():
            yield from names(held)
    elif isinstance(form, list):
        for held in form:
            yield from names(held)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("predict", "predict m.onnx --inputs samples --formats f16 --format json"),
        ("lint", "lint m.onnx --format json"),
        ("repair", "repair m.onnx --inputs samples --low f16 --evaluations 3 -o fixed.onnx --format json"),
        ("verify", "verify m.onnx --before sim:f16 --after ort --inputs samples --no-timing --study v --format json"),
        ("log", "log build.log --format json"),
        ("pipeline", "pipeline stages.toml --study p --format json"),
        ("doctor", "doctor --format json"),
    ],
)
def test_every_key_of_the_other_documents_is_on_the_page(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, typed: str
) -> None:
    found = printed(desk, typed, monkeypatch, capsys)
    text = PAGE.read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{command}` |")]
    assert set(found) - {"schema", "kind"} - named(row) == set()
    if "schema" in found:
        assert f"`{found['schema']}`" in row
    if "kind" in found:
        assert f"`{found['kind']}`" in row
