"""Samples that lie beside a model's file, where nobody says which to take: what fits its inputs, of one kind.

Kinds are tried in this order: .npz and Polygraphy's .json with all inputs by name; .npy for a sole input; images (.png, .jpg)
for a sole input of rank 4 with three channels, stretched to its size and scaled to [0, 1]; .wav for a sole float input with one
axis that is not 1, as numbers in [-1, 1], cut or filled with silence to its length. Files that do not fit are passed over:
they are somebody's weights, outputs or settings. The origin says what was taken and what was done to it.
"""

from __future__ import annotations

import math
import wave
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.conformance import check_names
from parityscope.case.formats import UNREADABLE, Streamed
from parityscope.case.formats.images import read_image
from parityscope.case.formats.npy import read_header, read_npy_file
from parityscope.case.formats.npz import open_npz
from parityscope.case.formats.polygraphy import open_inputs
from parityscope.case.imaging.recipe import Placing, Recipe, prepare_image
from parityscope.case.inputs import load_inputs
from parityscope.case.sources import Stream
from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parityscope.case.inputs import Inputs
    from parityscope.case.model import Model
    from parityscope.records import ValueInfo

SAMPLES = 4  # at most; chosen: a first look takes seconds
_MOST_FILES = 32  # of a kind that are tried; chosen: a folder of a thousand outputs is not read through
_OPEN = 16_000  # numbers of sound where the model leaves the length open: a second at the rate of most speech models
_RGB = 3
_IMAGE_RANK = 4
_SIDE = 224  # pixels where the model leaves the size open, as generated inputs have
_WHOLE_16 = 32768.0
_TWO_BYTES = 2


def samples_beside(model: Model, spool: Path, memory: int, samples: int = SAMPLES) -> Inputs | None:
    """The samples of the first kind of which a file in the model's folder fits; None where none does."""
    for endings, words, read in _KINDS:
        paths = sorted(one for one in model.named.parent.iterdir() if one.suffix.lower() in endings)[:_MOST_FILES]
        fitting = _fitting_samples(model, paths, read, spool / words.split()[0], memory, samples)
        found = list(islice(fitting, samples))
        if found:
            names = ", ".join(dict.fromkeys(one.label for one in found))
            origin = f"{names} beside the model{'' if words in _AS_THEY_ARE else f', {words}'}"
            return load_inputs(model, Stream(origin=origin, samples=iter(found)), spool=spool / "taken", memory=memory)
    return None


def _fitting_samples(
    model: Model,
    paths: list[Path],
    read: Callable[[Model, Path, int], Any],
    spool: Path,
    memory: int,
    samples: int,
) -> Iterator[Streamed]:
    """The checked samples of the files that fit, file by file."""
    for number, path in enumerate(paths):
        folder = spool / str(number)
        try:
            made = read(model, path, memory)
            source = (
                made
                if made is path
                else Stream(origin=path.name, samples=iter([Streamed(label=path.name, arrays=made)]))
            )
            for sample in load_inputs(model, source, spool=folder, samples=samples, memory=memory):
                yield Streamed(label=path.name, arrays=dict(sample.arrays))
        except (ParityError, wave.Error, *UNREADABLE):
            continue


def _take_path(model: Model, path: Path, _: int) -> Path:
    """The file itself, where its arrays have the inputs' names: others may be outputs of the same shape."""
    stored = open_npz([path], path.name) if path.suffix.lower() == ".npz" else open_inputs([path], path.name)
    check_names(model.inputs, stored.names(0), path.name)
    return path


def _sole_input(model: Model) -> ValueInfo:
    if len(model.inputs) != 1:
        raise ValueError("which input it is nobody says")
    return model.inputs[0]


def _refuse_beyond(memory: int, nbytes: int) -> None:
    if nbytes > memory:
        raise ValueError("it takes more than there is")


def _read_array(model: Model, path: Path, memory: int) -> dict[str, np.ndarray]:
    with open_regular_file(path, path.name) as file:
        _refuse_beyond(memory, read_header(file, path.stat().st_size).nbytes)
    return {_sole_input(model).name: read_npy_file(path)}


def _read_picture(model: Model, path: Path, memory: int) -> dict[str, np.ndarray]:
    value = _sole_input(model)
    shape = value.shape or ()
    if len(shape) != _IMAGE_RANK or _RGB not in {shape[1], shape[3]}:
        raise ValueError("it takes no image")
    first = shape[1] == _RGB
    height, width = (one if isinstance(one, int) and one > 0 else _SIDE for one in (shape[2:] if first else shape[1:3]))
    _refuse_beyond(memory, math.prod((height, width, _RGB, np.dtype(np.float32).itemsize)))
    recipe = Recipe(input=value.name, placing=Placing(size=(height, width)), layout="NCHW" if first else "NHWC")
    return {value.name: prepare_image(recipe, read_image(path))}


def _read_sound(model: Model, path: Path, memory: int) -> dict[str, np.ndarray]:
    value = _sole_input(model)
    axes = [place for place, size in enumerate(value.shape or ()) if size != 1]
    place = axes[-1] if axes else -1
    batch = len(axes) == 2 and axes[0] == 0 and not isinstance((value.shape or ())[0], int)
    if value.dtype != "float32" or not (len(axes) == 1 or batch):
        raise ValueError("it takes no sound")
    with open_regular_file(path, path.name) as file, wave.open(file) as sound:
        if sound.getsampwidth() != _TWO_BYTES:
            raise ValueError("not of 16 bits")
        wanted = (value.shape or ())[place]
        length = wanted if isinstance(wanted, int) and wanted > 0 else min(sound.getnframes(), _OPEN)
        if not length or not sound.getnframes():
            raise ValueError("it holds no sound")
        _refuse_beyond(memory, length * np.dtype(np.float32).itemsize)
        heard = np.frombuffer(sound.readframes(length), "<i2").reshape(-1, sound.getnchannels())[:, 0]
    filled = np.zeros(length, np.float32)
    filled[: len(heard)] = heard / _WHOLE_16
    shape = [1] * len(value.shape or ())
    shape[place] = length
    return {value.name: filled.reshape(shape)}


_AS_THEY_ARE = frozenset({"samples", "arrays"})
_KINDS = (
    (frozenset({".npz", ".json"}), "samples", _take_path),
    (frozenset({".npy"}), "arrays", _read_array),
    (frozenset({".png", ".jpg", ".jpeg"}), "stretched to its size and scaled to 0 to 1", _read_picture),
    (frozenset({".wav"}), "as numbers from -1 to 1", _read_sound),
)
