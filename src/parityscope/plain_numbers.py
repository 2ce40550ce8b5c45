"""Numbers that somebody typed: plain decimal ones, so that `1_0`, full-width digits, nan and 1e400 are mistakes and no limits."""

from __future__ import annotations

import math
import re

__all__ = ["plain_number"]

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST = 400  # characters; chosen: more than the digits of any double


def plain_number(text: str) -> float:
    """The finite number that `text` says, NaN where it says none: what is compared with NaN is never kept."""
    text = text.strip()
    value = float(text) if len(text) <= _LONGEST and _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan
