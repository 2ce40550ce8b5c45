"""External data: weights in other files, wherever a model says that they lie."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.making import NAMES, SPECIAL, about_model, graph_of, save, small_model, special_file

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")
_NBYTES = 8 * 4 * 4


def _point(tensor: onnx.TensorProto, **entries: str) -> onnx.TensorProto:
    """Makes a tensor's content lie elsewhere."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return tensor


def _lay(folder: Path, name: str = "weights.bin", *, extra: bytes = b"") -> bytes:
    """The weights in a file of their own."""
    content = small_model().graph.initializer[0].raw_data
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content + extra)
    return content


def _model(folder: Path, **entries: str) -> None:
    model = small_model()
    _point(model.graph.initializer[0], **entries)
    save(model, folder / "model.onnx")


def _ask(folder: Path, draw: Draw, right: frozenset[int] = REFUSED, **more: bool) -> Ask:
    """A command about the model; `lint` may say 3 where data cannot be read, and never 0."""
    words = about_model(folder, draw)
    return Ask(words, right | {3} if right == REFUSED and words[0] == "lint" else right, writes=_LATER, **more)


def outside(folder: Path, draw: Draw) -> Ask:
    """Data of somebody else, by every path that leads there."""
    secret = folder.parent / "outside" / "secret.bin"
    location = draw.turn(
        (
            "../outside/secret.bin",
            str(secret),
            "a/../../outside/secret.bin",
            "./../outside/secret.bin",
            "/etc/passwd",
            "../../../../../../../../etc/passwd",
            "..\\outside\\secret.bin",
            "file://" + str(secret),
            "~/secret.bin",
            "/dev/zero",
            "/proc/self/environ",
            "/proc/self/mem",
            "http://127.0.0.1:9/w.bin",
            "//" + str(secret),
            "a//..//..//outside/secret.bin",
        )
    )
    (folder / "a").mkdir()
    _model(folder, location=location, length=str(_NBYTES), offset="0")
    return _ask(folder, draw)


