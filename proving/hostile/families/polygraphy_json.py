"""Polygraphy's JSON: saved inputs, saved outputs, and trtexec's JSON of outputs."""

from __future__ import annotations

import base64
import io
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.families.npz import described, right_npy
from proving.hostile.making import (
    NAMES,
    SPECIAL,
    Trap,
    about_answers,
    about_samples,
    answer,
    rows,
    special_file,
    write_answers,
)  # fmt: skip

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")


def array(values: np.ndarray | bytes) -> dict[str, Any]:
    """An array as Polygraphy writes it: a .npy in base 64."""
    held = values if isinstance(values, bytes) else right_npy(values)
    return {"array": base64.b64encode(held).decode(), "polygraphy_class": "ndarray"}


def inputs(x: Any = None, name: str = "x") -> list[dict[str, Any]]:
    """What `--save-inputs` writes."""
    return [{name: array(rows()[0]) if x is None else x}]


def outputs(y: Any = None, *, name: str = "y", runner: str = "trt-1") -> dict[str, Any]:
    """What `--save-outputs` writes."""
    value = {"values": array(answer(rows()[0])) if y is None else y, "polygraphy_class": "LazyArray"}
    iteration = {"outputs": {name: value}, "runtime": 0.1, "runner_name": runner, "polygraphy_class": "IterationResult"}
    return {"lst": [[runner, [iteration]]], "polygraphy_class": "RunResults"}


def _either(folder: Path, draw: Draw, make: Any, right: frozenset[int] = REFUSED) -> Ask:
    """The same trouble in inputs or in outputs; `make` takes the builder and gives the document or its bytes."""
    as_inputs = draw.turn((True, False))
    document = make(inputs if as_inputs else outputs)
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    (folder / "data.json").write_bytes(content)
    if as_inputs:
        return Ask(about_samples(folder, draw, "data.json"), right, writes=_LATER)
    return Ask(
        (*about_answers(folder, draw, "data.json"), "--samples", "1"), REFUSED if right == ANSWERED else right
    )


def no_json(folder: Path, draw: Draw) -> Ask:
    """Files that are no JSON, or JSON that costs more than it says."""
    content = draw.turn((
        b"", b"{", b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"lst":' * 50_000, b"\xff\xfe\x00", "{}".encode("utf-16"),
        b"\xef\xbb\xbf[]", b"nan", b"[NaN]", b"1" * 1_000_000, b"[" + b"9" * 500_000 + b"]", b'"' + b"\\u0041" * 500_000 + b'"', b"null",
        b"\0" * 5000, b"[1e999999]", pickle.dumps(Trap(folder)), b'{"a":1,' * 3, b"[],[]", b"true", b'["\\ud800"]', draw.noise(500),
    ))
    return _either(folder, draw, lambda _: content)


def wrong_documents(folder: Path, draw: Draw) -> Ask:
    """JSON that is neither inputs nor outputs."""
    document = draw.turn((
        [], {}, [[]], [{}], [None], [3], {"lst": []}, {"lst": None, "polygraphy_class": "RunResults"}, {"polygraphy_class": "Evil"},
        {"lst": [["a"]], "polygraphy_class": "RunResults"}, {"lst": [["a", 3]], "polygraphy_class": "RunResults"},
        {"lst": [["a", [{}]]], "polygraphy_class": "RunResults"}, {"lst": {"a": []}, "polygraphy_class": "RunResults"},
        {"lst": [["a", [{"outputs": [], "polygraphy_class": "IterationResult"}]]], "polygraphy_class": "RunResults"},
        {"lst": [["a", []]], "polygraphy_class": "RunResults"}, [{"x": {"x": {"x": {}}}}], [[{"x": 1}]], {"x": array(rows()[0])},
        {"lst": [[3, [None]]], "polygraphy_class": "RunResults"}, [{"x": [1, 2, 3]}], ["x"],
    ))
    return _either(folder, draw, lambda _: document, REFUSED)


def wrong_arrays(folder: Path, draw: Draw) -> Ask:
    """Arrays that are none."""
    bad = draw.turn((
        None, 3, "x", [], {}, {"array": None, "polygraphy_class": "ndarray"}, {"array": 3, "polygraphy_class": "ndarray"},
        {"array": "!!!!", "polygraphy_class": "ndarray"}, {"array": "AAA", "polygraphy_class": "ndarray"},
        {"array": "", "polygraphy_class": "ndarray"}, {"array": ["a"], "polygraphy_class": "ndarray"}, {"polygraphy_class": "ndarray"},
        array(b"\x93NUMPY"), array(b"x" * 100), {"array": array(rows()[0])["array"] + "\x1b[31m", "polygraphy_class": "ndarray"},
        {"array": array(rows()[0])["array"], "polygraphy_class": "Tensor"}, {"array": "é" * 99, "polygraphy_class": "ndarray"},
        {"array": array(rows()[0])["array"][:-40], "polygraphy_class": "ndarray"},
    ))
    if bad is None or bad == 3:
        return _either(folder, draw, lambda build: build({"deep": bad}))
    return _either(folder, draw, lambda build: build(bad))


