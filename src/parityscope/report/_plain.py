"""Records and arrays' numbers as strict JSON data: what every document is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from parityscope.records import SCHEMA
from parityscope.version import __version__


def document_head(command: str, *, kind: str = "", schema: str = SCHEMA) -> dict[str, Any]:
    """What every document begins with; the kind is left out where the schema says it."""
    of_kind = {"kind": kind} if kind else {}
    return {"schema": schema, **of_kind, "tool": {"name": "parityscope", "version": __version__}, "command": command}


def plain_items(held: Mapping[str, Any]) -> dict[str, Any]:
    """A whole document as plain data, its keys in their order."""
    return {key: to_plain_data(value) for key, value in held.items()}


def to_plain_data(value: Any) -> Any:
    """`value` as plain data: records and mappings as dicts, tuples as lists, numpy scalars as Python's numbers.

    Keys keep their order. Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".
    """
    if value is None or isinstance(value, str | int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain_data(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain_data(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_data(held) for held in value]
    if hasattr(value, "item"):
        return to_plain_data(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
