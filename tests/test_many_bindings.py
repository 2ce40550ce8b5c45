"""Many inputs of one shape bound in any order: by asking the candidate, by sorted lists, by a model of single exchanges."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.checks.misreading.orders import likely_orders, search_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Outputs = Callable[[Mapping[str, str]], np.ndarray]

COUNT = 12
NAMES = [f"in{number}" for number in range(COUNT)]

PROGRAM = """
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

source, sink = map(Path, sys.argv[1:])
data = np.load(source / "000000.npz")
session = ort.InferenceSession("MODEL")
order = ORDER
feeds = {value.name: data[name] for value, name in zip(session.get_inputs(), order)}
(y,) = session.run(None, feeds)
np.savez(sink / "000000.npz", y=y)
"""


def test_twelve_inputs_all_exchanged_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # y = tanh(sum of in_k W_k): 12! = 479,001,600 orders.
    numbers = np.random.default_rng(9)
    lines, last = [], ""
    for name in NAMES:
        lines.append(f"p_{name} = MatMul({name}, w_{name})")
        lines.append(f"s_{name} = Add({last}, p_{name})" if last else f"s_{name} = Identity(p_{name})")
        last = f"s_{name}"
    inputs = ", ".join(f"float[1,16] {name}" for name in NAMES)
    body = "\n".join([*lines, f"y = Tanh({last})"])
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[1,32] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for name in NAMES:
        w = (numbers.normal(size=(16, 32)) / 16).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, f"w_{name}"))
    onnx.save(model, tmp_path / "m.onnx")
    write_npz(tmp_path / "x.npz", {name: numbers.normal(size=(1, 16)).astype(np.float32) for name in NAMES})
    given_in = [NAMES[(5 * place + 3) % COUNT] for place in range(COUNT)]
    program = tmp_path / "infer.py"
    program.write_text(
        PROGRAM.replace("MODEL", str(tmp_path / "m.onnx")).replace("ORDER", repr(given_in)), encoding="utf-8"
    )
    line = ["diagnose", str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "x.npz"), "--format", "json", "--quiet"]
    line += ["--candidate", f"command?run={sys.executable} {program}", "--study", str(tmp_path / "study")]
    assert exit_status(*line) == 1
    first = json.loads(capfd.readouterr().out)["findings"][0]
    assert (first["code"], first["role"]) == ("BND001", "cause")
    assert first["details"]["given"] == given_in


@pytest.mark.parametrize(
    "wrong", [sorted(NAMES), list(reversed(NAMES)), [*NAMES[1:], NAMES[0]]], ids=["sorted", "reversed", "rotated"]
)
def test_the_orders_of_lists_come_first(wrong: list[str]) -> None:
    planted = {name: whose for name, whose in zip(NAMES, wrong, strict=True) if name != whose}
    runs: list[Mapping[str, str]] = []

    def attempt(order: Mapping[str, str]) -> tuple[float, bool]:
        runs.append(order)
        return 1.0, dict(order) == planted  # an error that tells nothing

    assert search_order([NAMES], attempt, 1.0) == planted
    assert len(runs) <= 12  # six lists and their inverses


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(7)), st.integers(0, 2**16))
def test_additive_effects_give_their_order_away(order: list[int], seed: int) -> None:
    # Effects of independent random data add up to one order only; exchanges of two find it from two hundred starts.
    numbers = np.random.default_rng(seed)
    effects = numbers.normal(size=(7, 7, 64))
    effects[np.arange(7), np.arange(7)] = 0.0
    wanted = sum(effects[place, whose] for place, whose in enumerate(order))
    found = list(likely_orders(effects, np.asarray(wanted), np.ones((7, 7), np.bool_), 1))
    assert found == ([tuple(order)] if order != sorted(order) else found)


def test_only_what_may_be_exchanged_is() -> None:
    effects = np.zeros((4, 4, 2))
    effects[0, 1] = effects[1, 0] = [1.0, 0.0]
    effects[0, 2] = effects[2, 0] = [0.0, 9.0]
    allowed = np.eye(4, dtype=np.bool_)
    allowed[0, 1] = allowed[1, 0] = allowed[2, 3] = allowed[3, 2] = True
    for order in likely_orders(effects, np.array([2.0, 9.0]), allowed, 9):
        assert {order[0], order[1]} == {0, 1}


@pytest.mark.parametrize("size", [3, 4, 5])
def test_rings_behind_a_nonlinear_sum_are_found(size: int) -> None:
    # sin(sum of tanh(in_k W_k)) of eight inputs: no exchange of a ring need bring the outputs nearer, and no effects add up.
    numbers = np.random.default_rng(size)
    names = NAMES[:8]
    found = 0
    for _ in range(5):
        weights, data = numbers.normal(size=(8, 24, 30)) / 5, numbers.normal(size=(3, 8, 24))
        parts = np.tanh(np.einsum("sjk,ikm->sijm", data, weights))  # sample, place, whose data, output

        def outputs(order: Mapping[str, str], parts: np.ndarray = parts) -> np.ndarray:
            whose = [names.index(order.get(name, name)) for name in names]
            return np.asarray(np.sin(parts[:, np.arange(8), whose].sum(axis=1)).ravel())

        ring = [names[place] for place in numbers.permutation(8)[:size]]
        planted = {name: ring[(place + 1) % size] for place, name in enumerate(ring)}
        wanted = outputs(planted)

        def seen(order: Mapping[str, str], outputs: Outputs = outputs, wanted: np.ndarray = wanted) -> np.ndarray:
            return np.asarray(outputs(order) - wanted)

        def attempt(order: Mapping[str, str], seen: Outputs = seen) -> tuple[float, bool]:
            left = float(np.linalg.norm(seen(order)))
            return left, left < 1e-9

        start = float(np.linalg.norm(outputs({}) - wanted))
        found += search_order([names], attempt, start, seen, 5000) == planted
    assert found == 5
