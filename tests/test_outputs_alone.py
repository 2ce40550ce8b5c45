"""Causes from the outputs alone: a fault of the graph in a recording without layers is found, a right one is not blamed."""

from __future__ import annotations

import functools
import itertools
import json
import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from command_line import exit_status, read_study
from parityscope.backends import Capture
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.opening import open_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_outputs.families import filters_of, place_family
from parityscope.hypotheses.from_outputs.reference import Redo, Reference, open_reference
from parityscope.hypotheses.from_outputs.searching import KnownOutputs, OutputsSearch, search_outputs
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE
from parityscope.hypotheses.from_outputs.superposing import ResponseSketch, rank_pairs
from parityscope.hypotheses.from_outputs.telling import OutputsAnswer, told_of
from parityscope.hypotheses.from_outputs.trying import TriedGuess
from parityscope.hypotheses.places import IndexPlace, run_along
from parityscope.hypotheses.searching import generated_kinds
from parityscope.records import Target
from parityscope.report.as_text import render_first_screen
from parityscope.testing.networks import parse_network, write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx

    from parityscope.hypotheses.stretch import ComputedStretch

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,12] scores, float[6,5] box) {
  a = Gemm(x, w1, b1)
  h = LeakyRelu<alpha = 0.1>(a)
  s = Mul(h, gain)
  t = Gemm(s, w2, b2)
  u = Tanh(t)
  scores = Gemm(u, w3)
  box = Gemm(s, w4, b4)
}"""
NORMALIZED = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,14] y) {
  a = Gemm(x, w1, b1)
  n = LayerNormalization<axis = 1>(a, gain, b1)
  y = Tanh(n)
}"""
# Of fewer layers, where a long search is in vain.
SHORT = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,16] y) {
  a = Gemm(x, w1, b1)
  h = Tanh(a)
  y = Gemm(h, w2, b2)
}"""
DRAW = np.random.default_rng(4)
WEIGHTS = {
    name: DRAW.normal(size=shape).astype(np.float32) / np.float32(size)
    for name, shape, size in (
        ("w1", (20, 14), 4),
        ("b1", 14, 4),
        ("gain", 14, 1),
        ("w2", (14, 16), 3),
        ("b2", 16, 4),
        ("w3", (16, 12), 4),
        ("w4", (14, 5), 4),
        ("b4", 5, 4),
    )
}
SAMPLES = [{"x": DRAW.normal(size=(6, 20)).astype(np.float32)} for _ in range(2)]
# Drawn apart: what is drawn above stays what it is.
_APART = np.random.default_rng(7)
MORE = {
    **{
        name: _APART.normal(size=shape).astype(np.float32) / np.float32(4)
        for name, shape in {
            "of_boxes": (20, 40),
            "beside": (40,),
            "gates": (1, 56, 20),
            "again": (1, 56, 14),
            "offsets": (1, 112),
            "table": (15, 7),
            "out": (7, 5),
            "gates2": (2, 56, 20),
            "again2": (2, 56, 14),
            "offsets2": (2, 112),
            "to_five": (28, 5),
            "square": (20, 20),
            "second": (20, 20),
            "taps": (1, 1, 7),
            "to_seven": (10, 7),
            "w6": (16, 16),
        }.items()
    },
    **{
        name: np.random.default_rng(8).normal(size=shape).astype(np.float32)
        for name, shape in {"state": (1, 6, 14), "peepholes": (1, 42)}.items()
    },
    **{
        name: np.random.default_rng(9).normal(size=shape).astype(np.float32)
        for name, shape in {"own": (2, 14, 20), "own_again": (2, 14, 14), "own_offsets": (2, 28)}.items()
    },
    **{
        name: np.random.default_rng(10).integers(-127, 128, shape).astype(np.int8)
        for name, shape in {"levels2": (2, 20, 56), "levels_again": (2, 14, 56)}.items()
    },
    "steps2": np.array([0.01, 0.002], np.float32),
    "middle2": np.array([3, -5], np.int8),
    "lengths2": np.array([6, 4], np.int32),
    "lengths": np.ones(6, np.int32),
    "steps": np.abs(_APART.normal(size=14)).astype(np.float32) / 100,
    "levels": _APART.integers(-127, 128, (14, 14)).astype(np.int8),
    "iou": np.array([0.5], np.float32),
    "nothing": np.zeros(1, np.float32),
    "scale": np.array([0.25], np.float32),
    **{
        name: np.array(numbers)
        for name, numbers in {
            "rows": [-1, 5],
            "parts": [2, 2, 1],
            "zero": [0],
            "one": [1],
            "two": 2,
            "four": [4],
            "twelve": [12],
            "most": [1000],
            "starts": [0, 5, 10],
            "matrix": [6, 2, 7],
            "steps_in_rows": [6, 28],
            "six_of_two": [6, 2, 20],
        }.items()
    },
}


def turn_gates(array: np.ndarray) -> np.ndarray:
    """Gates as PyTorch has them (i, f, g, o), in the place of ONNX's (i, o, f, g)."""
    halves = np.split(array, array.shape[1] // 56, 1)
    return np.concatenate([np.split(half, 4, 1)[gate] for half in halves for gate in (0, 2, 3, 1)], 1)


NOISE = DRAW.normal(size=(16, 12)).astype(np.float32) / 40


def diagnose(
    folder: Path, deployed: str, weights: dict[str, np.ndarray] | None = None, *options: str, network: str = NETWORK
) -> str:
    """What is printed of a recording of what another network gives, outputs only."""
    folder.mkdir(exist_ok=True)
    model = write_network(folder / "model.onnx", network, WEIGHTS)
    other = write_network(folder / "deployed.onnx", deployed, WEIGHTS | (weights or {}))
    run = open_session(load_model(other).graph())
    for kind in ("inputs", "recorded"):
        (folder / kind).mkdir()
    for number, arrays in enumerate(SAMPLES):
        np.savez(folder / "inputs" / f"{number}.npz", **arrays)
        np.savez(folder / "recorded" / f"{number}.npz", **run(arrays))
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={folder / 'recorded'}", *options) in {0, 1, 3}
    return (folder / "study" / "study.json").read_text(encoding="utf-8")


def findings(text: str) -> list[dict[str, Any]]:
    """The findings of a study."""
    return list(json.loads(text)["findings"])


def search_of(
    deployed: str,
    folder: Path,
    samples: list[dict[str, np.ndarray]] = SAMPLES,
    weights: dict[str, np.ndarray] | None = None,
    network: str = NETWORK,
) -> OutputsSearch:
    """The search alone, of the outputs of another network."""
    model = write_network(folder / "model.onnx", network.replace("float[6", "float[n"), WEIGHTS)
    other = write_network(folder / "deployed.onnx", deployed.replace("float[6", "float[n"), WEIGHTS | (weights or {}))
    run = open_session(load_model(other).graph())
    given = [run(arrays) for arrays in samples]
    return search_outputs(
        KnownOutputs(model=model, feeds=samples, candidate=given, noise=dict.fromkeys(given[0], 1e-6), scale=0.1)
    )


def test_a_slow_machine_tries_what_a_quick_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed = NETWORK.replace("Tanh(t)", "Softplus(t)")
    quick = search_of(deployed, tmp_path)
    clock = itertools.count(0.0, 60.0)  # a minute at each look
    for name in ("process_time", "monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: next(clock))
    slow = search_of(deployed, tmp_path)
    assert slow.reference.meter.spent == quick.reference.meter.spent > 0
    assert [one.edit.words for one in slow.trials.tried] == [one.edit.words for one in quick.trials.tried]


def test_samples_of_different_batch_sizes_are_searched_together(tmp_path: Path) -> None:
    # The first of one row, so that others have more indices; no edit explains noise, so that all are tried.
    samples = [{"x": DRAW.normal(size=(rows, 20)).astype(np.float32)} for rows in (1, 6, 2)]
    found = search_of(NETWORK, tmp_path, samples, {"w3": WEIGHTS["w3"] + NOISE})
    assert not found.holds
    assert found.trials.tried


EXTENDED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,2,10,10] y) <int64[8] pads = {0, 0, 1, 0, 0, 0, 0, 1}, float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
  p = Pad(x, pads)
  y = Resize(p, , scales)
}"""


def test_no_edit_makes_a_result_hundreds_of_times_larger(tmp_path: Path) -> None:
    # 128 more on each side of four axes were ten gigabytes, and half a minute of a processor before the edit was given up.
    model = write_network(tmp_path / "model.onnx", EXTENDED)
    draw = np.random.default_rng(8)
    x = draw.normal(size=(1, 2, 4, 4)).astype(np.float32)
    (right,) = open_session(load_model(model).graph())({"x": x}).values()
    tried: list[str] = []
    given = [{"y": right + draw.normal(size=right.shape).astype(np.float32)}]
    search_outputs(KnownOutputs(model=model, feeds=[{"x": x}], candidate=given, noise={"y": 1e-6}), tried.append)
    for label in ("constant pads ('pads')", "constant scales ('scales')"):
        changes = {words.removeprefix(f"{label} ") for words in tried if words.startswith(label)}
        assert "times 2" in changes
        assert not {"times 10", "times 128", "times 255", "plus 128"} & changes


def test_no_operator_in_the_place_of_another_grows_in_between(tmp_path: Path) -> None:
    # CenterCropPad makes the longer of both lengths along each axis, and then cuts: 2,000 times 2,000 numbers here.
    network = """<ir_version: 8, opset_import: ["" : 18]> g (float[1,1,2000,1] x) => (float[1,1,1,20] y) {
      r = Reshape(x, shape)
      t = Tanh(r)
      y = AveragePool<kernel_shape = [1, 100], strides = [1, 100]>(t)
    }"""
    shape = {"shape": np.array([1, 1, 1, 2000], np.int64)}
    x = DRAW.normal(size=(1, 1, 2000, 1)).astype(np.float32)
    made: list[str] = []
    model = write_network(tmp_path / "model.onnx", network, shape)
    given = [{"y": DRAW.normal(size=(1, 1, 1, 20)).astype(np.float32)}]
    search_outputs(
        KnownOutputs(model=model, feeds=[{"x": x}], candidate=given, noise={"y": 1e-6}, scale=0.1),
        made.append,
    )
    assert "Pad in place of Reshape" in made
    assert "CenterCropPad in place of Reshape" not in made


@pytest.mark.search_of(1.0)
def test_numbers_that_can_be_fitted_to_anything_do_not_end_the_search(tmp_path: Path) -> None:
    """Three numbers in all: a scale and a shift of some rows come near, and say nothing."""
    layers, last = "", "x"
    for number in range(6):
        layers += f"c{number} = Conv<pads = [1, 1, 1, 1]>({last}, k{number}) h{number} = Tanh(c{number}) "
        last = f"h{number}"
    network = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,12,12] x) => (float[1,1] y) {{
      {layers} m = GlobalAveragePool({last}) f = Flatten(m) y = MatMul(f, w)
    }}"""
    draw = np.random.default_rng(8)
    shapes = {f"k{number}": (4, 4 if number else 1, 3, 3) for number in range(6)}
    weights = {name: (draw.normal(size=shape) / 3).astype(np.float32) for name, shape in shapes.items()}
    weights["w"] = draw.normal(size=(4, 1)).astype(np.float32)
    model = write_network(tmp_path / "model.onnx", network, weights)
    other = write_network(tmp_path / "other.onnx", network, weights | {"k4": weights["k4"][::-1].copy()})
    feeds = [{"x": draw.normal(0.5, 1, size=(1, 1, 12, 12)).astype(np.float32)} for _ in range(3)]
    run = open_session(load_model(other).graph())
    found = search_outputs(
        KnownOutputs(model=model, feeds=feeds, candidate=[run(one) for one in feeds], noise={"y": 1e-6}, scale=0.3)
    )
    assert any(one.guess.amounts and one.explained > 0.999 for one in found.trials.tried)
    assert found.is_exact
    told = {(one.guess.site.output, one.edit.words.partition(") ")[2]) for one in found.alike}
    assert told <= {("c4", "reversed along axis 0"), ("c5", "reversed along axis 1")}  # which are one function


