"""Wrong preprocessing is named from outputs alone, from one or two steps; clean deployments are not blamed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from command_line import exit_status, read_study
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks.input_fit import fit_inputs
from parityscope.checks.preprocessing.images import image_of, image_steps
from parityscope.checks.preprocessing.normalizations import likely_normalizations
from parityscope.checks.preprocessing.repairing import repair_details
from parityscope.checks.preprocessing.searching import PreprocessingQuestion, search_preprocessing
from parityscope.checks.preprocessing.steps import apply_steps, describe_steps
from parityscope.checks.preprocessing.tokens import token_steps, tokens_of
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.records import Finding
from parityscope.repairs.preprocess_in_code import ADVICE
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from parityscope.checks.preprocessing.searching import SearchResult

    Arrays = dict[str, np.ndarray]
    Run = Callable[[Arrays], Arrays]

SIZE = 20
MEAN = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1)
DEVIATION = np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1)
BASES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "unit": lambda raw: raw,
    "bytes": lambda raw: raw * 255.0,
    "half": lambda raw: (raw - 0.5) / 0.5,
    "imagenet": lambda raw: (raw - MEAN) / DEVIATION,
}
# What FP32 in another order may do to a small network: some roundings.
BOUND = 100.0 * FLOAT32_ROUNDING


def run_of(model: onnx.ModelProto, folder: Path) -> Run:
    onnx.save(model, folder / "model.onnx")
    return open_session(load_model(folder / "model.onnx").graph())


def network(last: str = "nchw") -> onnx.ModelProto:
    """Two convolutions and a product with random weights: no symmetry of the image or of its channels is kept."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(size=(8, 3, 3, 3)) / 5,
        "b1": rng.normal(size=8),
        "w2": rng.normal(size=(8, 8, 3, 3)) / 8,
        "b2": rng.normal(size=8),
        "v": rng.normal(size=(8 * (SIZE // 4) ** 2, 20)) / 14,
    }
    first = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if last == "nhwc" else []
    nodes = [
        *first,
        helper.make_node("Conv", ["t" if first else "x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Tanh", ["a"], ["r"]) if last == "tanh" else helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    shape = [1, SIZE, SIZE, 3] if last == "nhwc" else [1, 3, SIZE, SIZE]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 20])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(network(), tmp_path_factory.mktemp("net"))


def raws(count: int = 2) -> list[np.ndarray]:
    """Images in [0, 1] on levels of 1/255, each channel with its own distribution."""
    rng = np.random.default_rng(5)
    levels = [rng.integers(0, 256, size=(1, 3, SIZE, SIZE)) for _ in range(count)]
    return [level / 255.0 * np.array([1.0, 0.8, 0.6]).reshape(3, 1, 1) // (1 / 255) / 255 for level in levels]


def prepared(base: str, count: int = 2) -> list[Arrays]:
    return [{"x": BASES[base](raw).astype(np.float32)} for raw in raws(count)]


def asked(run: Run, samples: Sequence[Arrays], given: Sequence[Arrays], runs: int = 400) -> SearchResult:
    """The search for what made `given` of `samples`."""
    question = PreprocessingQuestion(
        samples=samples,
        candidate=[run(dict(one)) for one in given],
        run=lambda inputs: unless_refused(run, dict(inputs)),
        bounds=dict.fromkeys(run(dict(samples[0])), BOUND),
        runs=runs,
    )
    image = image_of("x", samples[0]["x"]) if "x" in samples[0] else None
    tokens = tokens_of(samples[0])
    steps = image_steps(image, samples) if image else token_steps(tokens, samples) if tokens else []
    return search_preprocessing(question, steps)


def unless_refused(run: Run, inputs: dict[str, np.ndarray]) -> Arrays | None:
    try:
        return run(inputs)
    except ParityError:
        return None


@pytest.mark.parametrize("base", sorted(BASES))
def test_the_normalization_of_the_reference_is_read_from_its_inputs(base: str) -> None:
    assert likely_normalizations([sample["x"] for sample in prepared(base)], 1)[0].key == base


@pytest.mark.parametrize("base", sorted(BASES))
def test_every_single_step_is_found(run: Run, base: str) -> None:
    samples = prepared(base)
    image = image_of("x", samples[0]["x"])
    assert image is not None
    planted = 0
    for step in image_steps(image, samples):
        given = [apply_steps((step,), sample) for sample in samples]
        arrays = [one["x"] for one in given if one is not None]
        if np.allclose(arrays[0], samples[0]["x"], atol=1e-5) or min(map(np.ptp, arrays)) == 0.0:
            continue  # it does nothing to these images, or leaves nothing of them
        found = asked(run, samples, [{"x": array} for array in arrays])
        assert found.best is not None, step.key
        assert len(found.best.steps) == 1, (step.key, describe_steps(found.best.steps))
        again = apply_steps(found.best.steps, samples[1])
        assert again is not None
        scale = float(np.abs(arrays[1]).max())
        # Steps of two names may make the same array; the array has to be right.
        np.testing.assert_allclose(again["x"], arrays[1], atol=1e-5 * scale, err_msg=step.key)
        planted += 1
    assert planted >= 15


PLANTED: tuple[tuple[str, Callable[[np.ndarray], np.ndarray], str], ...] = (
    ("unit", lambda raw: raw * 255.0, "does not divide by 255"),
    ("unit", lambda raw: raw / 255.0, "divides by 255 twice"),
    ("unit", lambda raw: raw[:, ::-1], "exchanges channels 0 and 2 (BGR for RGB)"),
    ("unit", lambda raw: raw[..., ::-1], "mirrors the image left to right"),
    ("unit", lambda raw: raw[:, :, ::-1], "turns the image upside down"),
    ("unit", lambda raw: raw.swapaxes(2, 3), "exchanges height and width"),
    ("unit", lambda raw: raw.transpose(0, 2, 3, 1).copy().reshape(raw.shape), "memory of an NHWC array"),
    ("unit", lambda raw: 2.0 * raw - 1.0, "normalises with mean 0.5 and deviation 0.5"),
    ("unit", lambda raw: raw - 0.5, "normalises with mean 0.5,"),
    ("unit", lambda raw: (raw - MEAN) / DEVIATION, "normalises with ImageNet's mean and deviation"),
    ("unit", lambda raw: 1.0 - raw, "inverts the image"),
    ("bytes", lambda raw: raw, "divides by 255, which the model does not expect"),
    ("imagenet", lambda raw: raw, "does not normalise (ImageNet's"),
    ("imagenet", lambda raw: raw * 255.0, "neither divides by 255 nor normalises"),
    ("imagenet", lambda raw: (raw * 255.0 - MEAN) / DEVIATION, "does not divide by 255 before it normalises"),
    ("imagenet", lambda raw: (raw * 255.0 - MEAN) / DEVIATION / 255.0, "before it divides by 255"),
    ("imagenet", lambda raw: (raw - MEAN[::-1]) / DEVIATION[::-1], "in the reversed order of channels"),
    ("imagenet", lambda raw: (raw[:, ::-1] - MEAN) / DEVIATION, "before it normalises"),
    ("imagenet", lambda raw: raw - MEAN, "does not divide by the deviation"),
    ("imagenet", lambda raw: raw / DEVIATION, "does not subtract the mean"),
    ("imagenet", lambda raw: (raw - 0.5) / 0.5, "mean 0.5 and deviation 0.5 instead of ImageNet's"),
    ("imagenet", lambda raw: np.clip((raw - MEAN) / DEVIATION, 0, 1), "clips the prepared input to [0, 1]"),
    ("half", lambda raw: raw, "does not normalise (mean 0.5"),
    ("half", lambda raw: (raw - MEAN) / DEVIATION, "ImageNet's mean and deviation instead of mean 0.5"),
    ("half", lambda raw: (raw * 255.0 - 127.5) / 128.0, "mean 127.5 and deviation 128"),
    ("half", lambda raw: 2.0 * raw / 255.0 - 1.0, "divides by 255 twice before it normalises (mean 0.5"),
    ("imagenet", lambda raw: (raw / 255.0 - MEAN) / DEVIATION, "divides by 255 twice before it normalises (ImageNet's"),
)


@pytest.mark.parametrize(("base", "wrong", "words"), PLANTED)
def test_what_programs_do_wrong_is_named(
    run: Run, base: str, wrong: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    given = [{"x": np.ascontiguousarray(wrong(raw), np.float32)} for raw in raws()]
    found = asked(run, prepared(base), given)
    assert found.best is not None
    assert words in f"{describe_steps(found.best.steps)}, "
    assert len(found.best.steps) == 1


TWICE: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("unit", lambda raw: raw[:, ::-1] * 255.0),
    ("unit", lambda raw: (raw * 255.0).transpose(0, 2, 3, 1).copy().reshape(raw.shape)),
    ("unit", lambda raw: (raw[:, ::-1] - MEAN) / DEVIATION),
    ("unit", lambda raw: 2.0 * raw[..., ::-1] - 1.0),
    ("bytes", lambda raw: raw[:, ::-1]),
    ("imagenet", lambda raw: raw[:, ::-1]),
    ("imagenet", lambda raw: (raw[:, ::-1] * 255.0 - MEAN) / DEVIATION),
    ("imagenet", lambda raw: 2.0 * raw.swapaxes(2, 3) - 1.0),
    ("half", lambda raw: raw[:, ::-1] * 255.0),
    ("half", lambda raw: raw.transpose(0, 2, 3, 1).copy().reshape(raw.shape)),
)


@pytest.mark.parametrize(("base", "wrong"), TWICE)
def test_two_steps_are_found(run: Run, base: str, wrong: Callable[[np.ndarray], np.ndarray]) -> None:
    given = [{"x": np.ascontiguousarray(wrong(raw), np.float32)} for raw in raws()]
    samples = prepared(base)
    found = asked(run, samples, given)
    assert found.best is not None, found
    again = apply_steps(found.best.steps, samples[1])
    assert again is not None
    np.testing.assert_allclose(again["x"], given[1]["x"], atol=1e-5 * float(np.abs(given[1]["x"]).max()))
    assert found.runs <= 400


@pytest.mark.parametrize(("base", "wrong", "words"), PLANTED[:3] + PLANTED[12:15])
def test_steps_are_found_behind_the_declared_arithmetic(
    run: Run, base: str, wrong: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    # BF16 keeps 8 bits, so each output is off by up to 2^-9; some such errors add up to 1 %, which is what is declared.
    samples, rng = prepared(base), np.random.default_rng(2)
    answers = [run({"x": np.ascontiguousarray(wrong(raw), np.float32)})["y"] for raw in raws()]
    noisy = [{"y": (y * (1 + 0.01 * rng.standard_normal(y.shape))).astype(np.float32)} for y in answers]
    image = image_of("x", samples[0]["x"])
    assert image is not None
    question = PreprocessingQuestion(
        samples=samples, candidate=noisy, run=lambda x: run(dict(x)), bounds={"y": 0.02}, runs=400
    )
    found = search_preprocessing(question, image_steps(image, samples))
    assert found.best is not None
    assert found.exact
    assert words in describe_steps(found.best.steps)


def test_what_is_within_needs_no_cause(run: Run) -> None:
    samples = prepared("unit")
    assert asked(run, samples, samples).best is None


def test_a_step_that_only_one_sample_shows_is_no_cause(run: Run) -> None:
    samples = prepared("unit")
    assert asked(run, samples, [samples[0], {"x": samples[1]["x"] * np.float32(255)}]).best is None


@pytest.mark.parametrize("base", sorted(BASES))
def test_the_repair_gives_what_the_model_expects(base: str) -> None:
    sample = prepared(base)[0]
    image = image_of("x", sample["x"])
    assert image is not None
    written = 0
    for step in image_steps(image, [sample]):
        given_ = apply_steps((step,), sample)
        details = repair_details((step,), sample)
        if given_ is None or not details:
            continue
        code = ADVICE.write(
            Finding(
                code="PRE001", title="", role="cause", claim="", confidence=1.0, confidence_from="", details=details
            )
        )
        if code is None:
            continue
        names: dict[str, Any] = {}
        exec(code, names)  # noqa: S102 - the repair's own code, which is what is tested
        # Six digits are written of each number: errors of up to 2e-6 of the largest that was subtracted.
        size = max(map(abs, (*details["subtract"], 1.0))) / min(map(abs, details["divide"]))
        expected = sample["x"]
        np.testing.assert_allclose(
            names["preprocess"](given_["x"]), expected, atol=1e-5 * max(size, np.abs(expected).max())
        )
        written += 1
    assert written >= 8


def test_channels_last(tmp_path: Path) -> None:
    run = run_of(network("nhwc"), tmp_path)
    samples = [{"x": np.ascontiguousarray(one["x"].transpose(0, 2, 3, 1))} for one in prepared("unit")]
    swapped = asked(run, samples, [{"x": np.ascontiguousarray(one["x"][..., ::-1])} for one in samples])
    assert swapped.best is not None
    assert "exchanges channels 0 and 2" in describe_steps(swapped.best.steps)
    memory = asked(
        run, samples, [{"x": one["x"].transpose(0, 3, 1, 2).copy().reshape(one["x"].shape)} for one in samples]
    )
    assert memory.best is not None
    assert "memory of an NCHW array" in describe_steps(memory.best.steps)


def test_what_is_no_transformation_is_not_blamed(run: Run) -> None:
    samples, rng = prepared("imagenet"), np.random.default_rng(8)
    # Other images, noise, half a buffer, zeros, and the other sample's answer.
    wrongs: list[list[Arrays]] = [
        [{"x": rng.normal(size=one["x"].shape).astype(np.float32)} for one in samples],
        [{"x": (one["x"] + rng.normal(size=one["x"].shape)).astype(np.float32)} for one in samples],
        [{"x": np.concatenate([one["x"][:, :, :10], 0 * one["x"][:, :, 10:]], 2)} for one in samples],
        [{"x": np.zeros_like(one["x"])} for one in samples],
        samples[::-1],
    ]
    for given_ in wrongs:
        assert asked(run, samples, given_).best is None


def test_one_number_can_be_met_by_accident() -> None:
    # A model with one output and one sample: among a hundred trials some come within a hundredth of any answer.
    samples = prepared("unit", 1)
    weights = np.random.default_rng(9).normal(size=samples[0]["x"].shape)

    def one(inputs: Arrays) -> Arrays:
        return {"y": np.array([(inputs["x"] * weights).sum()], np.float32)}

    image = image_of("x", samples[0]["x"])
    assert image is not None
    steps = image_steps(image, samples)
    near = apply_steps((steps[2],), samples[0])
    assert near is not None
    answer = [{"y": one(dict(near))["y"] * np.float32(1.001)}]
    question = PreprocessingQuestion(
        samples=samples, candidate=answer, run=lambda x: one(dict(x)), bounds={"y": BOUND}, runs=400
    )
    assert search_preprocessing(question, steps).best is None


def test_channels_are_exchanged_before_memory_is_laid_out(run: Run) -> None:
    # Of the two orders only this one is what a program does: the picture is BGR, and its NHWC memory is handed over.
    samples = prepared("half")
    given_ = [{"x": one["x"][:, ::-1].transpose(0, 2, 3, 1).copy().reshape(one["x"].shape)} for one in samples]
    found = asked(run, samples, given_)
    assert found.best is not None
    assert found.exact
    assert "BGR" in describe_steps(found.best.steps)
    assert "NHWC" in describe_steps(found.best.steps)


def saturating(inputs: Arrays) -> Arrays:
    """Two classes: in [0, 1] an answer for every image, of bytes nearly the same for all."""
    weights = np.linspace(-1.0, 1.1, SIZE * SIZE * 3).reshape(1, 3, SIZE, SIZE) ** 3
    logit = float((inputs["x"] * weights).sum()) / 40.0
    share = 1.0 / (1.0 + np.exp(-np.clip(logit, -7.0, 7.0)))
    return {"y": np.array([1.0 - share, share], np.float32)}


def in_half(inputs: Arrays) -> Arrays:
    """The same where what is computed is held by a coarse format: what is nearly one is one."""
    return {"y": (np.round(saturating(inputs)["y"] * 128) / 128).astype(np.float32)}


def test_an_honest_deployment_tells_what_a_saturated_reference_cannot() -> None:
    # Answers of bytes: 0.9991 of the reference, 1 of the coarse format. A step that is met to 1e-3 in one direction is met by
    # accident among some thirty in three of a hundred searches; one that is met exactly is not.
    samples = prepared("unit")
    answers = [in_half({"x": sample["x"] * np.float32(255)}) for sample in samples]
    image = image_of("x", samples[0]["x"])
    assert image is not None
    plain = PreprocessingQuestion(
        samples=samples, candidate=answers, run=lambda x: saturating(dict(x)), bounds={"y": 1e-4}, runs=400, margin=2.0
    )
    steps = image_steps(image, samples)
    assert search_preprocessing(plain, steps).best is None
    found = search_preprocessing(replace(plain, honest=lambda x: in_half(dict(x))), steps)
    assert found.best is not None
    assert "does not divide by 255" in " ".join(describe_steps(one.steps) for one in (found.best, *found.others))
    assert (found.honest, found.exact, found.after) == (True, True, 0.0)


def overflowing(inputs: Arrays) -> Arrays:
    """A format that holds no bytes."""
    found = saturating(inputs)["y"]
    return {"y": np.full_like(found, np.nan) if np.abs(inputs["x"]).max() > 10.0 else found}


def test_what_overflows_is_told_as_a_possibility() -> None:
    samples = prepared("unit")
    image = image_of("x", samples[0]["x"])
    assert image is not None
    question = PreprocessingQuestion(
        samples=samples,
        candidate=[overflowing({"x": sample["x"] * np.float32(255)}) for sample in samples],
        run=lambda x: saturating(dict(x)),
        bounds={"y": BOUND},
        runs=400,
        honest=lambda x: overflowing(dict(x)),
    )
    found = search_preprocessing(question, image_steps(image, samples))
    assert found.best is not None
    assert "does not divide by 255" in " ".join(describe_steps(one.steps) for one in (found.best, *found.others))
    # NaN says nothing of where it comes from.
    assert (found.certain, found.honest, found.chance) == (False, True, 1.0)
    # An honest deployment that gives NaN for the samples as they are needs no other inputs for it.
    always = replace(question, honest=lambda x: {"y": np.full_like(saturating(dict(x))["y"], np.nan)})
    assert search_preprocessing(always, image_steps(image, samples)).best is None
    # Without an honest deployment every step leaves an infinite error, which is no less than the one without a step.
    assert search_preprocessing(replace(question, honest=None), image_steps(image, samples)).best is None


def test_the_number_of_runs_is_kept_and_what_was_left_out_is_told(run: Run) -> None:
    samples = prepared("imagenet")
    given_ = [{"x": np.random.default_rng(1).normal(size=one["x"].shape).astype(np.float32)} for one in samples]
    found = asked(run, samples, given_, runs=30)
    assert found.runs == 30
    assert found.left_out > 0


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A token model: embeddings of ids, positions and segments, a recurrent mix, the masked mean, a product."""
    rng = np.random.default_rng(4)
    weights = {
        "words": rng.normal(size=(50, 16)),
        "places": rng.normal(size=(12, 16)),
        "types": rng.normal(size=(2, 16)),
        "v": rng.normal(size=(16, 10)),
    }
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[1,12] input_ids, int64[1,12] attention_mask, int64[1,12] token_type_ids) => (float[1,10] y) {
      a = Gather(words, input_ids)
      t = Gather(types, token_type_ids)
      b = Add(a, places)
      c = Add(b, t)
      d = Tanh(c)
      axes = Constant<value_ints = [2]>()
      one = Constant<value_ints = [1]>()
      m = Cast<to = 1>(attention_mask)
      w = Unsqueeze(m, axes)
      e = Mul(d, w)
      s = ReduceSum<keepdims = 0>(e, one)
      n = ReduceSum(m, one)
      mean = Div(s, n)
      y = MatMul(mean, v)
    }"""
    model = onnx.parser.parse_model(text)
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return run_of(model, tmp_path_factory.mktemp("tokens"))


def sentences() -> list[Arrays]:
    rng, found = np.random.default_rng(6), []
    for count in (7, 9, 6):
        ids, mask, types = (np.zeros((1, 12), np.int64) for _ in range(3))
        ids[0, :count] = [2, *rng.integers(5, 45, size=count - 2), 3]
        mask[0, :count] = 1
        types[0, count // 2 : count] = 1
        found.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})
    return found


def test_every_step_of_tokens_is_named(reads: Run) -> None:
    samples = sentences()
    tokens = tokens_of(samples[0])
    assert tokens is not None
    assert (tokens.ids, tokens.mask, tokens.segments) == ("input_ids", "attention_mask", "token_type_ids")
    steps = [
        step for step in token_steps(tokens, samples) if ":padded-" not in step.key
    ]  # which a fixed length refuses
    for step in steps:
        given_ = [dict(one) for sample in samples if (one := apply_steps((step,), sample)) is not None]
        found = asked(reads, samples, given_)
        assert found.best is not None, step.key
        assert describe_steps(found.best.steps) == f"the deployment {step.words}"
    assert len(steps) == 14


def test_ids_that_are_moved_but_for_the_padding(tmp_path: Path) -> None:
    # Without a mask the padding counts, and what it is read as.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int32[1,9] ids) => (float[1,10] y) {
      a = Gather(words, ids)
      b = Tanh(a)
      y = ReduceMean<axes = [1], keepdims = 0>(b)
    }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(8)
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(30, 10)).astype(np.float32), "words"))
    run = run_of(model, tmp_path)
    samples = [{"ids": np.pad(rng.integers(3, 25, (1, n)), ((0, 0), (0, 9 - n))).astype(np.int32)} for n in (4, 7, 5)]
    for by, kept, words in (
        (2, True, "plus 2, but for the padding"),
        (1, True, "plus 1, but for the padding"),
        (1, False, "plus 1"),
    ):
        given_ = [
            {"ids": np.where((one["ids"] > 0) | (not kept), one["ids"] + by, 0).astype(np.int32)} for one in samples
        ]
        found = asked(run, samples, given_)
        assert found.best is not None
        assert describe_steps(found.best.steps) == f"the deployment gives every token id {words}"
    shifted = [{"ids": np.where(one["ids"] == 0, 29, one["ids"]).astype(np.int32)} for one in samples]  # padded with 29
    given_ = [{"ids": np.where(one["ids"] == 29, 1, one["ids"]).astype(np.int32)} for one in shifted]
    found = asked(run, shifted, given_)
    assert found.best is not None
    assert describe_steps(found.best.steps) == "the deployment pads with id 1 in place of 29"


