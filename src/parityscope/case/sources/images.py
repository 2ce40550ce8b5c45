"""A folder of images with the model's own preprocessing; folders in it are classes (truth `class`, from 0 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.formats.images import IMAGE_SUFFIXES, read_image
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed, refuse_unprepared
from parityscope.case.sources._classes import classes_of, labels_of

if TYPE_CHECKING:
    from parityscope.case.formats import Streamed
    from parityscope.case.sources import Named, ReadingOptions


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    refuse_unprepared(named, reading, f"{len(named.files)} images", "(height, width, 3) uint8 RGB")
    prepare = preparation_of(reading.preprocess, named.inputs)
    labels, truths = labels_of(named), classes_of(named)

    def read(index: int) -> Streamed:
        path = named.files[index]
        image = read_image(path, reading.memory)
        example = RawSample(
            label=labels[index], fields={"image": image}, alone=(image,), original=path, truths=truths(index)
        )
        return prepare(example)

    origin = f"{len(named.files)} images in {named.path}, {reading.preprocess}"
    return Indexed(origin=origin, labels=labels, read=read, prepared=True)


SOURCE = DataSource(
    name="images",
    words="images",
    open=_open,
    suffixes=IMAGE_SUFFIXES,
    takes=frozenset({"preprocess"}),
    classes=True,
)