def test_a_fault_of_the_graph_is_the_first_cause(tmp_path: Path) -> None:
    first = findings(diagnose(tmp_path, NETWORK.replace("alpha = 0.1", "alpha = 0.3")))[0]
    assert (first["code"], first["role"]) == ("FUS014", "cause")
    assert first["site"]["tensor"] == "h"
    assert "attribute alpha 0.3" in first["claim"]
    assert first["share"] > 0.985


@pytest.mark.parametrize("other", ["", "  z = Cast<to = 1>(position)\n"])
def test_positions_that_are_one_off_are_an_input_and_no_node(tmp_path: Path, other: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64[12] position) => (float[1,12,16] y) {
      wide = Unsqueeze(position, ends)
      number = Cast<to = 1>(wide)
      angle = Mul(number, w2)
      y = Sin(angle)
    }"""
    if other:  # something else reads it, and is right
        text = text.replace("y) {", "y, float[12] z) {").replace("      wide", other + "      wide")
    weights = {
        "w2": (10000.0 ** -np.arange(0, 1, 1 / 16)).astype(np.float32).reshape(1, 1, 16),
        "ends": np.array([0, 2]),
    }
    model = write_network(tmp_path / "model.onnx", text, weights)
    run = open_session(load_model(model).graph())
    for number in range(3):
        position = np.arange(12) + 40 * number + 1
        write_npz(tmp_path / "inputs" / f"{number}.npz", {"position": position})
        write_npz(
            tmp_path / "recorded" / f"{number}.npz",
            {**run({"position": position - 1}), **({"z": position.astype(np.float32)} if other else {})},
        )
    words = (
        "diagnose",
        str(model),
        "--inputs",
        str(tmp_path / "inputs"),
        "--quiet",
        "--study",
        str(tmp_path / "study"),
    )
    assert exit_status(*words, "--candidate", str(tmp_path / "recorded")) == 1
    first = findings((tmp_path / "study" / "study.json").read_text(encoding="utf-8"))[0]
    assert (first["code"], first["role"]) == ("FUS014", "cause")
    assert (first["site"]["op_type"] == "Input") == (not other)
    assert first["claim"].startswith("what is read of input 'position' (input): the result plus -1") == (not other)


def test_what_does_the_same_is_told_with_what_would_decide(tmp_path: Path) -> None:
    halved = NETWORK.replace("s = Mul(h, gain)", "q = Mul(h, gain)\n  s = Mul(q, half)")
    first = findings(diagnose(tmp_path, halved, {"half": np.array(0.5, np.float32)}))[0]
    told = [first["site"]["tensor"], *(one.split(":")[0] for one in first["details"]["alike"])]
    assert first["code"] == "FUS014"
    assert {"h", "s"} <= set(told)  # a scale goes through LeakyRelu and Mul alike
    assert first["details"]["record"]


@pytest.mark.search_of(1.0)
def test_a_right_recording_in_half_precision_is_not_blamed(tmp_path: Path) -> None:
    narrow = SHORT.replace("(x, w1, b1)", "(coarse, w1, b1)").replace(
        "  a = Gemm", "  small = Cast<to = 10>(x)\n  coarse = Cast<to = 1>(small)\n  a = Gemm"
    )
    rounded = {name: array.astype(np.float16).astype(np.float32) for name, array in WEIGHTS.items()}
    found = findings(diagnose(tmp_path, narrow, rounded, network=SHORT))
    assert not [one for one in found if one["code"] == "FUS014" and one["role"] == "cause"]


def test_where_nothing_is_proved_the_answer_says_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = [
        one for one in findings(diagnose(tmp_path, NETWORK, {"w3": WEIGHTS["w3"] + NOISE})) if one["code"] == "FUS014"
    ]
    assert answer["role"] == "information"
    # The other output is right, so that nothing above what both share can be at fault.
    assert answer["details"]["region"] == ["t", "u", "scores"]
    assert answer["details"]["record"] == ["t"] or answer["details"]["record"] == ["u"]
    assert "no cause" in answer["claim"]
    kinds = {one["kind"]: one for one in answer["ruled_out"]}
    assert kinds["another function"]["tried"] > 0
    # Six rows of twelve numbers on two samples are known: a description is told from a fifth of the error on, and nothing finer.
    assert all(0.2 <= one["least"] < 1 and one["tried"] <= one["generated"] for one in kinds.values() if one["tried"])
    printed = capsys.readouterr().out
    told = " ".join(printed.split())
    assert "Where one or more of 3 nodes, from 't' to 'scores'" in told
    done, every = re.search(
        r"Tried ([\d,]+) of ([\d,]+) changes, the likeliest first; --thorough tries more", told
    ).groups()
    assert 0 < int(done.replace(",", "")) < int(every.replace(",", ""))
    assert "Ruled out faults that make " in told
    assert "Nearest a description, no cause: " in told


def test_what_crashes_is_named_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(
        stretch: ComputedStretch, nodes: list[tuple[int, onnx.NodeProto]]
    ) -> Iterator[tuple[str, Iterator[StretchEdit]]]:
        for kind, edits in generated_kinds(stretch, nodes):
            yield kind, _stumble(edits) if kind == "neighbours" and nodes[0][1].op_type == "Mul" else edits

    monkeypatch.setattr("parityscope.hypotheses.from_outputs.sites.generated_kinds", broken)
    study = json.loads(diagnose(tmp_path, NETWORK.replace("LeakyRelu<alpha = 0.1>", "Relu")))
    assert (study["findings"][0]["code"], study["findings"][0]["site"]["tensor"]) == ("FUS014", "h")
    (told,) = (one for one in study["skipped"] if one["what"].endswith("neighbours of s"))
    assert "ZeroDivisionError: a bug" in told["reason"]


def _stumble(edits: Iterator[StretchEdit]) -> Iterator[StretchEdit]:
    yield next(edits)
    raise ZeroDivisionError("a bug")


def test_no_kind_of_edit_crashes_at_a_normalization_in_whose_body_not_all_outputs_are_made(tmp_path: Path) -> None:
    found = search_of(NORMALIZED.replace("Tanh", "Sigmoid"), tmp_path, network=NORMALIZED)
    for site in found.sites:
        assert list(site.edits((*EARLY, *LATE)))
        assert not site.crashed
    assert any("inside LayerNormalization" in edit.words for site in found.sites for _, edit in site.edits(LATE))


@pytest.mark.search_of(0.1)
def test_outputs_that_are_one_answer_to_all_samples_prove_no_change(tmp_path: Path) -> None:
    # A gain of nought leaves nothing of the samples; so does any layer around it that hands nothing on.
    found = findings(diagnose(tmp_path, NETWORK, {"gain": 0 * WEIGHTS["gain"]}))
    assert not [one for one in found if one["role"] == "cause"]
    (told,) = (one for one in found if one["code"] == "FUS014")
    assert told["role"] == "contributing"
    assert told["site"]["tensor"] in {"a", "h", "s"}
    assert "the outputs are the same on every sample" in told["claim"]


@pytest.mark.search_of(0.1)
def test_one_answer_to_one_sample_given_twice_is_no_dead_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_outputs_alone.SAMPLES", [SAMPLES[0], SAMPLES[0]])
    first = findings(diagnose(tmp_path, NETWORK.replace("LeakyRelu<alpha = 0.1>", "Relu")))[0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("FUS014", "cause", "h")


def test_an_index_of_a_result_is_scaled_or_shifted_and_nothing_beside_it(tmp_path: Path) -> None:
    (site,) = (
        one for one in search_of(NETWORK.replace("LeakyRelu<alpha = 0.1>", "Relu"), tmp_path).sites if one.output == "s"
    )
    place = IndexPlace(runs=(("", run_along(1, 3, 1, 0, site.result.shape)),), shape=site.result.shape)
    for scales, changed in ((True, lambda column: 1.25 * column), (False, lambda column: column + 0.25)):
        edit = place_family(site.stretch, place, 1.0, scales=scales).make(0.25)
        (given,) = site.results(0, edit) or ()
        expected = site.result.copy()
        expected[:, 3] = changed(expected[:, 3])
        np.testing.assert_allclose(given, expected, rtol=1e-6)
        # What is put behind the node in a graph does the same.
        ((operator, (constant,)),) = edit.behind
        behind = {"Mul": np.multiply, "Add": np.add}[operator](site.result, constant)
        np.testing.assert_allclose(behind, expected, rtol=1e-6)


def test_a_filter_of_three_taps_is_a_sum_of_neighbours(tmp_path: Path) -> None:
    (site,) = (
        one for one in search_of(NETWORK.replace("LeakyRelu<alpha = 0.1>", "Relu"), tmp_path).sites if one.output == "s"
    )
    along, *others = filters_of(site)
    assert (along.count, others) == (3, [])  # six rows are too few to be places
    (same,) = site.results(0, along.make(0.0, 0.0, 0.0)) or ()
    np.testing.assert_array_equal(same, site.result)
    (given,) = site.results(0, along.make(0.5, 0.0, 0.25)) or ()
    wide = np.pad(site.result, [(0, 0), (1, 1)], mode="edge")
    np.testing.assert_allclose(given, 0.5 * wide[:, :-2] + wide[:, 1:-1] + 0.25 * wide[:, 2:], rtol=1e-5, atol=1e-6)


@pytest.mark.search_of(0.4)
def test_two_faults_at_once_are_both_named(tmp_path: Path) -> None:
    both = NETWORK.replace("alpha = 0.1", "alpha = 0.3").replace("Tanh(t)", "Sigmoid(t)")
    causes = [one for one in findings(diagnose(tmp_path, both)) if one["role"] == "cause"]
    assert {one["site"]["tensor"] for one in causes[:2]} == {"h", "u"}
    assert any("alpha 0.3" in one["claim"] for one in causes)
    assert 0.95 < sum(one["share"] for one in causes[:2]) <= 1.0


def searched(folder: Path, network: str, deployed: str, weights: dict[str, np.ndarray], x: np.ndarray) -> OutputsAnswer:
    """What the search says of a network whose text was edited."""
    model, other = (
        write_network(folder / f"{name}.onnx", text, weights)
        for name, text in (("model", network), ("other", deployed))
    )
    samples = [{"x": x}, {"x": x[::-1].copy()}]
    run = open_session(load_model(other).graph())
    names = [value.name for value in load_model(model).outputs]
    outputs = KnownOutputs(
        model=model, feeds=samples, candidate=[run(one) for one in samples], noise=dict.fromkeys(names, 1e-6)
    )
    return told_of(search_outputs(outputs))


def test_both_bounds_of_an_activation_are_fitted(tmp_path: Path) -> None:
    deployed = NETWORK.replace("u = Tanh(t)", "v = Tanh(t)\n  u = Clip(v, low, high)")
    bounds = {"low": np.array(-0.37, np.float32), "high": np.array(0.81, np.float32)}
    told = searched(tmp_path, NETWORK, deployed, WEIGHTS | bounds, SAMPLES[0]["x"])
    assert "the result cut off at -0.37 and 0.81" in [one.words for one in told.members if one.output == "u"]


def test_another_operator_is_found_with_its_numbers(tmp_path: Path) -> None:
    other = NETWORK.replace("Tanh(t)", "HardSigmoid<alpha = 0.37, beta = 0.61>(t)")
    told = searched(tmp_path, NETWORK, other, WEIGHTS, SAMPLES[0]["x"])
    first = told.members[0]
    assert told.exact
    assert first.output == "u"
    assert first.words == "HardSigmoid with alpha 0.37 and beta 0.61 (fitted) in place of Tanh"


def test_two_changes_that_add_up_are_found_among_what_explains_nothing_alone() -> None:
    draw = np.random.default_rng(3)
    responses = draw.normal(size=(40, 3000))
    responses[7] = 0.4 * responses[7] - responses[21]  # alone it makes the error larger
    wanted = responses[7] + responses[21]
    sketches = ResponseSketch(wanted.size)
    tried = [
        TriedGuess(
            guess=SimpleNamespace(family=None, site=SimpleNamespace(step=SimpleNamespace(index=place))),  # type: ignore[arg-type]
            edit=StretchEdit(words=f"change {place}", bits=5.0),
            first=1 - float(np.square(wanted - row).sum() / np.square(wanted).sum()),
            sketch=sketches.of(row),
        )
        for place, row in enumerate(responses)
    ]
    one, other, explained = rank_pairs(tried, sketches.of(wanted).astype(np.float64), 5)[0]
    assert {one.edit.words, other.edit.words} == {"change 7", "change 21"}
    assert explained > 0.99


def test_what_is_done_to_an_input_is_found_in_front_of_the_network(tmp_path: Path) -> None:
    deployed = NETWORK.replace("(x, w1, b1)", "(z, w1, b1)").replace("  a = Gemm", "  z = Mul(x, two)\n  a = Gemm")
    told = searched(tmp_path, NETWORK, deployed, WEIGHTS | {"two": np.array(2, np.float32)}, SAMPLES[0]["x"])
    assert ("x::read", "the result scaled by 2") in [(one.output, one.words) for one in told.members]


@pytest.mark.search_of(0.3)
def test_a_large_scale_with_a_shift_of_an_input_is_the_cause_in_front_of_the_network(tmp_path: Path) -> None:
    """Features that the reference divides by a hundred and adds two to; the deployment gives them as they are.

    Most of the outputs saturate with such inputs, so that they are fitted in many steps.
    """
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,24,16,1] x) => (float[1,8,11,7] y) {
      t = Transpose<perm = [0, 3, 1, 2]>(x)
      a = Conv(t, k1, c1)
      h = LeakyRelu<alpha = 0.2>(a)
      m = Max(h, floor)
      p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(m)
      b = Conv<pads = [1, 1, 1, 1]>(p, k2, c2)
      i = LeakyRelu<alpha = 0.2>(b)
      n = Max(i, floor)
      d = Conv<pads = [1, 1, 1, 1]>(n, k3, c3)
      y = Tanh(d)
    }"""
    draw = np.random.default_rng(31)
    shapes = {"k1": (6, 1, 3, 3), "c1": (6,), "k2": (8, 6, 3, 3), "c2": (8,), "k3": (8, 8, 3, 3), "c3": (8,)}
    weights = {
        name: (draw.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    } | {"floor": np.array(-0.4, np.float32)}
    model = write_network(tmp_path / "model.onnx", text, weights)
    run = open_session(load_model(model).graph())
    for number in range(3):
        raw = draw.normal(-100, 100, size=(1, 24, 16, 1)).astype(np.float32)
        write_npz(tmp_path / "inputs" / f"{number}.npz", {"x": raw / np.float32(100) + np.float32(2)})
        write_npz(tmp_path / "recorded" / f"{number}.npz", run({"x": raw}))
    line = ("diagnose", str(model), "--inputs", str(tmp_path / "inputs"), "--study", str(tmp_path / "study"), "--quiet")
    assert exit_status(*line, "--candidate", str(tmp_path / "recorded")) == 1
    text = (tmp_path / "study" / "study.json").read_text(encoding="utf-8")
    first = findings(text)[0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("FUS014", "cause", "x")
    assert first["details"]["fitted"] == {"factor": 100, "offset": -200}
    assert first["confidence"] > 0.9  # the Transpose hands on the same numbers, and is no other place
    told = render_first_screen(json.loads(text))
    assert "before the network, in how the inputs are prepared: x" in told
    assert "x = (x + 200) / 100" in " ".join(told.split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: np.roll(x, 2, 1), "rolled by 2 along axis 1"),
        (
            lambda x: (_edge(x)[:, :-2] + 2 * x + _edge(x)[:, 2:]) / 4,
            "filtered along the axes [1] with 0.25, 0.5, 0.25",
        ),
    ],
)
def test_an_input_that_is_moved_or_smoothed_is_found_where_a_derivative_misleads(
    change: Callable[[np.ndarray], np.ndarray], words: str, tmp_path: Path
) -> None:
    """Behind a normalization nothing is left of the size of a change, and a long search finds something else first."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,64] x) => (float[2,24] y) {
      m = MatMul(x, k1)
      large = Mul(m, gain)
      mean = ReduceMean<axes = [1]>(large)
      d = Sub(large, mean)
      squares = Mul(d, d)
      variance = ReduceMean<axes = [1]>(squares)
      guarded = Add(variance, tiny)
      root = Sqrt(guarded)
      n = Div(d, root)
      y = MatMul(n, k2)
    }"""
    draw = np.random.default_rng(12)
    weights = {
        "k1": (draw.normal(size=(64, 48)) / 8).astype(np.float32),
        "gain": (1 + draw.gamma(1.0, 20.0, size=48)).astype(np.float32),
        "tiny": np.array(1e-5, np.float32),
        "k2": (draw.normal(size=(48, 24)) / 7).astype(np.float32),
    }
    model = write_network(tmp_path / "model.onnx", text, weights)
    run = open_session(load_model(model).graph())
    samples = [{"x": draw.normal(size=(2, 64)).astype(np.float32)} for _ in range(3)]
    given = [run({"x": change(one["x"]).astype(np.float32)}) for one in samples]
    told = told_of(search_outputs(KnownOutputs(model=model, feeds=samples, candidate=given, noise={"y": 1e-6})))
    assert ("x::read", f"the result {words}") in [(one.output, one.words) for one in told.members]


