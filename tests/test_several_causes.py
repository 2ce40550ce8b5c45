"""Several causes at once: each is named, by its share of the error, and the rest is left unexplained.

The deployments are those of `proving.several_causes`, diagnosed from the command line.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from hardware import needs_bfloat16
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network
from proving.several_causes import cases, planted

if TYPE_CHECKING:
    from pathlib import Path

CASES = cases(1)
FAULTY = [name for name, case in CASES.items() if case.named]
CLEAN = [name for name, case in CASES.items() if not case.named]


def _diagnosed(name: str, folder: Path, *words: str) -> int:
    """The exit code of `diagnose`; the study is in `folder`."""
    given = planted(CASES[name], folder)
    return exit_status(
        "diagnose", *given, "--study", str(folder / "study"), "--quiet", *(words or ("--format", "json"))
    )


def test_the_cases_are_as_many_as_they_ought_to_be() -> None:
    sizes = [len(CASES[name].named) for name in FAULTY if CASES[name].explained]
    assert sizes.count(2) >= 6
    assert sizes.count(3) >= 1
    assert CLEAN
    assert any(not CASES[name].explained for name in FAULTY)


@pytest.mark.parametrize("name", FAULTY)
def test_each_cause_is_named(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    if case.target == "openvino:bf16":
        needs_bfloat16()
    assert _diagnosed(name, tmp_path) == 1
    document = json.loads(capfd.readouterr().out)
    causes = [one for one in document["findings"] if one["role"] == "cause"]
    assert {one["code"] for one in causes} == case.named
    assert len(causes) == len(case.named)
    sequence = document["sequence"]
    assert {step["code"] for step in sequence["steps"]} == case.named
    assert sequence["verdict"] == ("within" if case.explained else "beyond")
    shares = [step["share"] for step in sequence["steps"]]
    # The squares of what every step takes away, and of what is left, are all of the error there was.
    assert sum(shares) + sequence["unexplained"] == pytest.approx(1.0)
    assert sequence["unexplained"] < (1e-4 if case.explained else 0.01)
    told = [one["share"] for one in causes]
    assert told == sorted(told, reverse=True)
    # Each step begins where the one before it ended.
    for before, after in zip(sequence["steps"], sequence["steps"][1:], strict=False):
        assert after["before"] == before["after"]


def test_a_lost_bound_behind_exchanged_inputs_is_found_from_outputs_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = replace(CASES["exchanged bindings and a lost bound"], target="")
    line = [*planted(recorded, tmp_path), "--study", str(tmp_path / "study")]
    assert exit_status("diagnose", *line, "--quiet", "--format", "json") == 1
    document = json.loads(capfd.readouterr().out)
    assert {one["code"] for one in document["findings"] if one["role"] == "cause"} == {"BND001", "FUS014"}
    sequence = document["sequence"]
    assert [(step["code"], sequence["verdict"]) for step in sequence["steps"]] == [
        ("BND001", "within"),
        ("FUS014", "within"),
    ]


TWO_OUTPUTS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,32] a, float[1,32] b) => (float[1,16] p, float[1,16] q) {
  h = Tanh(a)
  s = Add(h, b)
  l = MatMul(s, w0)
  p = Sigmoid(l)
  q = MatMul(s, w1)
}"""


def test_two_outputs_that_were_each_processed_in_another_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(12)
    constants = {name: draw.normal(size=(32, 16)).astype(np.float32) / np.float32(4) for name in ("w0", "w1")}
    model = write_network(tmp_path / "m.onnx", TWO_OUTPUTS, constants)
    run = open_path(model, outputs=["p", "q"])
    for number in range(3):
        x = {name: draw.normal(size=(1, 32)).astype(np.float32) for name in "ab"}
        write_npz(tmp_path / "x" / f"{number}.npz", x)
        right = run(x)
        write_npz(tmp_path / "y" / f"{number}.npz", {**right, "p": right["p"] * np.float32(100)})
        write_npz(tmp_path / "z" / f"{number}.npz", {"p": right["p"] * np.float32(100), "q": np.flip(right["q"], 1)})
    for folder, named in (("y", {"BND005"}), ("z", {"BND004", "BND005"})):
        line = [str(model), "--inputs", str(tmp_path / "x"), "--candidate", f"saved?path={tmp_path / folder}"]
        line += ["--study", str(tmp_path / f"study-{folder}"), "--quiet", "--format", "json"]
        assert exit_status("diagnose", *line) == 1
        document = json.loads(capfd.readouterr().out)
        assert {one["code"] for one in document["findings"] if one["role"] == "cause"} == named
        assert {step["code"] for step in document["sequence"]["steps"]} == named
        assert document["sequence"]["verdict"] == "within"


