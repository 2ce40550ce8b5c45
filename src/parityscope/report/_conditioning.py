"""Layers that make the error larger which comes in: the network's own conditioning, named and never blamed.

With exact arithmetic such a layer hands on more relative error than it was given (a difference of close numbers, a logarithm
near one, a normalization of a channel that hardly varies). A candidate is no worse for it; what enters is what to reduce.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report.words import as_number, clean, format_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

_GAIN = 2.0  # inherited over what enters, both relative; below it a layer is like many. Chosen.
_ABOVE = 4.0  # of the FP32 floor: what is amplified is more than noise (the margin of the grade "f32")
_NAMED = 3  # of them, the largest gains first. Chosen.


def describe_amplifying_layers(document: Mapping[str, Any]) -> list[str]:
    """A sentence for each of the layers that amplify most; none where none does by much."""
    found = [(_number_in_row(row, "gain"), row) for row in document.get("tensors", ()) if _amplifies_much(row)]
    found.sort(key=lambda each: -each[0])
    return [
        f"{clean(row.get('node') or row['name'])} ({clean(row.get('op_type', ''))}) makes the error that enters it "
        f"{format_figure(gain)} times larger, to {format_figure(row.get('inherited'))}: this is the network's own "
        "conditioning and no cause."
        for gain, row in found[:_NAMED]
    ]


def _amplifies_much(row: Mapping[str, Any]) -> bool:
    gain, inherited, floor = (_number_in_row(row, key) for key in ("gain", "inherited", "floor"))
    return math.isfinite(gain) and gain >= _GAIN and inherited > _ABOVE * (0.0 if math.isnan(floor) else floor)


def _number_in_row(row: Mapping[str, Any], key: str) -> float:
    """A number of a row; NaN where it lacks it."""
    found = as_number(row.get(key))
    return math.nan if found is None else found
