"""`parityscope diff`: what is told as better or worse, what is noise, and what is named as what changed."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import parityscope as ps
from command_line import exit_status
from golden import documents
from parityscope.languages import speak_language
from parityscope.report.diff import FORMS, changes_document
from parityscope.study.changes.comparing import compare_studies
from parityscope.study.changes.facts import list_fact_changes
from parityscope.study.changes.noise import FEWEST_STEADY, direction_beyond_noise

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parent.parent / "docs" / "documents.md"
MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 64] x) => (float[1, 64] y) { t = Tanh(x) y = Mul(t, t) }'
OTHER = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 64] x) => (float[1, 64] z) { z = Tanh(x) }'


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Studies of a small model: in FP16, in BF16 that is declared FP16, on other samples, and of another model."""
    folder = tmp_path_factory.mktemp("desk")
    for name, text in (("m", MODEL), ("other", OTHER)):
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    for name in ("samples", "others"):
        draw = np.random.default_rng(len(name))
        (folder / name).mkdir()
        for place in range(3):
            np.savez(folder / name / f"{place}.npz", x=draw.normal(size=(1, 64)).astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PARITYSCOPE_NO_FORK", "1")
        for study, model, target, data in (
            ("f16", "m", "sim:f16", "samples"),
            ("bf16", "m", "sim:bf16", "samples"),
            ("else", "m", "sim:f16", "others"),
            ("other", "other", "sim:f16", "samples"),
        ):
            words = (f"{model}.onnx", "--candidate", target, "--inputs", data, "--declared", "f16", "--study", study)
            exit_status("compare", *words, "--all-tensors", "--quiet")
    return folder


@pytest.fixture(autouse=True)
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")


def shown(document: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return changes_document(compare_studies(document, other), document, other, places=("a", "b"))


def test_worse_ends_with_one_and_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("diff", "f16", "bf16") == 1
    told = capsys.readouterr().out
    assert "worse: 1 of 1 outputs" in told
    assert "'y': within → beyond" in told
    assert "candidate precision: f16 → bf16" in told
    assert "2 of 2 changed" not in told  # the output is told above, and is no layer
    assert "1 of 1 changed, first" in told
    assert len(told.splitlines()) <= 15


def test_more_samples_than_a_document_lists_are_held_against_each_other_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 8] x) => (float[1, 8] y) <float w = {%s}> { y = Mul(x, w) }'
    for name, factor in (("m", 1.0), ("first", 1.01), ("second", 1.015)):  # off by half more on every sample
        onnx.save(onnx.parser.parse_model(text % factor), f"{name}.onnx")
    np.savez("x.npz", x=np.random.default_rng(0).normal(size=(1100, 8)).astype(np.float32))
    for name in ("first", "second"):
        words = ("m.onnx", "--candidate", f"ort?model={name}.onnx", "--inputs", "x.npz", "--stacked", "--study", name)
        assert exit_status("compare", *words, "--quiet") == 1
    assert exit_status("diff", "first", "second", "--quiet") == 1
    assert exit_status("diff", "second", "first", "--quiet") == 0
    assert ps.diff("first", "second").verdict == "worse"
    assert ps.diff("second", "first").verdict == "better"


def test_better_and_the_same_end_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("diff", "bf16", "f16") == 0
    assert "better: 1 of 1 outputs, none worse" in capsys.readouterr().out
    assert exit_status("diff", "f16", "f16") == 0
    assert "nothing changed beyond noise" in capsys.readouterr().out


def test_other_samples_end_with_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("diff", "f16", "else") == 3
    told = capsys.readouterr().out
    assert "the studies were made with other samples" in told
    assert "data 3 .npz in others" in told


def test_what_cannot_be_compared_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("f16", "other"),
        ("f16", "nothing"),
        ("f16", "f16", "--format", "junit"),
        ("f16", "f16", "-o", "a.md5"),
    ):
        assert exit_status("diff", *words) == 2, words
        assert "fix:" in capsys.readouterr().err


