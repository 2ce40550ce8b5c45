"""What a program gives for an output that is a sequence, an optional or a map, by the tensors that `opening_outputs` makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PART = re.compile(r"\[(keys|values|shapes|\d+)\]$")


def owner_of_output(name: str) -> str:
    """The output of the file that an output says a part of."""
    return _PART.sub("", name)


def tensors_of_value(name: str, value: Any, known: Collection[str]) -> dict[str, Any]:
    """What a program gives for the output `name`, by the `known` names of its tensors; a tensor is one under its own name."""
    if f"{name}[keys]" in known and isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value):
        keys = sorted(value[0]) if value else []
        return {name: np.array([[row[key] for key in keys] for row in value], np.float32), f"{name}[keys]": keys}
    if f"{name}[values]" in known and f"{name}[shapes]" in known:
        parts = [np.asarray(one) for one in _tensors_inside(value)]
        flat = [one.reshape(-1) for one in parts]
        shapes = [size for one in parts for size in one.shape]
        return {f"{name}[values]": np.concatenate(flat or [np.zeros(0)]), f"{name}[shapes]": np.array(shapes, np.int64)}
    if name not in known and f"{name}[0]" in known and isinstance(value, Sequence):
        return {f"{name}[{place}]": one for place, one in enumerate(value)}
    return {name: value}


def _tensors_inside(value: Any) -> Iterator[Any]:
    """The tensors of a sequence or an optional, one after the other."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _tensors_inside(one)
    elif value is not None:
        yield value
