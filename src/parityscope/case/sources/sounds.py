"""Sounds, .wav of PCM, with a function that gets float32 (frames, channels) from -1 to 1, and the rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.sounds import read_sound
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed, refuse_unprepared
from parityscope.case.sources._classes import classes_of, labels_of

if TYPE_CHECKING:
    from parityscope.case.formats import Streamed
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    refuse_unprepared(
        named, reading, f"{len(named.files)} sounds", "float32 (frames, channels) from -1 to 1, and the rate"
    )
    prepare = preparation_of(reading.preprocess, named.inputs)
    labels, truths = labels_of(named), classes_of(named)

    def read(index: int) -> Streamed:
        sound, rate = read_sound(named.files[index], reading.memory)
        fields = {"sound": sound, "rate": rate}
        return prepare(RawSample(label=labels[index], fields=fields, alone=(sound, rate), truths=truths(index)))

    origin = f"{len(named.files)} sounds in {named.path}, {reading.preprocess}"
    return Indexed(origin=origin, labels=labels, read=read, prepared=True)


SOURCE = DataSource(
    name="sounds",
    words="sounds",
    open=_open,
    suffixes=frozenset({".wav"}),
    takes=frozenset({"preprocess"}),
    classes=True,
)
