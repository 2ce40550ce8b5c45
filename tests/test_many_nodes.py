"""What a network of many nodes costs grows with their number, not with its square: calls and bytes are counted."""

from __future__ import annotations

import cProfile
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from examinations import examination_of
from one_sample import one_sample
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_model
from parityscope.evaluation.program import compile_program, regions_of
from parityscope.records import Policy
from parityscope.study import examine_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDTH = 8
INPUT = {"x": np.linspace(-1, 1, WIDTH, dtype=np.float32).reshape(1, WIDTH)}
# What twice as many nodes may cost more than the first ones did: 2 is linear, 4 is by the square.
GROWTH = 2.5


def layers(number: int, scale: float = 1.0) -> onnx.ModelProto:
    """As many layers of three nodes one behind the other; the middle one's weights are multiplied by `scale`."""
    body = "\n".join(
        f"p{at} = MatMul (h{at}, w{at})\n t{at} = Tanh (p{at})\n h{at + 1} = Add (t{at}, h{at})" for at in range(number)
    )
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,{WIDTH}] x) => (float[1,{WIDTH}] h{number}) {{\n'
        f" h0 = Identity (x)\n {body} }}"
    )
    draw = np.random.default_rng(0)
    for at in range(number):
        weights = draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.float32(number)
        if at == number // 2:
            weights *= np.float32(scale)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, f"w{at}"))
    return model


def calls_of(work: Callable[[], object]) -> int:
    """The functions that Python enters while `work` runs, C's own among them."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def test_an_examination_of_twice_the_nodes_costs_twice_as_much(tmp_path: Path) -> None:
    def examine(number: int) -> int:
        for name, scale in (("m", 1.0), ("other", 1.1)):
            onnx.save(layers(number, scale), tmp_path / f"{name}{number}.onnx")
        model = load_model(tmp_path / f"m{number}.onnx")
        case = Case(name="m", model=model, inputs=one_sample(INPUT), policy=Policy())
        folder = tmp_path / f"study{number}"
        known = examination_of(case, f"ort?model={tmp_path}/other{number}.onnx", folder=folder)
        found = []
        counted = calls_of(lambda: found.append(examine_request(known)))
        assert found[0]["findings"][0]["code"] == "EXP005", number
        return counted

    examine(5)  # what is loaded once
    first, second, third = (examine(number) for number in (15, 30, 60))
    assert third - second <= GROWTH * (second - first)


@pytest.mark.parametrize("seen", ["the last value", "every layer"])
def test_regions_take_bytes_by_the_nodes_that_they_hold(seen: str) -> None:
    def peak(number: int) -> int:
        program = compile_program(ir.from_proto(layers(number)))
        names = [f"h{at}" for at in (range(1, number + 1) if seen == "every layer" else [number])]
        tracemalloc.start()
        try:
            regions = regions_of(program, names)
            found = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sum(len(region.steps) for region in regions.values()) == len(program.steps)
        return found

    assert peak(800) <= GROWTH * GROWTH * peak(200)


CHANCE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  noise = RandomNormalLike <seed = 3.0> (x)
  y = Add (noise, x)
}"""


@pytest.mark.parametrize(("text", "opened"), [("", 1), (CHANCE, 2)])
def test_a_file_is_opened_once_for_all_who_run_it_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, opened: int
) -> None:
    count = 0
    start = ort.InferenceSession.__init__

    def counted(self: Any, source: object, *rest: Any, **named: Any) -> None:
        nonlocal count
        count += source == str(tmp_path / "m.onnx")
        start(self, source, *rest, **named)

    monkeypatch.setattr(ort.InferenceSession, "__init__", counted)
    onnx.save(onnx.parser.parse_model(text) if text else layers(3), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    given = []
    for _ in range(2):
        with open_target(model, parse_target("ort"), Capture()) as session:
            given += session.run(one_sample(INPUT).sample(0)).values()
    assert count == opened
    np.testing.assert_array_equal(given[0], given[1])  # a generator that goes on would give the next number

    onnx.save(layers(3, 2.0), tmp_path / "m.onnx")
    with open_target(load_model(tmp_path / "m.onnx"), parse_target("ort"), Capture()) as session:
        (other,) = session.run(one_sample(INPUT).sample(0)).values()
    assert count == opened + 1
    assert not np.array_equal(other, given[0])
