"""What the screen sees inside If, Loop and Scan, and what a search makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask, search_repair
from parityscope.repairs.search.screen import ranges_of
from parityscope.repairs.search.watching import seen_within
from parityscope.repairs.search.within import flagged_within

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case import Inputs, Model

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LOOP = f"""{HEAD}
g (float[4] x) => (float[4] y) <int64 three = {{3}}, bool yes = {{1}}, float ten = {{10}}> {{
  [around] y = Loop (three, yes, x) <body = b (int64 i, bool go, float[4] h) => (bool on, float[4] next) {{
    on = Identity(go)
    [grown] big = Mul(h, ten)
    [back] small = Div(big, ten)
    next = Add(small, h)
  }}>
}}"""
BRANCH = f"""{HEAD}
g (bool c, float[4] x) => (float[4] y) <float huge = {{100000}}, float tiny = {{0.00000001}}> {{
  [choice] y = If (c) <
    then_branch = t () => (float[4] a) {{ [times] t0 = Mul(x, huge) a = Div(t0, huge) }},
    else_branch = e () => (float[4] b) {{ [plus] e0 = Add(x, tiny) [root] b = Sqrt(e0) }}
  >
}}"""
SCAN = f"""{HEAD}
g (float[2] s, float[5,2] x) => (float[2] y, float[5,2] all) {{
  [steps] y, all = Scan (s, x) <num_scan_inputs = 1, body = b (float[2] h, float[2] v) => (float[2] n, float[2] o) {{
    [square] q = Mul(v, v)
    n = Add(h, q)
    o = Sqrt(q)
  }}>
}}"""


def loaded(folder: Path, text: str, samples: list[dict[str, np.ndarray]]) -> tuple[Model, Inputs]:
    proto = onnx.parser.parse_model(text)
    for index, node in enumerate(proto.graph.node):
        node.name = node.name or f"n{index}"
    onnx.save(proto, folder / "model.onnx")
    (folder / "data").mkdir()
    for number, sample in enumerate(samples):
        write_npz(folder / "data" / f"{number}.npz", sample)
    model = load_model(folder / "model.onnx")
    return model, load_inputs(model, folder / "data", spool=folder / "spool")


def flags(folder: Path, text: str, samples: list[dict[str, np.ndarray]], low: str = "f16") -> dict[str, str]:
    model, inputs = loaded(folder, text, samples)
    ranges = ranges_of(model, inputs, 1, lambda *_: None)
    return {name: flag.text for name, flag in flagged_within(model, inputs, ranges, low, 1.3, 1).items()}


def test_magnitudes_over_all_iterations(tmp_path: Path) -> None:
    """h doubles in each of three iterations: 10 h is 10, 20 and 40 times x, and the smallest element is not zero.

    Three times four elements, and a last dimension of four.
    """
    model, inputs = loaded(tmp_path, LOOP, [{"x": np.array([0.0, -3.0, 0.5, 2.0], np.float32)}])
    (found,) = seen_within(model, inputs, 1)
    held = {str(value.name): (one.largest, one.smallest, one.elements, one.last) for value, one in found.items()}
    ends = {"big": (120.0, 5.0), "small": (12.0, 0.5), "next": (24.0, 1.0)}
    assert held == {name: (*both, 12.0, 4.0) for name, both in ends.items()}
    (tmp_path / "none").mkdir()
    straight = loaded(
        tmp_path / "none", f"{HEAD} g (float[4] x) => (float[4] y) {{ y = Abs(x) }}", [{"x": np.ones(4, np.float32)}]
    )
    assert list(seen_within(*straight, 1)) == []


def test_an_iteration_that_overflows(tmp_path: Path) -> None:
    """40 x 2000 = 80000 only in the last iteration, and inside alone: x, and the 8 x that comes out, fit."""
    x = np.array([1.0, 2.0, 3.0, 2000.0], np.float32)
    assert flags(tmp_path, LOOP, [{"x": x}]) == {"around": "inside it grown gives 8e+04, beyond FP16's 65504"}


def test_bodies_within_the_range_are_not_flagged(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    assert flags(tmp_path, LOOP, [{"x": x}]) == {}
    (tmp_path / "b").mkdir()
    assert flags(tmp_path / "b", LOOP, [{"x": x * 1000}], "bf16") == {}


def test_constants_of_branches_count_although_they_are_not_taken(tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    found = flags(tmp_path, BRANCH, [{"c": np.array(False), "x": x}])
    assert found == {"choice": "inside it times reads constant 1e+05, beyond FP16's 65504"}


def test_what_vanishes_on_its_way_to_a_root(tmp_path: Path) -> None:
    """v of 1e-4 squared is 1e-8: 0 in FP16, where its root stood at 1e-4; BF16 has the range."""
    sample = {"s": np.zeros(2, np.float32), "x": np.full((5, 2), 1e-4, np.float32)}
    found = flags(tmp_path, SCAN, [sample])
    assert found == {
        "steps": "inside it square gives 1e-08, which becomes 0 in FP16 on its way to a denominator, logarithm or root"
    }
    (tmp_path / "b").mkdir()
    assert flags(tmp_path / "b", SCAN, [sample], "bf16") == {}


@pytest.mark.parametrize("size", [1.0, 2000.0])
def test_a_search_keeps_the_node_that_the_screen_flags(tmp_path: Path, size: float) -> None:
    samples = [
        {"x": np.array([1.0, 2.0, 3.0, 4.0], np.float32) * np.float32(size / 4 * (1 + at / 50))} for at in range(6)
    ]
    model, inputs = loaded(tmp_path, LOOP, samples)
    budget = Budget(output="", metric="rel_l2", limit=1e-2, reason="test")
    task = RepairTask(
        model=model, inputs=inputs, low="f16", policy=Policy(budgets=(budget,)), threads=1, search_samples=4
    )
    (tmp_path / "work").mkdir()
    found = search_repair(task, tmp_path / "work", tmp_path / "fixed.onnx")
    assert [flag.node for flag in found.flags] == (["grown", "back"] if size > 1 else [])
    assert [one.node for one in found.kept] == (["grown", "back"] if size > 1 else [])
    # A runtime that converts a file in FP32 takes no settings for nodes inside: the Loop, which is all there is, is kept.
    (tmp_path / "whole").mkdir()
    whole = search_repair(replace(task, typed=False), tmp_path / "whole", tmp_path / "whole.onnx")
    assert [flag.node for flag in whole.flags] == (["around"] if size > 1 else [])
    assert (whole.verdict == "infeasible") == (size > 1)
