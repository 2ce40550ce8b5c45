"""Worlds that advance together are as many as `--memory` has room for; what cannot fit is refused before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status
from one_sample import one_sample
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.evaluation.program import program_of
from parityscope.evaluation.room import check_room, live_nbytes, nbytes_of_world, split_worlds
from parityscope.evaluation.worlds import World
from parityscope.expectation import lockstep, metering
from parityscope.expectation.expecting import ErrorQuestion, expect_error
from parityscope.expectation.forecasting import ForecastSettings, forecast
from parityscope.memory import allow_memory, allowed_memory
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parityscope.case import Model

SIDE = 128  # a value of 64 KiB
VALUE = SIDE * SIDE * 4
CHAIN = (
    f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,{SIDE}] x) => (float[N,{SIDE}] y) '
    "{ a = MatMul (x, w)  b = Tanh (a)  c = Add (b, x)  d = Sigmoid (c)  y = MatMul (d, w) }"
)
# 64 Mi elements are made of one, and a gate makes as many again: 512 MiB are held at once.
VAST = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) '
    "{ a = Expand (x, n)  b = Tanh (a)  y = ReduceMean <keepdims = 1> (b) }"
)
X = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
FORMATS = ("tf32", "f16", "bf16")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Model:
    weight = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32) / 11
    return load_model(write_network(tmp_path_factory.mktemp("chain") / "m.onnx", CHAIN, {"w": weight}))


@pytest.fixture
def memory() -> Iterator[Callable[[int], None]]:
    before = allowed_memory()
    yield allow_memory
    allow_memory(before)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many worlds each pass had, those that follow another left out."""
    counted: list[int] = []
    for module in (metering, lockstep):
        plain: Callable[..., Any] = vars(module)["evaluate_worlds"]

        def counting(worlds: Any, *rest: Any, _plain: Callable[..., Any] = plain) -> Any:
            counted.append(sum(not world.follows for world in worlds))
            return _plain(worlds, *rest)

        monkeypatch.setattr(module, "evaluate_worlds", counting)
    return counted


def test_what_is_live_at_once_is_counted(chain: Model) -> None:
    program = program_of(chain)
    # x, a; x, a, b; x, b, c: three at most, of the sizes that the sample has.
    assert nbytes_of_world(chain, program, {"x": X}) == 3 * VALUE
    assert nbytes_of_world(chain, program, {"x": X[:32]}) == 3 * VALUE // 4
    assert live_nbytes(program, {"a": (SIDE, SIDE)}) == VALUE  # what nobody tells counts as nothing


def test_as_many_worlds_as_fit_run_beside_the_first(chain: Model, memory: Callable[[int], None]) -> None:
    program = program_of(chain)
    first, *others = [World(name=str(number), program=program) for number in range(6)]
    for allowed, sizes in ((1, [2] * 5), (3, [3, 3, 2]), (6, [6]), (100, [6])):
        memory(allowed << 20)
        groups = split_worlds(first, [[world] for world in others], 1 << 20)
        assert [len(group) for group in groups] == sizes
        assert all(group[0] is first for group in groups)
        assert [world for group in groups for world in group[1:]] == others
    assert split_worlds(first, [], 1 << 20) == [[first]]


def test_what_is_expected_is_the_same_in_parts(
    chain: Model, memory: Callable[[int], None], together: list[int]
) -> None:
    found = []
    for allowed in (1 << 30, 4 * 3 * VALUE, 1):
        memory(allowed)
        together.clear()
        found.append(
            expect_error(ErrorQuestion(model=chain, inputs=one_sample({"x": X}), samples=(0,), tensors=["c", "y"]))
        )
        assert max(together) == {1 << 30: 6, 4 * 3 * VALUE: 4, 1: 2}[allowed]
    assert found[0].errors["f16"]["y"] > found[0].errors["f32"]["y"] > 0
    assert found[0] == found[1] == found[2]


def test_a_forecast_is_the_same_in_parts(chain: Model, memory: Callable[[int], None], together: list[int]) -> None:
    del memory  # what a forecast may use is put back
    whole, parted = (
        forecast(chain, one_sample({"x": X}), FORMATS, ForecastSettings(memory=allowed)) for allowed in (1 << 30, 1)
    )
    assert {*together} == {4, 2}
    for one, other in zip(whole.formats, parted.formats, strict=True):
        assert one == other
    assert whole.ranges == parted.ranges


def test_what_cannot_fit_is_refused_with_what_it_needs(memory: Callable[[int], None]) -> None:
    memory(512 << 20)
    check_room(256 << 20)
    with pytest.raises(ParityError, match=r"2,048 MiB, more than the 512 MiB of --memory") as refused:
        check_room(1 << 30)
    assert "--memory 2GiB" in refused.value.fix
    memory(2 << 30)
    check_room(1 << 30)


def test_a_command_refuses_it_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], together: list[int], memory: Callable[[int], None]
) -> None:
    del memory
    write_network(tmp_path / "m.onnx", VAST, {"n": np.array([1 << 26])})
    write_npz(tmp_path / "x.npz", {"x": np.ones(1, np.float32)})
    words = ["predict", str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "x.npz"), "--formats", "f16"]
    assert exit_status(*words, "--memory", "64MiB") == 2
    told = capsys.readouterr().err
    assert "the tensors that are held at once take 1,024 MiB, more than the 64 MiB of --memory" in told
    assert "--memory 1GiB" in told
    assert together == []
