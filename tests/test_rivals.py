"""The parts of bench/rivals.py that all rivals share: what is counted, what judges, and the methods that are replayed."""

from __future__ import annotations

import importlib
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command_line import in_this_process
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.inputs import Sample
from parityscope.evaluation.switching import Switchboard
from parityscope.records import Budget, Policy
from parityscope.repairs.search.judging import make_yardstick
from simulated import simulate

BENCH = Path(__file__).resolve().parents[1] / "bench"
F16 = TensorProto.FLOAT16


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the comparison by name."""
    monkeypatch.syspath_prepend(str(BENCH))
    return lambda name: importlib.import_module(f"_rivals.{name}")


def saved(
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    shapes: tuple[list[int], list[int]],
    path: Path,
) -> Path:
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in zip("xy", shapes, strict=True)
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[0], ends[1], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def sample_of(x: np.ndarray) -> Sample:
    return Sample(index=0, name="0", arrays={"x": x.astype(np.float32)})


def half_typed(path: Path) -> Path:
    """(2, 3) x (3, 4) in FP16, Transpose, then (4, 2) x (2, 5) in FP32."""
    nodes = [
        helper.make_node("Cast", ["x"], ["down"], to=F16),
        helper.make_node("MatMul", ["down", "w"], ["first"]),
        helper.make_node("Transpose", ["first"], ["turned"]),
        helper.make_node("Cast", ["turned"], ["up"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["up", "v"], ["second"]),
        helper.make_node("Cast", ["second"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Cast", ["whole"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"w": np.full((3, 4), 0.5, np.float16), "v": np.ones((2, 5), np.float32)}
    return saved(nodes, constants, ([2, 3], [4, 5]), path)


def test_counts_of_a_mixed_model(part: Any, tmp_path: Path) -> None:
    found = part("counting").counted(half_typed(tmp_path / "m.onnx"), sample_of(np.ones((2, 3))), tmp_path)
    # 2 * 2 * 4 * 3 = 48 in FP16 and 2 * 4 * 5 * 2 = 80 in FP32. Casts to and from integers are no precision's.
    assert found.flops == pytest.approx(80 / 128)
    assert (found.full, found.nodes, found.casts) == (1, 2, 2)


def squares(path: Path) -> Path:
    """x² / 1000 in FP16: 300² is beyond 65504."""
    nodes = [
        helper.make_node("Cast", ["x"], ["down"], to=F16),
        helper.make_node("Mul", ["down", "down"], ["squared"]),
        helper.make_node("Mul", ["squared", "k"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["y"], to=TensorProto.FLOAT),
    ]
    return saved(nodes, {"k": np.asarray(1e-3, np.float16)}, ([3], [3]), path)


def test_what_a_cpu_hides_is_judged(part: Any, tmp_path: Path) -> None:
    judging, path = part("judging"), squares(tmp_path / "m.onnx")
    x = sample_of(np.array([1.0, 2.0, 300.0]))
    reference = {"y": x.arrays["x"] ** 2 / np.float32(1000)}
    budget = Budget(output="", metric="rel_l2", limit=1e-2, reason="test")
    held = make_yardstick(Policy(budgets=(budget,)), {}, [reference], None)
    lost = judging.judged(held, [(x, reference)], judging.faithful(path))
    assert (lost.worst, lost.misses, lost.count) == (math.inf, 1, 1)
    assert judging.judged(held, [(x, reference)], judging.as_it_stands(path)).misses == 0


def test_renamed_outputs_are_taken_in_their_order(part: Any) -> None:
    x = sample_of(np.ones(3))
    reference = {"y": np.ones(3, np.float32)}
    budget = Budget(output="", metric="rel_l2", limit=1e-2, reason="test")
    held = make_yardstick(Policy(budgets=(budget,)), {}, [reference], None)
    found = part("judging").judged(held, [(x, reference)], lambda _: {"graph_output_cast_0": reference["y"] * 1.005})
    assert found.worst == pytest.approx(0.5, rel=1e-4)


def test_the_judgement_is_that_of_evaluate(part: Any, tmp_path: Path) -> None:
    path = half_typed(tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(2, 3)) * 100
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"]),
        helper.make_node("Transpose", ["first"], ["turned"]),
        helper.make_node("MatMul", ["turned", "v"], ["y"]),
    ]
    weights = {"w": np.full((3, 4), 0.5, np.float32), "v": np.ones((2, 5), np.float32)}
    original = saved(nodes, weights, ([2, 3], [4, 5]), tmp_path / "o.onnx")
    write_npz(tmp_path / "in" / "0.npz", {"x": x.astype(np.float32)})
    words = ("evaluate", str(path), "--reference", str(original), "--inputs", "in", "--quiet", "--format", "json")
    done = in_this_process(*words, "--study", "study", folder=tmp_path)
    told = json.loads(done.stdout)["outputs"][0]["rel_l2"]
    judging = part("judging")
    reference = judging.as_it_stands(original)(sample_of(x).arrays)
    budget = Budget(output="", metric="rel_l2", limit=1.0, reason="test")
    held = make_yardstick(Policy(budgets=(budget,)), {}, [reference], None)
    own = judging.judged(held, [(sample_of(x), reference)], judging.faithful(path)).worst
    assert own == pytest.approx(told, rel=1e-6)
    assert own > 0


@pytest.fixture
def replay(part: Any, tmp_path: Path) -> Any:
    """Six Mul in a row. The third gives 1e6, which overflows, and the fourth reads it: these two cannot be low."""
    factors = [1.0, 1.0, 1e6, 1e-6, 1.0, 1.0]
    names = ["x", *(f"t{place}" for place in range(5)), "y"]
    nodes = [
        helper.make_node("Mul", [names[place], f"k{place}"], [names[place + 1]], name=f"n{place}") for place in range(6)
    ]
    constants = {f"k{place}": np.asarray(factor, np.float32) for place, factor in enumerate(factors)}
    path = saved(nodes, constants, ([3], [3]), tmp_path / "m.onnx")
    x = sample_of(np.array([1.0, 2.0, 3.0]))
    reference = {"y": x.arrays["x"].copy()}
    budget = Budget(output="", metric="rel_l2", limit=1e-3, reason="test")
    held = make_yardstick(Policy(budgets=(budget,)), {}, [reference], None)
    board = Switchboard(load_model(path).graph(), "f16", threads=1)
    return part("replaying").Replay(board=board, samples=[x], references=[reference], held=held, deadline=math.inf)


@pytest.mark.parametrize("method", ["ddmin", "halving", "ranking"])
def test_methods_find_the_two_nodes_that_overflow(part: Any, replay: Any, method: str) -> None:
    low = part(method).choose(replay)
    kept = {node.name for node, is_low in zip(replay.board.graph.nodes, low, strict=True) if not is_low}
    assert kept == {"n2", "n3"}
    assert replay.passes(low)


def test_a_prefix_ends_behind_the_last_culprit(part: Any, replay: Any) -> None:
    low = part("prefix").choose(replay)
    assert low.tolist() == [False] * 4 + [True] * 2
    # All six, then 3, 5 (ceil of 4.5) and 4: as BisectMarker of Polygraphy steps.
    assert replay.evaluations == 4


def test_the_same_assignment_is_run_once(replay: Any) -> None:
    low = np.zeros(6, np.bool_)
    assert replay.passes(low)
    assert replay.passes(low.copy())
    assert replay.evaluations == 1


def test_a_method_out_of_time_keeps_the_best(part: Any, replay: Any) -> None:
    assert replay.passes(np.zeros(6, np.bool_))
    replay.deadline = 0.0
    with pytest.raises(part("replaying").OutOfTime):
        part("ddmin").choose(replay)
    assert replay.best.tolist() == [False] * 6


def test_what_is_written_is_what_was_chosen(part: Any, replay: Any, tmp_path: Path) -> None:
    low = part("ddmin").choose(replay)
    names = [node.name for node in replay.board.graph.nodes]
    part("replaying").write(load_model(tmp_path / "m.onnx"), "f16", names, low, tmp_path / "out.onnx")
    found = part("counting").counted(tmp_path / "out.onnx", replay.samples[0], tmp_path)
    assert (found.full, found.nodes) == (2, 6)
    judging = part("judging")
    pairs = list(zip(replay.samples, replay.references, strict=True))
    assert judging.judged(replay.held, pairs, judging.faithful(tmp_path / "out.onnx")).misses == 0


def test_a_false_certificate_is_marked(part: Any) -> None:
    table = part("table")
    row = table.Row(
        subject="m", budget="f16, 0.01", method="a", claims=True, said="validated", worst=2.0, misses=1, fresh=59,
        flops=0.5, seconds=1.0,
    )  # fmt: skip
    assert "| validated | **1 of 59** |" in table.markdown([row])
    assert "| a | 1 | 1 | 0 | 1 | 1 | 0 |" in table.tallied([row])  # 1 of 59 is less than 5 %
    assert not row.meets
    refused = table.Row(subject="m", budget="f16, 0.01", method="b", problem="it crashes", seconds=1.0)
    assert "no model: it crashes" in table.markdown([refused])


def test_a_later_row_takes_the_place_of_an_earlier_one(part: Any, tmp_path: Path) -> None:
    table = part("table")
    for worst in (2.0, 0.5):
        table.keep(table.Row(subject="m", budget="", method="a", worst=worst), tmp_path / "rows.jsonl")
    assert [row.worst for row in table.kept_rows(tmp_path / "rows.jsonl")] == [0.5]


def test_the_best_of_the_others_is_one_that_meets_the_budget(part: Any) -> None:
    table = part("table")

    def row(method: str, flops: float, casts: int, misses: int) -> Any:
        return table.Row(subject="m", budget="", method=method, flops=flops, casts=casts, misses=misses, fresh=59)

    rows = [row("ours", 0.1, 4, 0), row("first", 0.0, 2, 1), row("second", 0.5, 3, 0), row("third", 0.5, 5, 0)]
    told = table.against(rows, "ours", {"first", "second", "third"})
    assert "| m | 10.0%, 4 | second | 50.0%, 3 |" in told
    assert "Over the 1 subjects" in told
    assert "median ratio 0.20" in told
    assert "Casts: +1 in the median, more on 1." in told


def test_medians_are_over_all_subjects_where_another_meets_the_budget(part: Any) -> None:
    """Ratios 0 (0 % against 0 %), 0.1 and 2: the median is 0.1; of the two where one keeps any, 1.05. Casts -1, +2, +4."""
    table = part("table")
    rows = [
        table.Row(subject=subject, budget="", method=method, flops=flops, casts=casts, fresh=59)
        for subject, own, other in [("a", (0.0, 2), (0.0, 3)), ("b", (0.05, 5), (0.5, 3)), ("c", (0.8, 6), (0.4, 2))]
        for method, (flops, casts) in (("ours", own), ("tool", other))
    ]
    rows.append(table.Row(subject="d", budget="", method="ours", flops=0.3, casts=9, fresh=59))
    told = table.against(rows, "ours", {"tool"})
    assert "| d | 30.0%, 9 | none | |" in told
    assert "at most half of its FLOPs on 2" in told
    assert "more than its FLOPs on 1, median ratio 0.10" in told
    assert "over the 2 of them where one of the two keeps any, 1.05" in told
    assert "Casts: +2 in the median, more on 2." in told


def test_what_a_search_costs_is_told_for_each_subject(part: Any) -> None:
    table = part("table")
    row = table.Row(
        subject="m", budget="", method="ours", fresh=59, flops=0.0, flagged=3, evaluations=40, passes=20.5, excused=12.25,
        inferences=31.4, seconds=9.7,
    )  # fmt: skip
    assert "| m | 3 | 40 | 20.5 | 12.2 | 8.2 | 31 | 10 |" in table.spending([row], "ours")
    assert "| 40 | 31 | 9.7 |" in table.markdown([row])


def test_without_the_environment_there_is_a_reason(part: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITYSCOPE_CACHE", str(tmp_path))
    assert "--prepare" in part("environment").missing()


class _Call:
    """What a pickle calls when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("true",)


def test_weights_are_read_and_nothing_is_called(part: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with path.open("wb") as file:
        for one in (1, 1001, {}, {"w": _Call()}, []):
            pickle.dump(one, file, protocol=2)
    with pytest.raises(pickle.UnpicklingError, match="is no tensor"):
        part("packages").torch_weights(path)


def test_encoders_run_in_fp32_and_are_lost_in_fp16(part: Any, tmp_path: Path) -> None:
    from parityscope.backends.onnxruntime_sessions import open_path

    encoders = part("encoders")
    path = tmp_path / "encoder.onnx"
    onnx.save(encoders.encoder("mask"), path)
    arrays = next(encoders.samples("mask", np.random.default_rng(0)))
    reference = open_path(path, outputs=["y"], threads=2)(arrays)["y"]
    lost = simulate(load_model(path).graph(), "f16")(arrays)["y"]
    assert np.isfinite(reference).all()
    assert np.isnan(lost).all()  # 0 * inf where the mask is 1


def test_speedups_are_ratios_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    latency = importlib.import_module("latency")
    candidate = np.linspace(1, 2, 50)
    assert latency.speedup(2 * candidate, candidate) == "2.000 (2.000 to 2.000)"