def diagnosed_with_layers(
    model: Path, deployed: Path, seen: list[str], draw: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """The study of a recording in which the tensors `seen` of another network are kept, on three drawn samples."""
    folder = model.parent
    for number in range(3):
        x = {"x": draw.normal(size=(1, 8, 16)).astype(np.float32)}
        write_npz(folder / "x" / f"{number}.npz", x)
        write_npz(folder / "y" / f"{number}.npz", open_path(deployed, outputs=seen)(x))
    line = [str(model), "--inputs", str(folder / "x"), "--candidate", f"saved?path={folder / 'y'}"]
    assert exit_status("diagnose", *line, "--study", str(folder / "study"), "--quiet", "--format", "json") == 1
    return dict(json.loads(capfd.readouterr().out))


STEPS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8,16] x) => ({given}) {{
  a = MatMul(x, w0)
  s = Tanh(a)
  t = Add(s, x)
  {third}
  v = MatMul({read}, w1)
  y = {last}(v)
}}"""
SOUND = {"third": "u = Softmax<axis = 2>(t)", "read": "u", "last": "LeakyRelu<alpha = 0.3>"}
# What is done at `u` or `v` in another way, which a copy says with nodes that are done again, reading something else.
DONE_AGAIN = {
    "the node before left out": {"third": "u = Softmax<axis = 2>(s)"},
    "the node before done twice": {"third": "w = Add(t, x)\n  u = Softmax<axis = 2>(w)"},
    "exchanged with the node before": {"third": "w = Softmax<axis = 2>(s)\n  u = Add(w, x)"},
    "done twice": {"third": "w = Softmax<axis = 2>(t)\n  u = Softmax<axis = 2>(w)"},
    "another tensor read": {"read": "s"},
    "what it reads rolled": {"third": "r = Gather<axis = 2>(t, rolled)\n  u = Softmax<axis = 2>(r)"},
    "what it reads scaled": {"third": "r = Mul(t, three)\n  u = Softmax<axis = 2>(r)"},
}


@pytest.mark.parametrize("told", DONE_AGAIN)
def test_what_nodes_do_on_other_tensors_is_put_right_and_the_other_cause_is_found(
    told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(5)
    constants = {name: draw.normal(size=(16, 16)).astype(np.float32) / np.float32(2) for name in ("w0", "w1")}
    seen = ["a", "s", "t", "u", "v", "y"]
    model = write_network(tmp_path / "m.onnx", STEPS.format(**SOUND, given="float[1,8,16] y"), constants)
    given = ", ".join(f"float[1,8,16] {name}" for name in seen)
    wrong = STEPS.format(**{**SOUND, **DONE_AGAIN[told], "last": "Relu"}, given=given)
    constants |= {"rolled": np.roll(np.arange(16), 1), "three": np.array(3, np.float32)}
    deployed = write_network(tmp_path / "d.onnx", wrong, constants)
    document = diagnosed_with_layers(model, deployed, seen, draw, capfd)
    assert {one["site"]["tensor"] for one in document["findings"] if one["role"] == "cause"} >= {"y"}
    assert document["sequence"]["verdict"] == "within"
    assert len(document["sequence"]["steps"]) == 2


# Errors are so large at `y` that any of them has the size of a coarser arithmetic's rounding there.
AMPLIFIED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8,16] x, float[1,8,16] before) => ({given}) {{
  a = MatMul(x, w0)
  r = Mul(a, c)
  {read}
  u = Add(s, x)
  m = MatMul(u, w1)
  y = Sin(m)
}}"""


