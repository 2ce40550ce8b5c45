"""Folders in a folder as the classes of its samples, numbered from 0 in the order of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.formats import NO_ARRAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.case.sources import Named


def labels_of(named: Named) -> list[str]:
    """What a reader knows the files by: their names, behind that of their class."""
    return [str(path.relative_to(named.path)) if named.path.is_dir() else path.name for path in named.files]


def classes_of(named: Named) -> Callable[[int], Mapping[str, np.ndarray]]:
    """Index of a file -> its truths: `class`, int64 of shape (), where files lie in folders of their class."""
    folders = sorted({path.parent for path in named.files} - {named.path, named.path.parent})
    numbers = {folder: np.array(number, np.int64) for number, folder in enumerate(folders)}
    return lambda index: {"class": numbers[named.files[index].parent]} if numbers else NO_ARRAYS
