"""Bindings from outputs alone: exchanged inputs and outputs, inputs that did not arrive, outputs that are old."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status
from examinations import examination_of
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.recording import RecordingRequest, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks.misreading.orders import count_runs, search_order
from parityscope.checks.misreading.readings import FAMILIES, misreadings_of
from parityscope.checks.misreading.remains import remains_of
from parityscope.errors import ParityError
from parityscope.records import Policy
from parityscope.study import examine_request
from parityscope.study.bench import open_bench
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]

FAMILY = {"BND001", "BND002", "BND003"}

# A user's program: it hands the arrays over in the tokenizer's order, whatever order the model declares.
PROGRAM = """
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

source, sink = map(Path, sys.argv[1:])
data = np.load(source / "000000.npz", allow_pickle=False)
session = ort.InferenceSession("MODEL")
bindings = [data[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
feeds = {value.name: array for value, array in zip(session.get_inputs(), bindings)}
outputs = session.run(None, feeds)
np.savez(sink / "000000.npz", **{value.name: array for value, array in zip(session.get_outputs(), outputs)})
"""


# What a tokenizer gives, as an encoder begins and ends.
ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[2,12] input_ids, int64[2,12] attention_mask, int64[2,12] token_type_ids) => (float[2,8] y) {
  words = Gather(table, input_ids)
  parts = Gather(kinds, token_type_ids)
  all = Add(words, parts)
  mask = Cast<to = 1>(attention_mask)
  each = Unsqueeze(mask, last)
  kept = Mul(all, each)
  mean = ReduceMean<axes = [1], keepdims = 0>(kept)
  wide = MatMul(mean, w)
  y = Tanh(wide)
}"""

ROWS = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,24] x) => (float[2,24] y) { y = Exp(x) }"""


def test_the_founding_case_from_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(17)
    shapes = {"table": (30, 16), "kinds": (2, 16), "w": (16, 8)}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    path = written(ENCODER, tmp_path, {**weights, "last": np.array([2])})
    ends = np.array([[12], [8]]) > np.arange(12)
    sentences = {
        "input_ids": np.where(ends, draw.integers(1, 30, (2, 12)), 0),
        "attention_mask": ends.astype(np.int64),
        "token_type_ids": np.where(ends, np.arange(12) > 5, 0).astype(np.int64),
    }
    write_npz(tmp_path / "sentences.npz", sentences)
    program = tmp_path / "infer.py"
    program.write_text(PROGRAM.replace("MODEL", str(path)), encoding="utf-8")
    line = ["diagnose", str(path), "--inputs", str(tmp_path / "sentences.npz"), "--format", "json", "--quiet"]
    line += ["--candidate", f"command?run={sys.executable} {program}", "--study", str(tmp_path / "study")]
    assert exit_status(*line) == 1
    found = json.loads(capfd.readouterr().out)["findings"]
    assert (found[0]["code"], found[0]["role"]) == ("BND001", "cause")
    assert (
        "input_ids, attention_mask, token_type_ids were bound as input_ids, token_type_ids, attention_mask"
        in (found[0]["claim"])
    )
    assert found[0]["details"]["given"] == ["input_ids", "token_type_ids", "attention_mask"]
    assert [one["repair"] for one in found[0]["repairs"]] == ["bind_by_name"]
    assert [one["code"] for one in found if one["role"] == "cause"] == ["BND001"]


SMALL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,16] a, float[N,16] b) => (float[N,16] y) {
  p = MatMul(a, w)
  q = Tanh(b)
  r = Mul(p, q)
  y = MatMul(r, w)
}"""


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_an_exchange_is_seen_behind_low_precision(precision: str, tmp_path: Path) -> None:
    path, samples = small(tmp_path)
    turned = case_of(path, [{"a": each["b"], "b": each["a"]} for each in samples], tmp_path / "turned")
    trace = record_trace(
        turned.model, turned.inputs, parse_target(f"sim:{precision}"), RecordingRequest(samples=(0, 1, 2))
    )
    outputs = [{"y": trace.get(index, "y")} for index in trace.samples]
    for declared in (precision, "f32"):
        found = findings(path, samples, outputs, tmp_path / declared, declared)
        assert (found[0]["code"], found[0]["role"]) == ("BND001", "cause")