def _edge(x: np.ndarray) -> np.ndarray:
    return np.pad(x, [(0, 0), (1, 1)], mode="edge")


def test_a_normalization_in_training_mode_is_a_cause_and_no_constants_of_one_sample(tmp_path: Path) -> None:
    """Statistics of the batch at hand are others for each sample: no copy of the model holds them as constants."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[4,6,9] x) => (float[4,5,9] y) {
      a = Conv<kernel_shape = [1]>(x, k1)
      n = BatchNormalization<epsilon = 0.001>(a, scale, shift, mean, variance)
      h = Sigmoid(n)
      y = Conv<kernel_shape = [1]>(h, k2)
    }"""
    trained = """n = BatchNormalization<epsilon = 0.001>(a, scale, shift, mean, variance)"""
    composed = """m = ReduceMean<axes = [0, 2]>(a)
      d = Sub(a, m)
      q = Mul(d, d)
      v = ReduceMean<axes = [0, 2]>(q)
      w = Add(v, epsilon)
      r = Sqrt(w)
      z = Div(d, r)
      s = Mul(z, tall)
      n = Add(s, wide)"""
    draw = np.random.default_rng(36)
    weights = {"k1": draw.normal(size=(7, 6, 1)), "k2": draw.normal(size=(5, 7, 1)), "mean": draw.normal(size=7)}
    weights |= {"scale": draw.uniform(0.5, 2, 7), "shift": draw.normal(size=7), "variance": draw.uniform(2, 9, 7)}
    weights |= {"tall": weights["scale"].reshape(1, 7, 1), "wide": weights["shift"].reshape(1, 7, 1)}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    used = {name: array for name, array in weights.items() if name not in {"tall", "wide"}}
    model = write_network(tmp_path / "model.onnx", text, used)
    other = {**weights, "epsilon": np.array(0.001, np.float32)}
    left = {name: array for name, array in other.items() if name not in {"scale", "shift", "mean", "variance"}}
    deployed = load_model(write_network(tmp_path / "deployed.onnx", text.replace(trained, composed), left))
    run = open_session(deployed.graph())
    for number in range(3):
        arrays = {"x": draw.normal(size=(4, 6, 9)).astype(np.float32)}
        write_npz(tmp_path / "inputs" / f"{number}.npz", arrays)
        write_npz(tmp_path / "recorded" / f"{number}.npz", run(arrays))
    line = ("diagnose", str(model), "--inputs", str(tmp_path / "inputs"), "--study", str(tmp_path / "study"), "--quiet")
    assert exit_status(*line, "--candidate", str(tmp_path / "recorded")) == 1
    document = read_study(tmp_path / "study")
    first = document["findings"][0]
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("FUS014", "cause", "n")
    assert "statistics of the batch at hand in place of the trained ones" in first["claim"]
    assert first["share"] > 0.999
    assert document.get("sequence") is None  # nothing that a graph cannot say is put right in a copy


