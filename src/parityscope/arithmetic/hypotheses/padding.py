"""Padding of another value or on another side.

Asked of Conv, ConvTranspose (whose padding is what is cut off its result), pooling and Pad: begin and end exchanged, all
padding at one side, SAME_UPPER for SAME_LOWER, TensorFlow's SAME for equal padding, the border repeated or mirrored where
a constant belongs (and the reverse), zeros where a MaxPool ignores the outside, and another constant, which is fitted.

Sources: ONNX operators Conv, ConvTranspose, MaxPool, AveragePool and Pad; frameworks put odd padding at different sides
(TensorFlow SAME: at the end; Caffe: both sides).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integers, text
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, constant, insert, put, read, reading, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

_WINDOWED = frozenset({"AveragePool", "Conv", "ConvTranspose", "MaxPool"})
_MODES = ("edge", "reflect")


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    if node.op_type == "Pad":
        return True
    automatic = text(node, "auto_pad", "NOTSET")
    return node.op_type in _WINDOWED and (automatic.startswith("SAME") or any(integers(node, "pads", ())))


def _sides(pads: list[int], strides: list[int] | None = None) -> dict[str, list[int]]:
    """Other ways to divide the totals between begin and end, of a window that moves by `strides`."""
    half = len(pads) // 2
    begin, end = pads[:half], pads[half:]
    total = [first + last for first, last in zip(begin, end, strict=True)]
    less, more = [size // 2 for size in total], [size - size // 2 for size in total]
    nothing = [0] * half
    ways = {
        "begin and end of the padding are exchanged": [*end, *begin],
        "all padding lies at the begin": [*total, *nothing],
        "all padding lies at the end": [*nothing, *total],
        "the odd one of the padding lies at the end": [*less, *more],
        "the odd one of the padding lies at the begin": [*more, *less],
    }
    if strides:
        # Of a total that is one less, which leaves the size of the result where a stride of two drops the rest.
        less_at_begin = [max(0, size - 1) if step > 1 else size for size, step in zip(begin, strides, strict=True)]
        ways["padded as TensorFlow's SAME"] = [*less_at_begin, *end]
    fresh: dict[str, list[int]] = {}
    for words, way in ways.items():
        if way != pads and way not in fresh.values():
            fresh[words] = way
    return fresh


def _windowed(node: ir.Node, context: Context) -> Iterator[Variant]:
    automatic = text(node, "auto_pad", "NOTSET")
    if automatic.startswith("SAME"):
        other = "SAME_LOWER" if automatic == "SAME_UPPER" else "SAME_UPPER"
        yield Variant(words=f"padded as {other} and not {automatic}", rewrite=setting("auto_pad", other))
        return
    pads = list(integers(node, "pads", ()))
    for words, way in _sides(pads, list(integers(node, "strides", (1,) * (len(pads) // 2)))).items():
        yield Variant(words=words, rewrite=setting("pads", way))
    if node.op_type == "AveragePool":
        return
    for mode in _MODES:
        yield Variant(words=f"padded by {mode} and not by a constant", rewrite=_outside(pads, mode))
    if node.op_type == "MaxPool":
        yield Variant(words="padded with zeros", rewrite=_outside(pads, "constant"))
        return
    source = node.inputs[0]
    size = 0.0 if source is None else float(np.abs(context.value(source)).max(initial=0.0))
    if size > 0 and np.isfinite(size):
        yield Variant(
            words="padded with {parameter} and not with zeros", rewrite=_outside(pads, "constant"), span=(-size, size)
        )


def _outside(pads: list[int], mode: str) -> Rewrite:
    half = len(pads) // 2

    def rewrite(model: ir.Model, node: ir.Node, number: float) -> None:
        name = str(node.outputs[0].name)
        amounts = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
        added = [constant(model, amounts, f"{name}::pads")]
        if mode == "constant":
            added.append(constant(model, np.array(number, np.float32), f"{name}::padding"))
        node.replace_input_with(0, insert(node, "Pad", [node.inputs[0], *added], {"mode": mode}))
        put(node, "pads", [0] * len(pads))

    return rewrite


def _pad(node: ir.Node, context: Context) -> Iterator[Variant]:
    mode = text(node, "mode", "constant")
    for other in ("constant", *_MODES):
        if other != mode:
            yield Variant(words=f"padded by {other} and not by {mode}", rewrite=setting("mode", other))
    amounts = array_of(node, 1)
    if amounts is None:
        return
    for words, way in _sides([int(each) for each in amounts]).items():
        yield Variant(words=words, rewrite=reading(1, np.array(way, np.int64)))
    source = node.inputs[0]
    size = 0.0 if source is None else float(np.abs(context.value(source)).max(initial=0.0))
    if mode == "constant" and size > 0 and np.isfinite(size):
        old = array_of(node, 2)
        size = max(size, 0.0 if old is None else float(np.abs(old)))
        yield Variant(
            words="padded with {parameter}",
            rewrite=lambda model, node, number: read(model, node, 2, np.array(number, np.float32)),
            span=(-size, size),
        )


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    yield from _pad(node, context) if node.op_type == "Pad" else _windowed(node, context)


HYPOTHESIS = Hypothesis(
    name="padding", title="Padding of another value or side", family="semantic", applies=_applies, variants=_variants
)
