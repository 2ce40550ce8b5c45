"""More rules about models: parts of the format that few files use, types that few networks have, and runs that must fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Ending
from proving.hostile.making import about_model, graph_of, save, small_model, write_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LATER = ("recording", "fixed")
_END = helper.make_node("MatMul", ["s", "w"], ["y"])


def _sparse(dims: list[int], values: list[float], places: list[int], name: str = "sp") -> onnx.SparseTensorProto:
    held = onnx.SparseTensorProto()
    held.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), name))
    held.indices.CopyFrom(numpy_helper.from_array(np.array(places, np.int64), f"{name}_places"))
    held.dims.extend(dims)
    return held


def _add_sparse(model: onnx.ModelProto, sparse: onnx.SparseTensorProto) -> None:
    model.graph.sparse_initializer.append(sparse)
    model.graph.node[1].input[1] = "sp"


def rare_parts(folder: Path, draw: Draw) -> Ask:
    """Sparse constants, training, quantization notes, devices, functions with overloads: right, wrong and enormous."""
    model = small_model()
    which = draw.turn((
        "sparse", "sparse outside", "sparse negative", "sparse huge", "sparse short", "sparse rank", "sparse values", "sparse overflow", "training", "training cycle", "quantization", "quantization nowhere", "devices", "overload", "attribute of nothing", "default attribute",
        "own Relu", "sparse attribute", "strings", "string initializer", "value info lies", "value info huge", "many outputs", "initializer as output", "input as output", "empty names", "no names", "optional last", "optional first",
    ))  # fmt: skip
    right = ANY
    if which.startswith("sparse") and which != "sparse attribute":
        _add_sparse(model, {
            "sparse": _sparse([4], [1.0, 2.0], [0, 3]),
            "sparse outside": _sparse([4], [1.0, 2.0], [0, 9]),
            "sparse negative": _sparse([4], [1.0, 2.0], [-4, 3]),
            "sparse huge": _sparse([1 << 40], [1.0], [5]),
            "sparse overflow": _sparse([1 << 62, 4], [1.0], [5]),
            "sparse short": _sparse([4], [1.0, 2.0], [0]),
            "sparse rank": _sparse([2, 2], [1.0, 2.0], [0, 0, 1]),
            "sparse values": _sparse([-4], [], []),
        }[which])  # fmt: skip
        right = ANY if which in {"sparse", "sparse rank", "sparse values", "sparse short"} else REFUSED
    elif which == "sparse attribute":
        node = helper.make_node("Constant", [], ["c"])
        node.attribute.append(helper.make_attribute("sparse_value", _sparse([1 << 36], [1.0], [1 << 35])))
        model.graph.node.insert(0, node)
    elif which.startswith("training"):
        info = model.training_info.add()
        info.algorithm.CopyFrom(model.graph)
        if which == "training cycle":
            info.algorithm.node[0].input[0] = "y"
        entry = info.update_binding.add()
        entry.key, entry.value = "w", "nowhere"
    elif which.startswith("quantization"):
        note = model.graph.quantization_annotation.add()
        note.tensor_name = "product" if which == "quantization" else "nowhere\x1b[2J"
        entry = note.quant_parameter_tensor_names.add()
        entry.key, entry.value = "SCALE_TENSOR", "nowhere"
    elif which == "devices":
        if hasattr(model, "configuration"):
            held = model.configuration.add()
            held.name, held.num_devices = "\x1b[2J", 2**31 - 1
    elif which == "overload":
        model.ir_version = 10
        function = helper.make_function("local", "Act", ["a"], ["z"], [helper.make_node("Relu", ["a"], ["z"])], [helper.make_opsetid("", 17)])
        function.overload = "second"
        model.functions.append(function)
        model.opset_import.append(helper.make_opsetid("local", 1))
        model.graph.node[2].op_type, model.graph.node[2].domain, model.graph.node[2].overload = "Act", "local", draw.pick(("second", "first", ""))
    elif which in {"attribute of nothing", "default attribute", "own Relu"}:
        inner = helper.make_node("LeakyRelu", ["a"], ["z"])
        attribute = inner.attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = "alpha", "slope", onnx.AttributeProto.FLOAT
        function = helper.make_function("" if which == "own Relu" else "local", "Relu", ["a"], ["z"], [inner], [helper.make_opsetid("", 17)])
        if which == "default attribute":
            function.attribute_proto.append(helper.make_attribute("slope", 0.25))
        model.functions.append(function)
        if which != "own Relu":
            model.opset_import.append(helper.make_opsetid("local", 1))
            model.graph.node[2].domain = "local"
    elif which in {"strings", "string initializer"}:
        model.graph.initializer.append(helper.make_tensor("text", TensorProto.STRING, [2], [b"\x1b[2J", b"\xff\xfe" if which == "strings" else b"a"]))
    elif which.startswith("value info"):
        model.graph.value_info.append(helper.make_tensor_value_info("product", TensorProto.INT64 if which == "value info lies" else TensorProto.FLOAT, [1, 9] if which == "value info lies" else [1 << 50, 1 << 50]))
    elif which == "many outputs":
        for number in range(200):
            model.graph.node.append(helper.make_node("Identity", ["y"], [f"y{number}"]))
            model.graph.output.append(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, [1, 4]))
    elif which == "initializer as output":
        model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 4]))
    elif which == "input as output":
        model.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8]))
    elif which == "empty names":
        model.graph.node[1].output[0] = model.graph.node[2].input[0] = ""
        right = REFUSED
    elif which == "no names":
        for node in model.graph.node:
            node.name = ""
        model.graph.name = ""
    elif which == "optional last":
        model.graph.node[2].op_type = "Clip"
        model.graph.node[2].input.extend(["", ""])
        right = ANSWERED
    else:
        model.graph.node[1].input[0] = ""
        right = REFUSED
    save(model, folder / "model.onnx")
    words = about_model(folder, draw)
    return Ask(words, right | {3} if right == REFUSED and words[0] == "lint" else right, writes=_LATER)


def borders_of_types(folder: Path, draw: Draw) -> Ask:
    """Inputs and outputs of every type, rank and kind that the format knows, and of some that it does not."""
    model = small_model()
    kind = draw.turn((
        "FLOAT16", "BFLOAT16", "DOUBLE", "INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "COMPLEX64", "STRING", "BOOL", "UINT64", "scalar", "rank 40", "no shape", "zero", "optional", "map", "sparse", "sequence out", "optional out",
        "string out", "one more output type", "one more output shape", "output lies", "symbol twice", "initializer too", "unused", "unused string", "sequence of sequences",
    ))  # fmt: skip
    right = ANY
    if kind.isupper():
        # What the small network computes in is float32: everything else is cast, where ONNX has a Cast for it.
        model.graph.input[0].type.tensor_type.elem_type = getattr(TensorProto, kind, 0)
        model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["xf"], to=1))
        model.graph.node[1].input[0] = "xf"
        model.opset_import[0].version, model.ir_version = 23, 11
    elif kind in {"scalar", "rank 40", "zero"}:
        model = graph_of([helper.make_node("Reshape", ["x", "shape"], ["s"]), _END], extra=[numpy_helper.from_array(np.array([1, -1], np.int64), "shape")])
        shape = model.graph.input[0].type.tensor_type.shape
        del shape.dim[:]
        for size in {"scalar": [], "rank 40": [1] * 39 + [8], "zero": [1, 0]}[kind]:
            shape.dim.add().dim_value = size
    elif kind == "no shape":
        model.graph.input[0].type.tensor_type.ClearField("shape")
        model.graph.output[0].type.tensor_type.ClearField("shape")
    elif kind in {"optional", "map", "sparse", "sequence of sequences"}:
        held = model.graph.input[0].type
        held.Clear()
        tensor = helper.make_tensor_type_proto(1, [1, 8])
        if kind == "optional":
            held.optional_type.elem_type.CopyFrom(tensor)
        elif kind == "map":
            held.map_type.key_type = TensorProto.STRING
            held.map_type.value_type.CopyFrom(tensor)
        elif kind == "sparse":
            held.sparse_tensor_type.elem_type = 1
        else:
            held.sequence_type.elem_type.sequence_type.elem_type.CopyFrom(tensor)
        right = REFUSED | {3}  # nothing could be compared
    elif kind in {"sequence out", "optional out", "string out"}:
        type_proto = helper.make_tensor_type_proto(1, [1, 4])
        if kind == "string out":
            model.graph.node.append(helper.make_node("Cast", ["y"], ["t"], to=TensorProto.STRING))
            model.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, [1, 4]))
        else:
            operator = "SequenceConstruct" if kind == "sequence out" else "Optional"
            model.graph.node.append(helper.make_node(operator, ["y"], ["t"]))
            make = helper.make_sequence_type_proto if kind == "sequence out" else helper.make_optional_type_proto
            model.graph.output.append(helper.make_value_info("t", make(type_proto)))
            right = REFUSED | {3}  # nothing could be compared
    elif kind == "one more output type":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
        right = REFUSED
    elif kind == "one more output shape":
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    elif kind == "output lies":
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1 << 40
    elif kind == "symbol twice":
        shape = model.graph.input[0].type.tensor_type.shape
        for place in range(2):
            shape.dim[place].dim_param = "N"
    elif kind == "initializer too":
        model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 4]))
    else:
        model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.STRING if kind == "unused string" else TensorProto.FLOAT, [1 << 20, 1 << 9] if kind == "unused" else [2]))
    save(model, folder / "model.onnx")
    words = about_model(folder, draw)
    return Ask(words, right | {3, 1} if words[0] == "lint" else right, writes=_LATER)


def stored_oddly(folder: Path, draw: Draw) -> Ask:
    """Constants in every field and type that the format knows, in a way that nobody writes."""
    model = small_model()
    bias = model.graph.initializer[1]
    which = draw.turn((
        "halves", "halves too large", "bytes too large", "int4", "int4 short", "float8", "no name", "same name", "same name as input", "string as float", "external in place", "both", "doubles", "zero dims", "scalar", "unused large", "doc", "data location 7",
    ))  # fmt: skip
    bias.ClearField("raw_data")
    bias.float_data.extend([-0.5, 0.0, 0.25, 0.5])
    cast = helper.make_node("Cast", ["b"], ["bf"], to=1)
    right = ANY

    def typed(number: int) -> None:
        bias.data_type = number
        bias.ClearField("float_data")
        model.graph.node.insert(1, cast)
        model.graph.node[2].input[1] = "bf"
        model.opset_import[0].version, model.ir_version = 23, 11

    if which.startswith("halves"):
        typed(TensorProto.FLOAT16)
        bias.int32_data.extend([15360, 0, 1, 70000 if which == "halves too large" else 65535])
    elif which == "bytes too large":
        typed(TensorProto.UINT8)
        bias.int32_data.extend([1, 300, -5, 2**31 - 1])
    elif which.startswith("int4"):
        typed(TensorProto.INT4)
        bias.raw_data = b"\x12\xf4" if which == "int4" else b"\x12"
    elif which == "float8":
        typed(TensorProto.FLOAT8E4M3FN)
        bias.raw_data = b"\x7f\xff\x00\x80"
    elif which == "no name":
        bias.name = ""
        right = REFUSED
    elif which == "same name":
        model.graph.initializer.append(bias)
    elif which == "same name as input":
        model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 8), np.float32), "x"))
    elif which == "string as float":
        bias.string_data.extend([b"a"] * 4)
    elif which == "external in place":
        bias.data_location = TensorProto.EXTERNAL
        right = REFUSED
    elif which == "both":
        bias.double_data.extend([1.0] * 4)
        bias.int64_data.extend([1] * 9)
    elif which == "doubles":
        typed(TensorProto.DOUBLE)
        bias.double_data.extend([1e308, float("nan"), float("inf"), 5e-324])
    elif which == "zero dims":
        bias.dims[:] = [0]
        bias.ClearField("float_data")
        right = REFUSED
    elif which == "scalar":
        del bias.dims[:]
        del bias.float_data[1:]
    elif which == "unused large":
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1 << 24, np.float32), "unused"))
    elif which == "doc":
        bias.doc_string = "\x1b[2J" * 1000
    else:
        held = bias.SerializeToString() + b"\x70\x07"
        model.graph.initializer[1].ParseFromString(held)
    save(model, folder / "model.onnx")
    words = about_model(folder, draw)
    return Ask(words, right | {3} if right == REFUSED and words[0] == "lint" else right, writes=_LATER)


def _integers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _nodes(*described: tuple[str, list[str], list[str], dict[str, object]]) -> list[onnx.NodeProto]:
    return [helper.make_node(kind, inputs, outputs, **more) for kind, inputs, outputs, more in described]


_FAILING: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto]]] = {
    "divides by zero": (_nodes(("Cast", ["x"], ["i"], {"to": 7}), ("Mul", ["i", "nought"], ["z"], {}), ("Div", ["i", "z"], ["d"], {}), ("Cast", ["d"], ["s"], {"to": 1})), [_integers("nought", 0)]),
    "remainder of zero": (_nodes(("Cast", ["x"], ["i"], {"to": 7}), ("Mul", ["i", "nought"], ["z"], {}), ("Mod", ["i", "z"], ["d"], {}), ("Cast", ["d"], ["s"], {"to": 1})), [_integers("nought", 0)]),
    "least by minus one": (_nodes(("Cast", ["x"], ["i"], {"to": 7}), ("Mul", ["i", "nought"], ["z"], {}), ("Add", ["z", "least"], ["l"], {}), ("Sub", ["z", "one"], ["m"], {}), ("Div", ["l", "m"], ["d"], {}), ("Cast", ["d"], ["s"], {"to": 1})), [_integers("nought", 0), _integers("one", 1), _integers("least", -(2**63))]),
    "gathers outside": (_nodes(("Cast", ["x"], ["i"], {"to": 7}), ("Add", ["i", "far"], ["p"], {}), ("Gather", ["w", "p"], ["g"], {}), ("ReduceSum", ["g"], ["r"], {"keepdims": 0}), ("Mul", ["x", "r"], ["s"], {})), [_integers("far", 10**9)]),
    "scatters outside": (_nodes(("Cast", ["x"], ["i"], {"to": 7}), ("Add", ["i", "far"], ["p"], {}), ("ScatterElements", ["x", "p", "x"], ["s"], {"axis": 1})), [_integers("far", -(10**9))]),
    "reshapes wrongly": (_nodes(("Shape", ["x"], ["h"], {}), ("Add", ["h", "one"], ["k"], {}), ("Reshape", ["x", "k"], ["q"], {}), ("Slice", ["q", "from", "to"], ["s"], {})), [_integers("one", 1), _integers("from", 0, 0), _integers("to", 1, 8)]),
    "expands wrongly": (_nodes(("Shape", ["x"], ["h"], {}), ("Add", ["h", "one"], ["k"], {}), ("Expand", ["x", "k"], ["q"], {}), ("Slice", ["q", "from", "to"], ["s"], {})), [_integers("one", 1), _integers("from", 0, 0), _integers("to", 1, 8)]),
    "splits wrongly": (_nodes(("Shape", ["x"], ["h"], {}), ("Split", ["x", "h"], ["a", "c"], {"axis": 1}), ("Concat", ["a", "c"], ["s"], {"axis": 1})), []),
    "reads nothing of a sequence": (_nodes(("SequenceEmpty", [], ["e"], {"dtype": 1}), ("SequenceAt", ["e", "nought"], ["g"], {}), ("Add", ["x", "g"], ["s"], {})), [_integers("nought", 0)]),
    "reads an empty optional": ([*_nodes(("OptionalGetElement", ["o"], ["g"], {}), ("Add", ["x", "g"], ["s"], {}))], []),
    "loops over shapes": (_nodes(("Shape", ["x"], ["h"], {}), ("Tile", ["x", "h"], ["t"], {}), ("Slice", ["t", "from", "to"], ["q"], {}), ("MatMul", ["q", "three"], ["m"], {}), ("ReduceSum", ["m"], ["r"], {"keepdims": 0}), ("Mul", ["x", "r"], ["s"], {})), [_integers("from", 0, 0), _integers("to", 1, 9), numpy_helper.from_array(np.ones((3, 3), np.float32), "three")]),
}  # fmt: skip


def failing_runs(folder: Path, draw: Draw) -> Ask:
    """Networks that load and cannot be run: each failure is an error, also where it ends the process (a division by zero)."""
    nodes, extra = _FAILING[draw.turn(sorted(_FAILING))]
    extra = [*extra]
    if len(extra) == 1 and extra[0].name in {"nought", "far"}:
        held = numpy_helper.to_array(extra[0])
        extra[0] = numpy_helper.from_array(held.reshape(()) if nodes[0].op_type == "SequenceEmpty" else held, extra[0].name)
    save(graph_of([*nodes, _END], extra=extra), folder / "model.onnx")
    words = about_model(folder, draw)
    return Ask(words, ANY if words[0] == "lint" else REFUSED, writes=_LATER)


def contradicting(folder: Path, draw: Draw) -> Ask:
    """Shapes that contradict one another only once they are computed: `lint` refuses them, or says that nothing was run."""
    free = draw.turn((False, True))
    which = draw.turn(("reshapes wrongly", "expands wrongly", "splits wrongly", "loops over shapes", "gathers outside", "scatters outside"))
    nodes, extra = _FAILING[which]
    model = graph_of([*nodes, _END], extra=[*extra])
    if free:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    save(model, folder / "model.onnx")
    seen = which == "expands wrongly"  # without a run
    return Ask(("lint", "model.onnx"), frozenset({1, 2, 3}) if seen else ANY, after=_says_not_run)


def _says_not_run(_: Path, ending: Ending) -> str:
    return "nobody is told that it was not run" if ending.code == 0 and b"not run" not in ending.out else ""


def unseeded(folder: Path, draw: Draw) -> Ask:
    """Networks that give something else each time, of another size or by chance: nothing is proved by one run."""
    nodes = draw.turn((
        _nodes(("RandomNormalLike", ["x"], ["n"], {}), ("Add", ["x", "n"], ["s"], {})), _nodes(("Dropout", ["x", "half", "yes"], ["s"], {})), _nodes(("Bernoulli", ["p"], ["k"], {}), ("Mul", ["x", "k"], ["s"], {})),
        _nodes(("RandomUniform", [], ["n"], {"shape": [1, 8], "seed": 1.0}), ("Add", ["x", "n"], ["s"], {})), _nodes(("Multinomial", ["x"], ["k"], {"sample_size": 8, "dtype": 7}), ("Cast", ["k"], ["s"], {"to": 1})),
    ))  # fmt: skip
    extra = [numpy_helper.from_array(np.array(0.5, np.float32), "half"), numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.full((1, 8), 0.5, np.float32), "p")]
    save(graph_of([*nodes, _END], extra=extra), folder / "model.onnx")
    return Ask(about_model(folder, draw), ANY, writes=_LATER)


def other_writings(folder: Path, draw: Draw) -> Ask:
    """Models in another writing, or under a name that means another kind of file."""
    model = small_model()
    write: dict[str, Callable[[], bytes]] = {
        "model.textproto": lambda: str(model).encode(),
        "model.onnxtxt": lambda: onnx.printer.to_text(model).encode(),
        "model.json": lambda: b'{"irVersion": "8", "graph": {}}',
        "model.ort": lambda: b"\x18\0\0\0ORTM" + draw.noise(400),
        "model.pb": model.SerializeToString,
        "model": model.SerializeToString,
        "model.onnx ": model.SerializeToString,
        "Model.ONNX": model.SerializeToString,
        "mode\u0301l.onnx": model.SerializeToString,
        "a=b&c?d#e.onnx": model.SerializeToString,
        "model.pt": model.SerializeToString,
        "model.xml": model.SerializeToString,
        "model.plan": lambda: b"ptrt" + draw.noise(400),
        "model.safetensors": model.SerializeToString,
        "model.npz": model.SerializeToString,
    }
    name = draw.turn(sorted(write))
    (folder / name).write_bytes(write[name]())
    write_samples(folder)
    return Ask(about_model(folder, draw, name), ANY, writes=_LATER)