def test_a_state_of_two_inputs_that_is_not_carried_is_one_cause(tmp_path: Path) -> None:
    # Exchanged, both are near what they are as nought, too: what explains all of the error is told.
    generator = np.random.default_rng(12)
    gates = {name: (generator.normal(size=(1, 32, 8)) * 0.4).astype(np.float32) for name in ("w", "r")}
    text = """<ir_version: 8, opset_import: ["" : 17]>
g (float[3,1,8] x, float[1,1,8] h, float[1,1,8] c) => (float[3,1,1,8] y, float[1,1,8] hn, float[1,1,8] cn) {
  y, hn, cn = LSTM<hidden_size = 8>(x, w, r, , , h, c)
}"""
    path = written(text, tmp_path, gates)
    shapes = {"x": (3, 1, 8), "h": (1, 1, 8), "c": (1, 1, 8)}
    samples = [
        {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(3)
    ]
    outputs = [run(path, {**each, "h": each["h"] * 0, "c": each["c"] * 0}) for each in samples]
    found = findings(path, samples, outputs, tmp_path / "case")
    assert (found[0]["code"], found[0]["details"]["inputs"], found[0]["confidence"] > 0.99) == (
        "BND002",
        ["h", "c"],
        True,
    )
    assert "a state is not carried on" in found[0]["claim"]
    assert {one["code"] for one in found if one["role"] == "cause"} == {"BND002"}
    # One of them alone is told as that one.
    outputs = [run(path, {**each, "c": each["c"] * 0}) for each in samples]
    found = findings(path, samples, outputs, tmp_path / "one")
    assert (found[0]["code"], found[0]["details"]["inputs"]) == ("BND002", ["c"])


def test_of_many_states_those_that_are_not_carried_are_named(tmp_path: Path) -> None:
    names = [f"s{place}" for place in range(5)]
    given, gives = (", ".join(f"float[1,16] {letter}{place}" for place in range(5)) for letter in "sy")
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({given}) => ({gives}) {{
      s = Concat<axis = 1>({", ".join(names)})
      t = Tanh(s)
      m = MatMul(t, w)
      {gives.replace("float[1,16] ", "")} = Split<axis = 1>(m)
    }}"""
    generator = np.random.default_rng(13)
    path = written(text, tmp_path, {"w": (np.eye(80) + 0.1 * generator.normal(size=(80, 80))).astype(np.float32)})
    samples = [{name: generator.normal(size=(1, 16)).astype(np.float32) for name in names} for _ in range(3)]
    lost = ("s1", "s2", "s4")
    outputs = [run(path, {**each, **{one: each[one] * 0 for one in lost}}) for each in samples]
    found = findings(path, samples, outputs, tmp_path / "case")
    assert (found[0]["code"], found[0]["details"]["inputs"]) == ("BND002", list(lost))


def test_of_many_inputs_those_that_were_exchanged_are_named(tmp_path: Path) -> None:
    inputs = ", ".join(f"float[2,8] {name}" for name in "abcdef")
    steps = "t = Tanh(a) u = Mul(t, b) v = Add(u, c) w = Sigmoid(v) p = Mul(w, d) q = Sub(p, e) y = Add(q, f)"
    path = tmp_path / "six.onnx"
    write_network(path, f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[2,8] y) {{ {steps} }}', {})
    generator = np.random.default_rng(16)
    samples = [{name: generator.normal(size=(2, 8)).astype(np.float32) for name in "abcdef"} for _ in range(3)]
    outputs = [run(path, {**each, "b": each["e"], "e": each["b"]}) for each in samples]
    first = findings(path, samples, outputs, tmp_path / "case")[0]
    assert (first["code"], first["role"]) == ("BND001", "cause")
    assert first["claim"].startswith("Inputs b, e were bound as e, b:")
    assert first["details"]["given"] == list("aecdbf")


@pytest.mark.search_of(0.1)
def test_an_exchange_that_leaves_a_part_is_not_called_proved(tmp_path: Path) -> None:
    path, samples = small(tmp_path)
    generator = np.random.default_rng(14)
    outputs = []
    for each in samples:
        turned, right = (run(path, given)["y"] for given in ({"a": each["b"], "b": each["a"]}, each))
        rest = generator.normal(size=turned.shape) * np.linalg.norm(turned - right) / np.sqrt(turned.size)
        outputs.append({"y": turned + (0.5 * rest).astype(np.float32)})
    first = findings(path, samples, outputs, tmp_path / "case")[0]
    assert first["code"] == "BND001"
    assert 0.6 < first["confidence"] < 0.9


def test_an_error_of_another_kind_is_left_to_others(tmp_path: Path) -> None:
    path, samples = small(tmp_path)
    outputs = [run(path, {**each, "a": each["a"] / np.float32(255)}) for each in samples]
    assert not FAMILY & codes(findings(path, samples, outputs, tmp_path / "case"))


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5])
def test_what_breaks_everything_proves_nothing(value: float, tmp_path: Path) -> None:
    # Many readings of an input make NaN of all outputs, and so do many other faults.
    path, samples = small(tmp_path)
    outputs = [{"y": np.full((1, 16), value, np.float32)} for _ in samples]
    causes = codes(findings(path, samples, outputs, tmp_path / "case")) & FAMILY
    assert causes == ({"BND003"} if np.isfinite(value) else set())


@pytest.mark.search_of(0.1)
def test_a_few_integers_prove_nothing(tmp_path: Path) -> None:
    # The class of one sample is right by chance under many hypotheses: here it is nought for every input that is nought.
    model = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] a, float[1,4] b) => (int64[1] y) {
      s = Sub(a, b)
      y = ArgMax<axis = 1, keepdims = 0>(s)
    }"""
    path = written(model, tmp_path)
    inputs = {"a": np.array([[0, 1, 5, 2]], np.float32), "b": np.array([[0, 3, 1, 2]], np.float32)}
    for wrong in (0, 1, 3):
        found = findings(path, [inputs], [{"y": np.array([wrong])}], tmp_path / str(wrong))
        assert not FAMILY & codes(found)


def test_a_candidate_without_an_output_is_no_trouble(tmp_path: Path) -> None:
    model = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x) => (float[1,32] y, float[1,32] z) {
      y = Tanh(x)
      z = Exp(x)
    }"""
    path = written(model, tmp_path)
    inputs = {"x": np.linspace(-2, 2, 32, dtype=np.float32)[None]}
    document = diagnosed(path, [inputs], [{"y": np.exp(inputs["x"])}], tmp_path / "case")
    assert "BND002" not in codes(document["findings"])
    assert not [skip for skip in document["skipped"] if "itself failed" in skip["reason"]]


def test_nothing_is_opened_before_it_is_asked_for(tmp_path: Path) -> None:
    path, samples = small(tmp_path)
    case = case_of(path, samples, tmp_path / "case")
    with open_bench(examination_of(case, f"saved?path={tmp_path / 'nowhere.npz'}")) as bench:
        assert bench.samples == (0, 1, 2)
        assert set(bench.inputs(1)) == {"a", "b"}
        np.testing.assert_array_equal(bench.reference(1)["y"], run(path, samples[1])["y"])
        with pytest.raises(ParityError, match="nowhere"):
            bench.candidate(0)


@given(data=st.data(), sizes=st.lists(st.integers(2, 4), min_size=1, max_size=2))
def test_few_orders_are_all_found(data: st.DataObject, sizes: list[int]) -> None:
    groups = [[f"{place}{letter}" for letter in "abcd"[:size]] for place, size in enumerate(sizes)]
    planted = {name: name for group in groups for name in group}
    for group in groups:
        planted.update(zip(group, data.draw(st.permutations(group)), strict=True))
    wrong = {name: whose for name, whose in planted.items() if name != whose}
    runs = []

    def attempt(order: Mapping[str, str]) -> tuple[float, bool]:
        runs.append(order)
        return misplaced(order, planted), dict(order) == wrong

    assert (search_order(groups, attempt, len(planted)) or {}) == wrong
    assert len(runs) <= count_runs(groups)


@settings(max_examples=25)
@given(data=st.data(), size=st.integers(5, 7))
def test_many_orders_are_found_without_trying_all(data: st.DataObject, size: int) -> None:
    # Of seven there are 5040. Every exchange that puts one in its place lowers the number of misplaced ones.
    group = [f"i{place}" for place in range(size)]
    planted = dict(zip(group, data.draw(st.permutations(group)), strict=True))
    wrong = {name: whose for name, whose in planted.items() if name != whose}
    runs = []

    def attempt(order: Mapping[str, str]) -> tuple[float, bool]:
        runs.append(order)
        return misplaced(order, planted), dict(order) == wrong

    start = float(len(wrong))
    assert (search_order([group], attempt, start) or {}) == wrong
    assert len(runs) <= count_runs([group]) < math.factorial(size) or size == 5


def misplaced(order: Mapping[str, str], planted: Mapping[str, str]) -> float:
    return float(sum(order.get(name, name) != whose for name, whose in planted.items()))


@given(
    dtype=st.sampled_from(["float32", "float16", "int64", "int32", "uint8", "bool"]),
    shape=st.lists(st.integers(1, 4), max_size=3),
    seed=st.integers(0, 99),
)
def test_readings_are_what_a_model_takes(dtype: str, shape: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    array, previous = (generator.integers(0, 2, size=shape).astype(dtype) for _ in range(2))
    for family in FAMILIES:
        for words, changed in misreadings_of(family, array, previous):
            assert (changed.shape, changed.dtype) == (array.shape, array.dtype), words
            assert changed.tobytes() != array.tobytes(), words


def test_bytes_are_read_as_an_engine_would() -> None:
    ids = np.array([[1, 2, 3, 4]], np.int64)
    found = {words: changed.tolist()[0] for words, changed in misreadings_of("type", ids, None)}
    assert found == {
        # 1, 2 side by side in four bytes each, little-endian: 1 + 2 * 2^32; the data ends after two.
        "was given as int32 and read as int64": [1 + (2 << 32), 3 + (4 << 32), 0, 0],
        # Low and high halves in turn, four of eight.
        "was given as int64 and read as int32": [1, 0, 2, 0],
    }
    ones = np.ones((1, 4), np.float32)
    # 1.0 is 0x3F800000: its halves are 0x0000 = 0 and 0x3F80 = 1.875.
    assert dict(misreadings_of("type", ones, None))["was given as float32 and read as float16"].tolist() == [
        [0, 1.875] * 2
    ]
    layouts = misreadings_of("layout", np.arange(6.0).reshape(2, 3), None)
    (turned,) = (changed for words, changed in layouts if "contiguous" in words)
    assert turned.tolist() == [[0, 3, 1], [4, 2, 5]]


def test_what_remains_of_an_output() -> None:
    generator = np.random.default_rng(3)
    right, before = generator.normal(size=(2, 100)).astype(np.float32)
    half = np.concatenate([right[:60], before[60:]])
    told = remains_of(right, half, [before], 1e-6)
    assert told is not None
    assert (told.kind, told.start) == ("before", 60)
    told = remains_of(right, before * np.float32(1 + 1e-7), [before], 1e-6)
    assert told is not None
    assert (told.kind, told.start) == ("before", 0)
    assert remains_of(right, right * 2, [before], 1e-6) is None
    # The head is wrong too: the tail is not all that happened.
    assert remains_of(right, np.concatenate([right[:60] * 2, before[60:]]), [before], 1e-6) is None
    # One class of one sample is no tail.
    assert remains_of(np.array([3]), np.array([0]), [np.array([1])], 1e-6) is None
    assert remains_of(np.float32([0.5]), np.float32([0.25]), [np.float32([0.75])], 1e-6) is None


def test_one_row_that_is_left_is_no_pitch(tmp_path: Path) -> None:
    path = written(ROWS, tmp_path)
    samples = [{"x": np.random.default_rng(seed).normal(size=(2, 24)).astype(np.float32)} for seed in range(3)]
    # Rows of 96 bytes that begin every 256, read end to end: of 192 bytes the first 96 are the first row.
    outputs = [{"y": np.concatenate([np.exp(each["x"][:1]), np.zeros((1, 24), np.float32)])} for each in samples]
    found = findings(path, samples, outputs, tmp_path)
    assert [one["code"] for one in found if one["role"] == "cause"] == ["BND003"]
    assert "is right up to element 24 of 48 and is zero from there on" in found[0]["claim"]
    assert "Rows that begin every 192 bytes or more, read end to end, look so too." in found[0]["claim"]


def small(folder: Path) -> tuple[Path, list[dict[str, np.ndarray]]]:
    generator = np.random.default_rng(4)
    weight = generator.normal(size=(16, 16)).astype(np.float32) / np.float32(4)
    samples = [{name: generator.normal(size=(1, 16)).astype(np.float32) for name in "ab"} for _ in range(3)]
    return written(SMALL, folder, {"w": weight}), samples


def written(text: str, folder: Path, constants: Mapping[str, np.ndarray] | None = None) -> Path:
    return write_network(folder / "model.onnx", text, constants or {})


def run(path: Path, inputs: Arrays) -> dict[str, np.ndarray]:
    return open_session(load_model(path).graph())(inputs)


def case_of(path: Path, samples: Sequence[Arrays], folder: Path, declared: str = "f32") -> Case:
    model = load_model(path)
    data = load_inputs(model, stored(samples, folder / "inputs"), spool=folder / "spool")
    return Case(name="case", model=model, inputs=data, policy=Policy(declared=declared))


def stored(samples: Sequence[Arrays], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number, arrays in enumerate(samples):
        write_npz(folder / f"{number:06d}.npz", arrays)
    return folder


def diagnosed(
    path: Path, samples: Sequence[Arrays], outputs: Sequence[Arrays], folder: Path, declared: str = "f32"
) -> dict[str, Any]:
    """The study's document of a deployment that gave `outputs`."""
    case = case_of(path, samples, folder, declared)
    target = f"saved?path={stored(outputs, folder / 'outputs')}"
    return examine_request(examination_of(case, target, folder=folder / "tensors"))


def findings(
    path: Path, samples: Sequence[Arrays], outputs: Sequence[Arrays], folder: Path, declared: str = "f32"
) -> list[dict[str, Any]]:
    return list(diagnosed(path, samples, outputs, folder, declared)["findings"])


def codes(found: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(one["code"]) for one in found}
