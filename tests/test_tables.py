"""Large tables that are only gathered from: the same numbers, without a rounded copy of the table."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.arithmetic import tables
from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import changed_by, round_to
from parityscope.arithmetic.typed import typed_model
from parityscope.case import Sample
from parityscope.evaluation.switching import Switchboard
from simulated import detype, simulate

TEXT = """<ir_version: 9, opset_import: ["" : 19]> g (int64[3] ids, bool c) => (float[3,8] y, float[3,8] z) {
    [pick] e = Gather(table, ids)  [grow] s = Exp(e)
    [choose] y = If (c) < then_branch = t () => (float[3,8] a) { [inner] a = Gather(table, ids) },
        else_branch = f () => (float[3,8] b) { [other] b = Sin(s) }>
    [last] z = Add(y, s) }"""


def model() -> ir.Model:
    proto = onnx.parser.parse_model(TEXT)
    table = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    table[3] = 1e5  # beyond FP16
    table[4] = 1e-9  # and below it
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    return ir.from_proto(proto)


def held(graph: ir.Model) -> list[str]:
    """The types of the tables in the graph, whole or rounded."""
    made = graph.graph.initializers.values()
    return [value.dtype.name for value in made if value.dtype is not None and value.shape == ir.Shape([40, 8])]


@pytest.mark.parametrize("low", ["f16", "bf16"])
@pytest.mark.parametrize("taken", [True, False])
def test_what_is_taken_out_is_rounded(monkeypatch: pytest.MonkeyPatch, low: str, *, taken: bool) -> None:
    """As with a rounded table, bit for bit: all low, every node alone, and a file that was typed."""
    arrays = {"ids": np.array([3, 4, 17]), "c": np.array(taken)}
    sample = Sample(index=0, name="s", arrays=arrays)
    found: list[list[np.ndarray]] = []
    counts = []
    for limit in (1 << 26, 1):
        monkeypatch.setattr(tables, "LARGE", limit)
        board = Switchboard(model(), low, threads=1, inside=True)
        names = [node.name for node in board.graph.nodes]
        simulated, typed = simulate(model(), low), detype(typed_model(model(), low, {"grow": "f32"}).model)
        counts.append([held(graph) for graph in (board.graph.model, simulated.model, typed.model)])
        runs = [board.run(sample, set(chosen)) for chosen in ([], names, *([name] for name in names))]
        runs += [simulated(arrays), typed(arrays)]
        found.append([array for run in runs for array in run.values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    # No graph holds a rounded table beside the table itself, and only the first de-typed one made it FP32.
    half = {"f16": "FLOAT16", "bf16": "BFLOAT16"}[low]
    assert counts == [[["FLOAT"], ["FLOAT"], ["FLOAT"]], [["FLOAT"], ["FLOAT"], [half]]]


def test_what_rounding_changes_is_told_block_by_block() -> None:
    numbers = np.zeros((1 << 20) + 3, np.float32)
    assert not changed_by(numbers, FORMATS["f16"])
    numbers[5] = np.nan
    assert not changed_by(numbers, FORMATS["f16"])
    numbers[-1] = 1 + 2.0**-11 + 2.0**-20
    assert changed_by(numbers, FORMATS["f16"])
    assert round_to(numbers, FORMATS["f16"])[-1] == 1 + 2.0**-10
    assert changed_by(np.array([1e5], np.float32), FORMATS["f16"], overflow="saturate")
