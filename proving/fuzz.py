"""Fuzzes the readers of data, guided by coverage: `python -m proving.fuzz READER [--seconds N] [--corpus DIR]`.

Needs atheris (libFuzzer for Python), which is not among the packages that tests need. Whatever is no `ParityError`, takes five
seconds or a gigabyte is a finding; each place in the code is told once, with a file that shows it, and the fuzzing goes on.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import io
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SLOW_S = 5.0
MEMORY = 1 << 30
_LOG = b"""&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
[08/20/2024-20:57:40] [I] Precision: FP32+FP16
[08/20/2024-20:57:50] [W] [TRT] - 111 weights are affected by this issue: Detected subnormal FP16 values.
[08/20/2024-20:57:50] [V] [TRT]   List of affected weights: batch_norm_0.w_2
[08/20/2024-20:57:51] [V] [TRT] Engine Layer Information:
Layer(CaskConvolution): Conv_0 + Relu_1, Tactic: 0x1, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]
[08/20/2024-20:57:52] [I] [TRT] Engine generation completed in 9.5 seconds.
&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
"""


@dataclass
class Watch:
    """What was run and found."""

    folder: Path
    until: float
    begun: float = field(default_factory=time.monotonic)
    runs: int = 0
    refused: int = 0
    found: dict[str, str] = field(default_factory=dict)

    def note(self, kind: str, content: bytes, words: str) -> None:
        """A finding, if this place was not found before."""
        if kind in self.found:
            return
        self.found[kind] = words
        path = self.folder / f"found-{len(self.found):03d}"
        path.write_bytes(content)
        print(f"FOUND {kind}\n{words}\n      {path}", flush=True)

    def end_in_time(self) -> None:
        """Ends the process with figures when the time is over; libFuzzer does not come back."""
        if time.monotonic() < self.until:
            return
        seconds = time.monotonic() - self.begun
        print(
            f"{self.runs} executions in {seconds:.0f} s, {self.refused} refused, {len(self.found)} findings", flush=True
        )
        os._exit(int(bool(self.found)))


@dataclass(frozen=True)
class Right:
    """The small model of the corpus, and a sample of it."""

    small: Any
    sample: Any


def _right(folder: Path) -> Right:
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
    logs.find(log)
    pair = logs.compare_logs(log, log)
    logs.find_pair(pair)
    logs.find_between(pair)


def _npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


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


def _packed(files: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(struct.pack("<HB", len(body), len(name) - 1) + name + body for name, body in files)


def _seeds(kind: str) -> list[bytes]:
    """Files that are right, to begin with."""
    x, y = _npy(np.ones((1, 8), np.float32)), _npy(np.ones((1, 4), np.float32))
    held = io.BytesIO()
    np.savez(held, x=np.ones((1, 8), np.float32), y=np.ones((1, 4), np.float32))
    array = {"array": base64.b64encode(x).decode(), "polygraphy_class": "ndarray"}
    iteration = {
        "outputs": {"y": {"values": array, "polygraphy_class": "LazyArray"}},
        "runtime": 0.1,
        "runner_name": "a",
    }
    runs = {"lst": [["a", [iteration | {"polygraphy_class": "IterationResult"}]]], "polygraphy_class": "RunResults"}
    layer = {"Name": "Conv_0", "LayerType": "Conv", "Inputs": [], "Outputs": [], "Metadata": "[ONNX Layer: Conv_0]"}
    exported = [{"name": "y", "dimensions": "1x4", "values": [1, 2, 3, 4]}]
    manifest = json.dumps(
        {"outputs": {"y": {"dtype": "float32", "shape": [1, 4]}}, "widened_to_float32": ["y"]}
    ).encode()
    files = [(b"inputs/000000.npz", b"A" + x), (b"outputs/000000.npz", b"A" + y), (b"manifest.json", manifest)]
    raw = [
        (b"outputs/y.bin", b"\0" * 16),
        (b"inputs/x.input.1.8.Float.raw", b"\0" * 32),
        (b"environment.json", b'{"facts": {"gpu": "a"}}'),
    ]
    seeds = {
        "log": [
            _LOG,
            json.dumps({"Layers": [layer]}).encode(),
            _LOG.decode().encode("utf-16"),
            b"[I] Loaded model: a.onnx\n" + _LOG[60:],
        ],
        "json": [
            b"A" + x,
            json.dumps([{"x": array}]).encode(),
            json.dumps(runs).encode(),
            json.dumps(exported).encode(),
        ],
        "npz": [b"A" + x, b"A" + y, held.getvalue()],
        "recording": [_packed(files), _packed(raw), _packed([*files, *raw])],
    }
    return seeds[kind]


READERS: dict[str, Callable[[Path, Any, bytes], None]] = {
    "log": read_log_at,
    "json": read_json_at,
    "npz": read_npz_at,
    "recording": read_recording_at,
}


def _try(read: Callable[[Path, Any, bytes], None], place: Path, model: Right, content: bytes, watch: Watch) -> None:
    """One execution, judged."""
    from parityscope.errors import ParityError

    begun = time.process_time()
    watch.runs += 1
    try:
        read(place, model, content)
    except ParityError as error:
        watch.refused += 1
        if not error.fix or not error.problem:
            watch.note(f"an error without words or fix: {error.problem[:60]!r}", content, str(error)[:300])
    except Exception as error:  # noqa: BLE001 - whatever else it is, is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = [one for one in traceback.extract_tb(error.__traceback__) if "parityscope" in one.filename]
        where = ours[-1] if ours else last
        watch.note(
            f"{type(error).__name__} at {where.filename}:{where.lineno}", content, traceback.format_exc()[-1500:]
        )
    spent = time.process_time() - begun
    if spent > SLOW_S:
        watch.note(f"slow: {int(spent)} s", content, f"{spent:.1f} s for {len(content)} bytes")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if held > MEMORY:
        watch.note(f"memory: {held >> 28} times 256 MiB", content, f"{held >> 20} MiB for {len(content)} bytes")
    watch.end_in_time()


def main() -> None:
    """Fuzzes one reader until the time is over; exit code 1 with findings."""
    parser = argparse.ArgumentParser(prog="python -m proving.fuzz", description=__doc__)
    parser.add_argument("reader", choices=sorted(READERS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--corpus", help="a folder where inputs that reach new code are kept, and found again")
    parser.add_argument("--again", nargs="+", help="files to read again, without fuzzing")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as held:
        place = Path(held)
        corpus = Path(asked.corpus) if asked.corpus else place / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        if asked.again:
            watch = Watch(corpus, float("inf"))
            model = _right(place)
            for path in asked.again:
                _try(READERS[asked.reader], place, model, Path(path).read_bytes(), watch)
            sys.exit(int(bool(watch.found)))
        for number, seed in enumerate(_seeds(asked.reader)):
            (corpus / f"seed-{number}").write_bytes(seed)
        _fuzz(asked.reader, asked.seconds, corpus, place)


def _fuzz(reader: str, seconds: float, corpus: Path, place: Path) -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris (in an environment of its own)")
    readers = ["parityscope.case", "parityscope.logs", "parityscope.backends.saved", "zipfile", "json.decoder"]
    with atheris.instrument_imports(include=readers):
        for name in ("backends.opening", "backends.saved", "case.formats.folder", "case.inputs", "logs"):
            importlib.import_module(f"parityscope.{name}")
    model = _right(place)
    found = corpus.parent / f"found-{reader}"
    found.mkdir(exist_ok=True)
    watch = Watch(found, time.monotonic() + seconds)
    options = ["-timeout=60", "-rss_limit_mb=3000", "-max_len=20000", "-verbosity=0", f"-artifact_prefix={found}/"]
    atheris.Setup(
        [sys.argv[0], *options, str(corpus)], lambda content: _try(READERS[reader], place, model, content, watch)
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
