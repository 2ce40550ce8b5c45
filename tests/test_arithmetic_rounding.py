"""`round_to` against numpy, ml_dtypes, ONNX Runtime's Cast and exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parityscope.arithmetic import FORMATS, Format, format_named, round_to

if TYPE_CHECKING:
    from parityscope.arithmetic.rounding import Mode

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
ONNX_TYPES = {"f16": 10, "bf16": 16, "f8e4m3": 17, "f8e5m2": 19}
ANY_FLOAT32 = st.integers(0, 2**32 - 1).map(lambda bits: np.array([bits], np.uint32).view(np.float32))
NARROW = st.sampled_from([FORMATS[name] for name in ("tf32", *DTYPES)])
MODES: tuple[Mode, ...] = ("nearest-even", "toward-zero")


def grid(name: str) -> np.ndarray:
    """Every number of a format, as float32."""
    dtype = DTYPES[name]
    patterns = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint16 if dtype.itemsize == 2 else np.uint8)
    numbers: np.ndarray = patterns.view(dtype).astype(np.float32)
    return numbers


def neighbourhood(name: str) -> np.ndarray:
    """Every finite number of a format, every midpoint between two, and the float32 just below and above each."""
    values = np.unique(grid(name)[np.isfinite(grid(name))].astype(np.float64))
    top = values[-1] + (values[-1] - values[-2]) * np.array([0.5, 1.0])  # the tie at the overflow threshold, beyond it
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, top, -top])
    with np.errstate(over="ignore"):  # the point beyond bfloat16's range is beyond float32's too
        points = np.concatenate([points.astype(np.float32), np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)])
    return np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit for bit, with any NaN equal to any other."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def cast(values: np.ndarray, name: str) -> np.ndarray:
    """numpy's or ml_dtypes' own conversion."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(DTYPES[name]).astype(np.float32)


def exactly(value: float, number_format: Format, mode: Mode) -> float:
    """The definition: a multiple of 2^(max(e, emin) - p + 1), computed with fractions; overflow as IEEE 754 has it."""
    size = abs(Fraction(value))
    exponent = number_format.emin
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - number_format.precision + 1)
    count, rest = divmod(size, unit)
    up = mode == "nearest-even" and (2 * rest > unit or (2 * rest == unit and count % 2 == 1))
    result = (count + up) * unit
    if result > Fraction(number_format.largest):
        return number_format.largest if mode == "toward-zero" else (np.inf if number_format.infinities else np.nan)
    return float(result)


@pytest.mark.parametrize("name", DTYPES)
def test_every_number_of_a_format_stays_what_it_is(name: str) -> None:
    values = grid(name)
    assert_same_bits(round_to(values, FORMATS[name]), values)


@pytest.mark.parametrize("name", DTYPES)
def test_agrees_with_numpy_and_ml_dtypes_around_every_number_and_midpoint(name: str) -> None:
    values = neighbourhood(name)
    assert_same_bits(round_to(values, FORMATS[name]), cast(values, name))


CASTS = [("f16", 0), ("bf16", 0), ("f8e4m3", 0), ("f8e4m3", 1), ("f8e5m2", 0), ("f8e5m2", 1)]


@pytest.mark.parametrize(("name", "saturate"), CASTS)
def test_agrees_with_the_cast_of_onnxruntime(name: str, saturate: int) -> None:
    values = neighbourhood(name)
    if FORMATS[name].saturating and not saturate:
        # ONNX Runtime 1.31 departs from the operator's text here: between the overflow threshold and 2^(emax + 1) its
        # unsaturated Cast gives 448 for E4M3 and NaN for E5M2. ml_dtypes agrees with the text.
        size = np.abs(values)
        values = values[~((size > FORMATS[name].largest) & (size < 2.0 ** (FORMATS[name].emax + 1)))]
    attributes = f"to={ONNX_TYPES[name]}" + (f", saturate={saturate}" if FORMATS[name].saturating else "")
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 19]> g (float[n] x) => (float[n] y)'
        f"{{ low = Cast<{attributes}>(x)  y = Cast<to=1>(low) }}"
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": values})
    assert_same_bits(round_to(values, FORMATS[name], overflow="saturate" if saturate else "infinity"), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DTYPES)
def test_every_mode_picks_the_right_neighbour(name: str, mode: Mode) -> None:
    # The definition on the list of all numbers of the format: between which two it lies, and which one is asked for.
    number_format = FORMATS[name]
    numbers = np.unique(np.abs(grid(name)[np.isfinite(grid(name))])).astype(np.float64)
    values = neighbourhood(name)
    values = values[np.abs(values) < number_format.largest]  # what lies beyond is tested with the overflow modes
    size = np.abs(values).astype(np.float64)
    below = np.searchsorted(numbers, size, side="right") - 1
    lower, upper = numbers[below], numbers[below + 1]
    up = {
        "toward-zero": np.zeros(size.shape, bool),
        "nearest-even": (size - lower > upper - size) | ((size - lower == upper - size) & (below % 2 == 1)),
    }[mode]
    expected = np.copysign(np.where(up, upper, lower), values).astype(np.float32)
    assert_same_bits(round_to(values, number_format, mode=mode), expected)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.sampled_from(sorted(DTYPES)))
