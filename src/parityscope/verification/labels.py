"""Labels: one .npz whose arrays have a row a sample, or a folder of .npz files, one a sample.

A folder is paired with the samples by file name; if none of its names is a sample's, by order. Anything else is an error:
a label that slips by one place is worse than none. Data that brings truths (classes of folders, columns, COCO's boxes) needs
no labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.case.formats.npz import open_npz
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.case import Inputs


NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLabels:
    """`read(index, name)` gives the labels of the sample at that place of the data set, by array name."""

    origin: str
    read: Callable[[int, str], Mapping[str, np.ndarray]]


def load_labels(path: Path | None, inputs: Inputs, *, limited: bool) -> SampleLabels | None:
    """The labels at `path` for the samples of `inputs`; `limited` says that only the first samples were taken.

    Without a path they are the truths that the data brings, if it brings any; `none` says that these are not meant.

    Raises:
        ParityError: they cannot be read, or are not one for each sample.
    """
    if path is None or (str(path) == NONE and not path.exists()):
        brought = path is None and inputs.truths(inputs.indices[0])
        return SampleLabels(origin="data", read=lambda index, _: inputs.truths(index)) if brought else None
    count = inputs.count
    if path.is_dir():
        return _labels_of_folder(path, inputs, count, limited=limited)
    if not path.is_file():
        raise ParityError(f"there are no labels at {path}", fix="give an .npz file or a folder of them")
    arrays = _read_arrays(path)
    for name, array in arrays.items():
        rows = array.shape[0] if array.ndim else 0
        if rows != count and not (limited and rows > count):
            raise ParityError(
                f"labels {name!r} have {rows} rows, and there are {count} samples",
                where=str(path),
                fix="give one row a sample, in the order of the samples",
            )
    return SampleLabels(origin=path.name, read=lambda index, _: {name: array[index] for name, array in arrays.items()})


def _labels_of_folder(folder: Path, inputs: Inputs, count: int, *, limited: bool) -> SampleLabels:
    files = {path.stem: path for path in sorted(folder.glob("*.npz"))}
    names = [Path(inputs.sample(index).name).stem for index in inputs.indices]
    missing = [name for name in names if name not in files]
    if not missing:
        return SampleLabels(origin=folder.name, read=lambda _, name: _read_arrays(files[Path(name).stem]))
    ordered = list(files.values())
    if len(missing) < len(names) or not (len(ordered) == count or (limited and len(ordered) > count)):
        raise ParityError(
            f"{folder.name} holds labels in {len(files)} files for {count} samples; there are none for {missing[0]}",
            where=str(folder),
            fix="give one .npz a sample, with the sample's name",
        )
    return SampleLabels(origin=folder.name, read=lambda index, _: _read_arrays(ordered[index]))


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    held = open_npz([path], str(path))
    arrays = held.read(0, held.names(0))
    if not arrays:
        raise ParityError(
            "there are no labels in it", where=str(path), fix="write it with numpy.savez(path, name=array)"
        )
    return arrays
