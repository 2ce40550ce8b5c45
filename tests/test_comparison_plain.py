"""Statistics as plain data, metrics from outside, and how compiled code is kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import parityscope
from parityscope.comparison import (
    Channels,
    Exact,
    Floats,
    Histogram,
    Metric,
    Moments,
    Scores,
    Sketch,
    Statistics,
    all_metrics,
    measure_all,
    measure_pair,
    merge_statistics,
    to_plain,
)
from parityscope.comparison import metric as registry
from parityscope.errors import ParityError
from parityscope.records import Measurement
from parityscope.workers.packing import pack_record, unpack_record
from strategies import pairs

RECORDS = (Statistics, Floats, Exact, Moments, Histogram, Sketch, Channels, Scores)


def same(one: dict[str, Measurement], other: dict[str, Measurement]) -> bool:
    return repr(one) == repr(other)  # NaN equals NaN in a repr


@settings(deadline=None, max_examples=60)
@given(pairs())
def test_plain_data_are_strict_json_and_packed_statistics_keep_every_metric(
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    reference, candidate = pair
    statistics = measure_pair(reference, candidate, channel_axis=0 if reference.ndim else None)
    json.dumps(to_plain(statistics), allow_nan=False)
    again = unpack_record(pack_record(statistics), RECORDS)
    assert to_plain(again) == to_plain(statistics)
    assert same(measure_all(again), measure_all(statistics))


def test_only_the_worst_channels_are_kept() -> None:
    reference = np.ones((1, 1000, 3), np.float32)
    candidate = reference * (1 + np.arange(1000, dtype=np.float32) / 4096)[None, :, None]
    statistics = measure_pair(reference, candidate, channel_axis=1)
    plain = to_plain(statistics)
    assert [index for index, _ in plain["channels"]["worst"]] == list(range(999, 991, -1))
    assert plain["channels"]["worst"][0][1] == pytest.approx(999 / 4096, rel=1e-12)
    assert plain["channels"]["median"] == pytest.approx(499.5 / 4096, rel=1e-12)
    assert len(json.dumps(plain)) < 8000


def test_exact_and_scores_survive() -> None:
    integers = np.array([1, 2**60], np.int64)
    logits = np.array([[1, 2, 3], [3, 2, 1]], np.float32)
    exact = measure_pair(integers, integers[::-1], channel_axis=None)
    scores = measure_pair(logits, logits[::-1], channel_axis=None, as_scores=True)
    for one in (exact, scores):
        assert same(measure_all(unpack_record(pack_record(one), RECORDS)), measure_all(one))


def test_histograms_in_the_clear() -> None:
    reference = np.array([0, 1, -1, -3, 0.5], np.float32)
    plain = to_plain(measure_pair(reference, reference + np.float32(0.25), channel_axis=None))
    assert plain["reference_values"] == {
        "zero": 1,
        "negative": {"first": 0, "counts": [1, 1]},
        "positive": {"first": -1, "counts": [1, 1]},
    }
    assert plain["error_octaves"] == {"zero": 0, "below": 0, "first": -2, "counts": [5]}


def largest_product() -> Metric:
    def finish(statistics: Statistics) -> Measurement | None:
        value = statistics.states.get("largest_product")
        if value is None:
            return None
        return Measurement(metric="largest_product", value=value, unit="absolute", count=statistics.count)

    def update(state: float, reference: np.ndarray, candidate: np.ndarray) -> float:
        assert reference.dtype == candidate.dtype == np.float64
        assert reference.size <= 32768
        return max(state, float((reference * candidate).max()))

    return Metric(
        name="largest_product",
        unit="absolute",
        better="lower",
        perfect=0.0,
        finish=finish,
        start=lambda: 0.0,
        update=update,
        combine=max,
    )


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Lets a test add a metric as an outside package would: an entry point of the group."""
    yield lambda metric: _install(metric, monkeypatch, tmp_path)
    registry.all_metrics.cache_clear()
    registry.accumulating_metrics.cache_clear()


