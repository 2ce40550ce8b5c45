"""The bytes of an input are read as another type: int32 where the engine reads int64, float64 where it reads float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant

# What the program gives, and the engine takes for the type of its input.
_GIVEN = {"int64": "int32", "float32": "float64", "int32": "int64"}


def _plant(bed: Bed) -> Plant:
    names = [name for name, array in bed.samples[0].items() if array.dtype.name in _GIVEN and array.size > 1]
    name = names[int(bed.draw.integers(len(names)))]
    other = np.dtype(_GIVEN[bed.samples[0][name].dtype.name])
    if name == "token_type_ids":
        raise NoEffectError("halves of noughts and ones are noughts and ones")
    given = [{**each, name: _taken(each[name], other)} for each in bed.samples]
    return fed(bed, given, f"{name} is given as {other} and read as {given[0][name].dtype}")


def _taken(array: np.ndarray, other: np.dtype[np.generic]) -> np.ndarray:
    """The bytes of the values in type `other`, read as the array's own; nought where they end."""
    held = np.zeros(array.nbytes, np.uint8)
    data = array.astype(other).reshape(-1).view(np.uint8)[: held.size]
    held[: data.size] = data
    values = held.view(array.dtype)
    if array.dtype.kind == "f" and not np.isfinite(values).all():
        raise NoEffectError("the bytes are no numbers there")
    return values.reshape(array.shape)


FAULT = Fault(
    title="An input read as another type",
    family="bindings",
    expected="BND002",
    repair="upload",
    subjects=("small-two", "small-rows", "small-many", "magika", "ocr-cls"),
    plant=_plant,
)
