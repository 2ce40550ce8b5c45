"""What an output decides is read from its shape and values, and told only where they show it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison.decisions import Decided, measure_decisions, merge_decisions
from parityscope.report.as_text import render_first_screen
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRAW = np.random.default_rng(16)


def normal(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def raw_boxes(classes: int, places: int) -> np.ndarray:
    """(1, 4 + classes, places): boxes in pixels, scores."""
    return np.concatenate([DRAW.uniform(0, 640, (1, 4, places)), DRAW.uniform(0, 0.2, (1, classes, places))], axis=1)


@pytest.mark.parametrize(
    ("array", "name", "kind"),
    [
        (softmax(normal(3, 10)), "y", "classes"),
        (np.log(softmax(normal(3, 10))), "y", "classes"),
        (softmax(normal(3, 10)).astype(np.float16), "y", "classes"),
        (softmax(normal(3, 10)).astype(ml_dtypes.bfloat16), "y", "classes"),
        (normal(2, 1000), "output", "classes"),
        (normal(2, 7), "start_logits", "classes"),
        (softmax(normal(1, 40, 97)), "y", "positions"),
        (normal(1, 40, 97), "logits", "positions"),
        (softmax(normal(1, 21, 8, 8), 1), "y", "segments"),
        ((normal(1, 1, 32, 32) > 0.5).astype(np.float32) * 0.97, "y", "mask"),
        (raw_boxes(80, 8400), "output0", "boxes"),
        (np.swapaxes(raw_boxes(81, 8400), 1, 2), "output0", "boxes"),
        (0.125 * np.sign(normal(3, 64)), "y", "embedding"),
        # What looks like one of these, and is none: nothing is said of it.
        (normal(1, 84, 8400), "y", None),  # a detector whose numbers are not in pixels
        (np.concatenate([raw_boxes(1, 8400), normal(1, 32, 8400)], axis=1), "y", None),  # with coefficients of masks
        (normal(3, 512), "y", None),  # an embedding of any length, or scores
        (normal(1, 128, 768), "y", None),  # hidden states
        (normal(2, 4), "boxes", None),
        (softmax(normal(1, 16, 16)), "y", None),  # attention
        (DRAW.uniform(0, 1, (1, 1, 32, 32)).astype(np.float32), "y", None),  # depth
        (np.full((3, 10), 0.1, np.float32), "y", None),  # no class is the best
        (DRAW.uniform(0, 1, (1, 521)).astype(np.float32), "y", None),  # tags, of which many hold
        (np.array([[0.5, 0.5, 0.5, 0.5]], np.float32), "y", None),  # a rotation
        (np.arange(12).reshape(3, 4), "y", None),
        (np.float32(1.0).reshape(()), "y", None),
        (np.full((1, 10), np.nan, np.float32), "logits", None),
    ],
)
def test_the_kind_is_read_from_shape_and_values(array: np.ndarray, name: str, kind: str | None) -> None:
    found = measure_decisions(array, array, name)
    assert (found.kind if found else None) == kind
    if found is not None:
        assert (found.changed, found.new, found.least) == (0, 0, 1.0)


def test_changed_decisions_are_counted() -> None:
    scores = softmax(normal(5, 10))
    turned = scores.copy()
    turned[1] = np.roll(turned[1], 1)
    turned[3, 0] = np.nan  # no best class any more
    assert measure_decisions(scores, turned) == Decided(kind="classes", count=5, changed=2)
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[..., :2] = 1.0
    other = np.roll(mask, 1, axis=3)  # half of the pixels inside are others
    assert measure_decisions(mask, other) == Decided(kind="mask", count=12, changed=8)
    boxes = raw_boxes(3, 200)
    boxes[0, 5, :4] = 0.9
    fewer = boxes.copy()
    fewer[0, 5, 0], fewer[0, 4, 9] = 0.1, 0.8
    assert measure_decisions(boxes, fewer) == Decided(kind="boxes", count=4, changed=1, new=1)
    one = np.eye(32, dtype=np.float32)[:2] * np.array([[1.0], [-1.0]], np.float32)
    found = measure_decisions(one, one + np.eye(32, dtype=np.float32)[2:4])
    assert found is not None
    assert found.least == pytest.approx(2**-0.5)


def test_samples_of_two_kinds_have_none() -> None:
    one, other = Decided(kind="classes", count=2, changed=1), Decided(kind="classes", count=3, changed=0)
    assert merge_decisions(one, other) == Decided(kind="classes", count=5, changed=1)
    assert merge_decisions(one, Decided(kind="mask", count=3, changed=0)) is None
    assert merge_decisions(one, None) is None


def test_a_large_map_is_not_copied_to_see_what_it_is() -> None:
    maps = softmax(normal(1, 32, 256, 256), 1)
    for array in (maps, np.log(maps)):
        tracemalloc.start()
        found = measure_decisions(array, array)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == Decided(kind="segments", count=256 * 256, changed=0)
        assert most < 1.5 * array.nbytes  # what numpy turns to look along an axis


# The last two of ten classes are all but the same, and always the best: rows choose between them by a hair.
_CLASSES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,10] logits) {
  h = MatMul(x, w)
  logits = Add(h, bias)
}"""


