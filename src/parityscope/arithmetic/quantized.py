"""What products alone are computed in, with scales: formats by name, beside the number formats of `formats`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS, Format, format_named
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["QUANTIZED", "known_format"]


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
