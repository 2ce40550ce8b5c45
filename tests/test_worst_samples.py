"""Which samples are worst, and what they have in common: told where it is so, and not where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parityscope
from command_line import exit_status, read_study
from parityscope.case import Sample
from parityscope.study.worst import common_traits, fisher_chance, traits_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x, int64[1, 3] k) => (float[1, 4] y) {
    e = Exp(x)
    f = Cast<to = 1>(k)
    s = ReduceSum<keepdims = 0>(f)
    z = Mul(s, zero)
    y = Add(e, z)
}"""


def found_about(folder: Path, x: np.ndarray, k: np.ndarray, **columns: list[Any]) -> dict[str, Any] | None:
    """What `compare` tells of the worst of these samples in FP16, where exp(x) above 11 overflows."""
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0), "zero"))
    onnx.save(model, folder / "m.onnx")
    arrays = {"x": pa.array(x.tolist(), pa.list_(pa.float32())), "k": pa.array(k.tolist(), pa.list_(pa.int64()))}
    pq.write_table(pa.table({**arrays, **columns}), folder / "rows.parquet")
    words = ["compare", str(folder / "m.onnx"), "--candidate", "sim:f16", "--inputs", str(folder / "rows.parquet")]
    assert exit_status(*words, "--quiet", "--study", str(folder / "study")) == 1
    document = read_study(folder / "study")
    return next((one for one in document["findings"] if one["code"] == "WORST"), None)


def samples(count: int = 120) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    generator = np.random.default_rng(3)
    return generator.random((count, 4)).astype(np.float32), generator.integers(0, 5, (count, 3)), generator


def test_a_range_a_class_and_a_rare_value_are_found(tmp_path: Path) -> None:
    x, k, generator = samples()
    bad = generator.choice(120, 6, replace=False)
    x[bad, 2] = 12
    k[bad, 1] = 77
    kinds = ["night" if index in bad else ("day", "dusk")[index % 2] for index in range(120)]
    found = found_about(tmp_path, x, k, kind=kinds)
    assert found is not None
    assert sorted(found["details"]["samples"]) == sorted(bad.tolist())
    assert "6 of 120 samples are far worse than the others" in found["claim"]
    # All say the same of the same samples, and one is told.
    assert "(6 of 6, of 114 others 0)" in found["claim"]
    assert any(
        word in found["claim"] for word in ("'k' holds 77", "'kind' is night", "the largest of 'x' is at least 12")
    )


@pytest.mark.story
def test_of_many_samples_the_document_names_the_worst_and_a_file_holds_all(tmp_path: Path) -> None:
    x, k, generator = samples(1100)
    bad = sorted(generator.choice(1100, 60, replace=False).tolist())
    x[bad, 2] = 12
    assert found_about(tmp_path, x, k) is not None
    (output,) = read_study(tmp_path / "study")["outputs"]
    told = output["per_sample_summary"]
    assert output["per_sample"] == []
    assert [one["index"] for one in told["worst"]] == bad[:20]  # all infinite, in the order of the data
    assert {one["error"] for one in told["worst"]} == {"Infinity"}
    with np.load(tmp_path / "study" / told["file"]) as columns:
        index, error = columns[told["index"]], columns[told["error"]]
    assert index.tolist() == list(range(1100))
    assert np.flatnonzero(np.isinf(error)).tolist() == bad
    assert told["percentiles"]["100"] == "Infinity"
    assert told["percentiles"]["50"] == np.sort(error)[round(0.5 * 1099)]
    page = (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    assert "(median)" in page
    # A program keeps no folder, and has all of them in the document.
    rows = [{"x": x[one : one + 1], "k": k[one : one + 1]} for one in range(1100)]
    (output,) = parityscope.compare(tmp_path / "m.onnx", candidate="sim:f16", inputs=rows).document["outputs"]
    assert "per_sample_summary" not in output
    assert [place for place, one in enumerate(output["per_sample"]) if one == "Infinity"] == bad


def common(worst: list[Sample], others: list[Sample]) -> list[str]:
    return [one.words for one in common_traits(list(map(traits_of, worst)), list(map(traits_of, others)))]


def drawn(name: str = "a", x: float = 1.0, k: int = 1, width: int = 4, **truths: Any) -> Sample:
    arrays = {"x": np.full((1, width), x, np.float32), "k": np.array([[k, 0]])}
    return Sample(index=0, name=name, arrays=arrays, truths={name: np.array(one) for name, one in truths.items()})


OTHERS = [
    drawn(name=f"{one} of {'pq'[one % 2]}.tar", x=one / 100, k=one % 7, kind=("day", "dusk")[one % 2])
    for one in range(100)
]


@pytest.mark.parametrize(
    ("worst", "expected"),
    [
        ([drawn(name=f"{one} of p.tar", x=2 + one, k=2) for one in range(5)], ["the largest of 'x' is at least 2"]),
        ([drawn(name=f"{one} of p.tar", x=one / 5, k=77) for one in range(5)], ["'k' holds 77"]),
        ([drawn(name=f"{one} of p.tar", x=one / 5, kind="night") for one in range(5)], ["'kind' is night"]),
        ([drawn(name=f"{one} of r.tar", x=one / 5) for one in range(5)], ["it is from r.tar"]),
        ([drawn(name=f"{one} of p.tar", x=one / 5, width=9) for one in range(5)], ["'x' is 1 x 9"]),
        ([drawn(name=f"{one} of {'pq'[one % 2]}.tar", x=one / 5, k=one, kind="day") for one in range(5)], []),
        ([drawn(name=f"{one} of p.tar", kind="night") for one in range(2)], []),  # of two nothing is sure
    ],
)
def test_what_tells_the_worst_from_the_others_is_found(worst: list[Sample], expected: list[str]) -> None:
    assert [words for words in common(worst, OTHERS) if words in expected] == expected
    if not expected:
        assert common(worst, OTHERS) == []


@pytest.mark.parametrize(("inside", "worst", "outside", "others"), [(6, 6, 0, 114), (5, 6, 20, 114), (1, 6, 40, 80)])
def test_the_chance_is_fishers(inside: int, worst: int, outside: int, others: int) -> None:
    from scipy.stats import fisher_exact  # a second that every process would take to collect this file

    exact = fisher_exact([[inside, worst - inside], [outside, others - outside]], alternative="greater").pvalue
    assert fisher_chance(inside, worst, outside, others) == pytest.approx(exact)