def test_ids_that_are_given_as_floats_and_padded_on_the_left(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,N] ids) => (float[1,N,10] y) {
      i = Cast<to = 7>(ids)
      a = Gather(words, i)
      axis = Constant<value_int = 1>()
      b = CumSum(a, axis)
      y = Tanh(b)
    }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(8)
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(30, 10)).astype(np.float32), "words"))
    run = run_of(model, tmp_path)
    samples = [{"ids": np.pad(rng.integers(3, 25, (1, n)), ((0, 0), (0, 2))).astype(np.float32)} for n in (4, 7, 5)]
    found = asked(run, samples, [{"ids": np.roll(one["ids"], 2, 1)} for one in samples])
    assert found.best is not None
    assert describe_steps(found.best.steps) == "the deployment pads on the left"
    # Whole numbers of a table are no ids.
    assert tokens_of({"x": rng.integers(1, 25, (3, 8)).astype(np.float32)}) is None


def test_padding_to_a_length_that_is_attended_to(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[1,N] input_ids, int64[1,N] attention_mask) => (float[1,10] y) {
      a = Gather(words, input_ids)
      d = Tanh(a)
      axes = Constant<value_ints = [2]>()
      one = Constant<value_ints = [1]>()
      m = Cast<to = 1>(attention_mask)
      w = Unsqueeze(m, axes)
      e = Mul(d, w)
      s = ReduceSum<keepdims = 0>(e, one)
      n = ReduceSum(m, one)
      y = Div(s, n)
    }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(7)
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(50, 10)).astype(np.float32), "words"))
    samples = [
        {"input_ids": rng.integers(1, 50, (1, count)), "attention_mask": np.ones((1, count), np.int64)}
        for count in (7, 9, 6)
    ]
    given_ = [
        {
            "input_ids": np.pad(sample["input_ids"], ((0, 0), (0, 32 - sample["input_ids"].shape[1]))),
            "attention_mask": np.ones((1, 32), np.int64),
        }
        for sample in samples
    ]
    found = asked(run_of(model, tmp_path), samples, given_)
    assert found.best is not None
    assert describe_steps(found.best.steps) == "the deployment pads to 32 tokens, with an attention mask of ones"