def _install(metric: Metric, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "outside_metric.py").write_text("METRIC = None\n", encoding="utf-8")
    info = folder / "outside_metric-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-metric\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[parityscope.comparison.metrics]\noutside_metric = outside_metric:METRIC\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(folder))
    import outside_metric  # type: ignore[import-not-found]

    monkeypatch.setattr(outside_metric, "METRIC", metric)
    monkeypatch.delitem(sys.modules, "outside_metric")
    monkeypatch.setitem(sys.modules, "outside_metric", outside_metric)
    registry.all_metrics.cache_clear()
    registry.accumulating_metrics.cache_clear()


def test_a_metric_from_outside_accumulates_and_merges(outside: Any) -> None:
    outside(largest_product())
    reference = np.arange(100_000, dtype=np.float32)
    one = measure_pair(reference, reference, channel_axis=None)
    two = measure_pair(reference[:3], reference[:3], channel_axis=None)
    assert measure_all(merge_statistics(two, one))["largest_product"].value == 99_999.0**2
    assert measure_all(two)["largest_product"].value == 4


def test_an_incomplete_metric_is_refused(outside: Any) -> None:
    outside(Metric(name="half", unit="", better="lower", perfect=0.0, finish=lambda _: None, start=lambda: 0))
    with pytest.raises(ParityError, match="only some of"):
        all_metrics()


def test_names_of_metrics_are_unique_and_documented() -> None:
    ones = np.ones((2, 3), np.float32)
    statistics = measure_pair(ones, ones, channel_axis=1, as_scores=True)
    integers = measure_pair(ones.astype(np.int32), ones.astype(np.int32), channel_axis=None)
    for subject in (statistics, integers):
        names: list[str] = []
        for metric in all_metrics():
            finished = metric.finish(subject)
            parts = finished if isinstance(finished, tuple) else (finished,)
            names += [part.metric for part in parts if part is not None]
        assert len(names) == len(set(names))
    folder = Path(registry.__file__).parent / "metrics"
    for path in folder.glob("[a-z]*.py"):
        assert "known fault" in path.read_text(encoding="utf-8").lower(), path.name


@pytest.mark.story
def test_kernels_work_where_nothing_can_be_written(tmp_path: Path) -> None:
    # A package directory and a user cache that are files in the way: numba then has no place for its cache.
    copy = tmp_path / "site" / "parityscope"
    source = Path(parityscope.__file__).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "evaluation" / "__pycache__").write_text("", encoding="utf-8")
    blocked = tmp_path / "blocked"
    blocked.write_text("", encoding="utf-8")
    code = (
        "import numpy as np, parityscope.compiling; from parityscope.evaluation.rounding import FloatRounding;"
        "assert (FloatRounding('f16')(np.full(3, 1 + 2**-12, np.float32)) == 1).all()"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(blocked),
        "XDG_CACHE_HOME": str(blocked),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.story
def test_a_package_that_others_may_write_to_keeps_its_loops_in_the_user_s_cache_and_says_once_that_it_compiles(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    copy = tmp_path / "site" / "parityscope"
    shutil.copytree(Path(parityscope.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "evaluation").chmod(0o777)
    (tmp_path / "cache").mkdir(mode=0o700)
    code = (
        "import numpy as np, parityscope.loading as l, parityscope.compiling;"
        "from parityscope.evaluation.rounding import FloatRounding; l.when_compiling(lambda: print('compiling'));"
        "[FloatRounding('f16')(np.ones(8, np.float32)) for _ in range(2)]"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def started() -> subprocess.Popen[str]:
        words = [sys.executable, "-c", code]
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    before = os.umask(0o002)
    try:
        said = [one.communicate() for one in [started(), started()]]  # who fill it together
        said.append(started().communicate())
    finally:
        os.umask(before)
    assert ("compiling\n", "") in said[:2]
    assert {*said[:2]} <= {("compiling\n", ""), ("", "")}
    assert said[2] == ("", "")
    assert list((tmp_path / "cache" / "parityscope" / "loops").rglob("*.nbi"))