@pytest.mark.search_of(0.1)
def test_one_rule_for_all_layers_of_a_kind_is_one_cause(tmp_path: Path) -> None:
    network = NETWORK.replace("u = Tanh(t)", "u = LeakyRelu<alpha = 0.2>(t)")
    told = searched(
        tmp_path,
        network,
        network.replace("alpha = 0.1", "alpha = 0.4").replace("alpha = 0.2", "alpha = 0.4"),
        WEIGHTS,
        SAMPLES[0]["x"],
    )
    named = told.pair or told.members[:1]
    assert {one.output for member in named for one in (member, *member.also)} == {"h", "u"}


SCANNED = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,12] y) {
  a = MatMul(x, w1)
  last, d = Scan<num_scan_inputs = 1, body = step (float[14] state, float[14] row) => (float[14] next, float[14] given) {
    sum = Add(state, row)
    next = Tanh(sum)
    given = LeakyRelu<alpha = 0.1>(next)
  }>(begin, a)
  y = MatMul(d, w5)
}"""


def test_a_fault_inside_of_a_loop_is_named_there(tmp_path: Path) -> None:
    weights = {
        "w1": WEIGHTS["w1"],
        "begin": np.zeros(14, np.float32),
        "w5": DRAW.normal(size=(14, 12)).astype(np.float32),
    }
    told = searched(tmp_path, SCANNED, SCANNED.replace("alpha = 0.1", "alpha = 0.3"), weights, SAMPLES[0]["x"])
    first = told.members[0]
    assert (first.output, first.op_type, first.inside) == ("given", "LeakyRelu", "last")
    assert "alpha 0.3" in first.words


@pytest.mark.search_of(0.1)
def test_an_error_of_the_size_of_a_rounding_that_points_elsewhere_is_no_rounding(tmp_path: Path) -> None:
    model = write_network(tmp_path / "model.onnx", SHORT, WEIGHTS)
    reference = open_session(load_model(model).graph())
    target = Target(backend="sim", precision="bf16")
    roles = {}
    for way in ("rounded", "elsewhere"):
        folder = tmp_path / way
        for kind in ("inputs", "recorded"):
            (folder / kind).mkdir(parents=True)
        with open_target(load_model(model), target, Capture()) as session:
            for number, arrays in enumerate(SAMPLES):
                right = reference(arrays)
                given = dict(session.run(Sample(index=number, name=str(number), arrays=arrays)))
                if way == "elsewhere":  # as large in every element, with other signs
                    draw = np.random.default_rng(number)
                    signs = {
                        name: draw.choice([-1, 1], array.shape).astype(np.float32) for name, array in right.items()
                    }
                    given = {name: array + signs[name] * np.abs(given[name] - array) for name, array in right.items()}
                np.savez(folder / "inputs" / f"{number}.npz", **arrays)
                np.savez(folder / "recorded" / f"{number}.npz", **given)
        words = (
            "diagnose",
            str(model),
            "--inputs",
            str(folder / "inputs"),
            "--quiet",
            "--study",
            str(folder / "study"),
        )
        assert exit_status(*words, "--candidate", f"saved?path={folder / 'recorded'}", "--declared", "f32") == 1
        found = findings((folder / "study" / "study.json").read_text(encoding="utf-8"))
        roles[way] = next((one["role"], "points" in one["claim"]) for one in found if one["code"] == "ACC001")
    assert roles == {"rounded": ("cause", False), "elsewhere": ("contributing", True)}


def _long_network() -> str:
    """Forty layers, every third with a branch around it, and two outputs of which one ends half way."""
    lines = ["h0 = Tanh(x)"]
    for number in range(1, 41):
        one = f"h{number - 1}"
        lines.append(f"m{number} = MatMul({one}, w{number % 3})")
        lines.append(f"h{number} = Add(m{number}, {one})" if number % 3 == 0 else f"h{number} = Tanh(m{number})")
    lines += ["half = Softmax(h20)", "whole = Sigmoid(h40)"]
    outputs = "float[n,8] half, float[n,8] whole"
    return f'<ir_version: 8, opset_import: ["" : 17]> g (float[n,8] x) => ({outputs}) {{ {" ".join(lines)} }}'


@functools.cache
def _long_reference() -> Reference:
    weights = {f"w{number}": DRAW.normal(size=(8, 8)).astype(np.float32) / 3 for number in range(3)}
    model = ir.from_proto(parse_network(_long_network(), weights))
    return open_reference(compile_program(model), [{"x": DRAW.normal(size=(3, 8)).astype(np.float32)}], 1 << 30)


@given(
    place=st.integers(0, 60),
    change=st.sampled_from(("scaled", "zero", "reversed", "longer", "of rank 3", "not finite", "nothing")),
)
@settings(max_examples=60, deadline=None)
def test_what_lies_behind_a_change_gives_as_one_what_it_gives_step_by_step(place: int, change: str) -> None:
    reference = _long_reference()
    step = reference.live[place % len(reference.live)]
    (known,) = (reference.values[0][name] for name in step.outputs)
    made = {
        "scaled": known * np.float32(1.5),
        "zero": np.zeros_like(known),
        "reversed": known[::-1].copy(),
        "longer": np.concatenate([known, known]),
        "of rank 3": known[None],
        "not finite": np.where(known > 0, np.float32(np.nan), known),
        "nothing": known.copy(),
    }[change]
    redone: dict[int, Redo] = {step.index: lambda *_: [made]}
    try:
        stepwise = {**reference.values[0], **reference.changed_with(0, redone)}
    except ParityError:  # such as a sum with the branch around it
        with pytest.raises(ParityError):
            reference.respond(0, redone)
        return
    responses = reference.respond(0, redone)
    for name in ("half", "whole"):
        np.testing.assert_allclose(responses[name], stepwise[name], rtol=1e-5, atol=1e-6)


def test_a_trial_at_an_early_layer_costs_less_than_its_steps() -> None:
    reference = _long_reference()
    first = reference.live[1]
    reference.respond(0, {first.index: lambda *_: [np.zeros_like(reference.values[0][first.outputs[0]])]})
    assert reference.cost(first) < sum(reference.seconds[one.index] for one in reference.after[first.index]) / 2


def test_what_a_lost_axis_would_make_thousands_of_times_larger_is_not_computed() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,1] x) => (float[n,1] y) {
        a = Tanh(x)
        y = Mul(a, x)
    }"""
    x = DRAW.normal(size=(3000, 1)).astype(np.float32)
    reference = open_reference(compile_program(ir.from_proto(parse_network(text))), [{"x": x}], 1 << 30)
    (a,) = (step.index for step in reference.live if step.op_type == "Tanh")
    assert reference.respond(0, {a: lambda *_: [x[:1]]})["y"].shape == x.shape
    with pytest.raises(ParityError, match="many times as large"):
        reference.respond(0, {a: lambda *_: [x[:, 0]]})


