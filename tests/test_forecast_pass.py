"""What a forecast measures of a tensor: the whole error beside its parts, on any bits, in any cut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison import measure_replay
from parityscope.expectation.forecasting import ForecastSettings, forecast
from parityscope.expectation.lockstep import Tally
from parityscope.records import Site

if TYPE_CHECKING:
    from pathlib import Path

SITE = Site(tensor="t", node="n", op_type="Mul", index=0)
# Some patterns of every kind beside any bits: zeros of both signs, infinities, NaN, the largest and smallest numbers.
PATTERNS = st.one_of(
    st.sampled_from([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 1, 0x3F800000]),
    st.integers(0, 2**32 - 1),
)


def floats(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


@settings(deadline=None, max_examples=200)
@given(sample=st.lists(st.tuples(PATTERNS, PATTERNS, PATTERNS), max_size=30))
def test_the_whole_error_is_measured_beside_its_parts(sample: list[tuple[int, int, int]]) -> None:
    r, c, f = (floats([each[place] for each in sample]) for place in range(3))
    total = measure_replay(r, c, r, channel_axis=None)
    split = measure_replay(r, c, f, channel_axis=None)
    assert (split.total_max, split.total_index) == (total.introduced_max, total.worst_index)
    tally = Tally(places={"t": SITE}, ranged=True)
    tally.add(["t"], {"t": r}, {"t": c}, {"t": f})
    found = tally.predicted(frozenset())["t"]
    assert found.rel_l2 == pytest.approx(total.introduced, rel=1e-12)
    assert found.rel_l2_finite == pytest.approx(total.introduced_finite, rel=1e-12)
    assert (found.max_abs, found.worst_index, found.nonfinite) == (
        total.introduced_max,
        total.worst_index,
        total.introduced_nonfinite,
    )
    assert (found.introduced, found.inherited) == (split.introduced, split.inherited)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_worst_element_is_found_in_any_cut(threads: int) -> None:
    # Three tensors of 100,000 elements, each of many blocks.
    generator = np.random.default_rng(threads)
    r = generator.normal(size=100_000).astype(np.float32)
    wrong, broken = r.copy(), r.copy()
    wrong[77_777] += 2
    wrong[99_999] += 1
    broken[66_000] = np.nan
    broken[[20_000, 88_000]] = np.inf
    tally = Tally(places=dict.fromkeys("wbs", SITE), ranged=False, threads=threads)
    tally.add("wbs", dict.fromkeys("wbs", r), {"w": wrong, "b": broken, "s": r.copy()}, {})
    found = tally.predicted(frozenset())
    assert [found[name].worst_index for name in "wbs"] == [(77_777,), (20_000,), None]
    assert found["w"].max_abs == float(wrong[77_777]) - float(r[77_777])
    assert found["b"].max_abs == math.inf
    assert found["b"].nonfinite == 3
    assert [found[name].rel_l2 for name in "bs"] == [math.inf, 0.0]


def test_a_tensor_that_changes_its_shape_is_reported_beside_what_was_measured() -> None:
    tally = Tally(places={"t": SITE}, ranged=True)
    good, bad = np.float32([[3, 4]]), np.float32([3, 4, 5])
    tally.add(["t"], {"t": good}, {"t": good + np.float32(1)}, {})
    tally.add(["t"], {"t": good}, {"t": bad}, {})
    assert "shape" in tally.problems["t"]
    found = tally.predicted(frozenset())["t"]
    assert (found.elements, found.max_abs, found.worst_index) == (2, 1.0, (0, 0))
    assert found.rel_l2 == pytest.approx(math.sqrt(2) / 5)


def test_a_typed_model_is_replayed_across_stretches(tmp_path: Path) -> None:
    # float16 values are simulated in float32 and must go back to their own type, from an earlier stretch too.
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[n] x) => (float[n] y) {
        h = Cast<to=10>(x) a = Mul(h, h) b = Neg(a) c = Add(b, h) e = Sub(c, a) y = Cast<to=1>(e) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    write_npz(tmp_path / "x.npz", {"x": np.random.default_rng(1).normal(size=1 << 16).astype(np.float32)})
    model = load_model(tmp_path / "model.onnx")
    inputs = load_inputs(model, str(tmp_path / "x.npz"), spool=tmp_path / "spool")
    apart = forecast(model, inputs, ["bf16"], ForecastSettings(memory=1 << 20))
    together = forecast(model, inputs, ["bf16"], ForecastSettings(memory=1 << 30))
    assert [layer.site.tensor for layer in apart.formats[0].layers] == ["h", "a", "b", "c", "e", "y"]
    assert not apart.skipped
    for one, other in zip(apart.formats[0].layers, together.formats[0].layers, strict=True):
        assert one.introduced is not None
        # Inside one session ONNX Runtime computes float16 in float32; what is taken over has really been float16.
        assert one.rel_l2 == pytest.approx(other.rel_l2, rel=0.1)