def pickled(folder: Path, draw: Draw) -> Ask:
    """Arrays of objects, and an array that is a pickle."""
    load = pickle.dumps(Trap(folder))
    held = draw.turn((described("'|O'", content=load), load, described("'O'", "()", content=load), b"\x80\x04" + load))
    return _either(folder, draw, lambda build: build(array(held)))


def hostile_arrays(folder: Path, draw: Draw) -> Ask:
    """Arrays whose header lies."""
    held = draw.turn((
        described(shape="(1000000000000, 8)"), described(shape="(-1, 8)"), described(shape="(4611686018427387904, 8)"), described(shape="(1, 9)"),
        described("'<U2000000000'"), described("'<c16'", content=b"\0" * 128), described("'evil'"), described(shape="(" + "1, " * 5000 + "8)"),
        b"\x93NUMPY\x01\x00" + b"\xff\xff" + b"(" * 65535, described("'<f8'", content=b"\0" * 64), described(shape="(0, 8)", content=b""),
    ))
    return _either(folder, draw, lambda build: build(array(held)))


def names(folder: Path, draw: Draw) -> Ask:
    """Names of tensors and of runners that a terminal or a page would obey."""
    name = draw.turn((*NAMES, "\ud800", "", "polygraphy_class"))
    if draw.turn((False, True)):
        document = outputs(runner=name)
        document["lst"].append([name + "2", document["lst"][0][1]])
        (folder / "data.json").write_bytes(json.dumps(document).encode())
        return Ask((*about_answers(folder, draw, "data.json"), "--samples", "1"))
    # A plain name of the only array is taken as the only input, and said.
    return _either(folder, draw, lambda build: build(name=name), ANSWERED if name == "polygraphy_class" else REFUSED)


def counts(folder: Path, draw: Draw) -> Ask:
    """Fewer or more iterations than there are samples, runners that contradict one another, tensors twice."""
    one = outputs()
    runs = one["lst"][0][1]
    lst = draw.turn((
        [["a", runs], ["b", runs]], [["a", runs], ["a", runs]], [["a", []], ["b", []]], [["a", runs * 2]], [["a", [{**runs[0], "outputs": {}}]]],
    ))
    (folder / "data.json").write_bytes(json.dumps({**one, "lst": lst}).encode())
    words = about_answers(folder, draw, "data.json", draw.turn(("", "&runner=c", "&runner=%1b%5b31m")))
    return Ask(words, frozenset({2, 3}))


def large(folder: Path, draw: Draw) -> Ask:
    """Files of many megabytes that hold little, or much that nobody asked for."""
    which = draw.turn(("spaces", "beside", "iterations", "array"))
    if which == "spaces":
        return _either(folder, draw, lambda build: json.dumps(build()).encode() + b" " * 30_000_000, ANY)
    if which == "beside":
        return _either(folder, draw, lambda build: [*build(), *([{"x": array(rows()[0]), "z": array(b"0" * 1000)}] * 9000)] if build is inputs else {**build(), "more": ["x" * 1000] * 20_000}, ANY)  # fmt: skip
    if which == "iterations":
        return _either(folder, draw, lambda build: build() * 20_000 if build is inputs else {**build(), "lst": build()["lst"] * 20_000}, ANY)
    return _either(folder, draw, lambda build: build(array(right_npy(np.zeros((1_000_000, 8), np.float32)))))


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file."""
    special_file(folder / "data.json", draw.turn(SPECIAL))
    if draw.turn((True, False)):
        return Ask(about_samples(folder, draw, "data.json"), writes=_LATER, unprivileged=True)
    return Ask(about_answers(folder, draw, "data.json"), unprivileged=True)


def cut(folder: Path, draw: Draw) -> Ask:
    """A copy that broke off."""
    share = draw.random.random()

    def make(build: Any) -> bytes:
        whole = json.dumps(build()).encode()
        return whole[: 1 + int(share * (len(whole) - 2))]

    return _either(folder, draw, make)


def trtexec(folder: Path, draw: Draw) -> Ask:
    """trtexec's JSON of outputs, and what pretends to be it."""
    y = answer(rows()[0])
    good = {"name": "y", "dimensions": "1x4", "values": y.ravel().tolist()}
    bad = draw.turn((
        {**good, "dimensions": "1x99999999999999"}, {**good, "dimensions": "-1x4"}, {**good, "dimensions": None}, {**good, "dimensions": "x" * 99_999},
        {**good, "values": "0 0 0 0"}, {**good, "values": [None] * 4}, {**good, "values": [1, 2, 3]}, {**good, "values": []}, {**good, "values": [[1, 2, 3, 4]]},
        {**good, "values": [10**400, 1, 1, 1]}, {**good, "values": ["nan"] * 4}, {**good, "name": 3}, {**good, "name": "\x1b[2J"}, {"name": "y"}, 7,
        {**good, "values": [True, False, True, False]}, {**good, "dimensions": "1x٤"}, {**good, "dimensions": "0x4", "values": []},
    ))
    (folder / "data.json").write_text(json.dumps([bad]))
    return Ask((*about_answers(folder, draw, "data.json"), "--samples", "1"), frozenset({1, 2, 3}))