def test_padding_on_the_left_as_a_tokenizer_does_it(reads: Run) -> None:
    samples, given_ = sentences(), []
    for sample in samples:
        count = int(sample["attention_mask"].sum())
        given_.append({name: np.roll(array, 12 - count, axis=1) for name, array in sample.items()})
    found = asked(reads, samples, given_)
    assert found.best is not None
    assert describe_steps(found.best.steps) == "the deployment pads on the left"


@settings(max_examples=60, deadline=None)
@given(
    order=st.permutations([0, 1, 2]),
    gain=st.lists(st.floats(0.01, 300.0) | st.floats(-300.0, -0.01), min_size=3, max_size=3),
    offset=st.lists(st.floats(-200.0, 200.0), min_size=3, max_size=3),
    mirrored=st.sampled_from([(), (3,), (2,), (2, 3)]),
    seed=st.integers(0, 1000),
)
def test_an_affine_map_is_fitted(
    order: list[int], gain: list[float], offset: list[float], mirrored: tuple[int, ...], seed: int
) -> None:
    reference = np.random.default_rng(seed).random((2, 3, 9, 7))
    moved = np.flip(reference, mirrored) if mirrored else reference
    a, b = (np.array(each).reshape(3, 1, 1) for each in (gain, offset))
    fit = fit_inputs(reference, a * moved[:, order] + b)
    assert fit.is_exact
    assert (fit.order, fit.mirrored, fit.shift) == (tuple(order), mirrored, (0, 0))
    np.testing.assert_allclose(fit.gain, gain, rtol=1e-6)
    np.testing.assert_allclose(fit.offset, offset, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(down=st.integers(-5, 5), right=st.integers(-5, 5), gain=st.floats(0.1, 10.0), seed=st.integers(0, 100))
def test_a_shift_is_fitted(down: int, right: int, gain: float, seed: int) -> None:
    reference = np.random.default_rng(seed).random((1, 3, 24, 32))
    candidate = gain * np.random.default_rng(seed + 1).random(reference.shape)  # what is shifted in is unknown
    h, w = reference.shape[2:]
    here = (..., slice(max(0, down), h + min(0, down)), slice(max(0, right), w + min(0, right)))
    there = (..., slice(max(0, -down), h + min(0, -down)), slice(max(0, -right), w + min(0, -right)))
    candidate[here] = gain * reference[there]
    fit = fit_inputs(reference, candidate)
    assert fit.is_exact
    assert fit.shift == (down, right)
    np.testing.assert_allclose(fit.gain, gain, rtol=1e-6)


def test_a_fit_in_words() -> None:
    reference = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    assert fit_inputs(reference, reference).words == "the same"
    assert fit_inputs(reference, reference[:, ::-1] * np.float32(255)).words == (
        "exchanges channels 0 and 2 and multiplies by 255"
    )
    last = np.ascontiguousarray(reference.transpose(0, 2, 3, 1))
    assert fit_inputs(last, last[:, :, ::-1] - np.float32(0.5), axis=3).words == (
        "mirrors the image left to right and adds -0.5"
    )


def test_no_map_is_not_called_one() -> None:
    rng = np.random.default_rng(0)
    assert not fit_inputs(rng.random((1, 3, 8, 8)), rng.random((1, 3, 8, 8))).is_exact
    with pytest.raises(ValueError, match="not finite"):
        fit_inputs(np.full((1, 3, 8, 8), np.nan), np.zeros((1, 3, 8, 8)))
    with pytest.raises(ValueError, match="one shape"):
        fit_inputs(np.zeros((1, 3, 8, 8)), np.zeros((1, 3, 8, 9)))


def diagnosed(
    folder: Path, model: Path, samples: Sequence[Arrays], given_: Sequence[Arrays], capfd: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """Findings of the command line: inputs, and what the deployment made of others."""
    run = open_session(load_model(model).graph())
    for place, arrays in (("inputs", samples), ("outputs", [run(one) for one in given_])):
        (folder / place).mkdir(parents=True)
        for number, one in enumerate(arrays):
            write_npz(folder / place / f"{number}.npz", one)
    words = ["diagnose", str(model), "--inputs", str(folder / "inputs"), "--study", str(folder / "study")]
    words += ["--candidate", f"saved?path={folder / 'outputs'}", "--format", "json", "--quiet"]
    exit_status(*words)
    findings: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["findings"]
    return findings


def test_what_gets_rid_of_an_infinite_error_explains_nothing_by_that() -> None:
    # The reference gives NaN on bytes and the candidate answers something: each scaling makes the error finite, none small.
    samples = [{"x": one["x"] * np.float32(255)} for one in prepared("unit")]
    image = image_of("x", samples[0]["x"])
    assert image is not None
    rng = np.random.default_rng(2)
    shape = saturating(dict(samples[0]))["y"].shape
    question = PreprocessingQuestion(
        samples=samples,
        candidate=[{"y": rng.normal(size=shape).astype(np.float32)} for _ in samples],
        run=lambda x: overflowing(dict(x)),
        bounds={"y": BOUND},
        runs=400,
    )
    assert search_preprocessing(question, image_steps(image, samples)).best is None
    assert (
        search_preprocessing(replace(question, honest=lambda x: overflowing(dict(x))), image_steps(image, samples)).best
        is None
    )


def _undivided(folder: Path, noise: float) -> list[str]:
    """The command for a deployment that does not divide by 255, of a network whose rounding grows with its input.

    The sine of some tens is as uncertain as the tens: some hundred times as much as FP32 costs on the reference's inputs.
    `noise` is what the deployment errs by beside it.
    """
    rng = np.random.default_rng(26)
    v = rng.normal(size=(768, 24)).astype(np.float32) / 280
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,16,16] x) => (float[1,24] y) {
      f = Flatten(x)
      a = MatMul(f, v)
      y = Sin(a)
    }"""
    write_network(folder / "model.onnx", text, {"v": v})
    for number in range(3):
        raw = rng.integers(0, 256, size=(1, 3, 16, 16)) / 255.0
        write_npz(folder / "inputs" / f"{number}.npz", {"x": ((raw - MEAN) / DEVIATION).astype(np.float32)})
        wrong = ((raw * 255 - MEAN) / DEVIATION).astype(np.float32)
        y = np.sin(wrong.reshape(1, -1).astype(np.float64) @ v) * (1 + noise * rng.normal(size=(1, 24)))
        write_npz(folder / "outputs" / f"{number}.npz", {"y": y.astype(np.float32)})
    words = ["diagnose", str(folder / "model.onnx"), "--inputs", str(folder / "inputs"), "--quiet"]
    return [*words, "--candidate", str(folder / "outputs"), "--study", str(folder / "study")]


def test_what_wrong_inputs_make_of_rounding_is_no_second_cause(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(*_undivided(tmp_path, 0.0)) == 1
    why = " ".join(capfd.readouterr().out.split())
    assert "Why The deployment does not divide by 255 before it normalises" in why
    assert "[PRE001, cause proved]" in why
    # What needs the image is not claimed to be examined.
    skipped = read_study(tmp_path / "study")["skipped"]
    assert any("letterboxes" in skip["what"] and "--images" in skip["fix"] for skip in skipped)


def test_what_explains_all_but_a_rest_is_told_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*_undivided(tmp_path, 3e-4)) == 1
    why = " ".join(capfd.readouterr().out.split())
    assert "Why The deployment does not divide by 255 before it normalises" in why
    assert "[PRE001, likely: 50" in why
