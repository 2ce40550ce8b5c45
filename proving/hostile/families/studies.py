"""Studies: what somebody sends, with sentences, places and commands in it that a reader must only ever show."""

from __future__ import annotations

import copy
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import numpy_helper

from proving.hostile.cases import ANY, REFUSED, Ask, Draw, Ending, Family
from proving.hostile.making import (
    NAMES,
    SPECIAL,
    marking,
    marking_source,
    save,
    small_model,
    special_file,
    write_answers,
    write_model,
    write_samples,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORMATS = ("text", "json", "html", "node-data", "node-data-total")
_EXPERIMENTS = ("RNG001-1", "RNG002-1", "DAT009-1", "BND003-1", "FUS011-1")
_TAG = "<img src=x onerror=alert(1)>"


def _world(folder: Path) -> None:
    """A model with one weight beyond FP16, and samples of it."""
    model = small_model()
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[0, 0] = 1e6
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    save(model, folder / "model.onnx")
    if not (folder / "samples").exists():
        write_samples(folder)


@functools.cache
def _template() -> str:
    """A study that Parityscope wrote, as text, with {here} where its folder stands."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held).resolve()
        _world(folder)
        words = ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples", "--study", "study", "--quiet")
        subprocess.run([sys.executable, "-m", "parityscope", *words], cwd=folder, capture_output=True, check=False, timeout=300)
        return (folder / "study" / "study.json").read_text().replace(str(folder), "{here}")


def document_at(folder: Path) -> dict[str, Any]:
    """The document of a study that was made here."""
    return json.loads(_template().replace("{here}", str(folder)))


def place_study(folder: Path, document: Any) -> Path:
    """Writes a study, beside the model and the samples that it is about."""
    _world(folder)
    (folder / "study").mkdir()
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    (folder / "study" / "study.json").write_bytes(content)
    return folder / "study"


def _read(draw: Draw) -> tuple[str, ...]:
    """A command line that reads a study."""
    return draw.turn((
        *(("report", "study", "--format", name) for name in _FORMATS), ("experiment", "study"), ("report", "study", "--ladder"),
        *(("experiment", "study", name) for name in _EXPERIMENTS), ("experiment", "study", "RNG001-1", "--format", "json"),
    ))  # fmt: skip


def no_study(folder: Path, draw: Draw) -> Ask:
    """Folders and files that are no study."""
    content = draw.turn((
        b"", b"{", b"[]", b"null", b"3", b"{}", b'"x"', b"[" * 100_000, b'{"schema":' * 50_000, b"\xff\xfe", b"\0" * 999, b'{"schema": "parityscope/2"}',
        b'{"schema": "parityscope/1"}', b'{"schema": ["parityscope/1"]}', b'{"schema": "parityscope/1", "kind": "evil"}', b'{"schema": null}',
        b'{"schema": "parityscope/1", "verdict": "within"}', b'{"schema": "parityscope/1", "kind": "verification"}', b'{"a": ' + b"9" * 200_000 + b"}",
        b'{"schema": "parityscope/1", "kind": "lint"}', b'{"schema": "parityscope-repair/1"}', b'{"schema": "parityscope-pipeline/1"}',
    ))  # fmt: skip
    place_study(folder, content)
    return Ask(_read(draw))


def special(folder: Path, draw: Draw) -> Ask:
    """A study.json that is no regular file, or a study that is one."""
    place = place_study(folder, {})
    (place / "study.json").unlink()
    if draw.turn((True, True, False)):
        special_file(place / "study.json", draw.turn(SPECIAL))
    else:
        place.rmdir()
        special_file(place, draw.turn(SPECIAL))
    return Ask(_read(draw), unprivileged=True)


def cut(folder: Path, draw: Draw) -> Ask:
    """A copy that broke off: it is named as damaged."""
    whole = json.dumps(document_at(folder)).encode()
    place_study(folder, whole[: draw.integer(1, len(whole) - 1)])
    return Ask(_read(draw))


def _spots(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield from _spots(held, (*path, key))


def _put(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return value
    held = document
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = value
    return document


_VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", 0, -1, 10**400, "NaN", "Infinity", True, [None], {"a": None}, "\x1b]0;owned\x07", _TAG, "\ud800", [[[[]]]], 1.5, "n" * 300_000,
    {"": {}}, ["x"] * 3000, 1e308, "{{7*7}}", "../../outside/ran", -0.0, 2**63,
)  # fmt: skip


def one_value(folder: Path, draw: Draw) -> Ask:
    """One value of a whole study is another: of another type, without end, or made to harm."""
    document = document_at(folder)
    spots = list(_spots(document))
    shallow = [spot for spot in spots if 0 < len(spot) <= 2]
    spot = draw.pick(shallow if draw.turn((True, False)) else spots[1:])
    place_study(folder, _put(document, spot, draw.turn(_VALUES)))
    return Ask(_read(draw), ANY, after=_harmless_page)


def one_missing(folder: Path, draw: Draw) -> Ask:
    """One key of a whole study is not there."""
    document = document_at(folder)
    spot = draw.pick([spot for spot in _spots(document) if spot and isinstance(spot[-1], str)])
    held = document
    for key in spot[:-1]:
        held = held[key]
    del held[spot[-1]]
    place_study(folder, document)
    return Ask(_read(draw), ANY)


def many_values(folder: Path, draw: Draw) -> Ask:
    """Every text of a study is made to harm a terminal or a page."""
    name = draw.turn((*NAMES[:9], "\ud800"))
    document = document_at(folder)
    for spot in list(_spots(document)):
        held = document
        for key in spot:
            held = held[key]
        if isinstance(held, str) and spot[0] not in {"schema", "verdict", "question"} and spot[-1] not in {"role", "outcome", "verdict"}:
            _put(document, spot, held + name)
    place_study(folder, document)
    return Ask(_read(draw), ANY, after=_harmless_page)


def _harmless_page(_: Path, ending: Ending) -> str:
    """A page holds no tag that came out of the document."""
    for tag in (_TAG, "<script>alert(1)</script>"):
        if tag.encode() in ending.out and b"<html" in ending.out[:2000]:
            return "a name became markup"
    return ""


def grown(folder: Path, draw: Draw) -> Ask:
    """A study with a list as long as a file can hold, or nested as deep."""
    document = document_at(folder)
    which = draw.turn(("findings", "tensors", "deep", "suspects", "skipped", "command"))
    if which == "deep":
        text = json.dumps({**document, "calls": None}).replace('"calls": null', '"calls": ' + "[" * 50_000 + "]" * 50_000)
        place_study(folder, text.encode())
    elif which == "command":
        place_study(folder, {**document, "command": "x" * 20_000_000})
    else:
        held = document[which] or [{"what": "x", "reason": "y", "fix": "", "asked": False}]
        place_study(folder, {**document, which: [copy.copy(held[0]) for _ in range(4000)]})
    return Ask(_read(draw), ANY)


def _asked(folder: Path, **asked: Any) -> dict[str, Any]:
    document = document_at(folder)
    document["question"]["asked"] |= asked
    return document


@functools.cache
def _library() -> bytes:
    """A library that leaves the marker when it is loaded; where it lies is told by its environment."""
    source = (
        '#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void run(void) {'
        ' const char *p = getenv("HOSTILE_MARKER"); if (p) { FILE *f = fopen(p, "w"); if (f) fclose(f); } }\n'
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as held:
        (Path(held) / "evil.c").write_text(source)
        done = subprocess.run(["cc", "-shared", "-fPIC", "-o", "evil.so", "evil.c"], cwd=held, check=False, capture_output=True)
        return (Path(held) / "evil.so").read_bytes() if not done.returncode else b"\x7fELF"


def code(folder: Path, draw: Draw) -> Ask:
    """A study that names programs, modules and libraries: they are never run because it says so."""
    (folder / "evil.py").write_text(marking_source(folder))
    (folder / "evil.so").write_bytes(_library())
    (folder / "evil.sh").write_text(f"#!/bin/sh\n{marking(folder)}\n")
    (folder / "evil.sh").chmod(0o755)
    (folder / "steps.toml").write_text('steps = "evil.py:run"\n')
    asked = draw.turn((
        {"candidate": "command?run=./evil.sh"}, {"candidate": f"command?run={folder}/evil.sh"}, {"candidate": "command?run=python3 evil.py"},
        {"inputs": "evil.py:run"}, {"inputs": f"{folder}/evil.py:run"}, {"preprocess": "evil.py:run", "inputs": "samples"},
        {"candidate": "torch?module=evil.py:run"}, {"reference": "torch?module=evil.py:run"}, {"candidate": "torch?script=evil.py"},
        {"candidate": "ort?custom_ops=evil.so"}, {"reference": "ort?custom_ops=evil.so"}, {"candidate": f"sim:f16?custom_ops={folder}/evil.so"},
        {"reference": "command?run=./evil.sh"}, {"candidate": "trt?engine=evil.so&plugins=evil.so"}, {"candidate": "torch?program=evil.py"},
        {"candidate": "command?run=sh%20-c%20%22./evil.sh%22&isolate=on"}, {"candidate": "openvino:f16?extension=evil.so"},
    ))  # fmt: skip
    document = _asked(folder, **asked)
    for side in ("candidate", "reference"):
        if side in asked:
            document[side]["target"] = asked[side]
            document[side]["backend"] = asked[side].split("?")[0].split(":")[0]
    if draw.turn((False, True)):
        document["settings"] = {"loader": "evil.py:run", "plugin": "evil.py"}
        document["question"]["asked"]["real"] = "evil.py:run"
    document["command"] = marking(folder)
    place_study(folder, document)
    words = ("experiment", "study", draw.turn(_EXPERIMENTS)) if draw.turn((True, True, False)) else ("report", "study", "--format", "html")
    return Ask(words, REFUSED if words[0] == "experiment" else ANY, environment={"HOSTILE_MARKER": str(folder.parent / "outside" / "ran")})


def other_files(folder: Path, draw: Draw) -> Ask:
    """A study whose files are others now, lie with somebody else, or are no files."""
    document = document_at(folder)
    which = draw.turn(("model", "samples", "outside model", "outside samples", "fifo", "zero", "saved outside", "folder", "peer"))
    asked = document["question"]["asked"]
    if which == "outside model":
        write_model(folder.parent / "outside")
        asked["model"] = "../outside/model.onnx"
    elif which == "outside samples":
        asked["inputs"] = str(folder.parent / "outside")
    elif which == "saved outside":
        asked["candidate"] = "saved?path=" + str(folder.parent / "outside" / "secret.bin")
    elif which == "fifo":
        os.mkfifo(folder / "pipe.npz")
        asked["inputs"] = "pipe.npz"
    elif which == "zero":
        asked["model"] = "/dev/zero"
    elif which == "folder":
        document["question"]["folder"] = draw.pick(("/proc/self", "/nowhere", "", "\x1b[31m", "/etc/passwd", "relative"))
    elif which == "peer":
        asked["peer"] = "command?run=./evil.sh"
    place_study(folder, document)
    if which == "model":
        write_model(folder)
    if which == "samples":
        write_answers(folder, "samples2", lambda x: x * 2)  # under another name: a sole input is taken under any
        (folder / "samples" / "000001.npz").write_bytes((folder / "samples2" / "000001.npz").read_bytes())
    right = frozenset({0}) | REFUSED if which == "peer" else REFUSED
    return Ask(("experiment", "study", draw.turn(("RNG001-1", "RNG002-1"))), right)


def identities(folder: Path, draw: Draw) -> Ask:
    """Experiments that there are not."""
    place_study(folder, document_at(folder))
    name = draw.turn(("", "RNG001", "RNG001-99", "rng001-1", "RNG001-1@7", "RNG001-1@-1", "RNG001-" + "9" * 5000, "../x", "\x1b[31m", "RNG001-1@evil", "@", "-1", "ZZZ999-1"))
    return Ask(("experiment", "study", "--", name), ANY if name == "" else REFUSED)


def where_written(folder: Path, draw: Draw) -> Ask:
    """Reports written where something is, where nothing can be, or over the study itself."""
    place_study(folder, document_at(folder))
    (folder / "there.html").write_text("mine")
    target = draw.turn(("study", "model.onnx/x.html", "/proc/x.html", "nowhere/x.html", "", "/dev/full", "there.html/..", "x" * 300 + ".html"))
    return Ask(("report", "study", "--format", "html", "-o", target))


def right(folder: Path, draw: Draw) -> Ask:
    """A study that is as it was: it is shown, and its experiment has its outcome again."""
    document = document_at(folder)
    place_study(folder, {**document, "a key of a later version": {"x": [1]}} if draw.turn((False, True)) else document)
    words = _read(draw)
    known = {finding["experiment"]["identity"] for part in ("findings", "refuted") for finding in _evidence(document[part])}
    if words[0] == "experiment" and len(words) > 2 and words[2] not in known:
        return Ask(words)
    return Ask(words, frozenset({0, 1}) if words[0] == "report" else frozenset({0}))


def _evidence(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        yield from item.get("evidence", [item])


FAMILY = Family("studies", (
    no_study, special, cut, one_value, one_missing, many_values, grown, code, other_files, identities, where_written, right, one_value, code,
))  # fmt: skip