@pytest.mark.search_of(1.0)
def test_a_large_change_in_an_early_layer_is_found_where_a_derivative_misleads(tmp_path: Path) -> None:
    weights = {f"w{number}": DRAW.normal(size=(8, 8)).astype(np.float32) for number in range(3)}
    samples = [{"x": DRAW.normal(size=(3, 8)).astype(np.float32)} for _ in range(2)]
    model = write_network(tmp_path / "model.onnx", _long_network(), weights)
    deployed = _long_network().replace("h4 = Tanh(m4)", "h4 = Identity(m4)")
    run = open_session(load_model(write_network(tmp_path / "deployed.onnx", deployed, weights)).graph())
    given = [run(arrays) for arrays in samples]
    found = search_outputs(
        KnownOutputs(model=model, feeds=samples, candidate=given, noise=dict.fromkeys(given[0], 1e-6), scale=0.1)
    )
    assert found.holds
    assert {one.guess.site.output for one in found.alike} == {"h4"}


@pytest.mark.search_of(1.0)
def test_of_many_inputs_that_which_is_scaled_is_fitted_first(tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(12)]
    given = ", ".join(f"float[4,8] {name}" for name in names)
    steps = "\n".join(f"m{name} = MatMul({name}, w{name})\n t{name} = Tanh(m{name})" for name in names)
    parts = ", ".join(f"t{name}" for name in names)
    body = f"({given}) => (float[4,96] y) {{ {steps}\n y = Concat<axis = 1>({parts}) }}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {body}'
    draw = np.random.default_rng(3)
    weights = {f"w{name}": draw.normal(size=(8, 8)).astype(np.float32) / 8 for name in names}
    samples = [{name: draw.normal(size=(4, 8)).astype(np.float32) for name in names} for _ in range(3)]
    model = write_network(tmp_path / "model.onnx", text, weights)
    run = open_session(load_model(model).graph())
    answers = [run({**arrays, "x0": 20 * arrays["x0"]}) for arrays in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}, scale=0.06))
    assert found.is_exact
    assert (found.alike[0].guess.site.output, found.alike[0].edit.words) == ("x0::read", "the result scaled by 20")


GATED = """(float[6,20] x) => (float[6,5] y) {
    t = Unsqueeze(x, zero)
    all, last, cell = LSTM<hidden_size = 14>(t, gates, again, offsets, lengths, state, state, peepholes)
    h = Squeeze(last, zero)
    y = Gemm(h, w4, b4)
}"""
PICKED = """(float[6,20] x) => (float[6,7] y) {
    a = Gemm(x, w1, b1)
    largest = ArgMax<axis = 1, keepdims = 0>(a)
    places = Mod(largest, four)
    each = Unsqueeze(places, one)
    all = Add(each, starts)
    e = Gather(table, all)
    s = ReduceMean<axes = [1], keepdims = 0>(e)
    y = Tanh(s)
}"""
# Of each what it computes, what the deployment holds otherwise, and what is said of that.
UNSLOPED = {
    "the threshold of a decision": (
        """(float[6,20] x) => (float[n,4] boxes, float[n] found) {
            a = Gemm(x, of_boxes, beside)
            o = Sigmoid(a)
            r = Reshape(o, rows)
            corner, size, s = Split<axis = 1>(r, parts)
            end = Add(corner, size)
            b = Concat<axis = 1>(corner, end)
            each = Unsqueeze(b, zero)
            turned = Transpose<perm = [1, 0]>(s)
            scores = Unsqueeze(turned, zero)
            kept = NonMaxSuppression(each, scores, most, iou)
            index = Gather<axis = 1>(kept, two)
            first = Slice(index, zero, twelve, zero)
            boxes = Gather(b, first)
            score = Gather(s, first)
            found = Squeeze(score, one)
        }""",
        {"iou": np.array([0.3], np.float32)},
        "iou_threshold ('iou') [0.3]",
    ),
    "the order of gates": (
        GATED,
        {name: turn_gates(MORE[name]) for name in ("gates", "again", "offsets")},
        "the gates of W, R, B in the order i, f, c, o",
    ),
    "the order of gates, but for a bias": (
        GATED,
        {name: turn_gates(MORE[name]) for name in ("gates", "again")},
        "the gates of W, R in the order i, f, c, o",
    ),
    "the order of directions": (
        """(float[6,20] x) => (float[6,5] y) {
            t = Unsqueeze(x, one)
            all, last, cell = LSTM<hidden_size = 14, direction = "bidirectional">(t, gates2, again2, offsets2)
            h = Reshape(all, steps_in_rows)
            y = Gemm(h, to_five, b4)
        }""",
        {name: MORE[name][::-1] for name in ("gates2", "again2", "offsets2")},
        "its two directions exchanged",
    ),
    "the order of directions, with lengths of as many rows": (
        """(float[6,20] x) => (float[6,2,14] y) {
            doubled = Concat<axis = 1>(x, x)
            t = Reshape(doubled, six_of_two)
            all, last = RNN<hidden_size = 14, direction = "bidirectional">(t, own, own_again, own_offsets, lengths2)
            y = ReduceMean<axes = [1], keepdims = 0>(all)
        }""",
        {name: MORE[name][::-1] for name in ("own", "own_again", "own_offsets")},
        "its two directions exchanged",
    ),
    "the order of directions of quantized weights": (
        """(float[6,20] x) => (float[6,5] y) {
            t = Unsqueeze(x, one)
            all, last, cell = com.microsoft.DynamicQuantizeLSTM<hidden_size = 14, direction = "bidirectional">(
                t, levels2, levels_again, offsets2, , , , , steps2, middle2, steps2, middle2)
            h = Reshape(all, steps_in_rows)
            y = Gemm(h, to_five, b4)
        }""",
        {name: MORE[name][::-1] for name in ("levels2", "levels_again", "offsets2", "steps2", "middle2")},
        "its two directions exchanged",
    ),
    "a square constant": (
        """(float[6,20] x) => (float[6,20] y) {
            a = MatMul(x, square)
            t = Tanh(a)
            b = MatMul(t, second)
            y = Tanh(b)
        }""",
        {"square": MORE["square"].T},
        "('square') transposed (axes 0 and 1)",
    ),
    "an axis of what is quantized": (
        """(float[6,20] x) => (float[6,5] y) {
            a = Gemm(x, w1, b1)
            h = Tanh(a)
            w = DequantizeLinear<axis = 0>(levels, steps)
            whole = Abs(w)
            t = MatMul(h, whole)
            y = Gemm(t, w4, b4)
        }""",
        ("DequantizeLinear<axis = 0>", "DequantizeLinear<axis = 1>"),
        "attribute axis 1 in place of 0",
    ),
    "places that are one off each": (
        PICKED,
        {"starts": np.array([0, 4, 8])},
        "[0, 4, 8] in place of [0, 5, 10]",
    ),
    "two of many rows that are picked from": (
        PICKED,
        {"table": MORE["table"][[8, *range(1, 8), 0, *range(9, 15)]]},
        "('table') indices 0 and 8 of axis 0 exchanged",
    ),
    "a number that several steps read": (
        """(float[6,20] x) => (float[6,12] y) {
            a = Gemm(x, w1, b1)
            s = Mul(a, scale)
            h = Tanh(s)
            t = Gemm(h, w2, b2)
            r = Mul(t, scale)
            u = Tanh(r)
            y = Gemm(u, w3)
        }""",
        {"scale": np.array([0.5], np.float32)},
        "at each of 2 Mul: constant B [0.5] in place of [0.25]",
    ),
    "an attribute of several steps": (
        """(float[6,20] x) => (float[6,14] y) {
            a = Gemm(x, w1, b1)
            n = LayerNormalization<axis = 1, epsilon = 1e-5>(a, gain, b1)
            h = Tanh(n)
            m = LayerNormalization<axis = 1, epsilon = 1e-5>(h, gain, b1)
            y = Tanh(m)
        }""",
        ("1e-5", "1e-3"),
        "at each of 2 LayerNormalization: attribute epsilon 0.001 in place of 1e-05",
    ),
    "what is lost everywhere, where the first one does nothing": (
        """(float[6,20] x) => (float[6,12] y) {
            a = Gemm(x, w1, b1)
            p = Abs(a)
            r = Relu(p)
            t = Gemm(r, w2, b2)
            h = Relu(t)
            u = Gemm(h, w3)
            y = Relu(u)
        }""",
        ("Relu", "Identity"),
        "at each of 3 Relu: Relu left out",
    ),
    "a padding that is all on one side": (
        """(float[6,20] x) => (float[6,4] y) {
            a = Gemm(x, of_boxes, beside)
            each = Unsqueeze(a, one)
            c = Conv<pads = [3, 3], strides = [2]>(each, taps)
            e = Elu(c)
            d = Conv<pads = [3, 3], strides = [2]>(e, taps)
            t = Tanh(d)
            m = MaxPool<kernel_shape = [3], strides = [3]>(t)
            h = Squeeze(m, one)
            y = Clip(h)
        }""",
        ("d = Conv<pads = [3, 3]", "d = Conv<pads = [2, 4]"),
        "attribute pads [2, 4] in place of [3, 3]",
    ),
    "a dilation with its padding": (
        """(float[6,20] x) => (float[6,5] y) {
            a = Gemm(x, of_boxes, beside)
            each = Unsqueeze(a, one)
            c = Conv<pads = [3, 3], strides = [2]>(each, taps)
            e = Elu(c)
            d = Conv<pads = [3, 3], strides = [2]>(e, taps)
            t = Tanh(d)
            h = Squeeze(t, one)
            p = MatMul(h, to_seven)
            y = MatMul(p, out)
        }""",
        ("c = Conv<pads = [3, 3]", "c = Conv<dilations = [2], pads = [6, 6]"),
        "attributes dilations [2] and pads [6, 6] in place of [1] and [3, 3]",
    ),
    "a function of several steps at all places": (
        """(float[6,20] x) => (float[6,12] y) {
            a = Gemm(x, w1, b1)
            r = Sigmoid(a)
            h = Mul(a, r)
            t = Gemm(h, w2, b2)
            s = Sigmoid(t)
            u = Mul(t, s)
            v = Gemm(u, w6)
            o = Sigmoid(v)
            z = Mul(v, o)
            y = Gemm(z, w3)
        }""",
        lambda text: re.sub(r"Mul\((.), .\)", r"Relu(\1)", text),
        "at each of 3 Mul behind Sigmoid: Relu in place of Mul",
    ),
    "the order in which axes are merged": (
        """(float[6,20] x) => (float[6,5] y) {
            a = Gemm(x, w1, b1)
            m = Reshape(a, matrix)
            t = Tanh(m)
            flat = Flatten(t)
            y = Gemm(flat, w4, b4)
        }""",
        ("flat = Flatten(t)", "swapped = Transpose<perm = [0, 2, 1]>(t)\n flat = Flatten(swapped)"),
        "axes [1, 2] of the input gone through with the first fastest",
    ),
}


