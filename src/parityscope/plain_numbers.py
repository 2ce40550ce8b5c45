"""Numbers as they are written: by somebody who typed them, in documents and in sentences.

Typed ones are plain decimal numbers, so that `1_0`, full-width digits, nan and 1e400 are mistakes and no limits. Documents are
strict JSON, in which a number that is not finite is one of the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST = 400  # characters; chosen: more than the digits of any double


def plain_number(text: str) -> float:
    """The finite number that `text` says, NaN where it says none: what is compared with NaN is never kept."""
    text = text.strip()
    value = float(text) if len(text) <= _LONGEST and _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan


def plain_share(text: str) -> float:
    """The part of 1 that "0.7%" or "0.007" says, NaN where it says none; 0.7 % is what 7 of 1000 are, to the last bit."""
    percent = text.strip().endswith("%")
    value = plain_number(text.strip().removesuffix("%"))
    return float(f"{value / 100:.15g}") if percent else value


def as_number(value: object) -> float | None:
    """A number of a document as a float; None when it is absent.

    Raises:
        ValueError: it is a string, but none of the three that stand for a number.
        TypeError: it is neither a number nor a string.
    """
    if value is None:
        return None
    if isinstance(value, str) and value not in {"NaN", "Infinity", "-Infinity"}:
        raise ValueError(f"{value!r} is not a number of a study document")
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is not a number of a study document")
    return float(value)


def format_number(value: float, *, digits: int = 3) -> str:
    """A number as a reader writes it: whole with thousands separators, else so many digits; no zeros in the exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    mantissa, exponent, power = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def list_first(words: Iterable[str], most: int) -> str:
    """The first of some names in a sentence, and how many more there are."""
    held = list(words)
    more = f" and {len(held) - most:,} more" if len(held) > most else ""
    return ", ".join(held[:most]) + more
