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

__all__ = ["ELEMENT_TYPES", "SAME", "TRANSLATORS"]

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


def _pads(node: OpenvinoNode) -> dict[str, Any]:
    """Padding and steps of a window, as attributes."""
    kind = _PADDING[node.attribute("auto_pad", "explicit")]
    found = {"strides": node.attribute("strides"), "dilations": node.attribute("dilations", None)}
    if kind != "NOTSET":
        return found | {"auto_pad": kind}
    return found | {"pads": [*node.attribute("pads_begin"), *node.attribute("pads_end")]}


def _convolution(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    weight, group = node.inputs[1], 1
    shape = node.shape(1)
    if node.kind.startswith("Group"):
        group, shape = shape[0], [shape[0] * shape[1], *shape[2:]]
        weight = write.one("Reshape", weight, write.constant(shape))
    return write.emit("Conv", [node.inputs[0], weight], group=group, kernel_shape=shape[2:], **_pads(node))


def _transposed_convolution(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    weight, group = node.inputs[1], 1
    shape = node.shape(1)
    if node.kind.startswith("Group"):
        group, shape = shape[0], [shape[0] * shape[1], *shape[2:]]
        weight = write.one("Reshape", weight, write.constant(shape))
    wanted = node.constant(2).tolist() if len(node.inputs) > 2 else None
    extra = {"output_padding": node.attribute("output_padding", None), "output_shape": wanted}
    return write.emit(
        "ConvTranspose", [node.inputs[0], weight], group=group, kernel_shape=shape[2:], **extra, **_pads(node)
    )


def _pool(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    common = {"kernel_shape": node.attribute("kernel"), **_pads(node)}
    if (rounding := node.attribute("rounding_type", "floor")) == "ceil_torch":
        raise UntranslatedError("rounding_type ceil_torch")
    common["ceil_mode"] = int(rounding == "ceil")
    if node.kind == "MaxPool":
        return write.emit("MaxPool", node.inputs, outputs=len(node.outputs), **common)
    common.pop("dilations", None)
    included = int(not node.attribute("exclude-pad"))
    return write.emit("AveragePool", node.inputs, count_include_pad=included, **common)


def _matmul(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    sides = []
    for place, flag in enumerate(("transpose_a", "transpose_b")):
        name, rank = node.inputs[place], len(node.shape(place, known=False))
        if node.attribute(flag) and rank > 1:
            name = write.one("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])
        sides.append(name)
    return write.emit("MatMul", sides)


def _add(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """A sum; of a convolution that nobody else reads and one number a channel, its bias."""
    for place in (0, 1):
        other = node.maybe_constant(1 - place)
        maker = next((one for one in reversed(write.nodes) if node.inputs[place] in one.output), None)
        if other is None or maker is None or not maker.op_type.startswith("Conv") or len(maker.input) != 2:
            continue
        if node.readers(place) == 1 and other.ndim > 2 and other.size == other.shape[1]:
            write.nodes.remove(maker)
            maker.input.append(write.one("Reshape", node.inputs[1 - place], write.constant([-1])))
            write.nodes.append(maker)
            return list(maker.output)
    return write.emit("Add", node.inputs)


def _multiply(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """A product; of integers that a file holds, less their zero point, with a scale: what DequantizeLinear does."""
    for place in (0, 1):
        held = node.integers(place)
        scale = node.maybe_constant(1 - place)
        if held is not None and scale is not None:
            values, zero = held
            axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
            zero = np.zeros((), values.dtype) if zero is None else np.broadcast_to(zero, scale.shape)
            if len(axes) > 1 or (zero != np.rint(zero)).any() or scale.ndim != values.ndim:
                break
            kept = [np.ascontiguousarray(one).reshape(-1) for one in (np.asarray(scale, np.float32), zero)]
            kept = kept if axes else [one.reshape(-1)[0] for one in kept]
            named = [write.constant(values), write.constant(kept[0])]
            flat = np.broadcast_to(kept[1], np.shape(kept[0]))
            return write.emit(
                "DequantizeLinear",
                [*named, write.constant(np.array(flat, values.dtype))],
                axis=axes[0] if axes else None,
            )
    return write.emit("Mul", node.inputs)


def _fake_quantize(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """Round to a grid and back: QuantizeLinear and DequantizeLinear where it is one of 256 levels, else as specified."""
    bounds = [np.asarray(node.constant(place), np.float64) for place in range(1, 5)]
    low, high, out_low, out_high = np.broadcast_arrays(*bounds)
    levels = int(node.attribute("levels"))
    axes = [axis for axis, size in enumerate(low.shape) if size > 1]
    step = (high - low) / (levels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -low / step
    same = np.allclose(low, out_low) and np.allclose(high, out_high) and bool((step > 0).all())
    if levels == 256 and same and len(axes) < 2 and bool((np.abs(zero - np.rint(zero)) < _ON_GRID).all()):
        first = 128 if float(np.rint(zero).min()) == 128.0 == float(np.rint(zero).max()) else 0
        kind = np.int8 if first else np.uint8
        kept = slice(None) if axes else 0
        scale = write.constant(np.asarray(step.reshape(-1)[kept], np.float32))
        point = write.constant(np.asarray(np.rint(zero).reshape(-1)[kept] - first, kind))
        axis = axes[0] - len(low.shape) if axes else None
        if axis is not None:
            axis += len(node.shape(0, known=False))
        held = write.one("QuantizeLinear", node.inputs[0], scale, point, axis=axis)
        return write.emit("DequantizeLinear", [held, scale, point], axis=axis)
    one = [write.constant(np.asarray(bound, np.float32)) for bound in (low, high, out_low, out_high)]
    clipped = write.one("Min", write.one("Max", node.inputs[0], one[0]), one[1])
    steps = write.constant(np.float32(levels - 1))
    part = write.one("Div", write.one("Sub", clipped, one[0]), write.one("Sub", one[1], one[0]))
    level = write.one("Round", write.one("Mul", part, steps))
    back = write.one("Mul", write.one("Div", level, steps), write.one("Sub", one[3], one[2]))
    return write.emit("Add", [back, one[2]])


def _batch_normalization(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("BatchNormalization", node.inputs, epsilon=node.attribute("epsilon"))


def _mean_variance(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes, x = node.constant(1).reshape(-1).astype(np.int64), node.inputs[0]
    centred = write.one("Sub", x, write.one("ReduceMean", x, axes=axes, keepdims=1))
    if not node.attribute("normalize_variance"):
        return [centred]
    power = write.one("ReduceMean", write.one("Mul", centred, centred), axes=axes, keepdims=1)
    epsilon = write.constant(np.float32(node.attribute("eps")))
    if str(node.attribute("eps_mode")).upper() == "INSIDE_SQRT":
        root = write.one("Sqrt", write.one("Add", power, epsilon))
    else:
        root = write.one("Add", write.one("Sqrt", power), epsilon)
    return write.emit("Div", [centred, root])


def _root_mean_square(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x, axes = node.inputs[0], node.constant(1).reshape(-1).astype(np.int64)
    power = write.one("ReduceMean", write.one("Mul", x, x), axes=axes, keepdims=1)
    root = write.one("Sqrt", write.one("Add", power, write.constant(np.float32(node.attribute("epsilon")))))
    found = write.emit("Div", [x, root])
    return write.emit("Mul", [found[0], node.inputs[2]]) if len(node.inputs) > 2 else found


def _attention(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    query, key, value, *rest = node.inputs
    if node.attribute("causal") or len(rest) > 2:
        raise UntranslatedError("a causal mask, or a sink")
    size, rank = node.shape(0, known=False)[-1], len(node.shape(1, known=False))
    if len(rest) < 2 and size < 0:
        raise UntranslatedError("the size of a head is not known")
    factor = rest[1] if len(rest) > 1 else write.constant(np.float32(1 / math.sqrt(size)))
    turned = write.one("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = write.one("MatMul", write.one("Mul", query, factor), turned)
    if rest:
        mask = rest[0]
        if node.type(3) == "boolean":
            mask = write.one("Where", mask, write.constant(np.float32(0)), write.constant(np.float32(-np.inf)))
        scores = write.one("Add", scores, mask)
    return write.emit("MatMul", [write.one("Softmax", scores, axis=-1), value])


def _swish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x = node.inputs[0]
    inner = write.one("Mul", *node.inputs) if len(node.inputs) > 1 else x
    return write.emit("Mul", [x, write.one("Sigmoid", inner)])


def _hard_swish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if write.knows("HardSwish"):
        return write.emit("HardSwish", node.inputs)
    return write.emit("Mul", [node.inputs[0], write.one("HardSigmoid", node.inputs[0], alpha=1 / 6, beta=0.5)])


def _mish(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if write.knows("Mish"):
        return write.emit("Mish", node.inputs)
    return write.emit("Mul", [node.inputs[0], write.one("Tanh", write.one("Softplus", node.inputs[0]))])


def _gelu(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    tanh = "tanh" in str(node.attribute("approximation_mode", "ERF")).lower()
    x = node.inputs[0]
    if write.knows("Gelu"):
        return write.emit("Gelu", [x], approximate="tanh" if tanh else "none")
    half, one = write.constant(np.float32(0.5)), write.constant(np.float32(1))
    if tanh:
        cube = write.one("Mul", write.one("Mul", write.one("Mul", x, x), x), write.constant(np.float32(0.044715)))
        inner = write.one("Mul", write.one("Add", x, cube), write.constant(np.float32(math.sqrt(2 / math.pi))))
        curve = write.one("Tanh", inner)
    else:
        curve = write.one("Erf", write.one("Div", x, write.constant(np.float32(math.sqrt(2)))))
    return write.emit("Mul", [write.one("Mul", x, write.one("Add", curve, one)), half])


def _hard_sigmoid(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    alpha, beta = (float(node.constant(place).reshape(-1)[0]) for place in (1, 2))
    return write.emit("HardSigmoid", node.inputs[:1], alpha=alpha, beta=beta)


def _interpolate(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    """Resize, whose scales or sizes are those of all axes: opsets below 18 know no others."""
    mode = {"nearest": "nearest", "linear_onnx": "linear", "cubic": "cubic"}.get(node.attribute("mode"))
    if mode is None or any(node.attribute("pads_begin", [])) or any(node.attribute("pads_end", [])):
        raise UntranslatedError(f"mode {node.attribute('mode')}, or padding")
    rank = len(node.shape(0, known=False))
    axes = node.constant(2).reshape(-1) if len(node.inputs) > 2 else np.arange(rank)
    by_size = node.attribute("shape_calculation_mode") == "sizes"
    known = node.maybe_constant(1)
    given: dict[str, Any] = {}
    if by_size:
        sizes = write.one("Cast", node.inputs[1], to=onnx.TensorProto.INT64)
        shape = write.one("Shape", node.inputs[0])
        given["sizes"] = write.one("ScatterElements", shape, write.constant(axes.astype(np.int64)), sizes)
        given["scales"] = write.constant(np.zeros(0, np.float32)) if write.opset < 13 else None
    elif known is not None:
        scales = np.ones(rank, np.float32)
        scales[axes] = known.reshape(-1)
        given["scales"] = write.constant(scales)
    else:
        raise UntranslatedError("scales that are computed")
    return write.emit(
        "Resize",
        [node.inputs[0]] + ([write.constant(np.zeros(0, np.float32))] if write.opset < 13 else []),
        mode=mode,
        coordinate_transformation_mode=node.attribute("coordinate_transformation_mode"),
        nearest_mode=node.attribute("nearest_mode") if mode == "nearest" else None,
        cubic_coeff_a=float(node.attribute("cube_coeff")) if mode == "cubic" else None,
        antialias=1 if node.attribute("antialias") else None,
        **given,
    )


def _reduce(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes = node.constant(1).reshape(-1).astype(np.int64)
    return write.emit(node.kind, node.inputs[:1], axes=axes, keepdims=int(bool(node.attribute("keep_dims"))))


def _reshape(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    shape, kept = _long(write, node, 1), bool(node.attribute("special_zero"))
    held = node.maybe_constant(1)
    if kept or (held is not None and (held != 0).all()):
        return write.emit("Reshape", [node.inputs[0], shape])
    return write.emit("Reshape", [node.inputs[0], shape], allowzero=1)


def _long(write: OnnxWriter, node: OpenvinoNode, place: int) -> str:
    """An input as int64, which ONNX's shapes and indices are."""
    held = node.maybe_constant(place)
    if node.type(place) == "i64":
        return node.inputs[place]
    if held is not None:
        return write.constant(held.astype(np.int64))
    return write.one("Cast", node.inputs[place], to=onnx.TensorProto.INT64)


def _squeeze(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axes = node.constant(1).reshape(-1).astype(np.int64) if len(node.inputs) > 1 else None
    return write.emit(node.kind, node.inputs[:1], axes=axes)


def _transpose(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    order = node.constant(1).reshape(-1)
    return write.emit("Transpose", node.inputs[:1], perm=order if order.size else None)


def _split(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    axis = int(node.constant(1).reshape(-1)[0])
    lengths: Any = None
    if node.kind == "VariadicSplit":
        lengths = node.constant(2).reshape(-1).astype(np.int64)
        if (lengths < 0).any():
            whole = node.shape(0, known=False)[axis]
            if whole < 0:
                raise UntranslatedError("a part of a size that is not known")
            lengths[lengths < 0] = whole - lengths[lengths >= 0].sum()
    count = len(node.outputs) if lengths is None and write.opset >= 18 else None
    return write.emit("Split", node.inputs[:1], outputs=len(node.outputs), axis=axis, split=lengths, num_outputs=count)


def _slice(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    data, start, stop, step, *axes = node.inputs
    types = {node.type(place) for place in range(1, len(node.inputs))}
    if len(types) > 1:
        start, stop, step, *axes = (_long(write, node, place) for place in range(1, len(node.inputs)))
    return write.emit("Slice", [data, start, stop, *(axes or [""]), step])


def _strided_slice(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if any(any(node.attribute(name, [])) for name in ("ellipsis_mask", "new_axis_mask")):
        raise UntranslatedError("an ellipsis or a new axis")
    begin, end = (node.constant(place).reshape(-1).astype(np.int64) for place in (1, 2))
    steps = node.constant(3).reshape(-1).astype(np.int64) if len(node.inputs) > 3 else np.ones_like(begin)
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
    mask = node.attribute(name, [])
    return place < len(mask) and bool(mask[place])


def _broadcast(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.attribute("mode", "numpy") == "explicit":
        raise UntranslatedError("explicit axes")
    return write.emit("Expand", [node.inputs[0], _long(write, node, 1)])


def _pad(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    mode = node.attribute("pad_mode")
    if mode == "symmetric":
        raise UntranslatedError("mode symmetric")
    pads = write.one("Concat", _long(write, node, 1), _long(write, node, 2), axis=0)
    filled = node.inputs[3:4] if mode == "constant" else []
    return write.emit("Pad", [node.inputs[0], pads, *filled], mode=mode)


def _shape_of(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    found = write.emit("Shape", node.inputs)
    return found if node.out_type(0) == "i64" else _as_type(write, found[0], node)


def _as_type(write: OnnxWriter, value: str, node: OpenvinoNode) -> list[str]:
    if node.out_type(0) not in ELEMENT_TYPES:
        raise UntranslatedError(f"type {node.out_type(0)}")
    return write.emit("Cast", [value], to=ELEMENT_TYPES[node.out_type(0)])


def _convert(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return _as_type(write, node.inputs[0], node)


def _range(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    ends = [write.one("Reshape", name, write.constant(np.zeros(0, np.int64))) for name in node.inputs]
    return write.emit("Range", [_as_type(write, name, node)[0] for name in ends])


def _gather(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.attribute("batch_dims", 0):
        raise UntranslatedError("batch_dims")
    return write.emit("Gather", node.inputs[:2], axis=int(node.constant(2).reshape(-1)[0]))


def _top_k(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.attribute("sort") == "index":
        raise UntranslatedError("sort by index")
    count = write.one("Reshape", _long(write, node, 1), write.constant([1]))
    largest = int(node.attribute("mode") == "max")
    found = write.emit("TopK", [node.inputs[0], count], outputs=2, axis=node.attribute("axis"), largest=largest)
    kind = ELEMENT_TYPES[node.out_type(1)]
    return found if kind == onnx.TensorProto.INT64 else [found[0], write.one("Cast", found[1], to=kind)]


def _one_hot(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    ends = [write.one("Reshape", name, write.constant([1])) for name in (node.inputs[3], node.inputs[2])]
    values = write.one("Concat", *ends, axis=0)
    return write.emit("OneHot", [node.inputs[0], node.inputs[1], values], axis=node.attribute("axis"))


def _tile(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("Tile", [node.inputs[0], _long(write, node, 1)])


def _normalize(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    x, axes = node.inputs[0], node.constant(1).reshape(-1).astype(np.int64)
    power = write.one("ReduceSum", write.one("Mul", x, x), axes=axes, keepdims=1)
    epsilon = write.constant(np.float32(node.attribute("eps")))
    rule = "Max" if str(node.attribute("eps_mode")).lower() == "max" else "Add"
    return write.emit("Div", [x, write.one("Sqrt", write.one(rule, power, epsilon))])


def _squared_difference(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    apart = write.one("Sub", *node.inputs)
    return write.emit("Mul", [apart, apart])


def _with(op_type: str, *inputs: int, **attributes: str) -> Translator:
    """An operator whose attributes are called otherwise: ONNX's name -> OpenVINO's; `inputs` are those that it takes."""

    def translate(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
        held = {name: node.attribute(own, None) for name, own in attributes.items()}
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in held.items()}
        taken = [node.inputs[place] for place in inputs] if inputs else node.inputs
        return write.emit(op_type, taken, outputs=len(node.outputs), **plain)

    return translate


def _clamp(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    kind = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}.get(node.type(0))
    if kind is None:
        raise UntranslatedError(f"type {node.type(0)}")
    low, high = (np.array(node.attribute(name)).astype(kind) for name in ("min", "max"))
    return write.emit("Clip", node.inputs, min=low, max=high)


def _unequal(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    return write.emit("Not", write.emit("Equal", node.inputs))


def _rounded(write: OnnxWriter, node: OpenvinoNode) -> list[str]:
    if node.attribute("mode", "half_to_even") != "half_to_even":
        raise UntranslatedError("halves away from zero")
    return write.emit("Round", node.inputs)


TRANSLATORS: Mapping[str, Translator] = {
    "Add": _add,
    "AvgPool": _pool,
    "BatchNormInference": _batch_normalization,
    "Broadcast": _broadcast,
    "Clamp": _clamp,
    "Concat": _with("Concat", axis="axis"),
    "Convert": _convert,
    "Convolution": _convolution,
    "ConvolutionBackpropData": _transposed_convolution,
    "CumSum": _with("CumSum", exclusive="exclusive", reverse="reverse"),
    "DepthToSpace": _with("DepthToSpace", blocksize="block_size"),
    "Einsum": _with("Einsum", equation="equation"),
    "Elu": _with("Elu", alpha="alpha"),
    "FakeQuantize": _fake_quantize,
    "Gather": _gather,
    "GatherElements": _with("GatherElements", axis="axis"),
    "GatherND": _with("GatherND", batch_dims="batch_dims"),
    "Gelu": _gelu,
    "GroupConvolution": _convolution,
    "GroupConvolutionBackpropData": _transposed_convolution,
    "HSwish": _hard_swish,
    "HardSigmoid": _hard_sigmoid,
    "Interpolate": _interpolate,
    "LogSoftmax": _with("LogSoftmax", axis="axis"),
    "MVN": _mean_variance,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Mish": _mish,
    "Multiply": _multiply,
    "NormalizeL2": _normalize,
    "NotEqual": _unequal,
    "OneHot": _one_hot,
    "Pad": _pad,
    "RMS": _root_mean_square,
    "Range": _range,
    "Reshape": _reshape,
    "Round": _rounded,
    "ScaledDotProductAttention": _attention,
    "ShapeOf": _shape_of,
    "Slice": _slice,
    "Softmax": _with("Softmax", axis="axis"),
    "Split": _split,
    "SquaredDifference": _squared_difference,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Swish": _swish,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _squeeze,
    "VariadicSplit": _split,
    **dict.fromkeys(_REDUCTIONS, _reduce),
}
