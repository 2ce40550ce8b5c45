"""A fault of a kind at a random place: an edit of the graph or of the inputs, in words, with the words that would name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from proving.drawn.networks import Network, Sample
from proving.rounds import editing as edits

Draw = np.random.Generator
_PIECES: dict[str, tuple[str, dict[str, float]]] = {
    "Sigmoid": ("HardSigmoid", {"alpha": 1 / 6}),
    "HardSigmoid": ("Sigmoid", {}),
    "Tanh": ("HardSigmoid", {"alpha": 0.5}),
    "Relu": ("LeakyRelu", {"alpha": 0.05}),
    "LeakyRelu": ("Relu", {}),
    "Erf": ("Tanh", {}),
    "Sqrt": ("Relu", {}),
    "Clip": ("Identity", {}),
    "Softmax": ("Sigmoid", {}),
    "Log": ("Softsign", {}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """`at` is the tensor that is wrong first, `named` a regular expression that words of the right kind match.

    One of `edit` (of the graph) and `prepare` (of a sample's inputs) is there.
    """

    kind: str
    at: str
    says: str
    named: str
    edit: Callable[[onnx.ModelProto], object] | None = None
    prepare: Callable[[Sample], Sample] | None = None


def drawn(net: Network, kind: str, draw: Draw) -> Drawn:
    """Raises ValueError or IndexError where a network has no place for it."""
    return KINDS[kind](net, draw)


def _pick(draw: Draw, found: list[Any]) -> Any:
    return found[int(draw.integers(len(found)))]


def _operand_missing(net: Network, draw: Draw) -> Drawn:
    found = [n for n in net.nodes if n.op_type in {"Add", "Mul"} and sum(net.is_real(one) for one in n.input) > 1]
    node = _pick(draw, found)
    place = int(draw.integers(2))
    at = node.output[0]
    says = f"{node.op_type} hands on its input {place}"
    return Drawn(kind="operand missing", at=at, says=says, named=r"left out|zero|in place of|taken|done twice|is not",
                 edit=edits.identity(at, place))  # fmt: skip


def _operand_wrong(net: Network, draw: Draw) -> Drawn:
    found = [n for n in net.nodes if n.op_type in {"Add", "Sub", "Concat"} and sum(net.is_real(o) for o in n.input) > 1]
    node = _pick(draw, found)
    at, place = node.output[0], int(draw.integers(len(node.input)))
    other = _pick(draw, net.alike(node.input[place], at)[:6])
    says = f"{node.op_type} reads {other} for its input {place}"
    return Drawn(kind="operand wrong", at=at, says=says, named=r"in place of|taken|instead of|reads|exchanged|twice|left out",
                 edit=edits.inputs(at, {place: other}))  # fmt: skip


def _bias_missing(net: Network, draw: Draw) -> Drawn:
    products = {"Conv", "Gemm", "ConvTranspose"}
    found = [
        (node, place)
        for node, place in net.weights(4)
        if (node.op_type in products and place == 2)
        or (node.op_type == "Add" and net.constants[node.input[place]].ndim <= 4)
    ]
    node, place = _pick(draw, found)
    at = node.output[0]
    return Drawn(kind="bias missing", at=at, says=f"bias of {node.op_type} is zero", named=r"left out|zero|times 0\b|scaled by 0\b",
                 edit=edits.operand(at, place, np.zeros_like))  # fmt: skip


def _weights(net: Network, draw: Draw) -> Drawn:
    node, place = _pick(draw, net.weights())
    array, at = net.constants[node.input[place]], node.output[0]
    ways = ("per tensor", "clipped", "blocks", "pairs", "two exchanged", "rolled", "pruned", "scaled", "transposed")
    way = str(draw.choice(ways))
    says, named, change = _way(way, array, draw)
    return Drawn(kind=f"weights {way}", at=at, says=f"input {place} of {node.op_type} {says}", named=named,
                 edit=edits.operand(at, place, change))  # fmt: skip


def _way(way: str, array: Any, draw: Draw) -> tuple[str, str, Callable[[Any], Any]]:
    if way == "per tensor":
        bits = int(draw.choice([4, 5, 8]))
        step = np.abs(array).max() / (2 ** (bits - 1) - 1)
        return (
            f"quantized to int{bits} with one scale",
            r"quantiz|grid|rounded|int\d",
            lambda w: np.round(w / step) * step,
        )
    if way == "clipped":
        bound = float(np.quantile(np.abs(array), float(draw.choice([0.9, 0.7]))))
        return f"clipped at {bound:.4g}", r"cut off|clip|within", lambda w: np.clip(w, -bound, bound)
    if way == "pruned":
        least = float(np.quantile(np.abs(array), 0.5))
        return f"zero below {least:.4g}", r"zero where smaller", lambda w: np.where(np.abs(w) < least, 0, w)
    if way == "scaled":
        factor = float(draw.choice([-1.0, 0.5, 2.0, 1.3]))
        return f"times {factor}", r"scaled|times|negat|doubled|halved", lambda w: w * factor
    if way == "transposed":
        if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            raise ValueError(way)
        return "transposed in its last two axes", r"transpos|exchanged|permut", lambda w: w.swapaxes(-1, -2)
    axis = int(draw.choice([axis for axis, length in enumerate(array.shape) if length > 3]))
    length = array.shape[axis]
    if way == "blocks":
        count = int(draw.choice([n for n in range(2, 9) if length % n == 0]))
        order = draw.permutation(count)
        return (
            f"blocks of axis {axis} in order {order}",
            r"block|halves|exchanged|permut|rolled|another order",
            lambda w: np.concatenate([np.split(w, count, axis)[k] for k in order], axis),
        )
    if way == "pairs":
        return (
            f"neighbours of axis {axis} exchanged",
            r"neighbour|pairs|another order",
            lambda w: edits.swap_blocks(w, axis, 1),
        )
    if way == "two exchanged":
        order = np.arange(length)
        one, other = draw.choice(length, 2, replace=False)
        order[[one, other]] = other, one
        return (
            f"indices {one} and {other} of axis {axis} exchanged",
            r"exchanged|another order",
            lambda w: np.take(w, order, axis),
        )
    by = int(draw.integers(1, 4))
    return f"rolled by {by} along axis {axis}", r"rolled|shifted|another order", lambda w: np.roll(w, by, axis)


def _attribute(net: Network, draw: Draw) -> Drawn:
    kinds = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT, onnx.AttributeProto.INTS)
    node = _pick(draw, [n for n in net.nodes if any(one.type in kinds for one in n.attribute)])
    one = _pick(draw, [one for one in node.attribute if one.type in kinds])
    value, at = onnx.helper.get_attribute_value(one), node.output[0]
    if one.type == onnx.AttributeProto.INTS:
        new = _pick(draw, [value[::-1], [*value[1:], value[0]], [max(0, each - 1) for each in value]])
    else:
        new = (
            value * _pick(draw, [0.5, 3.0, 100.0])
            if one.type == onnx.AttributeProto.FLOAT
            else value + _pick(draw, [-1, 1])
        )
    return Drawn(kind="attribute", at=at, says=f"{one.name} of {node.op_type} {new} for {value}", named=one.name,
                 edit=edits.attributes(at, **{one.name: new}))  # fmt: skip


def _activation(net: Network, draw: Draw) -> Drawn:
    node = _pick(draw, [n for n in net.nodes if n.op_type in _PIECES and len(n.input) in (1, 3)])
    at, (to, values) = node.output[0], _PIECES[node.op_type]
    alone = edits.identity(at) if len(node.input) == 3 else edits.inputs(at, {})

    def edit(model: onnx.ModelProto) -> None:
        alone(model)
        edits.operator(at, to, **values)(model)

    named = rf"{to}|in place of|left out|negative|alpha|slope|bound|function"
    return Drawn(kind="activation", at=at, says=f"{node.op_type} is {to} {values or ''}", named=named, edit=edit)


def _result(net: Network, draw: Draw) -> Drawn:
    node = _pick(draw, net.nodes)
    array, at = net.values[node.output[0]], node.output[0]
    way = str(draw.choice(["cut", "scaled", "shifted"]))
    if way == "cut":
        bound = np.float32(np.quantile(array, float(draw.choice([0.8, 0.9, 0.95]))))
        return Drawn(kind="result cut", at=at, says=f"{node.op_type} cut off at {bound:.4g}", named=r"cut off|bound|satur|limited",
                     edit=edits.after(at, "Min", bound))  # fmt: skip
    if way == "scaled":
        by = np.float32(draw.choice([0.5, 0.9, 1.1, 2.0]))
        return Drawn(kind="result scaled", at=at, says=f"{node.op_type} times {by}", named=r"scaled|times|doubled|halved|twice",
                     edit=edits.after(at, "Mul", by))  # fmt: skip
    by = np.float32(draw.choice([-1, 1]) * 0.5 * np.std(array))
    return Drawn(kind="result shifted", at=at, says=f"{node.op_type} plus {by:.4g}", named=r"added|plus|offset|shifted",
                 edit=edits.after(at, "Add", by))  # fmt: skip


def _input(net: Network, draw: Draw) -> Drawn:
    real = [name for name, array in net.inputs[0].items() if array.dtype == np.float32 and array.size > 1]
    name = _pick(draw, real)
    shape = net.inputs[0][name].shape
    axes = [axis for axis, length in enumerate(shape) if length > 8]
    ways = ["blur", "shift", "affine", *(["channels"] if len(shape) == 4 and shape[1] == 3 else [])]
    way = str(draw.choice(ways))
    if way == "blur":

        def blurred(x: Any) -> Any:
            for axis in axes:
                wide = np.pad(x, [(1, 1) if one == axis else (0, 0) for one in range(x.ndim)], mode="edge")
                parts = [np.take(wide, range(k, k + x.shape[axis]), axis) for k in range(3)]
                x = (parts[0] + 2 * parts[1] + parts[2]) / 4
            return x.astype(np.float32)

        change, named, says = blurred, r"filter|blur|smooth|resiz", f"blurred along {axes}"
    elif way == "shift":
        by, axis = int(draw.integers(1, 4)), int(_pick(draw, axes))
        change, named, says = (
            (lambda x: np.roll(x, by, axis)),
            r"roll|shift|later|earlier",
            f"rolled by {by} along axis {axis}",
        )
    elif way == "channels":
        change, named, says = (
            (lambda x: np.ascontiguousarray(x[:, ::-1])),
            r"BGR|channel|revers|exchanged",
            "channels reversed",
        )
    else:
        factor, offset = np.float32(draw.choice([0.5, 2.0, 1.1, 1.0])), np.float32(draw.choice([0.3, -0.5]))
        change, named, says = (
            (lambda x: x * factor + offset),
            r"times|scale|plus|added|mean|normali|offset",
            f"times {factor} plus {offset}",
        )
    return Drawn(kind=f"input {way}", at=name, says=f"input {name} {says}", named=named,
                 prepare=lambda sample: {**sample, name: change(sample[name])})  # fmt: skip


KINDS: dict[str, Callable[[Network, Draw], Drawn]] = {
    "operand missing": _operand_missing,
    "operand wrong": _operand_wrong,
    "bias missing": _bias_missing,
    "weights": _weights,
    "attribute": _attribute,
    "activation": _activation,
    "result": _result,
    "input": _input,
}
