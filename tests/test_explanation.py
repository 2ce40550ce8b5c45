"""Explanations against layers computed by other means, and the statistics against known answers."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from one_sample import one_sample
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import load_model
from parityscope.explanation import explain_region, explain_suspects, explanation_as_json
from parityscope.explanation.evidence import grid_share
from parityscope.explanation.records import ExplanationOptions
from parityscope.explanation.regression import above_floor, chi_square_tail, discovery_cutoff, regress_through_origin
from parityscope.explanation.weighed import price_region
from parityscope.hypotheses.arithmetic import known_hypotheses
from parityscope.localization import Sides, localize

if TYPE_CHECKING:
    from types import ModuleType


BENCH = Path(__file__).parents[1] / "bench"


def _bench(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))


explanations = _bench("explanations")
arithmetics = _bench("_planted.arithmetics")
layers = _bench("_planted.layer")
linear = _bench("_planted.linear_layers")
others = _bench("_planted.other_layers")
plants = _bench("_planted.plants")
roundings = _bench("_planted.rounding_plants")


# The statistics.


def test_slope_and_share_of_a_known_line() -> None:
    # r = 2 p: slope 2 without error; |r - p|^2 = |p|^2 is a quarter of |r|^2.
    predicted = np.array([1.0, -2.0, 3.0])
    line = regress_through_origin(2 * predicted, predicted)
    assert line.slope == 2.0
    assert line.slope_error == 0.0
    assert line.share == 0.75


def test_a_prediction_at_right_angles_explains_less_than_nothing() -> None:
    # |r - p|^2 = 1 + 1 against |r|^2 = 1.
    line = regress_through_origin(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert line.slope == 0.0
    assert line.share == -1.0


@pytest.mark.parametrize(
    ("freedom", "value", "tail"),
    # Quantiles of the chi-square distribution from its usual table (upper tail 0.05 and 0.01).
    [(10, 18.307, 0.05), (10, 23.209, 0.01), (50, 67.505, 0.05), (100, 135.807, 0.01)],
)
def test_chi_square_tail_against_its_table(freedom: float, value: float, tail: float) -> None:
    # Wilson and Hilferty's error is below a hundredth of these probabilities.
    assert chi_square_tail(value, freedom) == pytest.approx(tail, rel=0.02)


def test_benjamini_and_hochberg_in_their_own_example() -> None:
    # The fifteen p-values of Benjamini and Hochberg 1995, section 3.2: at 0.05 the first four are discoveries.
    chances = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    chances += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert discovery_cutoff(np.array(chances), 0.05) == 0.0095


def test_false_discoveries_stay_below_their_rate() -> None:
    # 200 families of 180 true noises and 20 signals; the mean share of false ones among the discoveries is at most the
    # rate times 180/200; three standard errors of a mean over 200 families are allowed.
    generator = np.random.default_rng(0)
    rate, shares, found = 0.1, [], 0
    for _ in range(200):
        noise, signals = generator.random(180), generator.random(20) * 1e-5
        cutoff = discovery_cutoff(np.concatenate([noise, signals]), rate)
        false, true = int((noise <= cutoff).sum()), int((signals <= cutoff).sum())
        shares.append(false / max(1, false + true))
        found += true
    assert np.mean(shares) <= rate * 0.9 + 3 * np.std(shares) / np.sqrt(200)
    assert found == 200 * 20


@pytest.mark.search_of(0.1)
def test_noise_of_the_floors_own_size_is_no_discovery_and_one_wrong_channel_is_one() -> None:
    generator = np.random.default_rng(0)
    sigma = generator.uniform(0.5, 2.0, (2, 16, 8, 8))
    left = generator.standard_normal(sigma.shape) * sigma
    ratios, chances = above_floor(left, sigma, 1)
    assert discovery_cutoff(chances) == -1.0
    assert np.all(np.abs(ratios - 1.0) < 0.5)
    left[:, 5] *= 10
    chances = above_floor(left, sigma, 1)[1]
    assert np.flatnonzero(chances <= discovery_cutoff(chances)).tolist() == [5]


def test_an_error_where_the_floor_is_zero_is_above_it() -> None:
    ratios, chances = above_floor(np.array([[0.0, 0.0], [0.0, 1e-30]]), np.zeros((2, 2)), 0)
    assert ratios.tolist() == [0.0, np.inf]
    assert chances.tolist() == [1.0, 0.0]


def test_share_of_numbers_on_a_grid() -> None:
    # 1 + 2^-10 has eleven bits, 1 + 2^-11 twelve; zeros and infinities say nothing.
    array = np.array([1.0, 1 + 2.0**-10, 1 + 2.0**-11, 0.0, np.inf], np.float32)
    assert grid_share(array, "f16") == pytest.approx(2 / 3)
    assert np.isnan(grid_share(np.zeros(3), "f16"))


# The hypotheses.


def test_every_hypothesis_is_named_and_planted() -> None:
    found = known_hypotheses()
    assert set(plants.PLANTS) == {*found, *plants.SAID}
    for name, hypothesis in found.items():
        assert hypothesis.name == name
        assert hypothesis.title


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("truth", list(plants.PLANTS))
def test_planted_layers_are_named(truth: str) -> None:
    right, table = explanations.score(1, 7, (truth,))
    assert right == 1, dict(table)


@pytest.mark.search_of(1.0)
def test_clean_layers_are_not_called_bugs() -> None:
    assert not explanations.clean_layers(40, 3)


# Single layers.

CLIP = """g (float[N,C,H,W] x) => (float[N,C,H,W] y) {
y = Clip(x, low, high)
}"""


def _clip() -> Any:
    generator = np.random.default_rng(1)
    return layers.Layer(
        text=CLIP,
        parameters={"low": np.array(0, np.float32), "high": np.array(1, np.float32)},
        feeds={"x": generator.normal(0, 1, (1, 4, 9, 9)).astype(np.float32)},
    )


def test_a_wrong_bound_is_fitted() -> None:
    layer = _clip()
    found = explain_region(layers.region(layer), layer.feeds, np.clip(layer.feeds["x"], 0, 0.75).astype(np.float32))
    assert found.status == "explained"
    assert found.is_bug
    assert found.by[0].family == "semantic"
    assert "0.75" in found.by[0].words


@pytest.mark.parametrize("epsilon", [0.03, 7e-4, 1e-3])
def test_a_wrong_epsilon_is_fitted(epsilon: float) -> None:
    generator = np.random.default_rng(3)
    scale, bias, mean = (generator.normal(size=6).astype(np.float32) for _ in range(3))
    variance = generator.uniform(0.1, 2.0, 6).astype(np.float32)
    layer = layers.Layer(
        text="""g (float[N,C,H,W] x) => (float[N,C,H,W] y) {
        y = BatchNormalization<epsilon = 1e-5>(x, scale, bias, mean, variance)
        }""",
        parameters={"scale": scale, "bias": bias, "mean": mean, "variance": variance},
        feeds={"x": generator.normal(size=(1, 6, 9, 9)).astype(np.float32)},
    )
    # The operator's definition, in float64.
    each = [array.astype(np.float64).reshape(1, 6, 1, 1) for array in (scale, bias, mean, variance)]
    candidate = (layer.feeds["x"] - each[2]) / np.sqrt(each[3] + epsilon) * each[0] + each[1]
    found = explain_region(layers.region(layer), layer.feeds, candidate.astype(np.float32))
    assert found.is_bug
    said = re.match(r"attribute epsilon (\S+) ", found.by[0].words)
    assert said
    assert float(said[1]) == pytest.approx(epsilon, rel=1e-3)


def test_equal_outputs_are_exact() -> None:
    layer = _clip()
    found = explain_region(layers.region(layer), layer.feeds, np.clip(layer.feeds["x"], 0, 1).astype(np.float32))
    assert found.status == "exact"
    assert not found.is_bug


@pytest.mark.search_of(0.1)
def test_one_element_that_fell_to_the_other_side_of_a_tie_is_no_bug() -> None:
    # 16 elements, one of them within an FP32 step of the middle between two numbers of FP16. That it was rounded up and the
    # others to nearest is a sixth of the error or more: (1/2)² against 15 times a mean of 1/12, in steps of FP16.
    generator = np.random.default_rng(8)
    weight = generator.normal(0, 0.2, (24, 16)).astype(np.float32)
    feeds = {"x": generator.normal(0, 1, (1, 24)).astype(np.float32)}
    bias = np.zeros(16, np.float32)
    bias[3] = np.float32(1.0 + 2.0**-11) - (feeds["x"].astype(np.float64) @ weight)[0, 3]
    layer = layers.Layer(
        text="g (float[N,C] x) => (float[N,D] y) {\nt = MatMul(x, w)\ny = Add(t, b)\n}",
        parameters={"w": weight, "b": bias},
        feeds=feeds,
    )
    exact = layers.run(layer, feeds)
    assert abs(exact[0, 3] - (1.0 + 2.0**-11)) <= 2.0**-23
    for side in (1.0, 1.0 + 2.0**-10):
        candidate = exact.astype(np.float16).astype(np.float32)
        candidate[0, 3] = side
        found = explain_region(layers.region(layer), feeds, candidate)
        assert "f16_output" in {each.hypothesis for each in found.by}


def test_corrupted_elements_are_unexplained_and_described() -> None:
    layer = linear.conv(np.random.default_rng(2), activation="")
    candidate = np.array(
        arithmetics.emulated(layer, layer.feeds, np.random.default_rng(0), operands=arithmetics.tf32_nearest)
    )
    candidate[0, 1] += np.random.default_rng(3).normal(0, 1, candidate.shape[2:]).astype(np.float32)
    found = explain_region(layers.region(layer), layer.feeds, candidate)
    assert found.status == "unexplained"
    assert found.is_bug
    assert found.left.startswith("in index 1")


def test_tf32_and_float16_operands_come_as_a_set_with_what_separates_them() -> None:
    layer = linear.matmul(np.random.default_rng(4), activation="")
    candidate = arithmetics.emulated(layer, layer.feeds, np.random.default_rng(0), operands=arithmetics.tf32_nearest)
    found = explain_region(layers.region(layer), layer.feeds, candidate)
    names = [each.hypothesis for each in found.by]
    assert {"tf32_nearest", "f16_inputs"} <= set(names)
    # Inputs that are not on FP16's grid were never stored in FP16.
    assert names[0] == "tf32_nearest"
    assert found.evidence
    declared = explain_region(layers.region(layer), layer.feeds, candidate, ExplanationOptions(declared="f16"))
    assert declared.by[0].hypothesis == "f16_inputs"


def test_beyond_float16s_range_tf32_stands_alone() -> None:
    layer = linear.matmul(np.random.default_rng(4), activation="")
    feeds = {"x": layer.feeds["x"] * np.float32(1e5)}
    candidate = arithmetics.emulated(layer, feeds, np.random.default_rng(0), operands=arithmetics.tf32_nearest)
    names = {each.hypothesis for each in explain_region(layers.region(layer), feeds, candidate).by}
    assert "tf32_nearest" in names
    assert not {name for name in names if name.startswith("f16")}


def test_roundings_inside_a_region_are_expected_of_the_declared_arithmetic_by_their_size() -> None:
    # The product alone is stored in BF16 on the way: no variant rounds there and nowhere else behind it.
    layer = linear.matmul(np.random.default_rng(6), activation="Tanh(t)")
    image, weight = arithmetics.bf16(layer.feeds["x"]), arithmetics.bf16(layer.parameters["w"])
    product = arithmetics.bf16(np.matmul(image, weight))
    candidate = np.tanh(arithmetics.bf16(product) + layer.parameters["b"])
    found = explain_region(layers.region(layer), layer.feeds, candidate, ExplanationOptions(declared="bf16"))
    assert found.status == "expected"
    assert not found.is_bug
    # Nothing declared excuses it, and a larger error is not of that size.
    assert explain_region(layers.region(layer), layer.feeds, candidate).is_bug
    replayed = layers.run(layer, layer.feeds)
    larger = (replayed + 6 * (candidate - replayed)).astype(np.float32)
    assert explain_region(layers.region(layer), layer.feeds, larger, ExplanationOptions(declared="bf16")).is_bug


def test_scales_are_folded_into_weights_before_they_are_rounded() -> None:
    generator = np.random.default_rng(8)
    layer = linear.conv(generator, activation="")
    gain, shift = np.float32(2.1), np.float32(0.7)
    text = layer.text.replace("y = Conv", "t0 = Conv").replace(
        "\n}", "\nt1 = Mul(t0, gain)\nt2 = Add(t1, shift)\ny = Relu(t2)\n}"
    )
    scaled = {**layer.parameters, "gain": np.array([gain]), "shift": np.array([shift])}
    region = layers.region(layers.Layer(text=text, parameters=scaled, feeds=layer.feeds))
    folded = {
        "w": arithmetics.bf16(layer.parameters["w"] * gain),
        "b": arithmetics.bf16(layer.parameters["b"] * gain + shift),
    }
    fused = layers.Layer(text=layer.text, parameters=folded, feeds=layer.feeds)
    feeds = {"x": arithmetics.bf16(layer.feeds["x"])}
    candidate = arithmetics.bf16(np.maximum(layers.run(fused, feeds), 0))
    found = explain_region(region, feeds, candidate)
    assert found.by[0].hypothesis == "bf16_inputs_output"
    assert "folded" in found.by[0].words


def test_half_accumulation_in_an_unknown_order_is_expected_where_half_is_declared() -> None:
    generator = np.random.default_rng(11)
    plant = roundings.shuffled(others.depthwise(generator), generator)
    found = explain_region(layers.region(plant.layer), plant.feeds, plant.candidate, ExplanationOptions(declared="f16"))
    assert found.status == "expected"
    assert not found.is_bug
    assert found.by[0].hypothesis == "f16_accumulation"
    for declared in ("", "bf16"):
        options = ExplanationOptions(declared=declared)
        assert explain_region(layers.region(plant.layer), plant.feeds, plant.candidate, options).status == "unexplained"


@pytest.mark.search_of(0.1)
def test_half_accumulation_excuses_no_larger_error_and_no_fault_in_one_channel() -> None:
    generator = np.random.default_rng(12)
    plant = roundings.shuffled(others.depthwise(generator), generator)
    options = ExplanationOptions(declared="f16")
    scaled = np.array(plant.candidate)
    scaled[:, 1] *= np.float32(1.05)
    assert explain_region(layers.region(plant.layer), plant.feeds, scaled, options).is_bug
    spoilt = np.array(plant.candidate)
    spoilt[0, 2, 3, 4] += np.float32(0.25)
    assert explain_region(layers.region(plant.layer), plant.feeds, spoilt, options).is_bug
    # Three times the error of that arithmetic in every element is beyond the margin of two.
    exact = layers.run(plant.layer, plant.feeds)
    larger = (exact + 3 * (plant.candidate - exact)).astype(np.float32)
    assert explain_region(layers.region(plant.layer), plant.feeds, larger, options).is_bug


@pytest.mark.parametrize(("given", "truth"), [("alpha = 0.1666667", "f16"), ("", "f16"), ("alpha = 0.1666667", "bf16")])
def test_an_attribute_rounded_to_the_storage_format_is_arithmetic(given: str, truth: str) -> None:
    rounding = getattr(arithmetics, truth)
    alpha = np.array([0.1666667 if given else 0.2], np.float32)
    layer = layers.Layer(
        text=layers.chain([f"HardSigmoid<{given}>(x)" if given else "HardSigmoid(x)"], 3),
        parameters={},
        feeds={"x": rounding(np.random.default_rng(2).normal(0, 2, (2, 9, 64)).astype(np.float32))},
    )
    candidate = rounding(np.clip(layer.feeds["x"] * rounding(alpha) + np.float32(0.5), 0, 1).astype(np.float32))
    found = explain_region(layers.region(layer), layer.feeds, candidate)
    assert found.by[0].hypothesis == f"{truth}_inputs_output"
    assert "attributes rounded too" in found.by[0].words
    assert not found.is_bug


def test_division_by_a_reciprocal_in_single_precision_stays_within_the_floor() -> None:
    layer = others.division(np.random.default_rng(3))
    candidate = layer.feeds["x"] * (np.float32(1) / layer.parameters["divisor"])
    found = explain_region(layers.region(layer), layer.feeds, candidate.astype(np.float32))
    assert found.status in {"within floor", "exact"}


def _long_product() -> Any:
    generator = np.random.default_rng(5)
    layer = linear.matmul(generator, activation="")
    weight = generator.normal(0, 0.02, (1536, 12)).astype(np.float32)
    weight[:, 3] = np.abs(weight[:, 3])
    feeds = {"x": np.abs(generator.normal(0, 1, (1, 24, 1536))).astype(np.float32)}
    parameters = {"w": weight, "b": generator.normal(0, 0.5, 12).astype(np.float32)}
    return replace(layer, feeds=feeds, parameters=parameters)


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize("block", [4, 8])
def test_the_accumulator_of_tensor_cores_is_no_bug_of_a_tf32_product(block: int) -> None:
    # Channel 3 adds numbers of one sign: what is cut off adds up over 1536 terms, and is above the floor of FP32.
    layer = _long_product()
    product = arithmetics.tensor_core(layer.feeds["x"][0], layer.parameters["w"], block)
    candidate = (product + layer.parameters["b"])[None]
    for declared in ("", "tf32"):
        found = explain_region(layers.region(layer), layer.feeds, candidate, ExplanationOptions(declared=declared))
        assert found.by[0].hypothesis == "tf32_nearest"
        assert found.by[0].channels_above == 0


@pytest.mark.search_of(0.1)
def test_a_channels_factor_of_nearly_one_is_no_claim() -> None:
    # A slow bias of one part in a million in one channel, too little to be a factor and too much for the floor.
    layer = _long_product()
    operands = arithmetics.emulated(layer, layer.feeds, np.random.default_rng(0), operands=arithmetics.tf32_nearest)
    candidate = np.array(operands)
    candidate[0, ::2, 7] *= np.float32(1 + 2e-5)
    candidate[0, 1::2, 7] *= np.float32(1 - 2e-5)
    found = explain_region(layers.region(layer), layer.feeds, candidate)
    assert not [each for each in (*found.by, *found.rejected) if "scaled by" in each.words]


def test_a_fitted_factor_is_told_with_the_digits_that_matter() -> None:
    layer = linear.conv(np.random.default_rng(9), activation="")
    weight = np.array(layer.parameters["w"])
    weight[1] *= np.float32(1.000345)
    changed = replace(layer, parameters={**layer.parameters, "w": weight})
    found = explain_region(layers.region(layer), layer.feeds, layers.run(changed, layer.feeds))
    assert found.by[0].parameter == pytest.approx(1.000345, abs=3e-6)
    assert "1.0003" in found.by[0].words


def test_what_the_budget_does_not_allow_is_skipped() -> None:
    layer = linear.conv(np.random.default_rng(2), activation="")
    noise = np.random.default_rng(3)
    candidate = layers.run(layer, layer.feeds) + noise.normal(0, 0.1, layers.run(layer, layer.feeds).shape)
    full, poor = (
        explain_region(
            layers.region(layer), layer.feeds, candidate.astype(np.float32), ExplanationOptions(seconds=seconds)
        )
        for seconds in (60.0, 0.01)
    )
    assert not [skip for skip in full.skipped if "budget" in skip.reason]
    assert [skip for skip in poor.skipped if "budget" in skip.reason]
    assert poor.status == full.status == "unexplained"
    again = explain_region(
        layers.region(layer), layer.feeds, candidate.astype(np.float32), ExplanationOptions(seconds=0.01)
    )
    assert explanation_as_json(again) == explanation_as_json(poor)


def test_where_the_budget_allows_one_arithmetic_it_is_what_the_declared_format_usually_does() -> None:
    layer = linear.conv(np.random.default_rng(2), activation="")
    rounded = layers.Layer(
        text=layer.text, parameters={name: _half(one) for name, one in layer.parameters.items()}, feeds=layer.feeds
    )
    feeds = {"x": _half(layer.feeds["x"])}
    candidate = _half(layers.run(rounded, feeds))
    price = price_region(layers.region(layer), {**layer.parameters, **feeds, "y": candidate})
    options = ExplanationOptions(declared="f16", seconds=1.5 * (price.evaluation + price.weighing))
    found = explain_region(layers.region(layer), feeds, candidate, options)
    assert [skip for skip in found.skipped if "budget" in skip.reason]
    assert found.status == "explained"
    assert found.by[0].hypothesis == "f16_inputs_output"


def _half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 1)])
def test_small_and_empty_tensors(shape: tuple[int, ...]) -> None:
    letters = ",".join("NC"[: len(shape)])
    layer = layers.Layer(
        text=f"g (float[{letters}] x) => (float[{letters}] y) {{\ny = Exp(x)\n}}",
        parameters={},
        feeds={"x": np.full(shape, 0.3, np.float32)},
    )
    candidate = np.exp(np.full(shape, 0.3)).astype(np.float16).astype(np.float32)
    found = explain_region(layers.region(layer), layer.feeds, candidate)
    assert found.status == ("not testable" if 0 in shape else "explained")
    json.dumps(explanation_as_json(found))


def test_the_reference_may_overflow_itself() -> None:
    layer = layers.Layer(
        text="g (float[N] x) => (float[N] y) {\ny = Mul(x, x)\n}",
        parameters={},
        feeds={"x": np.array([1e30, 2.0, 3.0], np.float32)},
    )
    found = explain_region(layers.region(layer), layer.feeds, np.array([np.inf, 5.0, 9.0], np.float32))
    assert found.status in {"explained", "unexplained"}
    assert found.is_bug


# Suspects of a localization.

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,12,12] x) => (float[1,8,12,12] y) {
a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
c = Clip(a, low, HIGH)
y = Conv<pads = [1, 1, 1, 1]>(c, w, b)
}"""


def _network(folder: Path, name: str, high: str) -> Path:
    model = onnx.parser.parse_model(NETWORK.replace("HIGH", high))
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.normal(0, 0.12, (8, 8, 3, 3)).astype(np.float32),
        "b": generator.normal(0, 0.1, 8).astype(np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(0.8, np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in arrays.items())
    onnx.save(model, folder / name)
    return folder / name


def _sides(tmp_path: Path, wrong_bound: str) -> Sides:
    model = load_model(_network(tmp_path, "right.onnx", "high"))
    wrong = load_model(_network(tmp_path, "wrong.onnx", wrong_bound))
    arrays = {"x": np.random.default_rng(5).normal(0, 1, (1, 8, 12, 12)).astype(np.float32)}
    inputs = one_sample(arrays)
    traces = [
        record_trace(
            each,
            inputs,
            parse_target("ort"),
            RecordingRequest(
                samples=(0,), tensors=tuple(observable_tensors(each)), folder=tmp_path / label, label=label
            ),
        )
        for each, label in ((model, "reference"), (wrong, "candidate"))
    ]
    pairing = {name: name for name in traces[0].names}
    return Sides(model=model, inputs=inputs, reference=traces[0], candidate=traces[1], pairing=pairing)


def _explained(sides: Sides) -> dict[str, Any]:
    localization = localize(sides.model, sides.inputs, sides.reference, sides.candidate, dict(sides.pairing))
    return explain_suspects(sides, localization)


def test_the_suspect_of_a_localization_is_explained(tmp_path: Path) -> None:
    found = _explained(_sides(tmp_path, ""))
    assert next(iter(found)) == "c"
    assert any("left out" in each.words for each in found["c"].by)
    assert not any(each.is_bug for name, each in found.items() if name != "c")


@pytest.mark.search_of(0.1)
@pytest.mark.parametrize(
    ("parts", "copied", "status"),
    [({}, False, "unexplained"), ({"a": 0, "c": 1}, True, "unexplained"), ({"a": 0, "c": 1}, False, "not testable")],
)
def test_an_input_from_another_recorded_run_is_no_bug(
    tmp_path: Path, parts: dict[str, int], copied: bool, status: str
) -> None:
    sides = _sides(tmp_path, "high")
    arrays = {name: np.array(sides.candidate.get(0, name)) for name in ("a", "c")}
    arrays["c"] += np.random.default_rng(1).normal(0, 0.1, arrays["c"].shape).astype(np.float32)
    copies = {(1, 0, "a"): arrays["a"]} if copied else {}
    # Where a copy is what belongs to c, nothing may be read from the tensor that is kept.
    kept = {(0, name): array + copied * (name == "a") for name, array in arrays.items()}
    tensors = {**sides.candidate.tensors, **kept}
    candidate = replace(sides.candidate, tensors=tensors, parts=parts, copies=copies)
    found = _explained(replace(sides, candidate=candidate))
    assert found["c"].status == status
    assert found["c"].is_bug is (status == "unexplained")
    assert status == "unexplained" or "another run" in found["c"].skipped[-1].reason