def test_every_format_holds_the_answer(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, sign in (("html", "candidate"), ("markdown", "| y | worse | within → beyond |"), ("json", '"worse"')):
        assert exit_status("diff", "f16", "bf16", "--format", name, "-o", f"out-{name}.md") == 1
        assert sign in capsys.readouterr().out
        assert "### ✕ m: worse" in (desk / f"out-{name}.md").read_text("utf-8")


def test_every_key_of_the_document_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    exit_status("diff", "f16", "bf16", "--format", "json", "--quiet")
    held = json.loads(capsys.readouterr().out)
    (row,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `diff` |")]
    assert set(held) - {"schema", "kind"} <= set(re.findall(r"`([a-z_]+)`", row))


def test_python_has_the_verb() -> None:
    assert ps.diff("f16", ps.load_study("bf16")).verdict == "worse"


def test_chinese_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with speak_language("zh"):
        for name in ("text", "markdown", "html"):
            told = FORMS.render(shown(documents.within(), documents.within()), name)
            assert "没有超出噪声的变化" in told


def test_the_version_that_changed_is_named_once_and_why_it_matters() -> None:
    before, after = documents.detector(16), documents.detector(16)
    for document, version in ((before, "2025.1.0"), (after, "2025.3.0")):
        document["candidate"].update(backend="openvino", target="openvino:f16", version=version)
        document["candidate"]["environment"] = {"openvino": version, "threads": "4"}
        document["reference"]["environment"] = {"openvino": version}
    (found,) = list_fact_changes(before, after)
    assert (found.place, found.name, found.before, found.after) == ("candidate", "openvino", "2025.1.0", "2025.3.0")
    assert "kernels" in found.matters


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"target": "openvino:f16?threads=2"}, ("candidate", "threads=", "", "2")),
        ({"target": "ort?device=cuda"}, ("candidate", "target", "openvino:f16", "ort?device=cuda")),
        ({"declared": "bf16"}, ("candidate", "declared", "f16", "bf16")),
    ],
)
def test_a_setting_that_changed_is_named(change: dict[str, str], told: tuple[str, ...]) -> None:
    before = documents.detector(16)
    before["candidate"].update(backend="openvino", target="openvino:f16", declared="f16")
    after = copy.deepcopy(before)
    after["candidate"].update(change)
    assert [(one.place, one.name, one.before, one.after) for one in list_fact_changes(before, after)] == [told]


def test_a_setting_that_changed_on_both_sides_is_told_of_both() -> None:
    before, after = documents.detector(16), documents.detector(16)
    for side in ("candidate", "reference"):
        for document, precision in ((before, "f32"), (after, "f16")):
            document[side].update(backend="ort", target=f"ort:{precision}", environment={})
    assert [(one.place, one.name) for one in list_fact_changes(before, after)] == [
        ("candidate", "precision"),
        ("reference", "precision"),
    ]


def test_a_limit_that_is_no_finite_number_is_told() -> None:
    before, after = documents.detector(16), documents.detector(16)
    budgets = ({"metric": "rel_l2", "limit": None}, {"metric": "rel_l2", "limit": "Infinity"})
    for document, budget in zip((before, after), budgets, strict=True):
        document["policy"] = {"budgets": [budget]}
    (found,) = list_fact_changes(before, after)
    assert (found.before, found.after) == ("limit none", "limit inf")


def test_outputs_that_one_study_lacks_are_told_in_the_order_of_the_network() -> None:
    before, after = documents.detector(16), documents.detector(16)
    row = before["outputs"][0]
    before["outputs"] = [row, *({**row, "name": name} for name in "bcdefghi")]
    after["outputs"] = [row, {**row, "name": "a"}]
    assert [one.what[-2] for one in compare_studies(before, after).skipped] == list("bcdefghia")


