"""Samples and outputs written the way another program reads them: Parityscope's own .npz, Polygraphy's JSON, trtexec's raw blobs.

In: one sample at a time, as arrays by tensor name. Out: files in a folder; what is written is read back by `--inputs` and by
`saved?path=` (of the folder `outputs`), and by the other program:

* `npz`: `inputs/000000.npz`, `outputs/000000.npz`.
* `polygraphy`: `inputs/0000000000.json`, `outputs/0000000000.json`, for `--load-inputs` and `--load-outputs`, and
  `0000000000.args` with the words that give them to `polygraphy run` from outside of the folder.
* `trtexec`: `inputs/0000000000/<name>.bin` for `--loadInputs`, `outputs/0000000000/<name>.bin` for `--loadRefOutputs`
  (TensorRT 11.1 and newer), `0000000000.args` with the words that give them to trtexec from outside of the folder, and
  `trtexec.sh` with a command line for each sample.

Source of the command lines: trtexec --help of TensorRT 10 and 11. `--loadInputs` takes no shapes, so `--shapes` says them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from parityscope.case.formats import polygraphy, trtexec
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy as np

    Arrays = Mapping[str, np.ndarray]

_RUNNER = "parityscope"
_HEAD = """#!/bin/sh
# One command a sample. ENGINE=model.plan sh trtexec.sh; parityscope reads what it writes: --candidate 'saved?path=exported'.
set -e
cd "$(dirname "$0")"
mkdir -p exported
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSample:
    """One sample for a recording.

    Attributes:
        folder: Where it goes; made if it is not there.
        called: What the folder is going to be called, if it is not called that yet.
        index: The sample's number, from 0.
        inputs: Arrays by input name.
        outputs: Arrays by tensor name.
        seconds: What the inference took.
    """

    folder: Path
    called: str = ""
    index: int
    inputs: Arrays
    outputs: Arrays
    seconds: float = 0.0


def write_sample(kind: str, sample: WrittenSample) -> None:
    """Adds one sample to a recording of the kind "npz", "polygraphy" or "trtexec".

    Raises:
        ParityError: the kind is unknown, or the format has no such type.
    """
    if kind not in WRITERS:
        raise ParityError(f"there is no format {kind!r}", fix=f"write one of {', '.join(WRITERS)}")
    WRITERS[kind](sample)


def write_file(path: Path, count: int, samples: Iterable[WrittenSample]) -> None:
    """Writes the outputs of `count` samples into the one file `path`, whose ending is one of `FILES`; whole or not at all.

    Raises:
        ParityError: an .npz of several samples is asked for, or there is no such folder.
    """
    if FILES[path.suffix.lower()] == "npz" and count != 1:
        raise ParityError(
            f"an .npz holds the outputs of one sample, and there are {count:,}",
            where=str(path),
            fix=f"-o {path.with_suffix('.json')}, or -o FOLDER, or one sample: --samples 1",
        )
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix=f"mkdir -p {path.parent}")
    if FILES[path.suffix.lower()] == "npz":
        for one in samples:
            write_npz(path, one.outputs)
    else:
        polygraphy.write_outputs(path, _RUNNER, ((one.outputs, one.seconds) for one in samples))


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


def _export_npz(one: WrittenSample) -> None:
    write_npz(one.folder / "inputs" / f"{one.index:06d}.npz", one.inputs)
    write_npz(one.folder / "outputs" / f"{one.index:06d}.npz", one.outputs)


def _export_polygraphy(one: WrittenSample) -> None:
    polygraphy.write_input(one.folder / "inputs", one.index, one.inputs)
    polygraphy.write_output(one.folder / "outputs", one.index, _RUNNER, (one.outputs, one.seconds))
    name = f"{one.index:010d}"
    shapes = " ".join(f"{key}:[{','.join(map(str, array.shape))}]" for key, array in one.inputs.items() if array.ndim)
    words = f"--load-inputs {one.called or one.folder}/inputs/{name}.json" + (
        f" --input-shapes {shapes}" if shapes else ""
    )
    (one.folder / f"{name}.args").write_text(words + "\n", encoding="utf-8")


def _export_trtexec(one: WrittenSample) -> None:
    name = f"{one.index:010d}"
    trtexec.write_blobs(one.folder / "inputs" / name, one.inputs)
    trtexec.write_blobs(one.folder / "outputs" / name, one.outputs)
    # Not quoted: `trtexec $(cat FILE)` parts it at blanks and takes the rest as it is.
    outside = load_inputs(f"{one.called or one.folder}/inputs/{name}", one.inputs)
    (one.folder / f"{name}.args").write_text(" ".join(outside) + "\n", encoding="utf-8")
    words = [*load_inputs(f"inputs/{name}", one.inputs), f"--exportOutput=exported/{one.index:06d}.json"]
    line = " ".join(["trtexec", '--loadEngine="${ENGINE:-model.plan}"', *map(shlex.quote, words)])
    with (one.folder / "trtexec.sh").open("a" if one.index else "w", encoding="utf-8") as file:
        file.write(f"{'' if one.index else _HEAD}{line}\n")


WRITERS: Mapping[str, Callable[[WrittenSample], None]] = {
    "npz": _export_npz,
    "polygraphy": _export_polygraphy,
    "trtexec": _export_trtexec,
}
"""What writes each format."""

FILES: Mapping[str, str] = {".npz": "npz", ".json": "polygraphy"}
"""Of an ending the format of outputs that lie in one file."""
