"""Recordings: folders of what a deployment took and gave, manifests, raw bytes, and the machine that they come from."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, COMPARED, REFUSED, Ask, Draw, Family
from proving.hostile.making import (
    NAMES,
    SPECIAL,
    about_answers,
    about_samples,
    answer,
    rows,
    special_file,
    write_answers,
    write_model,
    write_samples,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LATER = ("recording", "fixed")
_NOTHING = frozenset({2, 3})


def record(folder: Path, change: Callable[[np.ndarray], np.ndarray] = answer, name: str = "rec") -> Path:
    """A recording as the recorder writes it."""
    place = folder / name
    (place / "inputs").mkdir(parents=True)
    (place / "outputs").mkdir()
    for number, x in enumerate(rows()):
        np.savez(place / "inputs" / f"{number:06d}.npz", x=x)
        np.savez(place / "outputs" / f"{number:06d}.npz", y=change(x))
    manifest = {
        "format": "parityscope-recording/1", "outputs": {"y": {"dtype": "float32", "shape": [1, 4]}},
        "inputs": {"x": {"dtype": "float32", "shape": [1, 8]}}, "intermediates": {}, "widened_to_float32": [],
    }  # fmt: skip
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def _about(folder: Path, draw: Draw, data: str = "rec", options: str = "") -> tuple[str, ...]:
    """A command line about a recording, its own inputs beside it."""
    write_model(folder)
    target = f"saved?path={data}{options}"
    inputs = f"{data}/inputs" if (folder / data / "inputs").is_dir() else "samples"
    if inputs == "samples" and not (folder / "samples").exists():
        write_samples(folder)
    return draw.turn((
        ("compare", "model.onnx", "--candidate", target, "--inputs", inputs),
        ("diagnose", "model.onnx", "--candidate", target, "--inputs", inputs),
        ("verify", "model.onnx", "--before", target, "--after", "ort", "--inputs", inputs, "--no-timing"),
    ))


def manifests(folder: Path, draw: Draw) -> Ask:
    """Manifests that are none; the files themselves are right."""
    place = record(folder)
    content = draw.turn((
        b"", b"{", b"[" * 100_000, b"null", b"[]", b"3", b'{"outputs": 3}', b'{"outputs": {"../../outside/secret": {}}}', b"\xff\xfe",
        b'{"outputs": {"y": {"dtype": "O", "shape": [1, 4]}}}', b'{"outputs": {"y": {"dtype": "float32", "shape": [1e999]}}}',
        b'{"outputs": {"nope": {"dtype": "float32", "shape": [1, 4]}}}', b'{"widened_to_float32": ["y", 3, null, {"a": 1}]}',
        b'{"widened_to_float32": {"y": "evil"}}', b'{"intermediates": "y"}', b"\0" * 1000, b'{"a": "' + b"x" * 20_000_000 + b'"}',
        b'{"outputs": ["y"], "intermediates": ["y"]}', b'{"outputs": {"\\ud800": {}}}', b'{"outputs": {"\\u001b[2J": {}}}',
    ))  # fmt: skip
    (place / "manifest.json").write_bytes(content)
    return Ask(_about(folder, draw), ANY)


def special_manifest(folder: Path, draw: Draw) -> Ask:
    """A manifest that is no regular file."""
    place = record(folder)
    (place / "manifest.json").unlink()
    special_file(place / "manifest.json", draw.turn(SPECIAL))
    return Ask(_about(folder, draw), ANY, unprivileged=True)


def special_sample(folder: Path, draw: Draw) -> Ask:
    """An input or an output that is no regular file."""
    place = record(folder)
    path = place / draw.turn(("outputs", "inputs")) / "000001.npz"
    path.unlink()
    kind = draw.turn(SPECIAL)
    special_file(path, kind)  # a folder among samples is no sample, and may be left alone
    return Ask(_about(folder, draw), ANY if kind == "folder" else REFUSED, unprivileged=True)


def gaps(folder: Path, draw: Draw) -> Ask:
    """Recordings that cover fewer samples than there are, or none."""
    place = record(folder)
    for number in draw.turn(((0,), (1,), (2,), (0, 1, 2), (0, 2))):
        (place / "outputs" / f"{number:06d}.npz").unlink()
    return Ask(_about(folder, draw), _NOTHING)


def file_names(folder: Path, draw: Draw) -> Ask:
    """Names of files that are numbers to some and not to others, or no text at all."""
    place = write_answers(folder, "rec")
    name = draw.turn((
        "٠٠٠٠٠١", "²", "1e3", "-1", "+1", "0x1", "१", "9" * 200, " 1", "1 ", "1_0", "0001.000", "①", "\x1b[2J", "a\nb", "NaN", "1" * 240,
    ))  # fmt: skip
    (place / "000001.npz").rename(place / f"{name}.npz")
    return Ask(_about(folder, draw), ANY if name in {" 1", "1 "} else _NOTHING)


def not_unicode(folder: Path, draw: Draw) -> Ask:
    """Names of files whose bytes are no UTF-8."""
    place = write_answers(folder, "rec")
    os.rename(os.fsencode(place / "000001.npz"), os.fsencode(place) + draw.turn((b"/\xff\xfe.npz", b"/\xc3.npz", b"/1\xed\xa0\x80.npz")))
    samples = write_samples(folder)
    if draw.turn((False, True)):
        os.rename(os.fsencode(samples / "000001.npz"), os.fsencode(samples) + b"/\xff\xfe.npz")
    return Ask(_about(folder, draw), ANY)


def twice(folder: Path, draw: Draw) -> Ask:
    """Two recordings of one number: the one of exactly the name of the sample counts, or both are refused."""
    place = write_answers(folder, "rec")
    np.savez(place / draw.turn(("1.npz", "0000001.npz", "01.npz")), y=np.zeros((1, 4), np.float32))
    return Ask(_about(folder, draw), ANY)


def leftovers(folder: Path, draw: Draw) -> Ask:
    """What a killed recorder leaves, and what else lies about: it is no sample, and no reason to fail."""
    place = record(folder)
    which = draw.turn(("part", "hidden", "empty part", "notes", "deep"))
    if which == "part":
        (place / "000003.part" / "inputs").mkdir(parents=True)
    elif which == "hidden":
        (place / "outputs" / ".000009.npz").write_bytes(b"half")
    elif which == "empty part":
        (place / "outputs" / "000009.part").write_bytes(b"")
    elif which == "notes":
        (place / "README.txt").write_text("made on the device")
    else:
        deep = place / "more"
        for _ in range(200):
            deep /= "d"
        deep.mkdir(parents=True)
    return Ask(_about(folder, draw), ANSWERED | REFUSED if which == "empty part" else ANSWERED)


def links(folder: Path, draw: Draw) -> Ask:
    """Folders that lead into themselves or elsewhere."""
    place = record(folder)
    which = draw.turn(("itself", "inputs", "outputs", "root"))
    if which == "itself":
        (place / "outputs" / "again").symlink_to("..")
    elif which == "root":
        (place / "outputs" / "root").symlink_to("/")
    else:
        for file in (place / which).iterdir():
            file.unlink()
        (place / which).rmdir()
        (place / which).symlink_to(".." if which == "inputs" else "/proc")
    return Ask(_about(folder, draw), ANY if which in {"itself", "root"} else _NOTHING)


def mixed(folder: Path, draw: Draw) -> Ask:
    """Folders of several kinds of files at once, or of none."""
    place = folder / "rec"
    place.mkdir()
    which = draw.turn(("nothing", "text", "both", "folders"))
    if which == "text":
        (place / "a.txt").write_text("hello")
    elif which == "both":
        np.savez(place / "0.npz", y=np.zeros((1, 4), np.float32))
        (place / "y.bin").write_bytes(b"\0" * 16)
    elif which == "folders":
        (place / "0" / "1" / "2").mkdir(parents=True)
    if draw.turn((True, False)):
        return Ask(_about(folder, draw), ANY - {0})
    return Ask(about_samples(folder, draw, "rec"), REFUSED, writes=_LATER)


def raw_bytes(folder: Path, draw: Draw) -> Ask:
    """Raw blobs of a wrong size, type or shape."""
    place = folder / "rec"
    place.mkdir()
    y = answer(rows()[0]).tobytes()
    name, content = draw.turn((
        ("y.bin", y[:-1]), ("y.bin", b""), ("y.bin", y * 2), ("z.bin", y), ("y.output.1.4.Float.raw", y[:-4]), ("y.output.1.99999999999.Float.raw", y),
        ("y.output.1.-4.Float.raw", y), ("y.output.1.4.Evil.raw", y), ("y.output..Float.raw", y), ("y.output.1.4.Half.raw", y[:8]), ("Y.bin", y),
        ("y.output.1.4.Bool.raw", y[:4]), ("y.input.1.4.Float.raw", y), ("y.output.1.٤.Float.raw", y), ("y.output." + "1." * 90 + "4.Float.raw", y),
    ))  # fmt: skip
    (place / name).write_bytes(content)
    return Ask((*about_answers(folder, draw, "rec"), "--samples", "1"), ANY - {0} if "1.1" not in name else ANY)


def raw_inputs(folder: Path, draw: Draw) -> Ask:
    """Raw inputs that are not what the model takes."""
    place = folder / "blobs"
    place.mkdir()
    name, content = draw.turn((
        ("x.bin", b""), ("x.bin", b"\0" * 31), ("x.bin", b"\0" * 64), ("z.bin", b"\0" * 32), ("x.input.1.8.Evil.raw", b"\0" * 32),
        ("x.input.1.9.Float.raw", b"\0" * 36), ("x.input.99999999999999999999.Float.raw", b"\0" * 32), ("x.input.1.8.Int32.raw", b"\0" * 32),
    ))  # fmt: skip
    (place / name).write_bytes(content)
    return Ask(about_samples(folder, draw, "blobs"), REFUSED, writes=_LATER)


def sparse_blob(folder: Path, draw: Draw) -> Ask:
    """A raw blob of many gigabytes of nothing."""
    place = folder / "blobs"
    place.mkdir()
    name = draw.turn(("x.bin", "y.bin"))
    with (place / name).open("wb") as file:
        file.truncate(50 << 30)
    if name == "x.bin":
        return Ask(about_samples(folder, draw, "blobs"), writes=_LATER)
    return Ask((*about_answers(folder, draw, "blobs"), "--samples", "1"))


def environments(folder: Path, draw: Draw) -> Ask:
    """Facts of another machine that are none: they decide nothing about numbers."""
    place = record(folder)
    content = draw.turn((
        b"", b"[" * 100_000, b"null", b"[1]", b'{"facts": 3}', b'{"facts": {"gpu": {"a": []}}}', b'{"facts": {"\\u001b[2J": "\\u001b]0;x\\u0007"}}',
        b'{"facts": {"gpu": "' + b"x" * 9_000_000 + b'"}}', b"\xff", b'{"facts": {"cpu": NaN}}', b'{"variables": {"NVIDIA_TF32_OVERRIDE": 7}}', b"{}",
        b'{"facts": {"gpu": "\\ud800"}}', b'{"schema": "parityscope/1"}', b'{"schema": "parityscope/1", "candidate": {"environment": [1]}}',
    ))  # fmt: skip
    (place / "environment.json").write_bytes(content)
    return Ask(_about(folder, draw, options=draw.turn(("", "&environment=rec/environment.json"))), ANY)


def special_environment(folder: Path, draw: Draw) -> Ask:
    """Facts of another machine in no regular file."""
    place = record(folder)
    special_file(place / "environment.json", draw.turn(SPECIAL))
    return Ask(_about(folder, draw), ANY, unprivileged=True)


def tensor_names(folder: Path, draw: Draw) -> Ask:
    """Recorded tensors whose names a terminal, a page or a path would obey, beside the right output."""
    place = folder / "rec"
    place.mkdir()
    for number, x in enumerate(rows()):
        named = {name: np.zeros(3, np.float32) for name in (*NAMES[:6], *NAMES[7:9])}
        np.savez(place / f"{number:06d}.npz", y=answer(x) + draw.turn((np.float32(0), np.float32(1))), **named)
    words = _about(folder, draw)
    return Ask((*words, "--format", draw.turn(("text", "json", "html"))), ANY)


def options(folder: Path, draw: Draw) -> Ask:
    """Options of recordings that are none."""
    record(folder)
    option = draw.turn((
        "&pair=evil", "&pair=", "&map=", "&map=a", "&map=y:y,y:z", "&map=nope:y", "&map=y:nope", "&shapes=y", "&shapes=y:ax4", "&shapes=y:-1x4",
        "&shapes=nope:1x4", "&environment=nope.json", "&environment=/dev/zero", "&path=rec", "&model=nope.onnx", "&timeout=never", "&isolate=evil",
    ))  # fmt: skip
    return Ask(_about(folder, draw, options=option), REFUSED)


def by_order(folder: Path, draw: Draw) -> Ask:
    """Recordings paired in order, of another number than the samples: none may be missing, and what is behind the last is left."""
    place = write_answers(folder, "rec")
    if fewer := draw.turn((True, False)):
        (place / "000002.npz").unlink()
    else:
        (place / "000003.npz").write_bytes((place / "000002.npz").read_bytes())
    return Ask(_about(folder, draw, options="&pair=order"), ANY - {0} if fewer else ANSWERED)


def wrong(folder: Path, draw: Draw) -> Ask:
    """Answers that are wrong: beyond, in the whole or in one sample."""
    change = draw.turn((
        lambda x: answer(x) * np.float32(1.5), lambda x: np.zeros_like(answer(x)), lambda x: answer(x)[:, ::-1], lambda x: answer(-x),
        lambda x: answer(x) + np.float32(0.3), lambda x: np.full_like(answer(x), 1e30),
    ))  # fmt: skip
    record(folder, change)
    verb = draw.turn(("compare", "diagnose", "localize"))
    write_model(folder)
    return Ask((verb, "model.onnx", "--candidate", "saved?path=rec", "--inputs", "rec/inputs"), frozenset({1}) if verb != "localize" else ANY - {0})


def right(folder: Path, draw: Draw) -> Ask:
    """Recordings that are right, by every path."""
    which = draw.turn(("plain", "unicode", "relative", "link", "no manifest", "numbers"))
    name = {"unicode": "записи 🎉 (1)"}.get(which, "rec")
    place = record(folder, name=name)
    if which == "link":
        place.rename(folder / "real")
        place.symlink_to("real")
    elif which == "no manifest":
        (place / "manifest.json").unlink()
    elif which == "numbers":
        for number in range(3):
            (place / "outputs" / f"{number:06d}.npz").rename(place / "outputs" / f"{number}.npz")
    path = {"relative": "../work/./rec"}.get(which, name)
    return Ask(_about(folder, draw, path), COMPARED | {3} if which != "numbers" else ANSWERED)


FAMILY = Family("recordings", (
    manifests, special_manifest, special_sample, gaps, file_names, not_unicode, twice, leftovers, links, mixed, raw_bytes, raw_inputs,
    sparse_blob, environments, special_environment, tensor_names, options, by_order, wrong, right,
))  # fmt: skip