def many(folder: Path, draw: Draw) -> Ask:
    """A folder with one bad file among right ones."""
    (folder / "data").mkdir()
    for number in range(3):
        (folder / "data" / f"{number}.json").write_text(json.dumps(inputs()))
    (folder / "data" / "1.json").write_bytes(draw.turn((b"", b"[" * 90_000, b"[{}]", b"\xff")))
    return Ask(about_samples(folder, draw, "data"), writes=_LATER)


def flipped(folder: Path, draw: Draw) -> Ask:
    """Answers with characters that changed on the way; a 0 is right only where the numbers are what was recorded."""
    held = bytearray(json.dumps(outputs()).encode())
    for _ in range(draw.turn((1, 2, 6))):
        held[draw.integer(0, len(held) - 1)] = draw.integer(32, 126)
    (folder / "data.json").write_bytes(bytes(held))
    return Ask((*about_answers(folder, draw, "data.json"), "--samples", "1"), ANY)


def right(folder: Path, draw: Draw) -> Ask:
    """Documents that are right: they are answered."""
    which = draw.turn(("inputs", "outputs", "pretty", "old", "fortran"))
    if which in {"outputs", "old"}:
        document = outputs()
        if which == "old":
            document["lst"][0][1][0]["outputs"]["y"] = array(answer(rows()[0]))
        (folder / "data.json").write_text(json.dumps(document))
        return Ask((*about_answers(folder, draw, "data.json"), "--samples", "1"), ANSWERED)
    held = io.BytesIO()
    np.save(held, np.asfortranarray(rows()[0]))
    document = inputs(array(held.getvalue()) if which == "fortran" else None)
    (folder / "data.json").write_text(json.dumps(document, indent=4 if which == "pretty" else None))
    return Ask(about_samples(folder, draw, "data.json"), ANSWERED, writes=_LATER)


def labels(folder: Path, draw: Draw) -> Ask:
    """JSON where another kind of file is meant."""
    about_samples(folder, draw, "data.json")
    (folder / "data.json").write_text(json.dumps(inputs()))
    words = draw.turn((
        ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "data.json", "--no-timing", "--metric", "top1", "--labels", "data.json"),
        ("lint", "data.json"), ("log", "data.json"), ("report", "data.json"), ("diagnose", "data.json", "--candidate", "sim:f16"),
        ("predict", "model.onnx", "--inputs", "data.json", "--formats", "int8", "--dynamic-range", "data.json"),
        ("repair", "model.onnx", "--inputs", "data.json", "-o", "fixed.onnx", "--profile", "data.json"),
        ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "data.json", "--policy", "data.json"),
    ))
    return Ask(words, writes=_LATER)


def ranges(folder: Path, draw: Draw) -> Ask:
    """Dynamic ranges and times of nodes that are no numbers."""
    write_answers(folder)
    about_samples(folder, draw, "answers")
    (folder / "data.json").write_text(json.dumps(inputs()))
    content = draw.turn((
        '{"x": NaN}', '{"x": -1}', '{"x": "1"}', '{"x": 1e999}', '{"x": null}', "[]", '{"x": ' + "9" * 9999 + "}", '{"\\u001b[2J": 1}', "{" * 99_999,
        "TRT-8601-EntropyCalibration2\nx: zz", "TRT-8601-EntropyCalibration2\nx: ffffffffffffffff", "TRT-", '{"x": 0}', '{"x": [1]}',
    ))
    (folder / "ranges.json").write_text(content)
    words = draw.turn((
        ("predict", "model.onnx", "--inputs", "data.json", "--formats", "int8", "--dynamic-range", "ranges.json"),
        ("repair", "model.onnx", "--inputs", "data.json", "-o", "fixed.onnx", "--profile", "ranges.json"),
        ("compare", "model.onnx", "--inputs", "data.json", "--candidate", "sim:int8?dynamic_range=ranges.json"),
    ))
    return Ask(words, REFUSED, writes=_LATER)


FAMILY = Family("polygraphy-json", (
    no_json, wrong_documents, wrong_arrays, pickled, hostile_arrays, names, counts, large, special, cut, trtexec, many, flipped, right,
    labels, ranges,
))  # fmt: skip
