"""trtexec's exported outputs as JSON (`--exportOutput`).

A list of `{"name": ..., "dimensions": "1x3x4", "values": [...]}`, one inference. Values are printed by a C++ stream: six
significant digits, and bare `nan` and `inf`, which JSON does not know; "(1, 3, 4)" is read as well. An output whose shape the
run decides has "-1" among its dimensions, and among its values a sentence with the shape that it got.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UNREADABLE, Stored, dtype_of, unreadable_error
from parityscope.plain_documents import parse_json
from parityscope.regular_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.records import ValueInfo

_MOST_NBYTES = 256 << 20  # of a file; chosen: outputs as large are recorded in binary
_NUMBER_NBYTES = 32  # of a number in a list: 8 for its place, 24 for itself
# `Binding::dump` in trtexec's sampleInference.cpp writes it into the JSON.
_FINAL = re.compile(
    r'("dimensions"\s*:\s*")[^"]*("\s*,\s*"values"\s*:\s*\[)\s*Final shape is ([\d x,()]*?) reported by the output allocator\.'
)
_DIMENSIONS = re.compile(r"[\d x,()]*", re.ASCII)
_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:nan|inf)\b(?:\(ind\))?')
_IN_JSON = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def open_exported(path: Path, values: Sequence[ValueInfo]) -> Stored:
    """The outputs in an `--exportOutput` file, in the dtypes that `values` declare (others: float32).

    Raises:
        ParityError: the file is not of this format, or a value is beyond the declared integer type.
    """
    declared = {value.name: value.dtype for value in values}
    arrays: dict[str, np.ndarray] = {}
    text = _FINAL.sub(r"\1\3\2", read_text_file(path, path.name, limit=_MOST_NBYTES))
    entries = parse_json(_BARE.sub(_json_number, text), path.name, path, each=_NUMBER_NBYTES)
    try:
        for entry in entries:
            name = str(entry["name"])
            if name in arrays:
                raise ValueError(f"tensor {name!r} stands twice")
            arrays[name] = _array_from_text(entry, declared.get(name, "float32"))
    except UNREADABLE as error:
        raise unreadable_error(path, error) from error
    return Stored(
        origin=f"trtexec --exportOutput (text of 6 significant digits), {path}",
        labels=(path.name,),
        names=lambda _: tuple(arrays),
        read=lambda _, wanted: {name: arrays[name] for name in wanted},
    )


def _json_number(match: re.Match[str]) -> str:
    return _IN_JSON.get(match[0].removesuffix("(ind)"), match[0])


def _array_from_text(entry: Mapping[str, Any], declared: str) -> np.ndarray:
    if not _DIMENSIONS.fullmatch(dimensions := str(entry["dimensions"])):
        raise ValueError(f"tensor {entry['name']!r} has the dimensions {dimensions[:40]!r}")
    shape = tuple(int(dim) for dim in re.findall(r"\d+", dimensions))
    values = entry["values"]
    dtype = dtype_of(declared)
    if dtype is None or not isinstance(values, list):
        raise ValueError(f"tensor {entry['name']!r} cannot be read as {declared}")
    if dtype.kind in "iu" or (dtype.kind == "V" and "int" in declared):
        whole = np.array(values, dtype=object).astype(np.int64)
        if any(value != int(value) for value in values):
            raise ValueError(f"tensor {entry['name']!r} is declared as {declared} and holds a fraction")
        array = whole.astype(dtype)
        if (array.astype(np.int64) != whole).any():
            raise ValueError(f"tensor {entry['name']!r} holds values beyond {declared}")
        return array.reshape(shape)
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float64).astype(dtype).reshape(shape)