def even_classes(gap: float) -> dict[str, np.ndarray]:
    """Weights whose last two classes differ by `gap` of their size, and are far above the others."""
    draw = np.random.default_rng(7)
    weights = draw.normal(size=(64, 10)).astype(np.float32)
    weights[:, 9] = weights[:, 8] + np.float32(gap) * draw.normal(size=64).astype(np.float32)
    return {"w": weights, "bias": np.array([0.0] * 8 + [60.0] * 2, np.float32)}


def every_other_choice(reference: np.ndarray, _: np.ndarray) -> np.ndarray:
    """The choice between the last two classes is the other one, by errors no larger than their gap."""
    turned = reference.copy()
    turned[..., 8:] = reference[..., :7:-1]
    return turned


def last_bits(reference: np.ndarray, _: np.ndarray) -> np.ndarray:
    """What another kernel gives: the next number on either side."""
    aside = np.random.default_rng(8).choice([-np.inf, np.inf], size=reference.shape).astype(np.float32)
    return np.nextafter(reference, aside)


def honest_run(_: np.ndarray, given: np.ndarray) -> np.ndarray:
    return given


def judged(
    tmp_path: Path,
    constants: dict[str, np.ndarray],
    samples: np.ndarray,
    precision: str,
    fault: Callable[[np.ndarray, np.ndarray], np.ndarray] = honest_run,
    text: str = _CLASSES,
) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and first screen of `compare`; the candidate is a recording in `precision`, with a fault."""
    path = write_network(tmp_path / "m.onnx", text, constants)
    model = load_model(path)
    honest = "ort?optimization=disabled" if precision == "f32" else f"sim:{precision}"
    data, recorded = tmp_path / "x", tmp_path / "y"
    data.mkdir()
    recorded.mkdir()
    with (
        open_target(model, parse_target(honest), Capture()) as theirs,
        open_target(model, parse_target("ort"), Capture()) as ours,
    ):
        for index, array in enumerate(samples):
            write_npz(data / f"{index:05}.npz", {"x": array})
            sample = Sample(index=index, name=f"{index}", arrays={"x": array})
            found, right = theirs.run(sample)["logits"], ours.run(sample)["logits"]
            write_npz(recorded / f"{index:05}.npz", {"logits": fault(right, found)})
    line = [str(path), "--inputs", str(data), "--candidate", f"saved?path={recorded}", "--declared", precision]
    study = tmp_path / "s"
    code = exit_status("compare", *line, "--format", "json", "--study", str(study), "--quiet")
    document = read_study(study)
    return code, document, " ".join(render_first_screen(document, width=400).split())


@pytest.mark.parametrize("shape", [(1, 128, 64), (32, 1, 64)], ids=["batch", "rows"])
@pytest.mark.parametrize(("precision", "gap"), [("tf32", 1e-3), ("f16", 2e-3), ("bf16", 2e-2)])
def test_more_changed_decisions_than_of_honest_arithmetic_are_beyond(
    tmp_path: Path, precision: str, gap: float, shape: tuple[int, ...]
) -> None:
    samples = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    code, found, screen = judged(tmp_path, even_classes(gap), samples, precision, every_other_choice)
    output = found["outputs"][0]
    assert (code, output["verdict"]) == (1, "beyond"), output
    assert output["rel_l2"] <= 2 * output["expected"][precision]  # nothing is wrong but the choices
    rows = shape[0] * shape[1]
    assert f"{rows} of {rows} decisions (classes) are others; {precision} rounding alone changes" in output["reason"]
    assert f"{rows} of {rows} decisions of output 'logits' are others" in found["headline"]
    assert f": cannot be used as it is; top-1 of 'logits' changed in {rows} of {rows} rows" in screen


def test_choices_that_only_fp32s_last_bits_decide_are_none(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).normal(size=(1, 128, 64)).astype(np.float32)
    code, found, _ = judged(tmp_path, even_classes(0.0), samples, "f32", last_bits)
    assert 16 < found["outputs"][0]["decisions"]["changed"] < 64  # half of those that do not stay even
    assert code == 0, found["outputs"]
    assert "f32 itself changes" in found["headline"]


@pytest.mark.parametrize("shape", [(1, 128, 64), (32, 1, 64)], ids=["batch", "rows"])
@pytest.mark.parametrize("precision", ["tf32", "f16", "bf16"])
@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4])
def test_honest_arithmetic_is_within_however_many_decisions_it_changes(
    tmp_path: Path, gap: float, precision: str, shape: tuple[int, ...]
) -> None:
    samples = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    code, found, screen = judged(tmp_path, even_classes(gap), samples, precision)
    output = found["outputs"][0]
    assert code == 0, output
    changed = output["decisions"]["changed"]
    assert ("agrees" not in found["headline"]) == (changed > 0.01 * shape[0] * shape[1])
    assert ("can be used" not in screen) == (changed > 0.01 * shape[0] * shape[1])


def test_nobody_reads_that_it_agrees_where_most_decisions_changed(tmp_path: Path) -> None:
    text = _CLASSES.replace("10]", "100]")
    large = {
        "w": np.random.default_rng(3).normal(size=(64, 100)).astype(np.float32) * 1e-3,
        "bias": np.full(100, 100, np.float32),
    }
    samples = np.random.default_rng(4).normal(size=(1, 128, 64)).astype(np.float32)
    code, found, screen = judged(tmp_path, large, samples, "bf16", text=text)
    decided = found["outputs"][0]["decisions"]
    assert code == 0, found["outputs"]
    assert min(decided["changed"], decided["usual_changed"]) > 100
    said = f"{decided['changed']} of 128 decisions of output 'logits' are others (classes), and bf16 itself changes"
    assert found["headline"].startswith(f"The candidate is within what bf16 arithmetic allows, but {said}")
    assert (
        f": within what is allowed, but top-1 of 'logits' changed in {decided['changed']} of 128 rows (BF16" in screen
    )
    assert "record its outputs" not in screen
    asked = "parityscope repair " + screen.split("parityscope repair ")[1].split(" or judge")[0]
    assert asked.endswith("--budget top1_agreement=0.99")
    assert " or judge it on labelled samples by your task's own metric" in screen
    assert exit_status(*asked.split()[1:], "--quiet") in {0, 1, 3}  # 1: all of it would have to be kept


def test_rows_without_a_batch_axis_are_one_row_each(tmp_path: Path) -> None:
    text = _CLASSES.replace("float[N,64]", "float[64]").replace("float[N,10]", "float[10]")
    samples = np.random.default_rng(5).normal(size=(8, 64)).astype(np.float32)
    code, found, screen = judged(tmp_path, even_classes(0.1), samples, "f32", every_other_choice, text=text)
    assert (code, found["outputs"][0]["decisions"]["changed"]) == (1, 8)
    assert "top-1 of 'logits' changed in 8 of 8 rows" in screen