def test_no_arithmetic_that_the_products_do_not_show_takes_the_place_of_a_layer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(5)
    constants = {name: draw.normal(size=(16, 16)).astype(np.float32) / np.float32(4) for name in ("w0", "w1")}
    constants["w1"] *= np.float32(6000)
    constants["c"] = draw.normal(size=16).astype(np.float32)
    right = AMPLIFIED.format(read="s = Tanh(r)", given="float[1,8,16] y")
    model = write_network(tmp_path / "m.onnx", right, constants)
    seen = ["a", "r", "s", "u", "m", "y"]
    # `s` is made of what nobody else knows: no change of one layer in few words explains it.
    read = "n = Mul(before, tenth)\n  b = Add(r, n)\n  s = Tanh(b)"
    wrong = AMPLIFIED.format(read=read, given=", ".join(f"float[1,8,16] {name}" for name in seen))
    deployed = write_network(
        tmp_path / "d.onnx", wrong, {**constants, "c": np.roll(constants["c"], 1), "tenth": np.array(0.1, np.float32)}
    )
    for number in range(4):
        x = {name: draw.normal(size=(1, 8, 16)).astype(np.float32) for name in ("x", "before")}
        write_npz(tmp_path / "y" / f"{number}.npz", open_path(deployed, outputs=seen)(x))
        x["before"] = draw.normal(size=(1, 8, 16)).astype(np.float32)
        write_npz(tmp_path / "x" / f"{number}.npz", x)
    line = [str(model), "--inputs", str(tmp_path / "x"), "--candidate", f"saved?path={tmp_path / 'y'}"]
    assert exit_status("diagnose", *line, "--study", str(tmp_path / "study"), "--quiet", "--format", "json") == 1
    document = json.loads(capfd.readouterr().out)
    assert {one["code"] for one in document["findings"] if one["role"] == "cause"} == {"FUS002"}
    assert document["sequence"]["verdict"] == "beyond"
    told = [one for one in document["refuted"] if one["experiment"]["check"] == "ACC001"]
    assert any("none of 2 products that were seen inside rounds as" in one["because"] for one in told)


# The body of the loop reads `h` of the graph around it; `r` is what a layer behind the loop is computed from.
BESIDE_A_LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8,16] x) => ({given}) {{
  h = Tanh(x)
  steps = Constant<value = int64 {{3}}>()
  r = Loop<body = b (int64 i, bool going, float[1,8,16] before) => (bool still, float[1,8,16] after) {{
    still = Identity(going)
    m = MatMul(before, w0)
    n = Tanh(m)
    after = Add(n, h)
  }}>(steps, "", x)
  s = {merged}(r, h)
  t = MatMul(s, w1)
  y = {last}(t, bias)
}}"""


def test_a_layer_beside_a_loop_is_searched_and_what_stands_behind_it_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(8)
    constants = {name: draw.normal(size=(16, 16)).astype(np.float32) / np.float32(4) for name in ("w0", "w1")}
    constants["bias"] = draw.normal(size=16).astype(np.float32) / np.float32(100)
    seen = ["h", "r", "s", "t", "y"]
    right = BESIDE_A_LOOP.format(merged="Add", last="Add", given="float[1,8,16] y")
    model = write_network(tmp_path / "m.onnx", right, constants)
    given = ", ".join(f"float[1,8,16] {name}" for name in seen)
    wrong = BESIDE_A_LOOP.format(merged="Mul", last="Sub", given=given)
    deployed = write_network(tmp_path / "d.onnx", wrong, constants)
    document = diagnosed_with_layers(model, deployed, seen, draw, capfd)
    told = {one["site"]["tensor"]: one["claim"] for one in document["findings"] if one["role"] == "cause"}
    assert set(told) == {"s", "y"}
    assert "Mul in place of Add" in told["s"]
    assert "('bias') scaled by -1" in told["y"]
    assert document["sequence"]["verdict"] == "within"


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_deployment_has_no_sequence(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _diagnosed(name, tmp_path) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["sequence"] is None
    assert [one for one in document["findings"] if one["role"] == "cause"] == []


def test_the_report_shows_the_sequence_and_what_was_explained_away(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _diagnosed("BGR and a lost bound", tmp_path, "--format", "text", "--all") == 1
    text = capfd.readouterr().out
    assert "One after the other" in text
    document = read_study(tmp_path / "study")
    steps = " and ".join(step["code"] for step in document["sequence"]["steps"])
    gone = [one for one in document["refuted"] if one["because"].startswith(f"gone once {steps} are put right")]
    # Exchanged channels look like another function of the layer that reads them.
    assert any(one["experiment"]["claim"].startswith("Conv#0") for one in gone)
    page = (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    assert "One after the other" in page
    assert all(step["experiment"] in page for step in document["sequence"]["steps"])


def test_without_time_for_more_the_first_cause_is_told_and_the_others_are_listed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _diagnosed("exchanged bindings and TF32", tmp_path, "--time", "1e-9s", "--format", "json") == 1
    document = json.loads(capfd.readouterr().out)
    assert any(skip["reason"] == "the time budget is spent" and skip["asked"] for skip in document["skipped"])