def by_link(folder: Path, draw: Draw) -> Ask:
    """A name inside of the folder that leads out of it."""
    kind = draw.turn(("file", "folder", "chain", "etc"))
    if kind == "file":
        (folder / "weights.bin").symlink_to("../outside/secret.bin")
    elif kind == "folder":
        (folder / "data").symlink_to("../outside")
    elif kind == "etc":
        (folder / "weights.bin").symlink_to("/etc/passwd")
    else:
        (folder / "middle").symlink_to("../outside/secret.bin")
        (folder / "weights.bin").symlink_to("middle")
    _model(folder, location="data/secret.bin" if kind == "folder" else "weights.bin", length=str(_NBYTES))
    return _ask(folder, draw)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file."""
    special_file(folder / "weights.bin", draw.turn(SPECIAL))
    _model(folder, location="weights.bin", length=str(_NBYTES))
    sparse = (folder / "weights.bin").is_file() and (folder / "weights.bin").stat().st_size > 1 << 30
    return _ask(folder, draw, ANY if sparse else REFUSED, unprivileged=True)


def places(folder: Path, draw: Draw) -> Ask:
    """Offsets and lengths that are no places in the file."""
    _lay(folder, extra=b"\0" * 8)
    entries = draw.turn(
        (
            {"offset": "100"},
            {"offset": "-4"},
            {"offset": str(2**63)},
            {"offset": "1e3"},
            {"offset": "0x10"},
            {"offset": "four"},
            {"offset": ""},
            {"length": "-1"},
            {"length": str(2**62)},
            {"length": "12"},
            {"length": "129"},
            {"length": "nan"},
            {"length": "٤"},
            {"offset": "9" * 5000},
            {"offset": str(2**64), "length": str(2**64)},
            {"length": "0"},
        )
    )
    _model(folder, location="weights.bin", **entries)
    return _ask(folder, draw, ANY if entries in ({"offset": ""}, {"length": "0"}) else REFUSED)


def names(folder: Path, draw: Draw) -> Ask:
    """Locations whose name a terminal or a path would obey; the file is not there."""
    _model(folder, location=draw.turn((*NAMES, "", ".", "..", "a" * 300, "model.onnx/x", "weights.bin/")))
    return _ask(folder, draw)


def missing_keys(folder: Path, draw: Draw) -> Ask:
    """Entries that are not there, are there twice, or that nobody knows."""
    _lay(folder)
    model = small_model()
    entries = draw.turn(
        (
            (),
            (("offset", "0"),),
            (("location", "weights.bin"), ("location", "../outside/secret.bin")),
            (("location", "weights.bin"), ("evil", "x" * 100_000)),
            (("location", "weights.bin"), ("checksum", "0" * 40)),
            (("Location", "weights.bin"),),
            (("location", "weights.bin"), ("basepath", "../outside")),
        )
    )
    tensor = _point(model.graph.initializer[0])
    for key, value in entries:
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    save(model, folder / "model.onnx")
    return _ask(folder, draw, REFUSED if len(entries) < 2 else ANY)


def cut(folder: Path, draw: Draw) -> Ask:
    """A copy of the weights that broke off."""
    content = _lay(folder)
    (folder / "weights.bin").write_bytes(content[: draw.turn((0, 1, len(content) - 1, len(content) // 2))])
    _model(folder, location="weights.bin", **draw.turn(({}, {"length": str(_NBYTES)}, {"offset": "0"})))
    return _ask(folder, draw)


def shared(folder: Path, draw: Draw) -> Ask:
    """A thousand tensors that all are the same large part of a file: a few bytes that stand for very many."""
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(256 << 20)
    count = draw.turn((40, 400))
    extra = []
    for number in range(count):
        tensor = TensorProto(name=f"t{number}", data_type=TensorProto.FLOAT, dims=[8 << 20, 8])
        extra.append(_point(tensor, location="weights.bin", offset="0", length=str(256 << 20)))
    nodes = [helper.make_node("ReduceMax", [f"t{n}"], [f"m{n}"], keepdims=0) for n in range(count)]
    nodes += [helper.make_node("Sum", [f"m{n}" for n in range(count)], ["all"])]
    nodes += [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "all"], ["y"])]
    save(graph_of(nodes, extra=extra), folder / "model.onnx")
    about_model(folder, draw)
    words = draw.turn(
        (("lint", "model.onnx"), ("run", "model.onnx", "--inputs", "samples", "-o", "recording", "--memory", "64MiB"))
    )
    return Ask(words, ANY, writes=_LATER)


def hidden(folder: Path, draw: Draw) -> Ask:
    """Data of others named where one looks last: in a Constant, a body, a function, a sparse tensor."""
    location = draw.turn(("../outside/secret.bin", "/etc/passwd"))
    tensor = _point(TensorProto(name="v", data_type=TensorProto.FLOAT, dims=[1, 4]), location=location, length="16")
    constant = helper.make_node("Constant", [], ["v"])
    constant.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=tensor))
    product, end = helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "v"], ["y"])
    which = draw.turn(("constant", "body", "function", "sparse"))
    if which == "constant":
        model = graph_of([constant, product, end])
    elif which == "body":
        gives = [helper.make_tensor_value_info("v", TensorProto.FLOAT, [1, 4])]
        branch = helper.make_graph([constant], "g", [], gives)
        other = helper.make_graph([], "h", [], gives, [tensor])
        yes = onnx.numpy_helper.from_array(np.array(True), "yes")
        taken = helper.make_node("If", ["yes"], ["c"], then_branch=other, else_branch=branch)
        end.input[1] = "c"
        model = graph_of([product, taken, end], extra=[yes])
    elif which == "function":
        opsets = [helper.make_opsetid("", 17)]
        function = helper.make_function("local", "f", ["p"], ["y"], [constant, end], opsets)
        model = graph_of([product, helper.make_node("f", ["p"], ["y"], domain="local")])
        model.opset_import.append(helper.make_opsetid("local", 1))
        model.functions.append(function)
    else:
        model = graph_of([product, end])
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.values.dims[:] = [4]
        sparse.dims[:] = [1, 4]
        sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.arange(4), "v_indices"))
    save(model, folder / "model.onnx")
    return _ask(folder, draw)


def another_model(folder: Path, draw: Draw) -> Ask:
    """A candidate's own model whose data lies outside, beside a reference that is right."""
    _model(folder, location=draw.turn(("../outside/secret.bin", "/etc/passwd", "weights.bin")), length=str(_NBYTES))
    about_model(folder, draw)
    words = draw.turn(
        (
            ("compare", "right.onnx", "--candidate", "sim:f16?model=model.onnx", "--inputs", "samples"),
            (
                "verify",
                "right.onnx",
                "--before",
                "ort?model=model.onnx",
                "--after",
                "ort",
                "--inputs",
                "samples",
                "--no-timing",
            ),
            ("evaluate", "right.onnx", "--reference", "model.onnx", "--inputs", "samples"),
            ("compare", "right.onnx", "--candidate", "openvino?model=model.onnx", "--inputs", "samples"),
        )
    )
    return Ask(words)


def right(folder: Path, draw: Draw) -> Ask:
    """Data where it should be: in the model's folder, in one below it, by a link that stays inside."""
    which = draw.turn(("beside", "below", "offset", "link", "unicode", "hard link", "model by link", "dots"))
    name = {"below": "a/b/weights.bin", "unicode": "веса-🎉.bin"}.get(which, "weights.bin")
    _lay(folder, name, extra=b"\0" * 8)
    if which == "offset":
        (folder / name).write_bytes(b"\0" * 4096 + (folder / name).read_bytes())
    elif which == "link":
        (folder / name).rename(folder / "real.bin")
        (folder / name).symlink_to("real.bin")
    elif which == "hard link":
        os.link(folder / name, folder / "other.bin")
    offset = "4096" if which == "offset" else "0"
    _model(folder, location="./" + name if which == "dots" else name, offset=offset, length=str(_NBYTES))
    if which == "model by link":
        (folder / "place").mkdir()
        for held in ("model.onnx", name):
            (folder / held).rename(folder / "place" / held)
        (folder / "model.onnx").symlink_to("place/model.onnx")
    return _ask(folder, draw, ANY if which in {"model by link", "hard link", "link"} else ANSWERED)


FAMILY = Family("external-data", (
    outside, by_link, special, places, names, missing_keys, cut, shared, hidden, another_model, right,
))  # fmt: skip
