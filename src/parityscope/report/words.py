"""How numbers and names are written for people: three significant digits, one unit per quantity, nothing hidden.

Numbers of documents are read by `as_number`. A value that is absent (None) is written as a dash and is never taken for NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from parityscope.plain_numbers import as_number

__all__ = [
    "ABSENT",
    "LONGEST_NAME",
    "as_number",
    "call_name",
    "clean",
    "format_bytes",
    "format_count",
    "format_error",
    "format_error_of_trial",
    "format_figure",
    "format_percent",
    "format_ratio",
    "format_seconds",
    "format_shape",
    "name_once",
    "shorten_name",
    "without_destinations",
]

_WRITES = ("--study", "--output", "-o")
_DESTINATION = re.compile(rf" (?:{'|'.join(_WRITES)})[ =](?:'[^']*'|\S+)")

ABSENT = "\N{EN DASH}"
LONGEST_NAME = 40  # characters of a name, wherever it stands
# A name that a converter made of two equal ones: "a/add;a/add".
_DOUBLED = re.compile(r"(?<![^\s'])([^\s;']{4,});\1(?![^\s',:])")
_TIMES = "\N{MULTIPLICATION SIGN}"
_DIGITS = 3
# Between these powers of ten a number is written out; outside, with an exponent (chosen: at most seven characters).
_SMALLEST_WRITTEN_OUT = -3
_LARGEST_WRITTEN_OUT = 5
_SMALLEST_PERCENTAGE = (
    1e-4  # chosen: nobody acts on less than a hundredth of a percent, and 4.07e-4 % has to be read twice
)
# Between these a percentage is written out, where figures have an exponent: 0.000119 %.
_SMALLEST_WRITTEN, _SMALLEST_FIGURE = 1e-8, 1e-5


def format_figure(value: object) -> str:
    """A number with three significant digits: "0.740", "97,900,000" is "9.79e7", "NaN", "∞"; a dash when absent."""
    x = as_number(value)
    if x is None:
        return ABSENT
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x == 0:
        return "0"
    mantissa, _, power = f"{x:.{_DIGITS - 1}e}".partition("e")
    exponent = int(power)
    if not _SMALLEST_WRITTEN_OUT <= exponent <= _LARGEST_WRITTEN_OUT:
        return f"{mantissa}e{exponent}"
    rounded = float(f"{mantissa}e{exponent}")
    return f"{rounded:,.{max(0, _DIGITS - 1 - exponent)}f}"


def format_error_of_trial(value: object) -> str:
    """An error before or behind what was tried, as a percentage; one that NaN or Inf make infinite is told to be that."""
    x = as_number(value)
    return "NaN or infinite" if x is not None and not math.isfinite(x) else format_percent(value, exact=True)


def format_error(value: object) -> str:
    """An error as a figure; one that NaN or Inf, or a reference of zeros, make infinite is told to be that."""
    x = as_number(value)
    return "not finite" if x is not None and not math.isfinite(x) else format_figure(value)


def format_percent(value: object, *, exact: bool = False) -> str:
    """A ratio as a percentage: 0.74 is "74.0 %"; unless `exact`, less than a hundredth of a percent is said to be that."""
    x = as_number(value)
    if x is None or not math.isfinite(x):
        return ABSENT if x is None else format_figure(x)
    if x and abs(x) < _SMALLEST_PERCENTAGE and not exact:
        return "< 0.01 %" if x > 0 else "about 0 %"
    if _SMALLEST_WRITTEN <= abs(x) < _SMALLEST_FIGURE:
        return f"{x * 100:.{_DIGITS - 1 - math.floor(math.log10(abs(x) * 100))}f} %"
    return f"{format_figure(x * 100)} %"


def format_ratio(before: object, after: object) -> str:
    """How many times smaller (or larger) `after` is than `before`; empty where that says nothing."""
    old, new = as_number(before), as_number(after)
    if old is None or new is None or not (math.isfinite(old) and math.isfinite(new)) or old <= 0 or new <= 0:
        return ""
    return f"{format_figure(old / new)} times smaller" if new <= old else f"{format_figure(new / old)} times larger"


def format_seconds(value: object) -> str:
    """A duration in seconds."""
    return ABSENT if value is None else f"{format_figure(value)} s"


def format_bytes(value: object) -> str:
    """A size in MiB (2^20 bytes); what is smaller than one in KiB, or in bytes."""
    x = as_number(value)
    if x is None:
        return ABSENT
    for power, unit in ((20, "MiB"), (10, "KiB")):
        if x >= 1 << power:
            return f"{format_figure(x / (1 << power))} {unit}"
    return f"{format_count(x)} bytes"


def format_count(value: object) -> str:
    """A whole number in full, with separators: "1,234,567"."""
    x = as_number(value)
    return ABSENT if x is None else f"{int(x):,}" if math.isfinite(x) else format_figure(x)


def format_shape(dims: object) -> str:
    """Dimensions with multiplication signs between them ("?" for an unknown one); "scalar" when there are none."""
    if not isinstance(dims, Iterable) or isinstance(dims, str):
        return ABSENT
    return _TIMES.join("?" if dim is None else clean(dim) for dim in dims) or "scalar"


def clean(text: object) -> str:
    """`text` on one line with control and other unprintable characters spelt out: names come from files of others."""
    plain = " ".join(str(text).splitlines()) if isinstance(text, str) else str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def shorten_name(text: object, limit: int) -> str:
    """`text` cut in the middle to `limit` characters: the ends of a tensor's name are what tells it apart."""
    plain = clean(text)
    if len(plain) <= limit:
        return plain
    head = (limit - 1) // 2
    return f"{plain[:head]}…{plain[len(plain) - (limit - 1 - head) :]}"


def name_once(text: str) -> str:
    """`text`, where a name that a converter doubled stands once."""
    return _DOUBLED.sub(r"\1", text)


def call_name(name: object) -> str:
    """A name as every answer has it."""
    return shorten_name(name_once(clean(name)), LONGEST_NAME)


def without_destinations(command: str) -> str:
    """A command without where it wrote: what was written already is not written over."""
    return _DESTINATION.sub("", command)
