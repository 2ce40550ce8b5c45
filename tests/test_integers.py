"""Integer quantization against ONNX Runtime's operators, and its laws."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from parityscope.arithmetic.integers import (
    INTEGERS,
    Quantization,
    dequantize_integers,
    fake_quantize,
    quantization_of,
    quantize_array,
)

ONNX_TYPES = {"int8": 3, "uint8": 2, "int4": 22, "uint4": 21}
NAMES = sorted(INTEGERS)
# Without numbers so small that a scale made of them is subnormal and holds few digits.
FINITE = st.one_of(st.just(0.0), st.floats(2.0**-80, 2.0**100, width=32), st.floats(-(2.0**100), -(2.0**-80), width=32))


def per_tensor(name: str, scale: float, zero_point: int) -> Quantization:
    number_format = INTEGERS[name]
    return Quantization(
        number_format=number_format,
        scale=np.array(scale, np.float32),
        zero_point=np.array(zero_point, number_format.dtype),
    )


def run(body: str, feeds: dict[str, np.ndarray], how: Quantization, output: str = "float") -> np.ndarray:
    """What ONNX Runtime, unoptimized, makes of `body`, which reads x, scale and zero_point."""
    number = ONNX_TYPES[how.number_format.name]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => ({output}[N] y) {body}'
    )
    model.graph.input[0].type.tensor_type.shape.Clear()
    model.graph.output[0].type.tensor_type.shape.Clear()
    model.graph.initializer.append(onnx.numpy_helper.from_array(how.scale, "scale"))
    points = how.zero_point.reshape(-1).tolist()
    tensor = onnx.helper.make_tensor("zero_point", number, how.zero_point.shape, points)
    model.graph.initializer.append(tensor)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    result: np.ndarray = found
    return result


def everywhere(how: Quantization) -> np.ndarray:
    """Every level, every midpoint between two, the float32 on both sides of each, far numbers, specials but NaN."""
    levels = np.arange(-300, 301, dtype=np.float64) / 2
    points = (levels * float(how.scale)).astype(np.float32)
    far = np.array([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 1e-40], np.float32)
    near = [np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    return np.concatenate([points, *near, far])


@pytest.mark.parametrize(("scale", "share"), [(1.0, 0.5), (0.1, 0.0), (0.037, 1.0), (2.0**-20, 0.3)])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_onnxruntime(name: str, scale: float, share: float) -> None:
    number_format = INTEGERS[name]
    how = per_tensor(name, scale, round(number_format.lowest + share * (number_format.highest - number_format.lowest)))
    values = everywhere(how)
    body = "{ q = QuantizeLinear(x, scale, zero_point)  y = DequantizeLinear(q, scale, zero_point) }"
    expected = run(body, {"x": values}, how)
    np.testing.assert_array_equal(fake_quantize(values, how), expected)
    if number_format.bits == 8:
        levels = run("{ y = QuantizeLinear(x, scale, zero_point) }", {"x": values}, how, name)
        found = quantize_array(values, how)
        assert found.dtype == levels.dtype
        np.testing.assert_array_equal(found, levels)


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_nan_is_what_onnxruntime_makes_of_it(name: str) -> None:
    how = per_tensor(name, 0.5, 3)
    values = np.full(37, np.nan, np.float32)  # whole vectors and a tail
    expected = run("{ y = QuantizeLinear(x, scale, zero_point) }", {"x": values}, how, name)
    np.testing.assert_array_equal(quantize_array(values, how), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", NAMES)
def test_each_channel_has_its_own_scale(name: str, axis: int) -> None:
    generator = np.random.default_rng(5)
    values = (generator.standard_normal((3, 4, 5)) * np.array([0.01, 1.0, 30.0])[:, None, None]).astype(np.float32)
    how = quantization_of(values, INTEGERS[name], axis=axis, symmetric=False)
    body = f"{{ q = QuantizeLinear<axis={axis}>(x, scale, zero_point)  y = DequantizeLinear<axis={axis}>(q, scale, zero_point) }}"
    np.testing.assert_array_equal(fake_quantize(values, how), run(body, {"x": values}, how))


@pytest.mark.parametrize("name", NAMES)
def test_every_integer_is_its_own_number(name: str) -> None:
    number_format = INTEGERS[name]
    how = per_tensor(name, 0.25, 1)
    integers = np.arange(number_format.lowest, number_format.highest + 1).astype(number_format.dtype)
    np.testing.assert_array_equal(quantize_array(dequantize_integers(integers, how), how), integers)


def test_numbers_derived_by_hand() -> None:
    # 2.5 and 3.5 are ties: 2 and 4. 127 + 10 saturates at 127; -200 + 10 at -128.
    how = per_tensor("int8", 1.0, 10)
    values = np.array([2.5, 3.5, -0.5, 127.0, -200.0], np.float32)
    np.testing.assert_array_equal(quantize_array(values, how), np.array([12, 14, 10, 127, -128], np.int8))
    np.testing.assert_array_equal(fake_quantize(values, how), np.array([2, 4, 0, 117, -138], np.float32))
    assert [(each.lowest, each.highest) for each in INTEGERS.values()] == [(-128, 127), (0, 255), (-8, 7), (0, 15)]


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=FINITE), st.sampled_from(NAMES), st.booleans())
def test_no_number_in_range_moves_by_more_than_half_a_step(values: np.ndarray, name: str, symmetric: bool) -> None:
    how = quantization_of(values, INTEGERS[name], symmetric=symmetric)
    moved = np.abs(fake_quantize(values, how).astype(np.float64) - values)
    # Half a step; the zero point's own rounding moves the range's ends by another half; x / scale is rounded to float32.
    step = float(how.scale) * (0.5 if symmetric else 1.0)
    assert np.all(moved <= step + np.abs(values) * 2.0**-22)


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=FINITE), st.sampled_from(NAMES))
def test_quantizing_again_changes_nothing(values: np.ndarray, name: str) -> None:
    how = quantization_of(values, INTEGERS[name], symmetric=True)
    once = fake_quantize(values, how)
    np.testing.assert_array_equal(fake_quantize(once, how), once)


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=FINITE))
def test_scale_and_zero_point_are_those_of_dynamic_quantization(values: np.ndarray) -> None:
    how = quantization_of(values, INTEGERS["uint8"], symmetric=False)
    _, scale, zero_point = _dynamic().run(None, {"x": values})
    np.testing.assert_array_equal(how.scale, scale)
    np.testing.assert_array_equal(how.zero_point, zero_point)


def _dynamic() -> ort.InferenceSession:
    if not _SESSIONS:
        text = (
            '<ir_version: 9, opset_import: ["": 17]> g (float[N] x) => (uint8[N] y, float scale, uint8 zero_point)'
            "{ y, scale, zero_point = DynamicQuantizeLinear(x) }"
        )
        model = onnx.parser.parse_model(text)
        _SESSIONS.append(ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]))
    return _SESSIONS[0]


_SESSIONS: list[ort.InferenceSession] = []


def test_zeros_and_nothing_at_all() -> None:
    for values in (np.zeros((2, 3), np.float32), np.empty((0,), np.float32), np.full(3, np.inf, np.float32)):
        how = quantization_of(values, INTEGERS["int8"], symmetric=True)
        assert float(how.scale) == 1.0
        assert fake_quantize(values, how).shape == values.shape
    assert quantize_array(np.array(1.5, np.float32), per_tensor("int8", 1.0, 0)).shape == ()


def test_names() -> None:
    assert INTEGERS["int4"].bits == 4
    assert all(each.source for each in INTEGERS.values())