def test_a_file_is_told_by_what_it_holds_and_not_by_where_it_lies() -> None:
    before = documents.detector(16)
    before["question"] = {"folder": "/a", "asked": {}, "files": {"candidate.model": {"sha256": "1" * 64}}}
    before["candidate"]["target"] = "openvino?model=a/m.onnx"
    after = copy.deepcopy(before)
    after["candidate"]["target"] = "openvino?model=b/m.onnx"
    assert list_fact_changes(before, after) == ()
    after["question"]["files"]["candidate.model"]["sha256"] = "2" * 64
    assert [(one.place, one.name) for one in list_fact_changes(before, after)] == [("file", "candidate.model")]


def test_new_nan_is_worse_though_the_verdict_is_the_same() -> None:
    before, after = documents.detector(16), documents.detector(16)
    assert compare_studies(before, after).verdict == "same"
    after["outputs"][0].update(rel_l2="NaN", nonfinite={"reference": 0, "candidate": 3, "agreeing": 0})
    found = compare_studies(before, after)
    assert found.verdict == "worse"
    assert found.outputs[0].nonfinite == (0, 3)
    assert compare_studies(after, before).verdict == "better"


def test_causes_are_gone_new_or_the_same() -> None:
    before, after = documents.detector(16), documents.detector(16)
    named = [one for one in before["findings"] if one["role"] in {"cause", "contributing"}]
    assert named
    after["findings"] = [{**named[0], "code": "RNG003"}, *(one for one in after["findings"] if one not in named[:1])]
    found = {(one.code, one.change) for one in compare_studies(before, after).causes}
    assert {(named[0]["code"], "gone"), ("RNG003", "new")} <= found
    assert {(one["code"], "same") for one in named[1:]} <= found


def test_another_depth_is_not_compared() -> None:
    before, after = documents.detector(16), documents.detector(16)
    for document, depth in ((before, "outputs"), (after, "causes")):
        document["question"] = {"folder": "/", "asked": {"depth": depth}, "files": {}}
    found = compare_studies(before, after)
    assert (found.verdict, found.causes) == ("incomplete", ())
    assert "as far as outputs" in found.skipped[0].reason


def test_a_layer_in_another_precision_is_told() -> None:
    before, after = documents.detector(16), documents.detector(16)
    for document, precision in ((before, "f32"), (after, "f16")):
        document["candidate"]["executed_layers"] = [{"nodes": ["a", "b"], "precision": precision}]
    assert compare_studies(before, after).precisions == (("a", "f32", "f16"), ("b", "f32", "f16"))
    assert "2 nodes compute in another, first a: f32 → f16" in FORMS.render(shown(before, after), "text", width=200)


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        (1e-3, 1.9e-3, 0),  # as another order of the sums may make it
        (1e-3, 2.1e-3, 1),
        (2.1e-3, 1e-3, -1),
        (1e-8, 5e-8, 0),  # both less than one rounding of FP32, 6e-8
        (0.0, 5e-8, 0),
        (3e-8, 7e-8, 0),  # on both sides of that rounding
        (0.0, 1e-3, 1),
        (1e-3, math.nan, 1),
        (math.inf, 1e-3, -1),
        (math.inf, math.nan, 0),
    ],
)
def test_noise_is_no_change(before: float, after: float, direction: int) -> None:
    assert direction_beyond_noise(before, after) == direction


def test_a_smaller_change_counts_where_every_sample_shows_it() -> None:
    samples = [(1e-3, 1.5e-3)] * FEWEST_STEADY
    assert direction_beyond_noise(1e-3, 1.5e-3, pairs=samples) == 1
    assert direction_beyond_noise(1e-3, 1.5e-3, pairs=samples[1:]) == 0  # too few
    assert direction_beyond_noise(1e-3, 1.5e-3, pairs=[*samples, (1e-3, 0.9e-3)]) == 0  # one of them shrank
    assert direction_beyond_noise(1e-3, 1.2e-3, pairs=[(1e-3, 1.2e-3)] * 20) == 0
    assert direction_beyond_noise(1e-3, 1.5e-3, pairs=samples, floor=2e-3) == 0  # the candidate varies by more