PLACES = pytest.param("places that are one off each", marks=pytest.mark.search_of(0.1))


@pytest.mark.parametrize("fault", [PLACES if fault in PLACES.values else fault for fault in UNSLOPED])
def test_what_no_slope_leads_to_is_found(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_outputs_alone.WEIGHTS", WEIGHTS | MORE)
    body, change, words = UNSLOPED[fault]
    network = f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g {body}'
    deployed, weights = network, change if isinstance(change, dict) else {}
    if not isinstance(change, dict):
        deployed = network.replace(*change) if isinstance(change, tuple) else change(network)
    first = findings(diagnose(tmp_path / "wrong", deployed, weights, network=network))[0]
    assert (first["code"], first["role"]) == ("FUS014", "cause")
    assert words in first["claim"] + str(first["details"]["alike"]) + str(first["details"]["equal"])


def test_two_attributes_that_belong_together_are_one_change_of_a_recorded_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_outputs_alone.WEIGHTS", WEIGHTS | MORE)
    body, change, words = UNSLOPED["a dilation with its padding"]
    network = f'<ir_version: 8, opset_import: ["" : 17]> g {body}'
    layers = "float[6,5] y, float[6,1,40] each, float[6,1,20] c)"
    for deployed, cause in ((network.replace(*change), True), (network, False)):
        text = diagnose(tmp_path / str(cause), deployed.replace("float[6,5] y)", layers), network=network)
        named = [one for one in findings(text) if words in one["claim"] and one["role"] == "cause"]
        assert [one["code"] for one in named] == ["FUS002"] * cause


# Of each what it computes, what the caller of the deployment gives it otherwise, and what is said of that.
GIVEN: dict[str, tuple[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], str]] = {
    "a time in thousandths": (
        """(float[1] time, float[n,4] x) => (float[1,5] y) {
            angles = Mul(time, rates)
            s = Sin(angles)
            m = ReduceMean<axes = [0], keepdims = 1>(x)
            both = Concat<axis = 1>(s, m)
            y = MatMul(both, mixed)
        }""",
        lambda arrays: {"time": arrays["time"] / 1000},
        "the result scaled by 0.001",
    ),
    "a length with its padding": (
        """(int64[1] length, float[n,4] x) => (float[1,5] y) {
            sizes = Shape(x)
            rows = Gather<axis = 0>(sizes, nought)
            places = Range(nought, rows, single)
            inside = Less(places, length)
            counts = Cast<to = 1>(inside)
            each = Unsqueeze(counts, one)
            m = Mul(x, each)
            s = ReduceMean<axes = [0], keepdims = 1>(m)
            t = Tanh(s)
            both = Concat<axis = 1>(rates, t)
            y = MatMul(both, mixed)
        }""",
        lambda arrays: {"length": np.array([len(arrays["x"]) - 1])},
        "the extent of axis 0 of 'x' plus -1",
    ),
    "a table whose columns have another order, where nothing has a slope": (
        """(float[n,20] x) => (float[n,2] y) {
            above = Greater(x, edges)
            counted = Cast<to = 1>(above)
            y = MatMul(counted, votes)
        }""",
        lambda arrays: {"x": arrays["x"][:, [*range(13), 17, 14, 15, 16, 13, 18, 19]]},
        "the result indices 13 and 17 of axis 1 exchanged",
    ),
    "a vector that was not made of length one, in a quantized network": (
        """(float[n,4] x) => (float[n,5] y) {
            t = Tanh(x)
            both = Concat<axis = 1>(x, t)
            q, s, z = DynamicQuantizeLinear(both)
            d = DequantizeLinear(q, s, z)
            h = Sigmoid(d)
            y = MatMul(h, mixed)
        }""",
        lambda arrays: {"x": arrays["x"] * np.float32(8)},
        "the result scaled by 8",
    ),
}


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("fault", GIVEN)
def test_what_is_given_in_another_unit_or_with_its_padding_is_named(tmp_path: Path, fault: str) -> None:
    body, given_otherwise, words = GIVEN[fault]
    draw = np.random.default_rng(5)
    weights = {
        "rates": np.array([[1, 0.1, 0.01, 0.001]], np.float32),
        "mixed": draw.normal(size=(8, 5)).astype(np.float32),
        "edges": draw.normal(size=20).astype(np.float32),
        "votes": draw.normal(size=(20, 2)).astype(np.float32),
        "nought": np.array(0),
        "single": np.array(1),
        "one": np.array([1]),
    }
    used = {name: array for name, array in weights.items() if name in body}
    model = write_network(tmp_path / "model.onnx", f'<ir_version: 8, opset_import: ["" : 17]> g {body}', used)
    run = open_session(load_model(model).graph())
    samples = []
    for rows in (9, 12, 7, 10):
        own = {"time": draw.uniform(0, 900, 1).astype(np.float32), "length": np.array([rows - draw.integers(2, 5)])}
        x = draw.normal(size=(rows, 20 if "votes" in body else 4)).astype(np.float32)
        samples.append({name: array for name, array in {**own, "x": x}.items() if f" {name}" in body})
    answers = [run({**arrays, **given_otherwise(arrays)}) for arrays in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}, scale=0.1))
    assert found.is_exact
    assert any(one.edit.words == words for one in found.alike)


def test_a_right_class_acquits_nothing_of_what_it_was_decided_by(tmp_path: Path) -> None:
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,12] scores, int64[6] label) {
        a = Gemm(x, w1, b1)
        h = LeakyRelu<alpha = 0.1>(a)
        t = Gemm(h, w2, b2)
        scores = Softmax(t)
        label = ArgMax<axis = 1, keepdims = 0>(scores)
    }"""
    # As many of the weights as before decide, so that each class stays.
    weights = {name: array for name, array in (WEIGHTS | MORE).items() if name in {"w1", "b1", "w2", "b2"}}
    told = searched(tmp_path, network, network.replace("0.1", "0.12"), weights, SAMPLES[0]["x"])
    assert told.exact
    assert told.members[0].words == "attribute alpha 0.12 (fitted) in place of 0.1"


@pytest.mark.parametrize(
    ("by", "filled", "words"), [(2, "edge", "the edge repeated"), (-5, "maximum", "its largest value put in")]
)
def test_an_image_that_is_moved_is_named_with_what_comes_in(tmp_path: Path, by: int, filled: str, words: str) -> None:
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,24] x) => (float[1,60] y) {
        a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, kernels)
        p = Relu(a)
        m = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(p)
        y = Flatten(m)
    }"""
    draw = np.random.default_rng(8)
    model = write_network(tmp_path / "m.onnx", network, {"kernels": draw.normal(size=(5, 3, 3, 3)).astype(np.float32)})
    run = open_session(load_model(model).graph())
    # As smooth as images are.
    samples = [{"x": draw.normal(size=(1, 3, 16, 24)).cumsum(2).cumsum(3).astype(np.float32)} for _ in range(2)]
    answers = []
    for arrays in samples:
        moved = np.take(arrays["x"], np.clip(np.arange(24) - by, 0, 23), 3)
        if filled == "maximum":
            moved[..., by:] = arrays["x"].max()
        answers.append(run({"x": moved}))
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}))
    assert found.is_exact
    assert any(one.edit.words == f"the result moved by {by} along axis 3, {words}" for one in found.alike)


