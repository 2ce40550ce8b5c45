"""Floating-point formats as data.

A format holds the numbers ±m·2^(e-p+1) with integer significands m < 2^p and exponents emin <= e <= emax, and what
its encoding reserves for NaN and infinity. Everything else about it follows: the smallest normal number 2^emin, the
smallest subnormal 2^(emin-p+1) and the unit roundoff 2^-p of rounding to nearest.

Sources:
    IEEE 754-2019, table 3.5 (binary16, binary32, binary64).
    bfloat16: Intel, "BFLOAT16 - Hardware Numerics Definition", revision 1.0, 2018.
    TF32: NVIDIA A100 Tensor Core GPU Architecture, whitepaper 1.0, 2020 (8 bits of exponent, 10 of mantissa).
    FP8: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023, table 1 and section 5.2.

What products alone are computed in, with scales: formats by name, beside the number formats of `formats`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A binary floating-point format.

    `name` is Parityscope's short name and `dtype` the numpy or ml_dtypes dtype that holds it (TF32 has none of its
    own and lives in float32). `bits` counts the bits that carry information, `precision` the bits of the significand
    with the hidden one. `saturating` says that conversion to the format usually gives the largest finite value where
    IEEE 754 would give infinity; `infinities` and `subnormals` that the format has any. `source` names the document that
    defines it.
    """

    name: str
    dtype: str
    bits: int
    precision: int
    emax: int
    emin: int
    largest: float
    saturating: bool = False
    infinities: bool = True
    subnormals: bool = True
    source: str

    @property
    def smallest_normal(self) -> float:
        """2^emin."""
        return 2.0**self.emin

    @property
    def smallest_subnormal(self) -> float:
        """2^(emin - precision + 1), the distance between numbers below 2^(emin + 1)."""
        return 2.0 ** (self.emin - self.precision + 1)

    @property
    def unit_roundoff(self) -> float:
        """2^-precision: the largest relative error of rounding a number in the normal range to nearest."""
        return 2.0**-self.precision

    @property
    def title(self) -> str:
        """What people call it: FP16, BF16, TF32, FP8 E4M3."""
        return _TITLES[self.name]

    def contains(self, other: Format) -> bool:
        """Whether every finite number of `other` is one of this format."""
        return (
            self.precision >= other.precision
            and self.largest >= other.largest
            and self.smallest_subnormal <= other.smallest_subnormal
        )


def format_named(name: str) -> Format:
    """The format with this short name ("f16") or dtype name ("float16").

    Raises:
        ParityError: there is none of that name.
    """
    if name in FORMATS:
        return FORMATS[name]
    for known in FORMATS.values():
        if name == known.dtype and known.name != "tf32":
            return known
    raise ParityError(f"there is no number format {name!r}", fix=f"use one of: {', '.join(FORMATS)}")


# What other tools and people call the formats.
_WORDS = {
    **dict.fromkeys(("fp64", "float64", "double"), "f64"),
    **dict.fromkeys(("fp32", "float32", "float", "single", "full"), "f32"),
    **dict.fromkeys(("tensorfloat32", "tensorfloat-32"), "tf32"),
    **dict.fromkeys(("fp16", "float16", "half"), "f16"),
    **dict.fromkeys(("bfloat16", "brain"), "bf16"),
    **dict.fromkeys(("e4m3", "fp8e4m3", "float8_e4m3", "float8_e4m3fn", "fp8_e4m3"), "f8e4m3"),
    **dict.fromkeys(("e5m2", "fp8e5m2", "float8_e5m2", "fp8_e5m2"), "f8e5m2"),
    "i8": "int8",
}


NARROW = ("fp16", "bf16", "tf32", "fp8", "e4m3", "e5m2", "int8")  # what is narrower than FP32, as people call it


def format_word(word: str) -> str:
    """Our short name of a format that is called `word` elsewhere ("FP16", "half", "bfloat16"); what is not known as it is."""
    small = word.strip().lower()
    return _WORDS.get(small, small if small in FORMATS or small in _TITLES else word)


_TITLES = {
    "f64": "FP64",
    "f32": "FP32",
    "tf32": "TF32",
    "f16": "FP16",
    "bf16": "BF16",
    "f8e4m3": "FP8 E4M3",
    "f8e5m2": "FP8 E5M2",
    "int8": "INT8",
    "fp8": "Scaled FP8",
}


def _ieee_format(name: str, dtype: str, *, bits: int, precision: int, emax: int, source: str) -> Format:
    """A format after IEEE 754: emin = 1 - emax, and only the all-ones exponent is kept for infinity and NaN."""
    largest = (2.0 - 2.0 ** (1 - precision)) * 2.0**emax
    return Format(
        name=name,
        dtype=dtype,
        bits=bits,
        precision=precision,
        emax=emax,
        emin=1 - emax,
        largest=largest,
        source=source,
    )


_ALL = (
    _ieee_format("f64", "float64", bits=64, precision=53, emax=1023, source="IEEE 754-2019 binary64"),
    _ieee_format("f32", "float32", bits=32, precision=24, emax=127, source="IEEE 754-2019 binary32"),
    _ieee_format("tf32", "float32", bits=19, precision=11, emax=127, source="NVIDIA A100 whitepaper 1.0"),
    _ieee_format("f16", "float16", bits=16, precision=11, emax=15, source="IEEE 754-2019 binary16"),
    _ieee_format("bf16", "bfloat16", bits=16, precision=8, emax=127, source="Intel BFLOAT16 definition 1.0"),
    # E4M3 gives up infinity, and of the all-ones exponent only the all-ones significand is NaN: largest is 1.75·2^8.
    Format(
        name="f8e4m3",
        dtype="float8_e4m3fn",
        bits=8,
        precision=4,
        emax=8,
        emin=-6,
        largest=448.0,
        saturating=True,
        infinities=False,
        source="OCP OFP8 1.0, E4M3",
    ),
    Format(
        name="f8e5m2",
        dtype="float8_e5m2",
        bits=8,
        precision=3,
        emax=15,
        emin=-14,
        largest=57344.0,
        saturating=True,
        source="OCP OFP8 1.0, E5M2",
    ),
)

FORMATS: Mapping[str, Format] = MappingProxyType({each.name: each for each in _ALL})


def _scaled_format(name: str, dtype: str, precision: int, source: str) -> Format:
    """A format whose scales give it FP32's range. `precision` is of the largest numbers of a tensor."""
    wide = FORMATS["f32"]
    return Format(
        name=name,
        dtype=dtype,
        bits=8,
        precision=precision,
        emax=wide.emax,
        emin=wide.emin,
        largest=wide.largest,
        saturating=True,
        infinities=False,
        source=source,
    )


QUANTIZED: Mapping[str, Format] = MappingProxyType(
    {
        "int8": _scaled_format("int8", "int8", 7, "ONNX QuantizeLinear-10"),
        "fp8": _scaled_format("fp8", "float8_e4m3fn", 4, "OCP OFP8 1.0, E4M3"),
    }
)
"""What products alone are computed in, by name."""


def known_format(name: str) -> Format:
    """A number format, or what products are quantized to, by its name.

    Raises:
        ParityError: there is none of that name.
    """
    if name in QUANTIZED:
        return QUANTIZED[name]
    try:
        return format_named(name)
    except ParityError as error:
        raise ParityError(error.problem, fix=f"use one of: {', '.join([*FORMATS, *QUANTIZED])}") from error
