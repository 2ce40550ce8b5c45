"""Task metrics against cases worked out by hand; the working stands in each comment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.errors import ParityError
from parityscope.verification.boxes import component_boxes, count_pairs, overlap_matrix
from parityscope.verification.intervals import take_states
from parityscope.verification.task_metrics import TaskAnswer, chosen_metric, task_metrics
from parityscope.verification.texts import edit_distance
from parityscope.verification.user_metric import user_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Arrays = dict[str, np.ndarray]


def answer(
    outputs: Arrays, reference: Arrays | None = None, labels: Arrays | None = None, name: str = "s"
) -> TaskAnswer:
    return TaskAnswer(name=name, outputs=outputs, reference=outputs if reference is None else reference, labels=labels)


def value(text: str, answers: Sequence[TaskAnswer]) -> float:
    """The pooled number of a metric."""
    chosen = chosen_metric(text)
    return chosen.metric.combine(chosen.metric.score(answers, chosen.options))


def of(array: object, dtype: str = "float32") -> Arrays:
    return {"y": np.array(array, dtype)}


# --- classification


def test_top_1_against_labels_and_against_the_reference() -> None:
    scores = of([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    assert value("top1", [answer(scores, labels={"class": np.array([1, 2])})]) == 0.5
    assert value("top1", [answer(scores, of([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))]) == 1.0
    # Of equal scores the lowest class counts as the larger one, on both sides; a row with a NaN is never right.
    assert value("top1", [answer(of([[0.5, 0.5]]), of([[0.6, 0.5]]))]) == 1.0
    assert value("top1", [answer(of([[math.nan, 0.5]]), of([[0.6, 0.5]]))]) == 0.0
    assert value("top1", [answer(of([[math.nan, 0.5]]), of([[math.nan, 0.5]]))]) == 0.0


def test_top_5_and_top_k_agreement() -> None:
    reference, candidate = of([[8.0, 7, 6, 5, 4, 3, 2]]), of([[1.0, 7, 6, 5, 4, 3, 2]])
    assert value("top5", [answer(candidate, reference)]) == 0.0  # class 0 fell to the seventh place
    assert value("top5", [answer(candidate, reference, {"c": np.array(5)})]) == 1.0
    assert value("topk_agreement", [answer(candidate, reference)]) == 0.8  # {0..4} and {1..5} share four of five
    assert value("topk_agreement?k=2", [answer(candidate, reference)]) == 0.5  # {0, 1} and {1, 2}


def test_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(ParityError, match="not 2 class numbers"):
        value("top1", [answer(of([[0.1, 0.9], [0.9, 0.1]]), labels={"c": np.array([1])})])
    with pytest.raises(ParityError, match="labels hold several arrays"):
        value("top1", [answer(of([[0.1, 0.9]]), labels={"c": np.array([1]), "d": np.array([1])})])
    with pytest.raises(ParityError, match="several outputs"):
        value("top1", [answer({**of([[0.1, 0.9]]), "z": np.ones(1)})])


# --- embeddings


def test_cosine_of_embeddings() -> None:
    assert value("embedding_cosine", [answer(of([[1, 1]]), of([[1, 0]]))]) == pytest.approx(math.sqrt(0.5))
    assert value("embedding_cosine", [answer(of([[0, 0]]), of([[0, 0]]))]) == 1.0
    assert value("embedding_cosine", [answer(of([[0, 0]]), of([[1, 0]]))]) == 0.0
    assert value("embedding_cosine", [answer(of([[math.nan, 0]]), of([[1, 0]]))]) == -1.0


def test_retrieval_recall() -> None:
    # On a circle at 0, 10, 90 and 100 degrees the nearest of each is its neighbour; labels agree but for the last two.
    angles = np.deg2rad([0.0, 10.0, 90.0, 100.0])
    points = [of([[math.cos(one), math.sin(one)]]) for one in angles]
    labels = [{"who": np.array(name)} for name in ("a", "a", "b", "c")]
    assert value("retrieval_recall", [answer(*pair) for pair in zip(points, points, labels, strict=True)]) == 0.5
    # The candidate's third lies at 20 degrees: nearest are 1 (both of 0 and 2), 0 or 2 of 1 (both 10 degrees), 2 of 3.
    moved = [*points[:2], of([[math.cos(np.deg2rad(19.0)), math.sin(np.deg2rad(19.0))]]), points[3]]
    # The reference: 0->1, 1->0, 2->3, 3->2. The candidate: 0->1, 1->2, 2->1, 3->2. Two of four agree.
    assert value("retrieval_recall", [answer(*pair) for pair in zip(moved, points, strict=True)]) == 0.5


# --- segmentation and images


def test_mean_iou() -> None:
    # Class 0: 1 of 2 pixels; class 1: 2 of 3. The mean is 7/12.
    truth, found = of([[[0, 0], [1, 1]]], "int64"), of([[[0, 1], [1, 1]]], "int64")
    assert value("miou", [answer(found, truth)]) == pytest.approx(7 / 12)
    # Pooled over samples: with a second, perfect one of class 1 only, class 1 has 6 of 7.
    ones = of(np.ones((1, 2, 2)), "int64")
    assert value("miou", [answer(found, truth), answer(ones, ones)]) == pytest.approx((1 / 2 + 6 / 7) / 2)
    # A label of 255 is left out: then class 0 has 1 of 1, class 1 has 2 of 2.
    assert value("miou", [answer(found, truth, {"c": np.array([[[0, 255], [1, 1]]])})]) == 1.0
    # Scores with classes on axis 1, one of them NaN: that pixel has no class. Class 0: 1 of 2; class 1: 2 of 2.
    scores = np.zeros((1, 2, 2, 2))
    scores[:, 1] = [[[-1, 1], [1, 1]]]
    scores[0, 0, 0, 1] = math.nan
    assert value("miou", [answer(of(scores), of(truth["y"], "int64"))]) == pytest.approx((1 / 2 + 1) / 2)


def test_psnr() -> None:
    flat = np.full((1, 1, 4, 4), 0.5)
    # An error of 0.1 everywhere: 10 log10(1 / 0.01) = 20 dB. Pooled with a perfect one: 10 log10(1 / 0.005).
    pair = answer({"y": flat + 0.1}, {"y": flat})
    assert value("psnr", [pair]) == pytest.approx(20.0)
    assert value("psnr", [pair, answer({"y": flat})]) == pytest.approx(10 * math.log10(200))
    assert value("psnr", [answer({"y": flat})]) == math.inf
    assert value("psnr", [answer({"y": flat * math.nan}, {"y": flat})]) == -math.inf
    grey = np.full((1, 1, 4, 4), 100, np.uint8)
    assert value("psnr", [answer({"y": grey + np.uint8(51)}, {"y": grey})]) == pytest.approx(20 * math.log10(5))


def test_ssim_of_flat_images_is_the_luminance_term() -> None:
    # Without variance the second factor is 1: (2 * 0.5 * 0.6 + 1e-4) / (0.25 + 0.36 + 1e-4).
    flat = np.full((1, 1, 16, 16), 0.5)
    found = value("ssim", [answer({"y": flat + 0.1}, {"y": flat})])
    assert found == pytest.approx((0.6 + 1e-4) / (0.61 + 1e-4), rel=1e-9)


def test_ssim_of_one_window_is_the_formula() -> None:
    # An image of the window's size has one window: equations 13 to 16 of Wang et al. (2004), written out in two dimensions.
    generator = np.random.default_rng(4)
    x, y = generator.random((2, 11, 11))
    step = np.arange(-5, 6)
    weight = np.exp(-(step[:, None] ** 2 + step[None, :] ** 2) / (2 * 1.5**2))
    weight /= weight.sum()
    mx, my = (weight * x).sum(), (weight * y).sum()
    vx, vy = (weight * (x - mx) ** 2).sum(), (weight * (y - my) ** 2).sum()
    cxy = (weight * (x - mx) * (y - my)).sum()
    c1, c2 = 0.01**2, 0.03**2
    expected = (2 * mx * my + c1) * (2 * cxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    assert value("ssim", [answer({"y": y[None, None]}, {"y": x[None, None]})]) == pytest.approx(expected, rel=1e-9)
    assert value("ssim?layout=nhwc", [answer({"y": y[None, ..., None]}, {"y": x[None, ..., None]})]) == pytest.approx(
        expected, rel=1e-9
    )


# --- language


def test_perplexity() -> None:
    # Four equally likely tokens: 4. Probabilities 1/2 and 1/8 of the right ones: exp((ln 2 + ln 8) / 2) = 4.
    assert value("perplexity", [answer(of(np.zeros((1, 3, 4))), labels={"t": np.array([[1, 2, 3]])})]) == pytest.approx(
        4.0
    )
    logits = np.log(np.array([[[0.5, 0.5, 1e-30], [0.125, 0.5, 0.375]]]))
    assert value("perplexity", [answer(of(logits), labels={"t": np.array([[0, 0]])})]) == pytest.approx(4.0)
    # -100 does not count: the second row alone is 8. shift=1: row 0 should give the second id, token 1: 1 / 0.5.
    assert value("perplexity", [answer(of(logits), labels={"t": np.array([[-100, 0]])})]) == pytest.approx(
        8.0, rel=1e-6
    )
    assert value("perplexity?shift=1", [answer(of(logits), labels={"t": np.array([[2, 1]])})]) == pytest.approx(2.0)
    assert value("perplexity", [answer(of(logits * math.nan), labels={"t": np.array([[0, 0]])})]) == math.inf


@pytest.mark.parametrize(
    ("truth", "text", "count"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2), ("same", "same", 0)],
)
def test_edit_distance(truth: str, text: str, count: int) -> None:
    assert edit_distance(truth, text) == count


def test_error_rates_are_pooled() -> None:
    # 3 edits of 6 characters, 0 of 4: 3/10. Words: 1 of 1, 0 of 1.
    pairs = [
        answer({"y": np.array(["sitting"])}, {"y": np.array(["kitten"])}),
        answer({"y": np.array(["same"])}),
    ]
    assert value("cer", pairs) == pytest.approx(0.3)
    assert value("wer", pairs) == 0.5
    words = answer({"y": np.array(["the cat sat"])}, labels={"text": np.array("the dog sat down")})
    assert value("wer", [words]) == 0.5  # one substitution and one deletion, of four


def test_ctc_is_decoded_greedily(tmp_path: Path) -> None:
    # Steps a a blank a b: "aab" - repetitions merge unless a blank parts them. The right text is "aba": two edits.
    steps = np.eye(3, dtype=np.float32)[[1, 1, 0, 1, 2]][None]
    (tmp_path / "symbols.txt").write_text("a\nb\n", encoding="utf-8")
    chosen = f"cer?charset={tmp_path / 'symbols.txt'}"
    assert value(chosen, [answer(of(steps), labels={"text": np.array("aab")})]) == 0.0
    assert value(chosen, [answer(of(steps), labels={"text": np.array("aba")})]) == pytest.approx(2 / 3)
    assert value("cer", [answer(of(steps), labels={"text": np.array([1, 1, 2])})]) == 0.0
    with pytest.raises(ParityError, match="words cannot be told"):
        value("wer", [answer(of(steps), labels={"text": np.array([1, 1, 2])})])
    assert value("wer?space=2", [answer(of(steps), labels={"text": np.array([1, 1, 2, 1])})]) == 0.5


# --- boxes


def detections(*found: tuple[float, tuple[float, ...]], kind: int = 0) -> Arrays:
    return {
        "boxes": np.array([box for _, box in found], np.float32).reshape(-1, 4),
        "scores": np.array([score for score, _ in found], np.float32),
        "classes": np.full(len(found), kind),
    }


def truths(*boxes: tuple[float, ...], crowd: Sequence[bool] | None = None, kind: int = 0) -> Arrays:
    found: Arrays = {"boxes": np.array(boxes, np.float64), "classes": np.full(len(boxes), kind)}
    return found if crowd is None else {**found, "crowd": np.array(crowd)}


BOX, FAR = (0.0, 0.0, 10.0, 10.0), (50.0, 50.0, 60.0, 60.0)


@pytest.mark.parametrize(
    ("found", "right", "expected"),
    [
        (detections((0.9, BOX)), truths(BOX), 1.0),
        # An overlap of 0.62 counts at 0.50, 0.55 and 0.60 of ten.
        (detections((0.9, (0.0, 0.0, 10.0, 6.2))), truths(BOX), 0.3),
        # One of two found: precision 1 at the recalls 0 to 0.50, 51 of 101.
        (detections((0.9, BOX)), truths(BOX, FAR), 51 / 101),
        # A surer false one first: precision 1/2 at every recall.
        (detections((0.9, FAR), (0.5, BOX)), truths(BOX), 0.5),
        # A false one after changes nothing: full recall was reached before.
        (detections((0.9, BOX), (0.5, FAR)), truths(BOX), 1.0),
        # The same box twice: the second is false, and comes after.
        (detections((0.9, BOX), (0.8, BOX), (0.7, FAR)), truths(BOX, FAR), (51 + 50 * 2 / 3) / 101),
        # A surer detection in a crowd is ignored, neither right nor wrong.
        (detections((0.9, FAR), (0.5, BOX)), truths(BOX, FAR, crowd=[False, True]), 1.0),
        (detections(), truths(BOX), 0.0),
    ],
)
def test_average_precision(found: Arrays, right: Arrays, expected: float) -> None:
    assert value("map", [answer(found, labels=right)]) == pytest.approx(expected)


def test_classes_without_truths_do_not_count_and_images_are_pooled() -> None:
    other = detections((0.9, FAR), kind=7)
    both = {name: np.concatenate([other[name], detections((0.9, BOX))[name]]) for name in other}
    assert value("map", [answer(both, labels=truths(BOX))]) == 1.0
    # Over two images, sorted by score: a false one of 0.8 stands between hits of 0.9 and 0.7: 1 up to recall 0.5, then 2/3.
    first, second = detections((0.9, BOX), (0.8, FAR)), detections((0.7, BOX))
    pooled = value("map", [answer(first, labels=truths(BOX)), answer(second, labels=truths(BOX))])
    assert pooled == pytest.approx((51 + 50 * 2 / 3) / 101)
    # Without labels the reference's sure detections are right: the one of 0.4 is not.
    sure = detections((0.9, BOX), (0.4, FAR))
    assert value("map", [answer(detections((0.9, BOX)), sure)]) == 1.0


def test_overlaps_and_pairs() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 5, 5]], float)
    shares = overlap_matrix(boxes, boxes)
    assert shares[0, 1] == pytest.approx(2 / 6)
    assert shares[2, 2] == 0.0  # an empty box overlaps nothing, not even itself
    # 0.9 takes row 0 and column 0; row 1 then has only column 1, at 0.6.
    assert count_pairs(np.array([[0.9, 0.8], [0.85, 0.6]]), 0.5) == 2
    assert count_pairs(np.array([[0.9, 0.8], [0.85, 0.4]]), 0.5) == 1


def test_connected_parts() -> None:
    mask = np.array(
        [
            [1, 0, 1, 0, 0, 0],
            [1, 1, 1, 0, 0, 1],  # joins the two above
            [0, 0, 0, 1, 0, 1],  # touches by a corner
            [0, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0],
        ],
        bool,
    )
    assert component_boxes(mask, 1).tolist() == [[0, 0, 4, 3], [5, 1, 6, 3], [0, 4, 1, 5]]
    assert component_boxes(mask, 2).tolist() == [[0, 0, 4, 3]]


def test_agreement_of_text_boxes() -> None:
    reference = np.zeros((1, 1, 20, 40), np.float32)
    reference[..., 2:8, 2:12] = 0.9
    reference[..., 12:18, 20:36] = 0.31
    candidate = reference.copy()
    candidate[..., 12:18, 20:36] = 0.29  # below the threshold of 0.3
    # One pair of two and one boxes: 2 * 1 / 3.
    assert value("text_boxes", [answer(of(candidate), of(reference))]) == pytest.approx(2 / 3)
    assert value("text_boxes?threshold=0.2", [answer(of(candidate), of(reference))]) == 1.0
    assert value("text_boxes", [answer(of(reference * 0))]) == 1.0
    assert value("text_boxes", [answer(of(reference * math.nan), of(reference))]) == 0.0
    labels = {"boxes": np.array([[2, 2, 12, 8]])}
    assert value("text_boxes", [answer(of(candidate), of(reference), labels)]) == 1.0


# --- what every metric keeps


CASES: Mapping[str, Arrays] = {
    "map": detections((0.9, BOX), (0.8, FAR)),
    "cer": {"y": np.array(["text"])},
    "wer": {"y": np.array(["some text"])},
    "ssim": of(np.random.default_rng(0).random((1, 1, 12, 12))),
    "psnr": of(np.random.default_rng(0).random((1, 1, 12, 12))),
    "miou": of(np.arange(9).reshape(1, 3, 3) % 2, "int64"),
    "text_boxes": of(np.pad(np.ones((1, 1, 5, 5)), ((0, 0), (0, 0), (3, 3), (3, 3)))),
    "perplexity": of(np.log(np.array([[[0.25, 0.75]]]))),
}
PERFECT = {"cer": 0.0, "wer": 0.0, "psnr": math.inf, "perplexity": 4 / 3}  # 1 / 0.75 of the reference's own choice


@pytest.mark.parametrize("name", sorted(task_metrics()))
def test_the_reference_itself_is_perfect_and_samples_can_be_drawn(name: str) -> None:
    generator = np.random.default_rng(1)
    answers = [answer(CASES.get(name, of(generator.normal(size=(1, 6)))), name=str(index)) for index in range(4)]
    metric = chosen_metric(name).metric
    states = metric.score(answers, {})
    assert len(states) == 4
    assert metric.combine(states) == pytest.approx(PERFECT.get(name, 1.0))
    assert metric.combine(take_states(states, np.array([0, 0, 3]))) == pytest.approx(PERFECT.get(name, 1.0))
    assert metric.better == ("lower" if name in {"cer", "wer", "perplexity"} else "higher")


# --- functions of the user's


def test_shapes_that_differ_are_judged_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def mean(outputs, labels):\n    assert labels is None\n    return outputs['y'].mean()\n", encoding="utf-8"
    )
    metric = user_metric(f"{tmp_path}/own.py:mean").metric
    states = metric.score([answer(of(np.ones((1, 2)))), answer(of(np.zeros((1, 3))))], {})
    assert list(states) == [1.0, 0.0]
    assert metric.combine(states) == 0.5


def test_rows_of_a_batch_are_averaged(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def first(outputs, labels):\n    return outputs['y'][:, 0]\n", encoding="utf-8")
    metric = user_metric(f"{tmp_path}/own.py:first").metric
    states = metric.score([answer(of([[1, 0], [2, 0]])), answer(of([[5, 0], [7, 0]]))], {})
    assert list(states) == [1.5, 6.0]


def test_a_number_of_all_samples_is_computed_again_on_draws(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def spread(outputs, labels):\n    return outputs['y'].max() - labels['low'].min()\n", encoding="utf-8"
    )
    metric = user_metric(f"{tmp_path}/own.py:spread").metric
    answers = [answer(of([[index]]), labels={"low": np.array(-index)}) for index in range(3)]
    states = metric.score(answers, {})
    assert not metric.single
    assert metric.combine(states) == 4.0
    assert metric.combine(take_states(states, np.array([0, 1, 1]))) == 2.0


def test_another_number_of_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def odd(outputs, labels):\n    return [1.0, 2.0, 3.0]\n", encoding="utf-8")
    metric = user_metric(f"{tmp_path}/own.py:odd").metric
    with pytest.raises(ParityError, match="gave 3 values for 2 samples"):
        metric.score([answer(of([[1]])), answer(of([[2]]))], {})
