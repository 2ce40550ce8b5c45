"""The readers that are fuzzed: bytes become what somebody names, and are read as the command line reads it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Right:
    """The small model of the corpus, and a sample of it."""

    small: Any
    sample: Any


def prepare_right(folder: Path) -> Right:
    from parityscope.case.inputs import load_inputs
    from parityscope.case.model import load_model
    from proving.hostile.making import write_model, write_samples

    model = load_model(str(write_model(folder)))
    return Right(model, next(iter(load_inputs(model, str(write_samples(folder)), spool=folder / "spool"))))


def _use(model: Right, data: Path, saved: Path, place: Path) -> None:
    """Reads `data` as samples, and `saved` as what a deployment recorded of right samples."""
    from parityscope.backends import Capture
    from parityscope.backends.opening import open_target
    from parityscope.backends.targets import parse_target
    from parityscope.case.inputs import load_inputs
    from parityscope.errors import ParityError

    problems: list[ParityError] = []
    try:
        for sample in load_inputs(model.small, str(data), spool=place / "spool"):
            sum(int(array.size) for array in sample.arrays.values())
    except ParityError as error:
        problems.append(error)
    try:
        with open_target(model.small, parse_target(f"saved?path={saved}"), Capture()) as session:
            session.run(model.sample)
    except ParityError as error:
        problems.append(error)
    for error in problems:
        str(error)
    if len(problems) == 2:
        raise problems[0]


def read_log_at(place: Path, _: Any, content: bytes) -> None:
    """A log, alone and beside itself."""
    from parityscope import logs

    path = place / "build.log"
    path.write_bytes(content)
    log = logs.read_log(path)
    logs.find_in_log(log)
    pair = logs.compare_logs(log, log)
    logs.find_pair(pair)
    logs.find_between(pair)


def read_json_at(place: Path, model: Right, content: bytes) -> None:
    """Polygraphy's JSON; every other time the bytes are those of an array inside of a right document."""
    data, saved = place / "data.json", place / "saved.json"
    if content[:1] == b"A":
        data.write_text(json.dumps([{"x": _coded(content[1:])}]))
        saved.write_text(json.dumps(_saved(content[1:])))
    else:
        data.write_bytes(content)
        saved.write_bytes(content)
    _use(model, data, saved, place)


def _coded(held: bytes) -> dict[str, str]:
    return {"array": base64.b64encode(held).decode(), "polygraphy_class": "ndarray"}


def _saved(held: bytes) -> dict[str, Any]:
    """What Polygraphy saves of one output."""
    output = {"values": _coded(held), "polygraphy_class": "LazyArray"}
    iteration = {"outputs": {"y": output}, "runtime": 0.1, "runner_name": "a", "polygraphy_class": "IterationResult"}
    return {"lst": [["a", [iteration]]], "polygraphy_class": "RunResults"}


def read_npz_at(place: Path, model: Right, content: bytes) -> None:
    """An archive; every other time the bytes are those of a member, so that no checksum is in the way."""
    for name in ("x", "y"):
        if content[:1] == b"A":
            with zipfile.ZipFile(place / f"{name}.npz", "w") as opened:
                opened.writestr(f"{name}.npy", content[1:])
        else:
            (place / f"{name}.npz").write_bytes(content)
    _use(model, place / "x.npz", place / "y.npz", place)


def read_recording_at(place: Path, model: Right, content: bytes) -> None:
    """A folder of files: each is a length, a name and what is in it."""
    folder = place / "rec"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("inputs", "outputs"):
        (folder / name).mkdir(parents=True)
    while len(content) > 3:
        (size,) = struct.unpack("<H", content[:2])
        length = content[2] % 40 + 1
        name, body = content[3 : 3 + length], content[3 + length : 3 + length + size]
        content = content[3 + length + size :]
        with contextlib.suppress(OSError, ValueError):  # a name that no file has
            path = os.fsencode(folder) + b"/" + name.replace(b"..", b"__")
            if body[:1] == b"A" and path.endswith(b".npz"):
                with zipfile.ZipFile(os.fsdecode(path), "w") as opened:
                    opened.writestr("x.npy" if b"inputs" in name else "y.npy", body[1:])
            else:
                Path(os.fsdecode(path)).write_bytes(body)
    _use(model, folder / "inputs", folder, place)


READERS: dict[str, Callable[[Path, Any, bytes], None]] = {
    "log": read_log_at,
    "json": read_json_at,
    "npz": read_npz_at,
    "recording": read_recording_at,
}
