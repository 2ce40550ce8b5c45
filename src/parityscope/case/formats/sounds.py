"""Sound files as arrays: PCM .wav of 8, 16, 24 or 32 bits -> float32 (frames, channels) from -1 to 1, and frames a second.

Eight bits are unsigned around 128, all others signed and little-endian (Microsoft's "Multimedia Programming Interface and Data
Specifications 1.0", 1991). Other encodings are the user's to read, in a loader.
"""

from __future__ import annotations

import wave
from typing import IO, TYPE_CHECKING

import numpy as np

from parityscope.case.formats import UNREADABLE, UnreadableError, unreadable_error
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from pathlib import Path

_FLOAT_NBYTES = 4


def read_sound(path: Path, memory: int) -> tuple[np.ndarray, int]:
    """The sound in a file, which may take `memory` bytes.

    Raises:
        ParityError: it is no whole PCM .wav, or takes more.
    """
    with open_regular_file(path, path.name) as file:
        return decode_sound(file, path, memory)


def decode_sound(file: IO[bytes], path: Path, memory: int) -> tuple[np.ndarray, int]:
    """As `read_sound`, of an open file; `path` is what errors call it.

    Raises:
        ParityError: as `read_sound`.
    """
    try:
        with wave.open(file) as sound:
            frames, channels, width = sound.getnframes(), sound.getnchannels(), sound.getsampwidth()
            if frames * channels * (_FLOAT_NBYTES + width) > memory:
                raise ParityError(
                    f"{path.name} has {frames} frames, more than --memory holds",
                    where=str(path),
                    fix="cut it, or give more --memory",
                )
            data = sound.readframes(frames)
            rate = sound.getframerate()
    except wave.Error as error:
        raise UnreadableError(
            f"{path.name} cannot be read: {error}",
            where=str(path),
            fix="convert it to a .wav of PCM, or write a loader",
        ) from error
    except UNREADABLE as error:
        raise unreadable_error(path, error) from error
    if len(data) != frames * channels * width:
        raise unreadable_error(path, f"{frames} frames are announced, and {len(data)} bytes are there")
    return _numbers_of(data, width).reshape(frames, channels), rate


def _numbers_of(data: bytes, width: int) -> np.ndarray:
    """PCM of `width` bytes as float32 from -1 to 1."""
    raw = np.frombuffer(data, np.uint8)
    if width == 1:
        return (raw.astype(np.float32) - 128) / 128
    wide = np.zeros((raw.size // width, 4), np.uint8)
    wide[:, 4 - width :] = raw.reshape(-1, width)  # the highest bytes of 32 bits: the sign comes along
    return (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
