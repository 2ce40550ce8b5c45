"""The largest magnitudes of activations, which the scales of quantized products follow from.

Three spellings are read: a JSON object {"tensor": largest magnitude}, as a file or as the text itself, and TensorRT's
calibration cache, whose first line is "TRT-<version>-<calibrator>" and whose others are "<tensor>: <scale>", the scale as the
eight hexadecimal digits of a big-endian float32; it is the largest magnitude over 127.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.plain_documents import parse_json
from parityscope.regular_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_CACHE = "TRT-"
_LEVELS = 127.0  # of INT8, above zero
_NBYTES = 64 << 20  # of the file (chosen): a line or entry for each of half a million tensors
_FIX = 'write {"tensor": largest magnitude} as JSON, or give a calibration cache of TensorRT'


def dynamic_ranges(text: str) -> dict[str, float]:
    """Largest magnitude by tensor, out of a file or of JSON itself.

    Raises:
        ParityError: there is no such file, or it is neither of the two.
    """
    if text.lstrip().startswith("{"):
        return _ranges_from_json(text, "")
    path = Path(text)
    held = read_text_file(path, "the dynamic ranges", limit=_NBYTES)
    return _ranges_from_cache(held, path) if held.startswith(_CACHE) else _ranges_from_json(held, str(path))


def dynamic_ranges_text(largest: Mapping[str, float]) -> str:
    """The JSON that `dynamic_ranges` reads."""
    return json.dumps(dict(largest), ensure_ascii=False)


def _ranges_from_json(text: str, where: str) -> dict[str, float]:
    held = parse_json(text, "the dynamic ranges", where)
    if not isinstance(held, dict):
        raise ParityError("the dynamic ranges are no JSON object", where=where, fix=_FIX)
    for tensor, size in held.items():
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 <= size <= sys.float_info.max:
            raise ParityError(f"{tensor!r} has {size!r:.80}, which is no magnitude", where=where, fix=_FIX)
    return {tensor: float(size) for tensor, size in held.items()}


def _ranges_from_cache(text: str, path: Path) -> dict[str, float]:
    found = {}
    for number, line in enumerate(text.split("\n")[1:], start=2):
        if not line.strip():
            continue
        tensor, _, digits = line.rpartition(": ")
        try:
            (scale,) = struct.unpack(">f", bytes.fromhex(digits.strip()))
        except (ValueError, struct.error) as error:
            raise ParityError(
                f"{path.name}, line {number}: no scale behind a tensor's name: {line[:80]!r}", where=str(path), fix=_FIX
            ) from error
        if not math.isfinite(scale) or scale < 0 or not tensor:
            raise ParityError(
                f"{path.name}, line {number}: {tensor!r} has the scale {scale}", where=str(path), fix=_FIX
            )
        if tensor in found:
            raise ParityError(f"{path.name}, line {number}: {tensor!r} stands twice", where=str(path), fix=_FIX)
        found[tensor] = scale * _LEVELS
    return found