def test_agrees_with_numpy_and_ml_dtypes_anywhere(bits: list[int], name: str) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    assert_same_bits(round_to(values, FORMATS[name]), cast(values, name))


def test_every_format_says_where_it_is_defined() -> None:
    assert all(each.source for each in FORMATS.values())


@given(ANY_FLOAT32, NARROW)
def test_agrees_with_fractions(value: np.ndarray, number_format: Format) -> None:
    for mode in MODES:
        (rounded,) = round_to(value, number_format, mode=mode)
        if np.isnan(value[0]):
            assert np.isnan(rounded)
        elif np.isinf(value[0]):
            assert np.isinf(rounded) if number_format.infinities else np.isnan(rounded)
        else:
            np.testing.assert_equal(abs(rounded), exactly(float(value[0]), number_format, mode))
            assert np.signbit(rounded) == np.signbit(value[0])


@given(ANY_FLOAT32)
def test_tf32_is_the_integer_mask(value: np.ndarray) -> None:
    # TF32 keeps 10 of float32's 23 stored bits: 13 are dropped, half of the last kept place is 0x1000.
    bits = int(value.view(np.uint32)[0])
    kept = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
    expected = value if np.isnan(value[0]) else np.array([kept], np.uint32).view(np.float32)
    assert_same_bits(round_to(value, FORMATS["tf32"]), expected)


@given(ANY_FLOAT32, NARROW)
def test_rounding_again_changes_nothing(value: np.ndarray, number_format: Format) -> None:
    for mode in MODES:
        once = round_to(value, number_format, mode=mode)
        assert_same_bits(round_to(once, number_format, mode=mode), once)


@given(st.floats(width=64), NARROW)
def test_float64_is_rounded_once(value: float, number_format: Format) -> None:
    (rounded,) = round_to(np.array([value]), number_format)
    expected = exactly(value, number_format, "nearest-even") if np.isfinite(value) else rounded
    np.testing.assert_equal(abs(rounded), abs(expected))


@pytest.mark.parametrize("name", ["tf32", *DTYPES])
def test_saturation_gives_the_largest_finite_value(name: str) -> None:
    largest = np.float32(FORMATS[name].largest)
    values = np.array([np.inf, -np.inf, np.finfo(np.float32).max, -np.finfo(np.float32).max, np.nan], np.float32)
    expected = np.array([largest, -largest, largest, -largest, np.nan], np.float32)
    assert_same_bits(round_to(values, FORMATS[name], overflow="saturate"), expected)


def test_subnormals_can_be_flushed() -> None:
    # Smallest normal of float16: 2^-14. Just below half an ulp under it rounds up to it and is normal then.
    values = np.array([2.0**-14, -(2.0**-15), 2.0**-14 - 2.0**-30, 0.0, -0.0], np.float32)
    expected = np.array([2.0**-14, -0.0, 2.0**-14, 0.0, -0.0], np.float32)
    assert_same_bits(round_to(values, FORMATS["f16"], subnormals=False), expected)


def test_numbers_from_the_standards() -> None:
    # IEEE 754-2019 binary16; OFP8 table 1; bfloat16 as float32 with 16 bits cut off (0x7F7F0000, 0x00010000).
    assert (FORMATS["f16"].largest, FORMATS["f16"].smallest_subnormal) == (65504.0, 2.0**-24)
    assert (FORMATS["f8e4m3"].largest, FORMATS["f8e4m3"].smallest_subnormal) == (448.0, 2.0**-9)
    assert (FORMATS["f8e5m2"].largest, FORMATS["f8e5m2"].smallest_subnormal) == (57344.0, 2.0**-16)
    bounds = np.array([0x7F7F0000, 0x00010000], np.uint32).view(np.float32)
    np.testing.assert_array_equal(bounds, [FORMATS["bf16"].largest, FORMATS["bf16"].smallest_subnormal])
    for name in ("f64", "f32", "f16"):
        info: Any = np.finfo(FORMATS[name].dtype)
        assert FORMATS[name].largest == float(info.max)
        assert FORMATS[name].smallest_normal == float(info.smallest_normal)


def test_shapes_and_types() -> None:
    assert round_to(np.array(1.0, np.float32), FORMATS["f16"]).shape == ()
    assert round_to(np.empty((0, 3), np.float32), FORMATS["f16"]).shape == (0, 3)
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(round_to(strided, FORMATS["bf16"]), strided)
    with pytest.raises(TypeError, match="int64"):
        round_to(np.arange(3), FORMATS["f16"])


def test_names() -> None:
    assert format_named("bfloat16") is format_named("bf16") is FORMATS["bf16"]
    assert format_named("float32").name == "f32"
    with pytest.raises(Exception, match="no number format 'fp17'"):
        format_named("fp17")


def test_contains() -> None:
    assert FORMATS["tf32"].contains(FORMATS["f16"])
    assert FORMATS["tf32"].contains(FORMATS["bf16"])
    assert not FORMATS["f16"].contains(FORMATS["bf16"])
    assert not FORMATS["bf16"].contains(FORMATS["f16"])
