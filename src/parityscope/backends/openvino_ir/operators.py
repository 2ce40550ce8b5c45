"""What each operator of OpenVINO is in those of ONNX: names where both mean the same, else a function that writes it.

Source: OpenVINO's operation set specifications, opset1 to opset16. An operator that is in neither table, or in a form that is not
written here (`UntranslatedError`), is left unread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from parityscope.backends.openvino_ir.writing import OnnxWriter, UntranslatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.backends.openvino_ir.translating import OpenvinoNode

    # Writes an operator, and gives the names of its results.
    Translator = Callable[[OnnxWriter, OpenvinoNode], list[str]]

_END = (1 << 63) - 1  # as far as an axis goes, in ONNX's Slice
_ON_GRID = (
    1e-3  # of a step: so far from an integer a zero point may be, for numbers that are written in float32; chosen
)
_PADDING = {"explicit": "NOTSET", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
ELEMENT_TYPES = {
    "f32": onnx.TensorProto.FLOAT,
    "f16": onnx.TensorProto.FLOAT16,
    "bf16": onnx.TensorProto.BFLOAT16,
    "f64": onnx.TensorProto.DOUBLE,
    "i8": onnx.TensorProto.INT8,
    "i16": onnx.TensorProto.INT16,
    "i32": onnx.TensorProto.INT32,
    "i64": onnx.TensorProto.INT64,
    "u8": onnx.TensorProto.UINT8,
    "u16": onnx.TensorProto.UINT16,
    "u32": onnx.TensorProto.UINT32,
    "u64": onnx.TensorProto.UINT64,
    "boolean": onnx.TensorProto.BOOL,
    "string": onnx.TensorProto.STRING,
}
# Operators whose inputs and results are those of ONNX's, in order, without anything else to say.
SAME: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Equal", "Erf", "Exp"),
            *("Floor", "Greater", "Identity", "IsNaN", "Less", "Log", "NonZero", "PRelu", "Relu", "Sigmoid"),
            *("Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
        )
    },
    "Ceiling": "Ceil",
    "Divide": "Div",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalNot": "Not",
    "LogicalOr": "Or",
    "LogicalXor": "Xor",
    "Maximum": "Max",
    "Minimum": "Min",
    "Multiply": "Mul",
    "Negative": "Neg",
    "Power": "Pow",
    "ScatterNDUpdate": "ScatterND",
    "Select": "Where",
    "SoftPlus": "Softplus",
    "SoftSign": "Softsign",
    "Subtract": "Sub",
}
_REDUCTIONS = tuple(f"Reduce{kind}" for kind in ("Max", "Mean", "Min", "Prod", "Sum", "L1", "L2"))


def _window_attributes(node: OpenvinoNode) -> dict[str, Any]:
    """Padding and steps of a window, as attributes."""
    kind = _PADDING[node.get_attribute("auto_pad", "explicit")]
    found = {"strides": node.get_attribute("strides"), "dilations": node.get_attribute("dilations", None)}
    if kind != "NOTSET":
        return found | {"auto_pad": kind}
    return found | {"pads": [*node.get_attribute("pads_begin"), *node.get_attribute("pads_end")]}


def _read_grouped_weight(write: OnnxWriter, node: OpenvinoNode) -> tuple[str, int, list[int]]:
    """A convolution's weight as ONNX has it, groups and their first axis as one, with the groups and its shape."""
    weight, shape = node.inputs[1], node.in_shape(1)
    if not node.kind.startswith("Group"):
        return weight, 1, shape
    whole = [shape[0] * shape[1], *shape[2:]]
    return write.emit_one("Reshape", weight, write.add_constant(whole)), shape[0], whole