CACHED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4] x, float[1,1,n,4] past_0_key, float[1,1,n,4] past_0_value, float[1,1,n,4] past_1_key, float[1,1,n,4] past_1_value)
  => (float[1,4] y) {
    q = Mul(x, first)
    k0 = Transpose<perm = [0, 1, 3, 2]>(past_0_key)
    d0 = MatMul(q, k0)
    s0 = Add(d0, early)
    p0 = Softmax(s0)
    a0 = MatMul(p0, past_0_value)
    h0 = Squeeze(a0, nought)
    r0 = Add(h0, x)
    t0 = Tanh(r0)
    o = Mul(t0, second)
    k1 = Transpose<perm = [0, 1, 3, 2]>(past_1_key)
    s1 = MatMul(o, k1)
    p1 = Softmax(s1)
    w1 = Mul(p1, later)
    a1 = MatMul(w1, past_1_value)
    h1 = Squeeze(a1, nought)
    y = Add(h1, t0)
}"""
# What the caller does to which caches, and what is told.
CACHES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], str]] = {
    "all one position on": (
        "past",
        lambda array: np.roll(array, 1, 2),
        "at each of 4 inputs: the result rolled by 1 along axis 2",
    ),
    "all two positions on": (
        "past",
        lambda array: np.roll(array, 2, 2),
        "at each of 4 inputs: the result rolled by 2 along axis 2",
    ),
    "those of values three positions on": (
        "value",
        lambda array: np.roll(array, 3, 2),
        "at each of 2 inputs: the result rolled by 3 along axis 2",
    ),
}


@pytest.mark.search_of(0.3)
@pytest.mark.parametrize("fault", CACHES)
def test_what_is_done_to_all_caches_is_told_of_all(tmp_path: Path, fault: str) -> None:
    whose, change, words = CACHES[fault]
    found = findings_of_caches(tmp_path, whose, change)
    first = found[0]
    assert (first["code"], first["role"]) == ("FUS014", "cause")
    assert words in first["claim"]
    names = [f"past_{layer}_{half}" for layer in (0, 1) for half in ("key", "value")]
    assert all(name in first["claim"] for name in names if whose in name) or "and 1 more" in first["claim"]


def test_caches_that_are_empty_were_not_scaled_to_next_to_nothing(tmp_path: Path) -> None:
    found = findings_of_caches(tmp_path, "past", np.zeros_like, "--declared", "bf16")
    causes = [one["claim"] for one in found if one["role"] == "cause"]
    assert any("they are zero throughout" in one for one in causes)
    assert not any("came times" in one for one in causes)


def findings_of_caches(
    tmp_path: Path, whose: str, change: Callable[[np.ndarray], np.ndarray], *options: str
) -> list[dict[str, Any]]:
    """The findings of CACHED, given caches of whose names a part is `whose` that were changed."""
    draw = np.random.default_rng(17)
    weights = {name: draw.normal(size=4).astype(np.float32) for name in ("first", "second")}
    weights |= {name: draw.normal(size=6).astype(np.float32) for name in ("early", "later")}
    weights |= {"nought": np.array([0, 1])}
    model = write_network(tmp_path / "model.onnx", CACHED, weights)
    run = open_session(load_model(model).graph())
    names = [f"past_{layer}_{half}" for layer in (0, 1) for half in ("key", "value")]
    samples = [
        {"x": draw.normal(size=(1, 4)).astype(np.float32)}
        | {name: draw.normal(size=(1, 1, 6, 4)).astype(np.float32) for name in names}
        for _ in range(6)
    ]
    for folder in ("inputs", "recorded"):
        (tmp_path / folder).mkdir()
    for number, arrays in enumerate(samples):
        np.savez(tmp_path / "inputs" / f"{number}.npz", **arrays)
        given = {name: np.ascontiguousarray(change(one)) if whose in name else one for name, one in arrays.items()}
        np.savez(tmp_path / "recorded" / f"{number}.npz", **run(given))
    line = ["diagnose", str(model), "--inputs", str(tmp_path / "inputs"), "--quiet", "--study", str(tmp_path / "study")]
    assert exit_status(*line, "--candidate", f"saved?path={tmp_path / 'recorded'}", *options) == 1
    return findings((tmp_path / "study" / "study.json").read_text(encoding="utf-8"))


def test_an_input_that_is_the_first_samples_on_all_of_them_is_found(tmp_path: Path) -> None:
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x, float[1] time) => (float[1,6] y) {
        a = Mul(time, rates)
        s = Sin(a)
        both = Add(x, s)
        m = MatMul(both, mixed)
        y = Tanh(m)
    }"""
    draw = np.random.default_rng(9)
    weights = {
        "rates": draw.uniform(0.2, 2, (1, 8)).astype(np.float32),
        "mixed": draw.normal(size=(8, 6)).astype(np.float32) / np.float32(3),
    }
    model = write_network(tmp_path / "m.onnx", network, weights)
    run = open_session(load_model(model).graph())
    # Of the second sample the first is the one before, too, and it is furthest off.
    times = (1.0, 9.0, 1.5, 2.0)
    samples = [{"x": draw.normal(size=(1, 8)).astype(np.float32), "time": np.array([one], np.float32)} for one in times]
    answers = [run({**one, "time": samples[0]["time"]}) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}, scale=0.05))
    assert found.is_exact
    assert "the result of the first sample (it was kept)" in [one.edit.words for one in found.alike]


def test_another_number_of_groups_is_found(tmp_path: Path) -> None:
    """A normalization of groups as exporters write it: constants of two nodes say how many there are."""
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,24,6,6] x) => (float[1,24,6,6] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, kernels)
        p = Reshape(a, parts)
        n = InstanceNormalization(p, ones, zeros)
        s = Shape(a)
        r = Reshape(n, s)
        m = Mul(r, rates)
        h = Sigmoid(m)
        y = Conv(h, last)
    }"""
    draw = np.random.default_rng(3)
    weights = {
        "kernels": draw.normal(size=(24, 24, 3, 3)).astype(np.float32) / np.float32(15),
        "rates": draw.normal(size=(24, 1, 1)).astype(np.float32),
        "last": draw.normal(size=(24, 24, 1, 1)).astype(np.float32),
    }
    model, other = (
        write_network(
            tmp_path / f"{groups}.onnx",
            network,
            weights
            | {
                "parts": np.array([0, groups, -1]),
                "ones": np.ones(groups, np.float32),
                "zeros": np.zeros(groups, np.float32),
            },
        )
        for groups in (8, 4)
    )
    run = open_session(load_model(other).graph())
    samples = [{"x": draw.normal(size=(1, 24, 6, 6)).astype(np.float32)} for _ in range(2)]
    answers = [run(one) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}, scale=0.2))
    told = [(one.guess.site.output, one.edit.words) for one in found.alike]
    assert found.is_exact
    assert ("n", "4 groups in place of 8") in told


def test_what_stands_before_sequences_that_end_early_is_found(tmp_path: Path) -> None:
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[9,1,5] x) => (float[9,2,1,6] y) {
        a = Mul(x, rates)
        p = Tanh(a)
        y, h = GRU<hidden_size = 6, direction = "bidirectional">(p, gates, again, , length)
    }"""
    draw = np.random.default_rng(11)
    weights = {
        "rates": draw.normal(size=5).astype(np.float32),
        "gates": draw.normal(size=(2, 18, 5)).astype(np.float32),
        "again": draw.normal(size=(2, 18, 6)).astype(np.float32),
        "length": np.array([7], np.int32),
    }
    deployed = network.replace("p = Tanh(a)", "b = Tanh(a)\n  p = Mul(b, small)")
    both = weights | {"small": np.array(0.37, np.float32)}
    told = searched(tmp_path, network, deployed, both, draw.normal(size=(9, 1, 5)).astype(np.float32))
    assert told.exact
    assert "the result scaled by 0.37" in [one.words for one in told.members if one.output == "p"]
    assert "GRU" not in told.refused


def test_a_token_that_stands_for_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is masked in a sequence of tokens is another token; and half of the network is constant, so that nothing bounds it."""
    network = """<ir_version: 8, opset_import: ["" : 17]> g (int64[6,20] tokens) => (float[6,5] y) {
        e = Gather(table, tokens)
        none = Mul(e, nothing)
        c = Cos(none)
        both = Add(e, c)
        t = ReduceMean<axes = [1], keepdims = 0>(both)
        h = Tanh(t)
        y = MatMul(h, out)
    }"""
    draw = np.random.default_rng(3)
    monkeypatch.setattr("test_outputs_alone.WEIGHTS", WEIGHTS | MORE)
    folder = tmp_path / "tokens"
    for kind in ("inputs", "recorded"):
        (folder / kind).mkdir(parents=True)
    model = write_network(folder / "model.onnx", network, WEIGHTS | MORE)
    run = open_session(load_model(model).graph())
    for number in range(3):
        tokens = draw.integers(1, 14, (6, 20))
        tokens[:, ::3] = 14  # what is masked, as the network was trained with it
        np.savez(folder / "inputs" / f"{number}.npz", tokens=tokens)
        np.savez(folder / "recorded" / f"{number}.npz", **run({"tokens": np.where(tokens == 14, 0, tokens)}))
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={folder / 'recorded'}") == 1
    study = (folder / "study" / "study.json").read_text(encoding="utf-8")
    first = findings(study)[0]
    assert "what is read of input 'tokens'" in first["claim"]
    assert "with each 14 read as 0" in first["claim"] + str(first["details"]["alike"]) + str(first["details"]["equal"])
    assert "this is a bug" not in study


def turned(x: str, index: int, *, neighbours: str) -> str:
    """The nodes that turn a tensor's pairs: halves, or neighbours where they are turned ("turn") or throughout ("all")."""
    halves = "b_N" if neighbours else "a_N"
    read = "b_N" if neighbours == "all" else "a_N"
    joined = "Gather<axis = -1>(j_N, back)" if neighbours == "turn" else "Neg(o_N)"
    last = "Gather<axis = -1>(z_N, back)" if neighbours == "all" else "Neg(v_N)"
    return f"""a_N = MatMul(INPUT, w_N)
        b_N = Gather<axis = -1>(a_N, forth)
        p_N, q_N = Split<axis = -1>({halves})
        r_N = Neg(q_N)
        j_N = Concat<axis = -1>(r_N, p_N)
        o_N = Neg(j_N)
        i_N = {joined}
        c_N = Mul({read}, cosines)
        s_N = Mul(i_N, sines)
        z_N = Add(c_N, s_N)
        v_N = Neg(z_N)
        t_N = {last}
        """.replace("_N", str(index)).replace("INPUT", x)


