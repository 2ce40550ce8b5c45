"""The first screen: what is wrong in a user's words, why, where, what to do, how sure, in fifteen lines."""

from __future__ import annotations

import copy
import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from command_line import exit_status
from golden import documents
from parityscope import load_study
from parityscope.report.as_html import render_html
from parityscope.report.as_text import render_first_screen
from parityscope.report.screen_rows import cut_text
from parityscope.report.view import view_study
from parityscope.study import prepare_folder, write_study

LINES = 15
NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
network (float[4, 10] x) => (float[4, 10] logits) <float big = {1e6}> { h = Mul(x, big)  s = Exp(x)  logits = Add(h, s) }"""


def rows(document: dict[str, Any]) -> dict[str, str]:
    """The first answer of each label."""
    found = view_study(document)["first_screen"]["rows"]
    return {row["label"]: row["text"] for row in reversed(found)}


def test_the_five_questions_are_answered_in_their_order_and_few_lines() -> None:
    text = render_first_screen(documents.detector(16), where="study/report.html")
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert lines[0].startswith("✕ ch_PP-OCRv4_det_infer in FP16 (OpenVINO 1.23.2): cannot be used as it is; 'sigmoid_0")
    labels = [line.split()[0] for line in lines if line[:2] == "  " and line[2] not in {" ", "1"}]
    assert labels == ["Why", "Where", "Fix", "or", "Then"]
    assert "[RNG001, cause proved]" in text
    assert "tried: 74.0 % -> 0.460 %, within" in text
    assert "study/report.html  (--all" in lines[-1]


def test_what_stands_in_brackets_gives_way_where_there_is_no_room() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["findings"][0]["claim"] = (
        "The images are letterboxed (bilinear) and cut (by the short side, with a border)"
    )
    wide, narrow = (render_first_screen(document, width=width) for width in (200, 60))
    assert "cut (by the short side, with a border)" in wide
    assert "(by the short side, with a border)" not in " ".join(narrow.split())
    assert len(narrow.splitlines()) <= LINES


def test_what_was_tried_stands_before_the_search_however_much_of_the_model_it_keeps() -> None:
    document = copy.deepcopy(documents.detector(16))
    (kept, *_) = document["findings"][0]["repairs"]
    kept |= {"repair": "keep_in_fp32", "text": "keep it in FP32", "command": ""}
    kept["trial"] |= {"note": "109 of its 139 nodes stay in FP32", "file": "repaired.onnx"}
    document["findings"][0]["repairs"] = [kept]
    told = [row for row in view_study(document)["first_screen"]["rows"] if row["label"] in {"Fix", "or"}]
    assert [row["label"] for row in told] == ["Fix", "or"]
    assert told[0]["command"].startswith("parityscope verify ")
    assert told[0]["text"].startswith(
        "use repaired.onnx, where 109 of its 139 nodes stay in FP32 (its types tell the engine so: --stronglyTyped,"
    )
    assert told[1]["command"].startswith("parityscope repair ")


def notes(document: dict[str, Any]) -> dict[str, str]:
    """What stands under the first answer of each label."""
    return {row["label"]: row["note"] for row in reversed(view_study(document)["first_screen"]["rows"])}


def test_what_is_left_stands_with_the_fix_beside_its_limit_and_what_to_do_about_it() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["policy"]["budgets"] = []
    limit = "the limit 0.800 % (2 times FP16's expected error: engines vary)"
    alike = "the reference with this fault gives the same outputs to"
    assert notes(document)["Fix"].startswith(f"tried: 74.0 % -> 0.460 %, within {limit}")
    for one in document["findings"][0]["repairs"]:
        one["trial"] = None
    assert notes(document)["Fix"] == f"not tried, but {alike} 2.11 %, more than {limit}"
    assert rows(document)["Fix"].endswith("; 2.11 % is left")
    for one in document["findings"][0]["evidence"]:
        one["after"] = 0.003
    assert notes(document)["Fix"] == f"not tried, but {alike} 0.300 %, no more than {limit}"
    assert "is left" not in rows(document)["Fix"]  # nobody has to look for that
    document["findings"][0]["repairs"] = []
    assert rows(document)["Sure"] == f"proved; {alike} 0.300 %, no more than {limit}"
    document["findings"][0]["confidence"] = 0.4
    assert rows(document)["Sure"] == f"likely: 40.0 %; {alike} 0.300 %, no more than {limit}"


def test_a_proof_says_which_side_was_changed() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["findings"][0]["repairs"] = []
    assert rows(document)["Sure"].startswith("proved; the reference with this fault gives the same outputs to 2.11 %")
    for one in document["findings"][0]["evidence"]:
        one["after"], one["experiment"] = 0.0, {**one["experiment"], "runs": "rebuild"}
    assert rows(document)["Sure"] == "proved; the candidate with this put right gives the right outputs"


def test_verify_tells_whether_a_repair_helped_and_diagnose_looks_for_what_is_left() -> None:
    document = copy.deepcopy(documents.detector(16))
    kept = {**document["findings"][0]["repairs"][0], "command": "", "trial": None}
    for name, told, command in (
        ("keep_in_fp32", "this tells whether it helped:", "parityscope verify "),
        ("bind_by_name", "this tells whether anything is left:", "parityscope diagnose "),
    ):
        document["findings"][0]["repairs"] = [{**kept, "repair": name}]
        (then,) = (row for row in view_study(document)["first_screen"]["rows"] if row["label"] == "Then")
        assert then["text"].endswith(told)
        assert then["command"].startswith(command)


def test_causes_that_explain_the_same_say_so_whatever_their_repair_left() -> None:
    document = copy.deepcopy(documents.detector(16))
    (first, *_) = document["findings"]
    first["share"] = 1.0
    document["findings"] = [first, {**first, "code": "RNG003"}]
    assert rows(document)["Sure"].startswith("possible: 1 of 2; each explains all of the error")
    assert notes(document)["Fix"].startswith("tried: ")


def test_after_a_search_the_file_that_it_writes_is_what_the_deployment_runs() -> None:
    document = copy.deepcopy(documents.detector(16))
    kept = {**document["findings"][0]["repairs"][0], "repair": "keep_in_fp32", "command": "", "trial": None}
    document["findings"][0]["repairs"] = [kept]
    found = {row["label"]: row for row in view_study(document)["first_screen"]["rows"]}
    assert found["Fix"]["command"].endswith(" -o ch_PP-OCRv4_det_infer.fixed.onnx")
    assert found["Then"]["text"] == "deploy ch_PP-OCRv4_det_infer.fixed.onnx, and this tells whether it helped:"
    assert "--after 'openvino?model=ch_PP-OCRv4_det_infer.fixed.onnx'" in found["Then"]["command"]


def test_a_node_without_a_name_has_its_number_too() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["findings"][0]["site"] |= {"node": "Pow#2", "index": 2, "op_type": "Pow"}
    assert rows(document)["Where"].startswith("node #2 of #0 to #671, Pow#2, which gives 'batch_norm_0.tmp_3'; ")


def test_a_command_is_never_wrapped() -> None:
    document = documents.detector(16)
    command = f"parityscope repair {'very-long-name-' * 12}.onnx --low f16"
    document["findings"][0]["repairs"][0]["command"] = command
    assert any(line.strip() == command for line in render_first_screen(document, width=80).splitlines())


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([100, 100], "all 2 outputs are NaN or infinite"),
        ([100, 0], "100 % of output 'a' is NaN or infinite (100 of 100 numbers)"),
        ([1, 3], "3.00 % of output 'b' is NaN or infinite (3 of 100 numbers), and 1 more of 2 outputs hold some"),
    ],
)
def test_what_is_not_finite_is_counted_before_anything_else(lost: list[int], said: str) -> None:
    document = copy.deepcopy(documents.detector(16))
    (kept, *_) = document["outputs"]
    document["outputs"] = [
        {
            **kept,
            "name": name,
            "rel_l2": "Infinity",
            "nonfinite": {"reference": 0, "candidate": bad, "agreeing": 0},
            "statistics": {"count": 100},
        }
        for name, bad in zip("ab", lost, strict=True)
    ]
    text = render_first_screen(document)
    assert said in " ".join(text.split())
    assert "∞" not in text
    assert "inf" not in text.replace("infinite", "").replace("det_infer", "")


def test_decisions_come_before_distances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK.replace("1e6", "0.01")), "m.onnx")
    onnx.save(onnx.parser.parse_model(NETWORK.replace("1e6", "0.01").replace("Exp(x)", "Neg(x)")), "other.onnx")
    np.savez("x.npz", x=np.random.default_rng(1).standard_normal((4, 10)).astype(np.float32))
    assert exit_status("diagnose", "m.onnx", "--inputs", "x.npz", "--candidate", "other.onnx", "--quiet") == 1
    text = capsys.readouterr().out
    assert "top-1 of 'logits' changed in 4 of 4 rows; 'logits' differs by" in " ".join(text.split())
    assert "Neg s in place of Exp s" in text  # the file says so, though inputs that are turned round come near
    assert "and  " not in text
    assert len(text.splitlines()) <= LINES
    assert exit_status("report", *map(str, tmp_path.glob("parityscope-*")), "--lang", "zh") == 0
    chinese = "".join(capsys.readouterr().out.split())
    assert "'logits'的top-1在4行中有4行改变" in chinese
    assert "用Negs代替Exps" in chinese
    assert "[EXP005，原因已证实]" in chinese  # noqa: RUF001 - as Chinese has it
    assert "已试：128%->0%，在限度" in chinese  # noqa: RUF001


def test_one_output_is_counted_once() -> None:
    document = copy.deepcopy(documents.detector(16))
    (kept, *_) = document["outputs"]
    changed = {"kind": "classes", "count": 4, "changed": 3, "new": 0, "least": 1.0}
    document["outputs"] = [{**kept, "name": "a"}, {**kept, "name": "b", "rel_l2": 0.5, "decisions": changed}]
    text = " ".join(render_first_screen(document).split())
    assert "top-1 of 'b' changed in 3 of 4 rows; 'a' differs by 74.0 %" in text
    assert "beyond too" not in text
    document["outputs"].append({**kept, "name": "c"})
    assert "; 1 other output is beyond too" in " ".join(render_first_screen(document).split())


def test_what_a_proved_cause_explains_is_no_note_beside_it() -> None:
    document = copy.deepcopy(documents.detector(16))
    (first, *_) = document["findings"]
    other = {**first, "code": "FUS002", "title": "A layer computes another function", "role": "contributing"}
    document["findings"] = [first, other]
    assert "FUS002" not in render_first_screen(document)
    document["findings"] = [{**first, "share": 0.5}, {**other, "site": {**first["site"], "tensor": "elsewhere"}}]
    assert "A layer computes another function [FUS002]" in render_first_screen(document)


def test_a_weak_cause_beside_a_proved_one_stays_behind(capsys: pytest.CaptureFixture[str]) -> None:
    document = copy.deepcopy(documents.detector(16))
    (first, *_) = document["findings"]
    weak = {**first, "code": "ACC001", "confidence": 0.4, "repairs": [{"repair": "declare", "text": "declare tf32"}]}
    document["findings"] = [first, weak]
    assert "ACC001" not in render_first_screen(document)
    assert "declare tf32" not in render_first_screen(document)
    document["findings"] = [weak]
    assert "[ACC001, likely: 40.0 %]" in render_first_screen(document)


def test_success_is_shown_as_success() -> None:
    text = render_first_screen(documents.within())
    assert text.startswith("✓ ")
    assert "can be used" in text
    assert not {"Why", "Where", "Fix"} & set(rows(documents.within()))


@pytest.mark.parametrize(("runtime", "said"), [("ort", True), ("sim", False)])
def test_a_half_precision_file_that_was_computed_in_fp32_is_no_proof_of_it(
    runtime: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = """<ir_version: 8, opset_import: ["" : 17]>
    network (float[4, 10] x) => (float[4, 10] y) { y = Tanh(x) }"""
    half = """<ir_version: 8, opset_import: ["" : 17]>
    network (float[4, 10] x) => (float[4, 10] y) { h = Cast<to = 10>(x)  t = Tanh(h)  y = Cast<to = 1>(t) }"""
    onnx.save(onnx.parser.parse_model(whole), "m.onnx")
    onnx.save(onnx.parser.parse_model(half), "half.onnx")
    np.savez("x.npz", x=np.linspace(-2, 2, 40, dtype=np.float32).reshape(4, 10))
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", f"{runtime}?model=half.onnx", "--study", "s")
    assert exit_status(*words) == 0
    told = " ".join(capsys.readouterr().out.split())
    note = "computed in FP32: ONNX Runtime has no FP16 arithmetic on a CPU; --candidate 'sim?model=half.onnx' has"
    assert (note in told) == said
    assert exit_status("--lang", "zh", "report", "s") == 0
    assert ("在 CPU 上没有 FP16 运算" in capsys.readouterr().out) == said


def test_a_runtime_that_computes_in_fp32_what_was_asked_for_in_fp16_is_no_proof_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK.replace("1e6", "0.01")), "m.onnx")
    np.savez("x.npz", x=np.linspace(-2, 2, 40, dtype=np.float32).reshape(4, 10))
    assert exit_status("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "openvino:f16", "--study", "s") == 0
    told = " ".join(capsys.readouterr().out.split())
    executed = json.loads(Path("s/study.json").read_text(encoding="utf-8"))["candidate"]["executed"]
    # Some processors have FP16 arithmetic; on all others OpenVINO takes FP32.
    assert ("did not compute in FP16 here; --candidate sim:f16 does" in told) == (executed == "f32")


def test_a_prediction_without_a_fault_says_how_the_real_one_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK.replace("1e6", "0.01")), "m.onnx")
    np.savez("x.npz", x=np.ones((4, 10), np.float32))
    assert exit_status("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "fp16", "--study", "s") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "m wholly in FP16 (a prediction): can be used" in told
    asked = "parityscope diagnose m.onnx --candidate recorded-outputs --declared f16 --inputs x.npz"
    assert f"Then deploy it, record its outputs and look at them: so far a prediction {asked}" in told
    Path("recorded-outputs").mkdir()
    (logits,) = onnxruntime.InferenceSession("m.onnx").run(None, {"x": np.ones((4, 10), np.float32)})
    np.savez("recorded-outputs/x.npz", logits=logits)
    assert exit_status(*asked.split()[1:]) == 0


def test_everything_else_stands_behind_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK), "m.onnx")
    np.savez("x.npz", x=np.ones((4, 10), np.float32))
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "ort", "--study", "s")
    assert exit_status(*words) == 0
    short = capsys.readouterr().out
    assert "Both sides are the same target and model." in short
    assert exit_status("report", "s", "--all") == 0
    assert "Outputs (relative L2 error)" in capsys.readouterr().out
    assert exit_status("report", "s") == 0
    assert capsys.readouterr().out == short


def test_the_repaired_copy_is_named_by_its_path_with_the_command_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    document = copy.deepcopy(documents.detector(16))
    offers = document["findings"][0]["repairs"]
    offers[0]["repair"] = "put_back"
    offers[0]["trial"]["file"] = "repaired.onnx"
    offers[1]["repair"] = "keep_in_fp32"
    with prepare_folder(Path("study")) as scratch:
        write_study(scratch, document, render_html)
    assert json.loads(Path("study/study.json").read_text())["findings"][0]["repairs"][0] == offers[0]
    assert exit_status("report", "study", "-o", "again.html") == 0
    assert exit_status("report", "study/study.json", "-o", "answer.md") == 0
    assert Path("again.html").read_text().startswith("<!doctype html>")  # as its ending says
    assert exit_status("report", "study") == 0
    text = capsys.readouterr().out
    assert "use study/repaired.onnx; the change in it: Fold it" in text
    assert "put_back" not in text
    sides = "--before openvino:f16 --after 'openvino:f16?model=study/repaired.onnx'"
    given = f"parityscope verify models/ch_PP-OCRv4_det_infer.onnx {sides}"
    wherever = [load_study("study").to_html(), str(load_study("study")), text]
    wherever += [Path(name).read_text() for name in ("study/report.html", "again.html", "answer.md")]
    for told in wherever:
        assert given in html.unescape(told).replace("&#39;", "'")
    assert [tile["note"] for tile in view_study(document)["tiles"]][-1] == "✓ within: put back what differs"
    offers[0]["trial"]["verdict"] = "beyond"
    assert "use repaired.onnx" not in render_first_screen(document)


def test_no_two_of_at_most_three_advices_have_one_command() -> None:
    document = copy.deepcopy(documents.detector(16))
    (first, *_) = document["findings"][0]["repairs"]
    untried = {**first, "trial": None}
    others = [{**untried, "text": f"do {place}", "command": f"do {place // 2}"} for place in range(6)]
    document["findings"][0]["repairs"] = [first, *others]
    found = [row for row in view_study(document)["first_screen"]["rows"] if row["label"] in {"Fix", "or"}]
    assert [row["text"][:4] for row in found] == ["Fold", "do 0", "do 2"]


def test_a_fix_is_told_for_other_tools_behind_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = NETWORK.replace("network (", "network (").replace("h = Mul", "[scaled] h = Mul").replace("1e6", "1e5")
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    np.savez("x.npz", x=np.full((4, 10), 2.0, np.float32))
    assert exit_status("diagnose", "m.onnx", "--inputs", "x.npz", "--candidate", "sim:f16", "--study", "s") == 1
    short = capsys.readouterr().out
    assert "--layerPrecisions" not in short
    assert exit_status("report", "s", "--all") == 0
    told = capsys.readouterr().out
    for said in (
        "--precisionConstraints=obey --layerPrecisions=scaled:fp32",
        "layer.precision = getattr(trt, kept)",
        "--layer-precisions scaled:float32",
        "node_block_list=['scaled']",
        "--nodes_to_exclude 'scaled$'",
        '<attribute name="precise"',
    ):
        assert said in told


def test_tf32_is_switched_off_in_the_runtime_at_hand() -> None:
    document = copy.deepcopy(documents.detector(16))
    finding = document["findings"][0]
    finding["details"] = {"runtime": "onnxruntime-cuda", "change": "tf32_off"}
    finding["repairs"] = [{"repair": "runtime_settings", "text": "switch TF32 off", "command": "", "trial": None}]
    found = view_study(document)
    (fix,) = [row for row in found["first_screen"]["rows"] if row["label"] == "Fix"]
    assert fix["command"] == 'providers = [("CUDAExecutionProvider", {"use_tf32": "0"})]'
    tools = {row["tool"]: row["lines"] for row in found["repairs"][0]["tools"]}
    assert tools["tensorrt"] == "config.clear_flag(trt.BuilderFlag.TF32)"
    assert "--noTF32" in tools["trtexec"]


def test_names_give_way_before_the_words_of_an_advice() -> None:
    name = "/model/backbone/" + "layers/" * 20 + "LayerNorm_1/Sum_1"
    told = cut_text(f"replace the normalization that {name} belongs to by one that stays in range", 115)
    assert told.endswith("LayerNorm_1/Sum_1 belongs to by one that stays in range")
    assert told.startswith("replace the normalization that /model/backbone/")
    assert cut_text("some words " * 30 + "that end", 100).endswith("words that end")
    assert cut_text("One statement stays whole; and what is said behind it goes", 30) == "One statement stays whole"


def test_causes_without_a_row_of_their_own_are_named_in_one() -> None:
    document = copy.deepcopy(documents.detector(16))
    (first, *_) = document["findings"]
    advice = {"repair": "compare_node", "text": "compare them", "command": "", "trial": None}
    layers = [
        {**first, "code": "FUS002", "repairs": [advice], "site": {**first["site"], "node": name, "tensor": name}}
        for name in ("n1", "n2", "n3", "n4", "n4")
    ]
    document["findings"] = [{**one, "confidence": 1.0, "share": 0.2} for one in layers]
    told = [row["text"] for row in view_study(document)["first_screen"]["rows"] if row["label"] == "and"]
    assert told[-1] == "1 more: FUS002 at n4"
    assert any("(4 findings)" in repair["text"] for repair in view_study(document)["repairs"])


def test_the_node_that_is_changed_is_where_it_begins() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["findings"][0]["code"] = "FUS002"
    document["findings"][0]["details"]["changed"] = {"node": "Scaler", "op_type": "Scaler", "index": 3}
    assert "Scaler (Scaler)" in rows(document)["Where"]


def test_searches_that_were_cut_short_are_told_once_in_users_words() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["skipped"] = [
        {"what": what, "reason": f"no time {what}", "fix": "", "asked": False}
        for what in ("generated hypotheses of a", "hypotheses of b, c: try rules", "hypothesis of b: a bound")
    ]
    rest = view_study(document)["first_screen"]["rest"]
    assert "not examined: some changes of the network." in rest


def test_what_is_left_of_fp32s_rounding_sends_nobody_to_look_for_it() -> None:
    document = copy.deepcopy(documents.detector(16))
    document["policy"] = {**document["policy"], "declared": "f32", "budgets": []}
    for output in document["outputs"]:
        output["expected"] = {"f32": 1e-7}
    for one in document["findings"][0]["evidence"]:
        one["after"] = 6e-7
    for one in document["findings"][0]["repairs"]:
        one["trial"] = None
    assert "is left" not in rows(document)["Fix"]
    assert notes(document)["Fix"].endswith("the rest is rounding, which differs from computation to computation")
