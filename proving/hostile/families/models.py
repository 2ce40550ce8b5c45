"""Models: files that are none, graphs that cannot be, and graphs that would cost everything."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.families._odd_models import (
    borders_of_types,
    contradicting,
    failing_runs,
    other_writings,
    rare_parts,
    stored_oddly,
    unseeded,
)
from proving.hostile.making import NAMES, SPECIAL, Trap, about_model, graph_of, save, small_model, special_file

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")  # what commands about models are told to write


def _ask(folder: Path, draw: Draw, right: frozenset[int] = REFUSED) -> Ask:
    """A command about the model; `lint` may say 3 where parts of a file cannot be read, and never 0."""
    words = about_model(folder, draw)
    return Ask(words, right | {3} if right == REFUSED and words[0] == "lint" else right, writes=_LATER)


def not_a_model(folder: Path, draw: Draw) -> Ask:
    """Files of other kinds under a model's name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("model.onnx", small_model().SerializeToString())
    content = draw.turn(
        (
            b"",
            b"\0" * 4096,
            b"<!DOCTYPE html><title>404</title>",
            draw.noise(2000),
            pickle.dumps(Trap(folder)),
            archive.getvalue(),
            gzip.compress(small_model().SerializeToString()),
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "модель".encode("utf-16"),
            b"\x7fELF" + draw.noise(300),
        )
    )
    (folder / "model.onnx").write_bytes(content)
    return _ask(folder, draw)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file at all."""
    special_file(folder / "model.onnx", draw.turn(SPECIAL))
    return Ask(about_model(folder, draw), writes=_LATER, unprivileged=True)


def cut(folder: Path, draw: Draw) -> Ask:
    """A download that broke off."""
    whole = small_model().SerializeToString()
    (folder / "model.onnx").write_bytes(whole[: draw.integer(1, len(whole) - 2)])
    return _ask(folder, draw, REFUSED)


def flipped(folder: Path, draw: Draw) -> Ask:
    """Bytes that changed on the way: what is still a model may be answered."""
    held = bytearray(small_model().SerializeToString())
    for _ in range(draw.turn((1, 3, 12, 60))):
        held[draw.integer(0, len(held) - 1)] = draw.integer(0, 255)
    (folder / "model.onnx").write_bytes(bytes(held))
    return _ask(folder, draw, ANY)


def wired_wrong(folder: Path, draw: Draw) -> Ask:
    """Edges that no graph has: cycles, loose ends, one name for two tensors."""
    relu = helper.make_node("Relu", ["s"], ["y"])
    nodes = draw.turn(
        (
            [
                helper.make_node("Add", ["x", "q"], ["p"]),
                helper.make_node("Relu", ["p"], ["q"]),
                helper.make_node("Slice", ["q"], ["y"]),
            ],
            [helper.make_node("Relu", ["y"], ["y"])],
            [helper.make_node("MatMul", ["x", "nowhere"], ["s"]), relu],
            [helper.make_node("MatMul", ["x", "w"], ["z"])],
            [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["s"]), relu],
            [helper.make_node("MatMul", ["x", "w"], ["x"]), helper.make_node("Relu", ["x"], ["y"])],
            [relu, helper.make_node("MatMul", ["x", "w"], ["s"])],
            [helper.make_node("MatMul", ["x", "w"], ["y", "y"])],
            [],
        )
    )
    save(graph_of(nodes), folder / "model.onnx")
    unordered = len(nodes) == 2 and nodes[0].op_type == "Relu" and nodes[1].op_type == "MatMul"
    return _ask(folder, draw, ANY if unordered else REFUSED)


def unknown(folder: Path, draw: Draw) -> Ask:
    """Operators, domains, versions and types that nobody has."""
    model = small_model()
    which = draw.turn(
        ("operator", "domain", "opset", "opset 0", "no opset", "version", "type", "twice", "negative", "input type")
    )
    if which == "operator":
        model.graph.node[1].op_type = draw.pick(("", "Sin\x1b[31mh", "Reluu", "a" * 5000, "../Relu"))
    elif which == "domain":
        model.graph.node[1].domain = draw.pick(("com.evil", "\x1b[2J", "ai.onnx.ml", "com.microsoft"))
    elif which == "opset":
        model.opset_import[0].version = draw.pick((999, 2**62))
    elif which == "opset 0":
        model.opset_import[0].version = 0
    elif which == "negative":
        model.opset_import[0].version = -1
    elif which == "no opset":
        del model.opset_import[:]
    elif which == "version":
        model.ir_version = draw.pick((10**9, 2**62))
    elif which == "type":
        model.graph.initializer[0].data_type = draw.pick((0, 99, 2**30))
    elif which == "input type":
        model.graph.input[0].type.tensor_type.elem_type = draw.pick((0, 77))
    else:
        model.opset_import.append(helper.make_opsetid("", 9))
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANY if which in {"twice", "no opset", "opset 0", "version"} else REFUSED)


def weights_that_lie(folder: Path, draw: Draw) -> Ask:
    """Constants whose shape and content contradict one another."""
    model = small_model()
    weight = model.graph.initializer[0]
    which = draw.turn(
        ("negative", "overflow", "too large", "short", "long", "both", "segment", "rank", "empty", "huge rank")
    )
    if which == "negative":
        weight.dims[0] = -8
    elif which == "overflow":
        weight.dims[:] = [2**62, 4]
    elif which == "too large":
        weight.dims[:] = [1 << 20, 1 << 20]
        weight.raw_data = b""
    elif which == "short":
        weight.raw_data = weight.raw_data[:-4]
    elif which == "long":
        weight.raw_data += b"\0" * 4
    elif which == "both":
        weight.float_data.extend([1.0] * 32)
    elif which == "segment":
        weight.segment.begin, weight.segment.end = 0, 2**60
    elif which == "rank":
        weight.dims[:] = [32]
    elif which == "empty":
        weight.dims[:] = [0, 4]
        weight.raw_data = b""
    else:
        weight.dims[:] = [1] * 5000 + [8, 4]
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANY if which in {"both", "segment"} else REFUSED)


def named_to_harm(folder: Path, draw: Draw) -> Ask:
    """Names that a terminal, a page or a path would obey."""
    name = draw.turn(NAMES)
    model = small_model(y=name) if draw.turn((True, False)) else small_model(x=name)
    samples = (
        [{model.graph.input[0].name: np.ones((1, 8), np.float32)}] if "\0" not in name and "/" not in name else None
    )
    if samples and len(name) < 60_000:
        folder_of = folder / "samples"
        folder_of.mkdir()
        np.savez(folder_of / "0.npz", **samples[0])
    model.graph.node[1].name = name
    model.doc_string = model.producer_name = name
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANY)


def not_unicode(folder: Path, draw: Draw) -> Ask:
    """Names whose bytes are no UTF-8."""
    held = small_model().SerializeToString()
    old = draw.turn((b"product", b"relu", b"sum", b"net"))
    (folder / "model.onnx").write_bytes(held.replace(old, b"\xff\xfe" + b"\xc3" * (len(old) - 2)))
    return _ask(folder, draw, ANY)


def nested(folder: Path, draw: Draw) -> Ask:
    """Bodies in bodies in bodies, written by hand, because protobuf itself gives up at a hundred."""
    depth = draw.turn((3, 24, 45, 200, 5000))
    looped = draw.turn((False, True))
    inner = _relu(b"x", b"deepest") + _field(2, b"g") + _field(12, _field(1, b"deepest"))
    last = b"deepest"
    for level in range(depth):
        name = b"v%d" % level
        node = _field(2, name) + _field(4, b"Loop" if looped else b"If")
        if looped:
            kept = _field(1, _field(1, b"c%d" % level) + _field(2, b"k%d" % level) + _field(4, b"Identity"))
            borders = _field(12, _field(1, b"k%d" % level)) + _field(12, _field(1, last))
            given = b"".join(_field(11, _field(1, b"%c%d" % (letter, level))) for letter in b"ic")
            body = inner.rpartition(_field(12, _field(1, last)))[0] + kept + given + borders
            node += _field(1, b"one") + _field(1, b"yes") + _field(5, _graph_attribute(b"body", body))
        else:
            other = _relu(b"x", b"e%d" % level) + _field(2, b"e") + _field(12, _field(1, b"e%d" % level))
            node += _field(1, b"yes") + _field(5, _graph_attribute(b"then_branch", inner))
            node += _field(5, _graph_attribute(b"else_branch", other))
        inner = _field(1, node) + _field(2, b"g%d" % level) + _field(12, _field(1, name))
        last = name
    shell = graph_of(
        [helper.make_node("MatMul", [last.decode(), "w"], ["y"])],
        extra=[numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.array(1), "one")],
    )
    graph = inner[: inner.index(_field(2, b"g%d" % (depth - 1)))] + shell.graph.SerializeToString()
    _write_raw(folder, shell, graph)
    return _ask(folder, draw, ANY if depth < 100 else REFUSED)


def _field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _graph_attribute(name: bytes, graph: bytes) -> bytes:
    return _field(1, name) + _field(6, graph) + _varint(20 << 3) + b"\x05"


def _relu(source: bytes, sink: bytes) -> bytes:
    return _field(1, _field(1, source) + _field(2, sink) + _field(4, b"Relu"))


def _write_raw(folder: Path, shell: onnx.ModelProto, graph: bytes) -> None:
    """Writes a model with another graph than its own."""
    rest = onnx.ModelProto()
    rest.CopyFrom(shell)
    rest.ClearField("graph")
    (folder / "model.onnx").write_bytes(rest.SerializeToString() + _field(7, graph))


def many_nodes(folder: Path, draw: Draw) -> Ask:
    """A chain of nodes as long as a file can hold."""
    count = draw.turn((20_000, 200_000, 1_000_000))
    shell = graph_of([helper.make_node("MatMul", [f"t{count - 1}", "w"], ["y"])])
    nodes = [_relu(b"t%d" % (n - 1) if n else b"x", b"t%d" % n) for n in range(count)]
    _write_raw(folder, shell, b"".join(nodes) + shell.graph.SerializeToString())
    about_model(folder, draw)
    return Ask(draw.turn((("lint", "model.onnx"), ("compare", "model.onnx", "--candidate", "nope"))), ANY)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def functions(folder: Path, draw: Draw) -> Ask:
    """Functions that call themselves, one another, or twice the next, thirty times over."""
    which = draw.turn(("itself", "each other", "exponential", "wide", "missing", "twice", "wrong number"))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]

    def function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
        return helper.make_function("local", name, ["a"], ["z"], nodes, opsets)

    def call(name: str, source: str, sink: str) -> onnx.NodeProto:
        return helper.make_node(name, [source], [sink], domain="local")

    relu = helper.make_node("Relu", ["a"], ["z"])
    if which == "itself":
        held = [function("f", [call("f", "a", "z")])]
    elif which == "each other":
        held = [function("f", [call("g", "a", "z")]), function("g", [call("f", "a", "z")])]
    elif which in {"exponential", "wide"}:
        depth, width = (30, 2) if which == "exponential" else (6, 40)
        held = [function("f0", [relu])]
        for level in range(1, depth):
            names = ["a", *[f"m{n}" for n in range(width - 1)], "z"]
            held.append(function(f"f{level}", [call(f"f{level - 1}", names[n], names[n + 1]) for n in range(width)]))
        held[-1].name = "f"
    elif which == "missing":
        held = []
    elif which == "twice":
        held = [function("f", [relu]), function("f", [helper.make_node("Neg", ["a"], ["z"])])]
    else:
        held = [helper.make_function("local", "f", ["a", "b", "c"], ["z"], [relu], opsets)]
    model = graph_of([call("f", "x", "s"), helper.make_node("MatMul", ["s", "w"], ["y"])])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(held)
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANY if which in {"twice", "wrong number"} else REFUSED)


def bombs(folder: Path, draw: Draw) -> Ask:
    """A few bytes that would compute terabytes."""
    size = draw.turn((1 << 31, 1 << 40, 1 << 62))

    def numbers(name: str, values: list[int]) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(values, np.int64), name)

    which = draw.turn(("fill", "tile", "expand", "range", "resize", "pad", "onehot"))
    constants, nodes = {
        "fill": ([numbers("n", [size, 8])], [helper.make_node("ConstantOfShape", ["n"], ["g"])]),
        "tile": ([numbers("n", [size, 1])], [helper.make_node("Tile", ["x", "n"], ["g"])]),
        "expand": ([numbers("n", [size, 8])], [helper.make_node("Expand", ["x", "n"], ["g"])]),
        "range": (
            [numpy_helper.from_array(np.array(n, np.int64), name) for name, n in (("n", 0), ("m", size), ("o", 1))],
            [helper.make_node("Range", ["n", "m", "o"], ["i"]), helper.make_node("Cast", ["i"], ["g"], to=1)],
        ),
        "resize": ([numbers("n", [size, 8])], [helper.make_node("Resize", ["x", "", "", "n"], ["g"])]),
        "pad": ([numbers("n", [0, 0, min(size, 2**61), 0])], [helper.make_node("Pad", ["x", "n"], ["g"])]),
        "onehot": (
            [numbers("n", [1]), numbers("m", [size]), numpy_helper.from_array(np.array([0, 1], np.float32), "o")],
            [helper.make_node("OneHot", ["n", "m", "o"], ["g"])],
        ),
    }[which]
    end = [
        helper.make_node("ReduceSum", ["g"], ["r"], keepdims=0),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "r"], ["y"]),
    ]
    save(graph_of([*nodes, *end], extra=constants), folder / "model.onnx")
    words = about_model(folder, draw)
    return Ask(words, ANY if "lint" in words else REFUSED, writes=_LATER)


def borders(folder: Path, draw: Draw) -> Ask:
    """Inputs and outputs that no run can have."""
    model = small_model()
    which = draw.turn(
        ("no outputs", "no inputs", "huge", "negative", "sequence", "no type", "twice", "overflow", "symbol")
    )
    shape = model.graph.input[0].type.tensor_type.shape
    if which == "no outputs":
        del model.graph.output[:]
    elif which == "no inputs":
        del model.graph.input[:]
    elif which in {"huge", "negative", "overflow"}:
        shape.dim[0].dim_value = {"huge": 1 << 40, "negative": -5, "overflow": (1 << 63) - 1}[which]
    elif which == "sequence":
        model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1, 8]))
    elif which == "no type":
        model.graph.input[0].ClearField("type")
    elif which == "twice":
        model.graph.input.append(model.graph.input[0])
    else:
        shape.dim[0].dim_param = draw.pick(("\x1b[31mN", "-1", "N" * 60_000, "a\nb"))
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANY if which in {"symbol", "negative", "no outputs"} else REFUSED)


def attributes(folder: Path, draw: Draw) -> Ask:
    """Attributes of another type, of absurd size, or missing."""
    big = 1 << 40
    node = draw.turn(
        (
            helper.make_node("Gemm", ["x", "w", "b"], ["s"], transB="yes"),
            helper.make_node("Concat", ["x", "x"], ["s"]),
            helper.make_node("Transpose", ["x"], ["s"], perm=[0, 0]),
            helper.make_node("Concat", ["x", "x"], ["s"], axis=2**62),
            helper.make_node("Softmax", ["x"], ["s"], axis=99),
            helper.make_node("Cast", ["x"], ["s"], to=424242),
            helper.make_node("Split", ["x"], [f"s{n}" for n in range(5000)], axis=1),
            helper.make_node("Unsqueeze", ["x"], ["s"], axes=[0] * 4000),
            helper.make_node("Constant", [], ["s"]),
            helper.make_node("MaxPool", ["x"], ["s"], kernel_shape=[big, big], strides=[0, 0]),
            helper.make_node("If", ["x"], ["s"]),
        )
    )
    save(graph_of([node, helper.make_node("MatMul", ["s", "w"], ["y"])]), folder / "model.onnx")
    return _ask(folder, draw)


def unloadable(folder: Path, draw: Draw) -> Ask:
    """Files whose parts fit together, and that no runtime loads: reading alone must not find nothing wrong with them."""
    three = [numpy_helper.from_array(np.ones((3, 3), np.float32), "three")]
    node, extra = draw.turn(
        (
            (helper.make_node("Softmax", ["x"], ["s"], axis=99), ()),
            (helper.make_node("Concat", ["x", "x"], ["s"], axis=-9), ()),
            (helper.make_node("MaxPool", ["x"], ["s"], kernel_shape=[1], strides=[0]), ()),
            (helper.make_node("Flatten", ["x"], ["s"], axis=7), ()),
            (helper.make_node("MatMul", ["x", "three"], ["s"]), three),
            (helper.make_node("Conv", ["x", "three"], ["s"], strides=[0]), three),
            (helper.make_node("Relu", ["x"], ["s"], alpha=1.0), ()),
            (helper.make_node("Frobnicate", ["x"], ["s"]), ()),
            (helper.make_node("Softmax", ["x"], ["s"], axis=[1, 2]), ()),
            (helper.make_node("Gemm", ["x", "three", "b"], ["s"]), three),
        )
    )
    save(graph_of([node, helper.make_node("MatMul", ["s", "w"], ["y"])], extra=list(extra)), folder / "model.onnx")
    return Ask(("lint", "model.onnx"))


def nothing_to_compare(folder: Path, draw: Draw) -> Ask:
    """Outputs without elements, or NaN on both sides throughout: no 0 can be earned with them."""
    which = draw.turn(("empty", "nan"))
    if which == "empty":
        extra = [numpy_helper.from_array(np.array([0, 0], np.int64), n) for n in ("from",)]
        extra.append(numpy_helper.from_array(np.array([0, 4], np.int64), "to"))
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Slice", ["p", "from", "to"], ["y"])]
    else:
        extra = [numpy_helper.from_array(np.full(4, np.nan, np.float32), "v")]
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Mul", ["p", "v"], ["y"])]
    model = graph_of(nodes, extra=extra)
    if which == "empty":
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    save(model, folder / "model.onnx")
    about_model(folder, draw)
    words = draw.turn(
        (
            ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples"),
            ("diagnose", "model.onnx", "--candidate", "ort?optimization=disabled", "--inputs", "samples"),
            ("predict", "model.onnx", "--inputs", "samples"),
            (
                "verify",
                "model.onnx",
                "--before",
                "sim:f16",
                "--after",
                "ort?threads=1",
                "--inputs",
                "samples",
                "--no-timing",
            ),
        )
    )
    return Ask(words, frozenset({2, 3}))


def metadata(folder: Path, draw: Draw) -> Ask:
    """More notes than model; they say nothing about numbers."""
    model = small_model()
    text = draw.turn(("\x1b[31m", "x" * 3_000_000, "<script>", "\u202e"))
    for number in range(draw.turn((1, 20_000))):
        entry = model.metadata_props.add()
        entry.key, entry.value = f"{number}{text[:9]}", text if number < 3 else text[:9]
    save(model, folder / "model.onnx")
    return _ask(folder, draw, ANSWERED | REFUSED)


def endless(folder: Path, draw: Draw) -> Ask:
    """A loop that never ends; only a time limit that was given, or reading alone, can."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["k"]), helper.make_node("Relu", ["s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 8]),
        ],
        [
            helper.make_tensor_value_info("k", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 8]),
        ],
    )
    extra = [
        numpy_helper.from_array(np.array(2**62), "forever"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    nodes = [
        helper.make_node("Loop", ["forever", "yes", "x"], ["l"], body=body),
        helper.make_node("MatMul", ["l", "w"], ["y"]),
    ]
    save(graph_of(nodes, extra=extra), folder / "model.onnx")
    about_model(folder, draw)
    words, right = draw.turn(
        (
            (("lint", "model.onnx"), ANY),
            (
                ("compare", "right.onnx", "--candidate", "ort?model=model.onnx&timeout=2", "--inputs", "samples"),
                REFUSED,
            ),
            (("run", "model.onnx", "--target", "ort?timeout=2", "--inputs", "samples", "-o", "recording"), REFUSED),
        )
    )
    return Ask(words, right, writes=_LATER)


def right(folder: Path, draw: Draw) -> Ask:
    """Unusual models that are right: they are answered."""
    which = draw.turn(("folder", "unicode", "link", "space", "suffix", "dots"))
    if which == "folder":
        (folder / "a").mkdir()
        path = "a/../a/model.onnx"
    elif which == "link":
        save(small_model(), folder / "real.onnx")
        (folder / "linked.onnx").symlink_to("real.onnx")
        path = "linked.onnx"
    else:
        path = {
            "unicode": "модель-模型-🎉.onnx",
            "space": "my model (1).onnx",
            "suffix": "model.ONNX",
            "dots": "./model.onnx",
        }[which]
    if which != "link":
        save(small_model(), folder / path)
    return Ask(about_model(folder, draw, path), ANY if which == "suffix" else ANSWERED, writes=_LATER)


FAMILY = Family("models", (
    not_a_model, special, cut, flipped, wired_wrong, unknown, weights_that_lie, named_to_harm, not_unicode, nested, many_nodes,
    functions, bombs, borders, attributes, nothing_to_compare, metadata, endless, right, unloadable,
    rare_parts, borders_of_types, stored_oddly, failing_runs, contradicting, unseeded, other_writings,
))  # fmt: skip