@pytest.mark.parametrize(
    ("neighbours", "words"), [("turn", "and joined so again"), ("all", "with all that is done to it")]
)
def test_neighbours_turned_in_place_of_halves_in_every_layer_are_one_cause(
    tmp_path: Path, neighbours: str, words: str
) -> None:
    size = 16
    forth = np.arange(size).reshape(size // 2, 2).T.ravel()
    draw = np.random.default_rng(7)
    angles = draw.uniform(0, 6, (5, size // 2))
    weights = {
        "cosines": np.cos(np.tile(angles, 2)).astype(np.float32),
        "sines": np.sin(np.tile(angles, 2)).astype(np.float32),
        "forth": forth,
        "back": np.argsort(forth),
    }
    weights |= {f"w{one}": draw.normal(size=(size, size)).astype(np.float32) / np.float32(4) for one in range(4)}

    def network(neighbours: str) -> str:
        layers = turned("x", 0, neighbours=neighbours) + turned("x", 1, neighbours=neighbours)
        later = turned("h", 2, neighbours=neighbours) + turned("h", 3, neighbours=neighbours)
        return f"""<ir_version: 8, opset_import: ["" : 17]> g (float[5,16] x) => (float[5,16] y) {{
        {layers} m = Mul(t0, t1)
        h = Tanh(m)
        {later} n = Mul(t2, t3)
        y = Add(h, n)
        }}"""

    model = write_network(tmp_path / "m.onnx", network(""), weights)
    run = open_session(load_model(write_network(tmp_path / "n.onnx", network(neighbours), weights)).graph())
    samples = [{"x": draw.normal(size=(5, size)).astype(np.float32)} for _ in range(2)]
    answers = [run(one) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}))
    assert found.is_exact
    said = [one.edit.words for one in found.alike]
    assert any(
        told.startswith("at each of 4 places: axis -1 cut into every second index in place of 2 blocks")
        and words in told
        for told in said
    ), said


@pytest.mark.parametrize("run", [1, 4])
def test_what_is_kept_beside_in_place_of_in_blocks_is_one_cause(tmp_path: Path, run: int) -> None:
    """Gates beside their values; queries, keys and values of each head together."""
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[5,12] x) => (float[5,12] y) {
        a = MatMul(x, first)
        k0 = Gather<axis = -1>(a, order)
        k, l, m = Split<axis = -1>(k0)
        r = Reshape(l, heads)
        q = Reshape(k, heads)
        t = Mul(r, q)
        u = Reshape(t, flat)
        y = Add(m, u)
    }"""
    draw = np.random.default_rng(4)
    plain = np.arange(36)
    weights = {
        "first": draw.normal(size=(12, 36)).astype(np.float32),
        "heads": np.array([5, -1, 4]),
        "flat": np.array([5, -1]),
    }
    order = plain.reshape(-1, 3, run).swapaxes(0, 1).ravel()
    model = write_network(tmp_path / "m.onnx", network.replace("Gather<axis = -1>(a, order)", "Identity(a)"), weights)
    other = write_network(tmp_path / "n.onnx", network, weights | {"order": order})
    session = open_session(load_model(other).graph())
    samples = [{"x": draw.normal(size=(5, 12)).astype(np.float32)} for _ in range(2)]
    answers = [session(one) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}))
    assert found.is_exact
    which = "index" if run == 1 else "run of 4 indices"
    said = [one.edit.words for one in found.alike]
    assert any(f"axis -1 cut into every third {which} in place of 3 blocks" in told for told in said), said


@pytest.mark.parametrize("axes", [(2, 3), (1, 2)])
def test_an_image_at_half_of_its_size_and_back_is_named_with_its_kernel(tmp_path: Path, axes: tuple[int, int]) -> None:
    shape = (1, 3, 20, 25) if axes == (2, 3) else (1, 20, 25, 3)
    moved = "Identity(x)" if axes == (2, 3) else "Transpose<perm = [0, 3, 1, 2]>(x)"
    network = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{",".join(map(str, shape))}] x) => (float[1,4,20,25] y) {{
        t = {moved}
        a = Conv<pads = [1, 1, 1, 1]>(t, kernels)
        y = Tanh(a)
    }}"""
    draw = np.random.default_rng(5)
    model = write_network(tmp_path / "m.onnx", network, {"kernels": draw.normal(size=(4, 3, 3, 3)).astype(np.float32)})
    run = open_session(load_model(model).graph())
    samples = [draw.uniform(size=shape).astype(np.float32) for _ in range(2)]
    answers = []
    for image in samples:
        planes = np.moveaxis(image[0], [one - 1 for one in axes], (1, 2))
        small = [Image.fromarray(plane).resize((12, 10), Image.Resampling.BILINEAR) for plane in planes]
        made = np.stack([np.asarray(one.resize((25, 20), Image.Resampling.BILINEAR)) for one in small])
        answers.append(run({"x": np.moveaxis(made, (1, 2), [one - 1 for one in axes])[None]}))
    feeds = [{"x": one} for one in samples]
    told = search_outputs(KnownOutputs(model=model, feeds=feeds, candidate=answers, noise={"y": 1e-6}))
    assert told.is_exact
    words = f"the result shrunk to 10 x 12 along the axes {list(axes)} and back, bilinear with antialiasing"
    assert words in [one.edit.words for one in told.alike]


@pytest.mark.parametrize(
    ("right", "wrong", "places", "words"),
    [
        ("later = Greater(d, zero)", "later = Greater(d, n)", {"c", "e", "m"}, "lost: "),
        ("f = Cast<to = 1>(r)", "q = Add(r, one) f = Cast<to = 1>(q)", {"f", "r"}, "plus 1"),
    ],
)
def test_what_a_network_makes_of_shapes_alone_may_be_wrong_too(
    tmp_path: Path, right: str, wrong: str, places: set[str], words: str
) -> None:
    """Positions and the distances between them: no value that is fed leads to them."""
    network = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,n,6] x) => (float[1,n,6] y) {
        s = Shape(x)
        n = Gather<axis = 0>(s, one)
        r = Range(zero, n, one)
        f = Cast<to = 1>(r)
        u = Unsqueeze(f, last)
        a = Mul(u, rates)
        p = Sin(a)
        t = Unsqueeze(r, last)
        w = Unsqueeze(r, ahead)
        d = Sub(w, t)
        later = Greater(d, zero)
        c = Cast<to = 7>(later)
        e = Gather<axis = 0>(table, c)
        h = Add(x, p)
        m = MatMul(e, h)
        y = Tanh(m)
    }"""
    draw = np.random.default_rng(8)
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "last": np.array([1]),
        "ahead": np.array([0]),
        "rates": draw.uniform(0.5, 3, (1, 6)).astype(np.float32),
        "table": np.array([0.2, -0.5], np.float32),
    }
    model = write_network(tmp_path / "m.onnx", network, weights)
    other = write_network(tmp_path / "n.onnx", network.replace(right, wrong), weights)
    run = open_session(load_model(other).graph())
    samples = [{"x": draw.normal(size=(1, length, 6)).astype(np.float32)} for length in (11, 14)]
    answers = [run(one) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}))
    assert found.is_exact
    told = [(one.guess.site.output, one.edit.words) for one in found.alike]
    assert any(output in places and words in said for output, said in told), told


def test_one_rule_for_all_nodes_inside_of_loops_is_one_cause(tmp_path: Path) -> None:
    """Gates of recurrences as an old framework computes them, in the bodies of two loops."""
    body = "(float[14] state, float[14] row) => (float[14] next, float[14] given)"
    scan = f"""last_N, d_N = Scan<num_scan_inputs = 1, body = step_N {body} {{
        sum = Add(state, row)
        open = Sigmoid(sum)
        kept = Mul(open, state)
        other = Neg(row)
        shut = Sigmoid(other)
        fresh = Mul(shut, row)
        mixed = Add(kept, fresh)
        next = Tanh(mixed)
        given = Identity(next)
    }}>(begin, a_N)"""
    network = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,12] y) {{
        a_1 = MatMul(x, w1)
        {scan.replace("_N", "_1")}
        a_2 = MatMul(d_1, w2)
        {scan.replace("_N", "_2")}
        y = MatMul(d_2, w3)
    }}"""
    draw = np.random.default_rng(2)
    shapes = {"w1": (20, 14), "w2": (14, 14), "w3": (14, 12)}
    weights = {name: draw.normal(size=shape).astype(np.float32) / np.float32(2) for name, shape in shapes.items()}
    weights["begin"] = draw.normal(size=14).astype(np.float32)
    model = write_network(tmp_path / "m.onnx", network, weights)
    other = write_network(tmp_path / "n.onnx", network.replace("Sigmoid(", "HardSigmoid("), weights)
    run = open_session(load_model(other).graph())
    samples = [{"x": draw.normal(size=(6, 20)).astype(np.float32)} for _ in range(2)]
    answers = [run(one) for one in samples]
    found = search_outputs(KnownOutputs(model=model, feeds=samples, candidate=answers, noise={"y": 1e-6}))
    assert found.is_exact
    said = [one.edit.words for one in found.alike]
    assert "at each of 4 Sigmoid: HardSigmoid in place of Sigmoid" in said, said
