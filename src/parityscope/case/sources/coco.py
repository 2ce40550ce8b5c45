"""COCO's annotations of objects: the images that a JSON file lists, with `boxes`, `classes` and `crowd` as truths.

Boxes are (n, 4) as x1, y1, x2, y2 in pixels of the image, float32, as the metric `map` takes them; classes are the category
ids as they stand there; `size` is (height, width). The images lie beside the file, in a folder `images` there, or as COCO
lays them out: `annotations/instances_val2017.json` beside `val2017/`.

Source: COCO's "Data format" (cocodataset.org/#format-data), object detection.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import unreadable_error
from parityscope.case.formats.images import read_image
from parityscope.case.preparing import RawSample, preparation_of
from parityscope.case.sources import DataSource, Indexed, refuse_unprepared
from parityscope.errors import ParityError
from parityscope.plain_documents import read_json_file
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case.formats import Streamed
    from parityscope.case.sources import Named, ReadingOptions

_HEAD = 1 << 16  # bytes in which the keys are looked for: information and licences stand before them
_LISTS = re.compile(rb'"(?:images|annotations)"\s*:\s*\[')  # an input may be called so, too, and is no list
_MOST_NBYTES = 1 << 30


def _claims(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with open_regular_file(path, path.name) as file:
        head = file.read(_HEAD)
    return b"polygraphy" not in head and _LISTS.search(head) is not None


def _open(named: Named, reading: ReadingOptions) -> Indexed:
    path = named.path
    document = read_json_file(path, path.name, limit=_MOST_NBYTES)
    try:
        images = [(int(one["id"]), str(one["file_name"])) for one in document["images"]]
        truths = _truths_by_image(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise unreadable_error(path, f"it is no COCO file of objects ({error!r})") from error
    refuse_unprepared(named, reading, f"{len(images)} images", "(height, width, 3) uint8 RGB")
    folder = _folder_of_images(path, [name for _, name in images])
    prepare = preparation_of(reading.preprocess, named.inputs)

    def read(index: int) -> Streamed:
        number, name = images[index]
        image = read_image(folder / name, reading.memory)
        told = {**truths.get(number, _NOTHING), "size": np.array(image.shape[:2], np.int64)}
        return prepare(
            RawSample(label=name, fields={"image": image}, alone=(image,), original=folder / name, truths=told)
        )

    origin = f"{len(images)} images of {path}, {reading.preprocess}"
    return Indexed(origin=origin, labels=[name for _, name in images], read=read, prepared=True)


_NOTHING: Mapping[str, np.ndarray] = {
    "boxes": np.zeros((0, 4), np.float32),
    "classes": np.zeros(0, np.int64),
    "crowd": np.zeros(0, bool),
}


def _truths_by_image(document: Any) -> dict[int, dict[str, np.ndarray]]:
    """Image id -> its truths.

    Raises:
        KeyError, TypeError, ValueError: an annotation has another form.
    """
    rows: dict[int, list[tuple[list[float], int, bool]]] = {}
    for one in document["annotations"]:
        left, top, width, height = map(float, one["bbox"])
        box = [left, top, left + width, top + height]
        rows.setdefault(int(one["image_id"]), []).append((box, int(one["category_id"]), bool(one.get("iscrowd", 0))))
    return {
        number: {
            "boxes": np.array([box for box, _, _ in held], np.float32),
            "classes": np.array([kind for _, kind, _ in held], np.int64),
            "crowd": np.array([crowd for _, _, crowd in held], bool),
        }
        for number, held in rows.items()
    }


def _folder_of_images(path: Path, names: list[str]) -> Path:
    """Where the images lie.

    Raises:
        ParityError: a name leads out of the folder, or they are nowhere.
    """
    out = next((name for name in names if PurePath(name).is_absolute() or ".." in PurePath(name).parts), None)
    if out is not None:
        raise ParityError(f"it names {out!r}, which leads out of the folder", where=str(path), fix="name files in it")
    split = path.stem.rpartition("_")[2]
    folders = (path.parent, path.parent / "images", path.parent / split, path.parent.parent / split)
    found = next((folder for folder in folders if names and (folder / names[0]).is_file()), None)
    if found is None:
        raise ParityError(
            f"the images of {path.name} are not found" if names else f"{path.name} lists no images",
            where=str(path),
            fix=f"put them beside it, in a folder 'images' or {split!r}",
        )
    return found


SOURCE = DataSource(
    name="coco", words="images with COCO's annotations", open=_open, claims=_claims, takes=frozenset({"preprocess"})
)
