"""The part of an error that changes from run to run, against error of which that part is known."""

from __future__ import annotations

import numpy as np
import pytest

from parityscope.records import Policy
from parityscope.study.run_variation import part_that_changes
from parityscope.study.sample_tasks import Asking

_SAMPLES = 3


class _Side:
    """What a session gives: the reference, an error that stays of size `bias`, and one that is drawn anew at each run."""

    def __init__(self, bias: float = 0.0, noise: float = 0.0, *, shape: tuple[int, ...] = (4, 16)) -> None:
        self._bias, self._noise, self._shape = bias, noise, shape
        self._draw = np.random.default_rng(7)

    def run(self, sample: int) -> dict[str, np.ndarray]:
        fixed = np.random.default_rng(sample)
        answer = fixed.normal(size=self._shape)
        stays = fixed.normal(size=self._shape) * self._bias
        changes = self._draw.normal(size=self._shape) * self._noise
        right = np.arange(6)
        return {"y": (answer + stays + changes).astype(np.float32), "n": right}


def _part(candidate: object, **shape: tuple[int, ...]) -> float:
    return part_that_changes(range(_SAMPLES), _asking("y", "n"), _Side(**shape), candidate)  # type: ignore[arg-type]


def _asking(*outputs: str) -> Asking:
    return Asking(outputs=outputs, names={}, policy=Policy(declared="f32"), partly=False, kept=frozenset(), rules={})


@pytest.mark.parametrize(
    ("bias", "noise"), [(0.0, 0.1), (0.1, 0.1), (0.3, 0.1), (1.0, 0.1), (0.1, 0.0), (0.0, 30.0), (30.0, 30.0)]
)
def test_the_part_of_the_squared_error_that_changes(bias: float, noise: float) -> None:
    expected = noise**2 / (noise**2 + bias**2)
    # 8 pairs of 64 elements: one standard deviation of the ratio is 1 / sqrt(512) of itself at most.
    assert _part(_Side(bias, noise)) == pytest.approx(expected, abs=4 / np.sqrt(512))


def test_noise_in_one_number_is_seen() -> None:
    assert _part(_Side(0.0, 0.1, shape=(1,)), shape=(1,)) > 0.125


def test_nan_that_comes_and_goes_is_all_of_the_error() -> None:
    class _Blinks(_Side):
        runs = 0

        def run(self, sample: int) -> dict[str, np.ndarray]:
            found = super().run(sample)
            self.runs += 1
            if self.runs % 2:
                found["y"][0, 0] = np.nan
            return found

    class _Stays(_Side):
        def run(self, sample: int) -> dict[str, np.ndarray]:
            found = super().run(sample)
            found["y"][0, 0] = np.nan
            return found

    assert _part(_Blinks()) == 1.0
    assert _part(_Stays(noise=0.1)) == 0.0


def test_an_output_that_is_right_but_for_rounding_does_not_hide_one_that_is_wrong() -> None:
    class _Two(_Side):
        def run(self, sample: int) -> dict[str, np.ndarray]:
            found = super().run(sample)
            return {**found, "z": found["y"] + self._draw.normal(size=found["y"].shape) * 1e-7}

    part = part_that_changes([0], _asking("y", "z"), _Two(), _Two(bias=0.2))  # type: ignore[list-item,arg-type]
    assert part < 1e-3


def test_integers_that_change_count_by_their_share() -> None:
    class _Integers(_Side):
        def run(self, sample: int) -> dict[str, np.ndarray]:
            found = super().run(sample)
            found["n"] = self._draw.integers(0, 6, size=6)
            return found

    assert _part(_Integers()) > 0.125
