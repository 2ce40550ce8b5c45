"""Music with a known score, and the notes that Basic Pitch hears in it.

In: nothing but a seed (`melody`). Out: the model's input, float32 (1, 43844, 1) at 22,050 Hz, and the score; from the
model's outputs (`heard`) notes, and how well two lists of notes agree (`note_f1`).

`heard` follows `output_to_notes_polyphonic` of basic-pitch 0.4.0 (Apache-2.0) with the thresholds of its `predict`: an
onset of at least 0.5, frames of at least 0.3, eleven frames below that end a note, and notes of at most eleven frames
(127.7 ms) are left out. Its last step, which looks for notes without an onset, is kept as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_RATE, _COUNT = 22050, 43844
FRAMES_PER_SECOND = _RATE / 256  # the model's hop
_LOWEST = 21  # MIDI number of the first of its 88 keys
_ONSET, _FRAME, _SHORTEST, _SILENCE = 0.5, 0.3, 11, 11
_NEAR = 0.05  # seconds: onsets count as the same (MIREX note tracking; Raffel et al., mir_eval, ISMIR 2014)
# Names of the outputs: onsets and frames, (1, 172, 88).
_FRAMES, _ONSETS = "StatefulPartitionedCall:1", "StatefulPartitionedCall:2"
_SCALE = (0, 2, 4, 5, 7, 9, 11, 12)  # major


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note: MIDI number, start and end in seconds."""

    pitch: int
    start: float
    end: float


def melody(seed: int) -> tuple[dict[str, NDArray[np.float32]], list[Note]]:
    """Three to five notes of a major scale with five overtones and a plucked envelope, and their score."""
    draw = np.random.default_rng(seed)
    time = np.arange(_COUNT) / _RATE
    sound = 1e-4 * draw.standard_normal(_COUNT)
    key, count = int(draw.integers(45, 66)), int(draw.integers(3, 6))
    long = 1.7 / count
    notes = []
    for place in range(count):
        pitch = key + _SCALE[int(draw.integers(len(_SCALE)))]
        note = Note(pitch=pitch, start=0.1 + place * long, end=0.1 + (place + 0.85) * long)
        held = (time >= note.start) & (time < note.end)
        since = (time - note.start)[held]
        frequency = 440.0 * 2.0 ** ((pitch - 69) / 12)
        waves = sum(np.sin(2 * np.pi * frequency * overtone * since) / overtone**1.5 for overtone in range(1, 6))
        sound[held] += 0.2 * waves * np.minimum(since / 0.01, 1) * np.exp(-1.5 * since)
        notes.append(note)
    return {"serving_default_input_2:0": (draw.uniform(0.3, 1.0) * sound).astype(np.float32)[None, :, None]}, notes


def heard(outputs: Mapping[str, NDArray[np.float32]]) -> list[Note]:
    """The notes in the model's outputs; none where an output is not finite."""
    frames, onsets = (outputs[name][0].astype(np.float64) for name in (_FRAMES, _ONSETS))
    if not (np.isfinite(frames).all() and np.isfinite(onsets).all()):
        return []
    left, found = frames.copy(), []
    for start, key in _peaks(_with_inferred(onsets, frames)):
        end = _forward(left, start, key)
        if end - start > _SHORTEST:
            _take(left, slice(start, end), key)
            found.append((start, end, key))
    while left.max() > _FRAME:
        middle, key = (int(place) for place in np.unravel_index(np.argmax(left), left.shape))
        left[middle, key] = 0
        end = _forward(left, middle, key)
        begin = left.shape[0] - _forward(left[::-1], left.shape[0] - 1 - middle, key)
        _take(left, slice(max(begin - _SILENCE, 0), min(end + _SILENCE, left.shape[0])), key)
        if end - begin > _SHORTEST:
            found.append((begin, end, key))
    made = (
        Note(pitch=key + _LOWEST, start=start / FRAMES_PER_SECOND, end=end / FRAMES_PER_SECOND)
        for start, end, key in found
    )
    return sorted(made, key=lambda note: (note.start, note.pitch))


def note_f1(reference: Iterable[Note], candidate: Iterable[Note]) -> float:
    """2 |same| / (|reference| + |candidate|): the same pitch, and onsets at most 50 ms apart; 1 for no notes at all."""
    right, found = list(reference), list(candidate)
    total, same = len(right) + len(found), 0
    for note in right:
        near = [one for one in found if one.pitch == note.pitch and abs(one.start - note.start) <= _NEAR]
        if near:
            found.remove(min(near, key=lambda one: abs(one.start - note.start)))
            same += 1
    return 2 * same / total if total else 1.0


def _with_inferred(onsets: NDArray[np.float64], frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Onsets, and rises of frames over one and over two steps, scaled to the same maximum."""
    rises = np.zeros_like(frames)
    rises[2:] = np.maximum(np.minimum(frames[2:] - frames[1:-1], frames[2:] - frames[:-2]), 0)
    top = rises.max()
    return onsets if top == 0 else np.maximum(onsets, onsets.max() * rises / top)


def _peaks(onsets: NDArray[np.float64]) -> list[tuple[int, int]]:
    """(frame, key) of local maxima along time that reach the threshold, the last first."""
    inner = onsets[1:-1]
    top = (inner > onsets[:-2]) & (inner > onsets[2:]) & (inner >= _ONSET)
    return [(int(frame) + 1, int(key)) for frame, key in np.argwhere(top)[::-1]]


def _forward(left: NDArray[np.float64], start: int, key: int) -> int:
    """The frame behind the last one that is loud enough, before eleven that are not."""
    frame, silent = start + 1, 0
    while frame < left.shape[0] - 1 and silent < _SILENCE:
        silent = silent + 1 if left[frame, key] < _FRAME else 0
        frame += 1
    return frame - silent


def _take(left: NDArray[np.float64], frames: slice, key: int) -> None:
    """Removes a note, with what it leaves in the keys beside it."""
    left[frames, max(key - 1, 0) : key + 2] = 0