def _write_convolution(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    weight, group, shape = _read_grouped_weight(write, node)
    return write.emit("Conv", [node.inputs[0], weight], group=group, kernel_shape=shape[2:], **_window_attributes(node))


def _write_transposed_convolution(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    weight, group, shape = _read_grouped_weight(write, node)
    wanted = node.known_constant(2).tolist() if len(node.inputs) > 2 else None
    extra = {"output_padding": node.get_attribute("output_padding", None), "output_shape": wanted}
    return write.emit(
        "ConvTranspose",
        [node.inputs[0], weight],
        group=group,
        kernel_shape=shape[2:],
        **extra,
        **_window_attributes(node),
    )


def _write_pool(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    common = {"kernel_shape": node.get_attribute("kernel"), **_window_attributes(node)}
    if (rounding := node.get_attribute("rounding_type", "floor")) == "ceil_torch":
        raise UntranslatedError("rounding_type ceil_torch")
    common["ceil_mode"] = int(rounding == "ceil")
    if node.kind == "MaxPool":
        return write.emit("MaxPool", node.inputs, outputs=len(node.outputs), **common)
    common.pop("dilations", None)
    included = int(not node.get_attribute("exclude-pad"))
    return write.emit("AveragePool", node.inputs, count_include_pad=included, **common)


def _write_matmul(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    sides = []
    for place, flag in enumerate(("transpose_a", "transpose_b")):
        name, rank = node.inputs[place], len(node.in_shape(place, known=False))
        if node.get_attribute(flag) and rank > 1:
            name = write.emit_one("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])
        sides.append(name)
    return write.emit("MatMul", sides)


def _write_add(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """A sum; of a convolution that nobody else reads and one number a channel, its bias."""
    for place in (0, 1):
        other = node.maybe_constant(1 - place)
        maker = next((one for one in reversed(write.nodes) if node.inputs[place] in one.output), None)
        if other is None or maker is None or not maker.op_type.startswith("Conv") or len(maker.input) != 2:
            continue
        if node.count_readers(place) == 1 and other.ndim > 2 and other.size == other.shape[1]:
            write.nodes.remove(maker)
            maker.input.append(write.emit_one("Reshape", node.inputs[1 - place], write.add_constant([-1])))
            write.nodes.append(maker)
            return list(maker.output)
    return write.emit("Add", node.inputs)


def _write_multiply(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """A product; of integers that a file holds, less their zero point, with a scale: what DequantizeLinear does."""
    for place in (0, 1):
        held = node.held_integers(place)
        scale = node.maybe_constant(1 - place)
        if held is not None and scale is not None:
            values, zero = held
            axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
            zero = np.zeros((), values.dtype) if zero is None else np.broadcast_to(zero, scale.shape)
            if (zero != np.rint(zero)).any() or scale.ndim != values.ndim:
                break
            if len(axes) > 1:
                return _write_groups(write, values, np.asarray(scale, np.float32), zero)
            kept = [np.ascontiguousarray(one).reshape(-1) for one in (np.asarray(scale, np.float32), zero)]
            kept = kept if axes else [one.reshape(-1)[0] for one in kept]
            named = [write.add_constant(values), write.add_constant(kept[0])]
            flat = np.broadcast_to(kept[1], np.shape(kept[0]))
            return write.emit(
                "DequantizeLinear",
                [*named, write.add_constant(np.array(flat, values.dtype))],
                axis=axes[0] if axes else None,
            )
    return write.emit("Mul", node.inputs)


def _write_groups(write: OnnxWriter, values: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> list[str]:
    """Integers of which each group has a scale of its own, (rows, groups, 1): as rows of one scale each, laid out as they were.

    values: (rows, groups, size).
    """
    deep = max(axis for axis, size in enumerate(scale.shape) if size > 1) + 1
    whole = np.broadcast_to(scale, (*values.shape[:deep], *scale.shape[deep:])).reshape(-1)
    held = np.broadcast_to(zero, (*values.shape[:deep], *scale.shape[deep:])).reshape(-1)
    named = [write.add_constant(values.reshape(len(whole), -1)), write.add_constant(np.ascontiguousarray(whole))]
    flat = write.emit_one("DequantizeLinear", *named, write.add_constant(held.astype(values.dtype)), axis=0)
    return write.emit("Reshape", [flat, write.add_constant(np.array(values.shape, np.int64))])


def _write_fake_quantize(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """Round to a grid and back: QuantizeLinear and DequantizeLinear where it is one of 256 levels, else as specified."""
    bounds = [np.asarray(node.known_constant(place), np.float64) for place in range(1, 5)]
    low, high, out_low, out_high = np.broadcast_arrays(*bounds)
    levels = int(node.get_attribute("levels"))
    axes = [axis for axis, size in enumerate(low.shape) if size > 1]
    step = (high - low) / (levels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -low / step
    same = np.allclose(low, out_low) and np.allclose(high, out_high) and bool((step > 0).all())
    if levels == 256 and same and len(axes) < 2 and bool((np.abs(zero - np.rint(zero)) < _ON_GRID).all()):
        first = 128 if float(np.rint(zero).min()) == 128.0 == float(np.rint(zero).max()) else 0
        kind = np.int8 if first else np.uint8
        kept = slice(None) if axes else 0
        scale = write.add_constant(np.asarray(step.reshape(-1)[kept], np.float32))
        point = write.add_constant(np.asarray(np.rint(zero).reshape(-1)[kept] - first, kind))
        axis = axes[0] - len(low.shape) if axes else None
        if axis is not None:
            axis += len(node.in_shape(0, known=False))
        held = write.emit_one("QuantizeLinear", node.inputs[0], scale, point, axis=axis)
        return write.emit("DequantizeLinear", [held, scale, point], axis=axis)
    one = [write.add_constant(np.asarray(bound, np.float32)) for bound in (low, high, out_low, out_high)]
    clipped = write.emit_one("Min", write.emit_one("Max", node.inputs[0], one[0]), one[1])
    steps = write.add_constant(np.float32(levels - 1))
    part = write.emit_one("Div", write.emit_one("Sub", clipped, one[0]), write.emit_one("Sub", one[1], one[0]))
    level = write.emit_one("Round", write.emit_one("Mul", part, steps))
    back = write.emit_one("Mul", write.emit_one("Div", level, steps), write.emit_one("Sub", one[3], one[2]))
    return write.emit("Add", [back, one[2]])


def _write_batch_normalization(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("BatchNormalization", node.inputs, epsilon=node.get_attribute("epsilon"))


def _write_mean_variance(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes, x = node.known_constant(1).reshape(-1).astype(np.int64), node.inputs[0]
    centred = write.emit_one("Sub", x, write.emit_one("ReduceMean", x, axes=axes, keepdims=1))
    if not node.get_attribute("normalize_variance"):
        return [centred]
    power = write.emit_one("ReduceMean", write.emit_one("Mul", centred, centred), axes=axes, keepdims=1)
    epsilon = write.add_constant(np.float32(node.get_attribute("eps")))
    if str(node.get_attribute("eps_mode")).upper() == "INSIDE_SQRT":
        root = write.emit_one("Sqrt", write.emit_one("Add", power, epsilon))
    else:
        root = write.emit_one("Add", write.emit_one("Sqrt", power), epsilon)
    return write.emit("Div", [centred, root])


def _write_root_mean_square(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x, axes = node.inputs[0], node.known_constant(1).reshape(-1).astype(np.int64)
    power = write.emit_one("ReduceMean", write.emit_one("Mul", x, x), axes=axes, keepdims=1)
    root = write.emit_one(
        "Sqrt", write.emit_one("Add", power, write.add_constant(np.float32(node.get_attribute("epsilon"))))
    )
    found = write.emit("Div", [x, root])
    return write.emit("Mul", [found[0], node.inputs[2]]) if len(node.inputs) > 2 else found


def _write_attention(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    query, key, value, *rest = node.inputs
    if node.get_attribute("causal") or len(rest) > 2:
        raise UntranslatedError("a causal mask, or a sink")
    size, rank = node.in_shape(0, known=False)[-1], len(node.in_shape(1, known=False))
    if len(rest) < 2 and size < 0:
        raise UntranslatedError("the size of a head is not known")
    factor = rest[1] if len(rest) > 1 else write.add_constant(np.float32(1 / math.sqrt(size)))
    turned = write.emit_one("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = write.emit_one("MatMul", write.emit_one("Mul", query, factor), turned)
    if rest:
        mask = rest[0]
        if node.in_type(3) == "boolean":
            mask = write.emit_one(
                "Where", mask, write.add_constant(np.float32(0)), write.add_constant(np.float32(-np.inf))
            )
        scores = write.emit_one("Add", scores, mask)
    return write.emit("MatMul", [write.emit_one("Softmax", scores, axis=-1), value])


def _write_swish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x = node.inputs[0]
    inner = write.emit_one("Mul", *node.inputs) if len(node.inputs) > 1 else x
    return write.emit("Mul", [x, write.emit_one("Sigmoid", inner)])


def _write_hard_swish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if write.knows("HardSwish"):
        return write.emit("HardSwish", node.inputs)
    return write.emit("Mul", [node.inputs[0], write.emit_one("HardSigmoid", node.inputs[0], alpha=1 / 6, beta=0.5)])


def _write_mish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if write.knows("Mish"):
        return write.emit("Mish", node.inputs)
    return write.emit("Mul", [node.inputs[0], write.emit_one("Tanh", write.emit_one("Softplus", node.inputs[0]))])


def _write_gelu(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    tanh = "tanh" in str(node.get_attribute("approximation_mode", "ERF")).lower()
    x = node.inputs[0]
    if write.knows("Gelu"):
        return write.emit("Gelu", [x], approximate="tanh" if tanh else "none")
    half, one = write.add_constant(np.float32(0.5)), write.add_constant(np.float32(1))
    if tanh:
        cube = write.emit_one(
            "Mul", write.emit_one("Mul", write.emit_one("Mul", x, x), x), write.add_constant(np.float32(0.044715))
        )
        inner = write.emit_one(
            "Mul", write.emit_one("Add", x, cube), write.add_constant(np.float32(math.sqrt(2 / math.pi)))
        )
        curve = write.emit_one("Tanh", inner)
    else:
        curve = write.emit_one("Erf", write.emit_one("Div", x, write.add_constant(np.float32(math.sqrt(2)))))
    return write.emit("Mul", [write.emit_one("Mul", x, write.emit_one("Add", curve, one)), half])


def _write_hard_sigmoid(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    alpha, beta = (float(node.known_constant(place).reshape(-1)[0]) for place in (1, 2))
    return write.emit("HardSigmoid", node.inputs[:1], alpha=alpha, beta=beta)


def _write_interpolate(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """Resize, whose scales or sizes are those of all axes: opsets below 18 know no others."""
    mode = {"nearest": "nearest", "linear_onnx": "linear", "cubic": "cubic"}.get(node.get_attribute("mode"))
    if mode is None or any(node.get_attribute("pads_begin", [])) or any(node.get_attribute("pads_end", [])):
        raise UntranslatedError(f"mode {node.get_attribute('mode')}, or padding")
    rank = len(node.in_shape(0, known=False))
    axes = node.known_constant(2).reshape(-1) if len(node.inputs) > 2 else np.arange(rank)
    by_size = node.get_attribute("shape_calculation_mode") == "sizes"
    known = node.maybe_constant(1)
    given: dict[str, Any] = {}
    if by_size:
        sizes = write.emit_one("Cast", node.inputs[1], to=onnx.TensorProto.INT64)
        shape = write.emit_one("Shape", node.inputs[0])
        given["sizes"] = write.emit_one("ScatterElements", shape, write.add_constant(axes.astype(np.int64)), sizes)
        given["scales"] = write.add_constant(np.zeros(0, np.float32)) if write.opset < 13 else None
    elif known is not None:
        scales = np.ones(rank, np.float32)
        scales[axes] = known.reshape(-1)
        given["scales"] = write.add_constant(scales)
    else:
        raise UntranslatedError("scales that are computed")
    return write.emit(
        "Resize",
        [node.inputs[0]] + ([write.add_constant(np.zeros(0, np.float32))] if write.opset < 13 else []),
        mode=mode,
        coordinate_transformation_mode=node.get_attribute("coordinate_transformation_mode"),
        nearest_mode=node.get_attribute("nearest_mode") if mode == "nearest" else None,
        cubic_coeff_a=float(node.get_attribute("cube_coeff")) if mode == "cubic" else None,
        antialias=1 if node.get_attribute("antialias") else None,
        **given,
    )


def _write_reduce(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes = node.known_constant(1).reshape(-1).astype(np.int64)
    return write.emit(node.kind, node.inputs[:1], axes=axes, keepdims=int(bool(node.get_attribute("keep_dims"))))


def _write_reshape(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    shape, kept = _read_as_int64(write, node, 1), bool(node.get_attribute("special_zero"))
    held = node.maybe_constant(1)
    if kept or (held is not None and (held != 0).all()):
        return write.emit("Reshape", [node.inputs[0], shape])
    return write.emit("Reshape", [node.inputs[0], shape], allowzero=1)


def _read_as_int64(write: OnnxWriter, node: OpenvinoNode, place: int) -> str:
    """An input as int64, which ONNX's shapes and indices are."""
    held = node.maybe_constant(place)
    if node.in_type(place) == "i64":
        return node.inputs[place]
    if held is not None:
        return write.add_constant(held.astype(np.int64))
    return write.emit_one("Cast", node.inputs[place], to=onnx.TensorProto.INT64)


def _write_squeeze(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes = node.known_constant(1).reshape(-1).astype(np.int64) if len(node.inputs) > 1 else None
    return write.emit(node.kind, node.inputs[:1], axes=axes)


def _write_transpose(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    order = node.known_constant(1).reshape(-1)
    return write.emit("Transpose", node.inputs[:1], perm=order if order.size else None)


def _write_split(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axis = int(node.known_constant(1).reshape(-1)[0])
    lengths: Any = None
    if node.kind == "VariadicSplit":
        lengths = node.known_constant(2).reshape(-1).astype(np.int64)
        if (lengths < 0).any():
            whole = node.in_shape(0, known=False)[axis]
            if whole < 0:
                raise UntranslatedError("a part of a size that is not known")
            lengths[lengths < 0] = whole - lengths[lengths >= 0].sum()
    count = len(node.outputs) if lengths is None and write.opset >= 18 else None
    return write.emit("Split", node.inputs[:1], outputs=len(node.outputs), axis=axis, split=lengths, num_outputs=count)


def _write_slice(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    data, start, stop, step, *axes = node.inputs
    types = {node.in_type(place) for place in range(1, len(node.inputs))}
    if len(types) > 1:
        start, stop, step, *axes = (_read_as_int64(write, node, place) for place in range(1, len(node.inputs)))
    return write.emit("Slice", [data, start, stop, *(axes or [""]), step])


def _write_strided_slice(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if any(any(node.get_attribute(name, [])) for name in ("ellipsis_mask", "new_axis_mask")):
        raise UntranslatedError("an ellipsis or a new axis")
    begin, end = (node.known_constant(place).reshape(-1).astype(np.int64) for place in (1, 2))
    steps = node.known_constant(3).reshape(-1).astype(np.int64) if len(node.inputs) > 3 else np.ones_like(begin)
    begin, end = begin.copy(), end.copy()
    for place in range(begin.size):
        if _is_masked(node, "begin_mask", place):
            begin[place] = 0 if steps[place] > 0 else _END
        if _is_masked(node, "end_mask", place):
            end[place] = _END if steps[place] > 0 else -_END
    gone = [place for place in range(begin.size) if _is_masked(node, "shrink_axis_mask", place)]
    for place in gone:
        end[place] = begin[place] + 1 if begin[place] != -1 else _END
    found = write.emit("Slice", node.inputs[:1], starts=begin, ends=end, axes=np.arange(begin.size), steps=steps)
    return write.emit("Squeeze", found, axes=np.array(gone, np.int64)) if gone else found


def _is_masked(node: OpenvinoNode, name: str, place: int) -> bool:
    mask = node.get_attribute(name, [])
    return place < len(mask) and bool(mask[place])


def _write_broadcast(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.get_attribute("mode", "numpy") == "explicit":
        raise UntranslatedError("explicit axes")
    return write.emit("Expand", [node.inputs[0], _read_as_int64(write, node, 1)])


def _write_pad(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    mode = node.get_attribute("pad_mode")
    if mode == "symmetric":
        raise UntranslatedError("mode symmetric")
    pads = write.emit_one("Concat", _read_as_int64(write, node, 1), _read_as_int64(write, node, 2), axis=0)
    filled = node.inputs[3:4] if mode == "constant" else []
    return write.emit("Pad", [node.inputs[0], pads, *filled], mode=mode)


def _write_shape_of(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    found = write.emit("Shape", node.inputs)
    return found if node.out_type(0) == "i64" else _as_type(write, found[0], node)


def _as_type(write: OnnxWriter, value: str, node: OpenvinoNode) -> list[str]:
    if node.out_type(0) not in ELEMENT_TYPES:
        raise UntranslatedError(f"type {node.out_type(0)}")
    return write.emit("Cast", [value], to=ELEMENT_TYPES[node.out_type(0)])


def _write_convert(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return _as_type(write, node.inputs[0], node)


def _write_range(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    ends = [write.emit_one("Reshape", name, write.add_constant(np.zeros(0, np.int64))) for name in node.inputs]
    return write.emit("Range", [_as_type(write, name, node)[0] for name in ends])


def _write_gather(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.get_attribute("batch_dims", 0):
        raise UntranslatedError("batch_dims")
    return write.emit("Gather", node.inputs[:2], axis=int(node.known_constant(2).reshape(-1)[0]))


def _write_top_k(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.get_attribute("sort") == "index":
        raise UntranslatedError("sort by index")
    count = write.emit_one("Reshape", _read_as_int64(write, node, 1), write.add_constant([1]))
    largest = int(node.get_attribute("mode") == "max")
    found = write.emit("TopK", [node.inputs[0], count], outputs=2, axis=node.get_attribute("axis"), largest=largest)
    kind = ELEMENT_TYPES[node.out_type(1)]
    return found if kind == onnx.TensorProto.INT64 else [found[0], write.emit_one("Cast", found[1], to=kind)]


def _write_one_hot(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    ends = [write.emit_one("Reshape", name, write.add_constant([1])) for name in (node.inputs[3], node.inputs[2])]
    values = write.emit_one("Concat", *ends, axis=0)
    return write.emit("OneHot", [node.inputs[0], node.inputs[1], values], axis=node.get_attribute("axis"))


def _write_tile(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("Tile", [node.inputs[0], _read_as_int64(write, node, 1)])


def _write_normalize(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x, axes = node.inputs[0], node.known_constant(1).reshape(-1).astype(np.int64)
    power = write.emit_one("ReduceSum", write.emit_one("Mul", x, x), axes=axes, keepdims=1)
    epsilon = write.add_constant(np.float32(node.get_attribute("eps")))
    rule = "Max" if str(node.get_attribute("eps_mode")).lower() == "max" else "Add"
    return write.emit("Div", [x, write.emit_one("Sqrt", write.emit_one(rule, power, epsilon))])


def _write_squared_difference(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    apart = write.emit_one("Sub", *node.inputs)
    return write.emit("Mul", [apart, apart])


def _renaming_attributes(op_type: str, *inputs: int, **attributes: str) -> Translator:
    """An operator whose attributes are called otherwise: ONNX's name -> OpenVINO's; `inputs` are those that it takes."""

    def translate(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
        held = {name: node.get_attribute(own, None) for name, own in attributes.items()}
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in held.items()}
        taken = [node.inputs[place] for place in inputs] if inputs else node.inputs
        return write.emit(op_type, taken, outputs=len(node.outputs), **plain)

    return translate


def _write_clamp(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    kind = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}.get(node.in_type(0))
    if kind is None:
        raise UntranslatedError(f"type {node.in_type(0)}")
    low, high = (np.array(node.get_attribute(name)).astype(kind) for name in ("min", "max"))
    return write.emit("Clip", node.inputs, min=low, max=high)


def _write_not_equal(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("Not", write.emit("Equal", node.inputs))


def _write_round(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.get_attribute("mode", "half_to_even") != "half_to_even":
        raise UntranslatedError("halves away from zero")
    return write.emit("Round", node.inputs)


TRANSLATORS: Mapping[str, Translator] = {
    "Add": _write_add,
    "AvgPool": _write_pool,
    "BatchNormInference": _write_batch_normalization,
    "Broadcast": _write_broadcast,
    "Clamp": _write_clamp,
    "Concat": _renaming_attributes("Concat", axis="axis"),
    "Convert": _write_convert,
    "Convolution": _write_convolution,
    "ConvolutionBackpropData": _write_transposed_convolution,
    "CumSum": _renaming_attributes("CumSum", exclusive="exclusive", reverse="reverse"),
    "DepthToSpace": _renaming_attributes("DepthToSpace", blocksize="block_size"),
    "Einsum": _renaming_attributes("Einsum", equation="equation"),
    "Elu": _renaming_attributes("Elu", alpha="alpha"),
    "FakeQuantize": _write_fake_quantize,
    "Gather": _write_gather,
    "GatherElements": _renaming_attributes("GatherElements", axis="axis"),
    "GatherND": _renaming_attributes("GatherND", batch_dims="batch_dims"),
    "Gelu": _write_gelu,
    "GroupConvolution": _write_convolution,
    "GroupConvolutionBackpropData": _write_transposed_convolution,
    "HSwish": _write_hard_swish,
    "HardSigmoid": _write_hard_sigmoid,
    "Interpolate": _write_interpolate,
    "LogSoftmax": _renaming_attributes("LogSoftmax", axis="axis"),
    "MVN": _write_mean_variance,
    "MatMul": _write_matmul,
    "MaxPool": _write_pool,
    "Mish": _write_mish,
    "Multiply": _write_multiply,
    "NormalizeL2": _write_normalize,
    "NotEqual": _write_not_equal,
    "OneHot": _write_one_hot,
    "Pad": _write_pad,
    "RMS": _write_root_mean_square,
    "Range": _write_range,
    "Reshape": _write_reshape,
    "Round": _write_round,
    "ScaledDotProductAttention": _write_attention,
    "ShapeOf": _write_shape_of,
    "Slice": _write_slice,
    "Softmax": _renaming_attributes("Softmax", axis="axis"),
    "Split": _write_split,
    "SquaredDifference": _write_squared_difference,
    "Squeeze": _write_squeeze,
    "StridedSlice": _write_strided_slice,
    "Swish": _write_swish,
    "Tile": _write_tile,
    "TopK": _write_top_k,
    "Transpose": _write_transpose,
    "Unsqueeze": _write_squeeze,
    "VariadicSplit": _write_split,
    **dict.fromkeys(_REDUCTIONS, _write_reduce),
}
