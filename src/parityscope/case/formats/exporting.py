"""Samples and outputs written the way another program reads them: Parityscope's own .npz, Polygraphy's JSON, trtexec's raw blobs.

In: one sample at a time, as arrays by tensor name. Out: files in a folder; what is written is read back by `--inputs` and by
`saved?path=` (of the folder `outputs`), and by the other program:

* `npz`: `inputs/000000.npz`, `outputs/000000.npz`.
* `polygraphy`: `inputs/0000000000.json`, `outputs/0000000000.json`, for `--load-inputs` and `--load-outputs`.
* `trtexec`: `inputs/0000000000/<name>.bin` for `--loadInputs`, `outputs/0000000000/<name>.bin` for `--loadRefOutputs`
  (TensorRT 11.1 and newer), and `trtexec.sh` with a command line for each sample.

Source of the command lines: trtexec --help of TensorRT 10 and 11. `--loadInputs` takes no shapes, so `--shapes` says them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from parityscope.case.formats import polygraphy, trtexec
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np

    Arrays = Mapping[str, np.ndarray]

__all__ = ["WRITERS", "load_inputs", "write_sample"]

_RUNNER = "parityscope"
_HEAD = """#!/bin/sh
# One command a sample. ENGINE=model.plan sh trtexec.sh; parityscope reads what it writes: --candidate 'saved?path=exported'.
set -e
cd "$(dirname "$0")"
mkdir -p exported
"""


def write_sample(kind: str, folder: Path, index: int, inputs: Arrays, outputs: Arrays, *, seconds: float = 0.0) -> None:
    """Adds one sample to the recording in `folder`.

    Args:
        kind: "npz", "polygraphy" or "trtexec".
        folder: Where it goes; made if it is not there.
        index: The sample's number, from 0.
        inputs: Arrays by input name.
        outputs: Arrays by tensor name.
        seconds: What the inference took.

    Raises:
        ParityError: the kind is unknown, or the format has no such type.
    """
    if kind not in WRITERS:
        raise ParityError(f"there is no format {kind!r}", fix=f"write one of {', '.join(WRITERS)}")
    WRITERS[kind](folder, index, inputs, outputs, seconds)


def load_inputs(folder: str, arrays: Arrays) -> list[str]:
    """The words by which trtexec reads one sample's blobs in `folder`: `--shapes=...` and `--loadInputs=...`.

    Raises:
        ParityError: a name holds what trtexec parts its lists at.
    """
    for name in arrays:
        if set(name) & set(",:"):
            raise ParityError(
                f"trtexec parts lists at commas and colons, and input {name!r} holds one", fix="rename the input"
            )
    shapes = ",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in arrays.items() if array.ndim)
    files = ",".join(f"{name}:{folder}/{trtexec.file_name(name)}.bin" for name in arrays)
    return [*([f"--shapes={shapes}"] if shapes else []), f"--loadInputs={files}"]


def _npz(folder: Path, index: int, inputs: Arrays, outputs: Arrays, _seconds: float) -> None:
    write_npz(folder / "inputs" / f"{index:06d}.npz", inputs)
    write_npz(folder / "outputs" / f"{index:06d}.npz", outputs)


def _polygraphy(folder: Path, index: int, inputs: Arrays, outputs: Arrays, seconds: float) -> None:
    polygraphy.write_input(folder / "inputs", index, inputs)
    polygraphy.write_output(folder / "outputs", index, _RUNNER, (outputs, seconds))


def _trtexec(folder: Path, index: int, inputs: Arrays, outputs: Arrays, _seconds: float) -> None:
    name = f"{index:010d}"
    trtexec.write_blobs(folder / "inputs" / name, inputs)
    trtexec.write_blobs(folder / "outputs" / name, outputs)
    script = folder / "trtexec.sh"
    words = [*load_inputs(f"inputs/{name}", inputs), f"--exportOutput=exported/{index:06d}.json"]
    line = " ".join(["trtexec", '--loadEngine="${ENGINE:-model.plan}"', *map(shlex.quote, words)])
    with script.open("a" if index else "w", encoding="utf-8") as file:
        file.write(f"{'' if index else _HEAD}{line}\n")


WRITERS: Mapping[str, Callable[[Path, int, Arrays, Arrays, float], None]] = {
    "npz": _npz,
    "polygraphy": _polygraphy,
    "trtexec": _trtexec,
}
"""What writes each format: (folder, index, inputs, outputs, seconds)."""
