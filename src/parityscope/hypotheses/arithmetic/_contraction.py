"""MatMul, Gemm and Conv as one batched matrix product, and that product accumulated step by step in numpy.

ONNX cannot say in which order and precision a product accumulates. Here the contraction of length K is done in blocks
of `width` terms: a block is summed exactly (float64), added to the accumulator, and the accumulator rounded. Width 1 is
a fused multiply-add after another; 4, 8 and 16 are the blocks of tensor cores.

Sources: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 330, 2021 (blocks,
truncation of the accumulator); the ONNX operator specification (Conv, Gemm, MatMul).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Accumulate

# Roundings of accumulators that are done for one product: about half a second of numpy. Chosen.
_LIMIT = 1 << 23


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """`left` (batch, m, k) times `right` (batch, k, n), float64; `finish` makes the node's output of the product."""

    left: np.ndarray
    right: np.ndarray
    finish: Callable[[np.ndarray], np.ndarray]


def accumulate_in_blocks(width: int, rounding: Callable[[np.ndarray], np.ndarray]) -> Accumulate:
    """Products accumulated in blocks of `width` terms, the accumulator passed through `rounding` after each.

    `rounding` takes and gives float64 of any shape. The accumulation gives float32 of the product's own shape, or None where
    the product is too large to be made step by step, or is none of those that `contraction_of` knows.
    """

    def accumulate(node: ir.Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
        found = contraction_of(node, arrays)
        if found is None:
            return None
        batch, rows, length = found.left.shape
        steps = math.ceil(length / width)
        if batch * rows * found.right.shape[2] * steps > _LIMIT:
            return None
        total = np.zeros((batch, rows, found.right.shape[2]))
        for start in range(0, length, width):
            block = slice(start, start + width)
            total = rounding(total + np.matmul(found.left[:, :, block], found.right[:, block]))
        return found.finish(total)

    return accumulate


def contraction_of(node: ir.Node, arrays: Sequence[np.ndarray | None]) -> Contraction | None:
    """The product inside `node` on its input arrays; None for operators that are not one of the three.

    `arrays` are the inputs in order, None where one is left out; they are taken to float64, and `left` (batch, rows, length)
    times `right` (batch, length, columns) is the product.
    """
    made = {"MatMul": _contract_matmul, "Gemm": _contract_gemm, "Conv": _contract_conv}.get(node.op_type)
    if made is None or node.domain or arrays[0] is None or arrays[1] is None:
        return None
    bias = arrays[2] if len(arrays) > 2 else None
    return made(node, arrays[0].astype(np.float64), arrays[1].astype(np.float64), bias)


def _contract_matmul(_: ir.Node, left: np.ndarray, right: np.ndarray, __: np.ndarray | None) -> Contraction | None:
    if left.ndim < 2 or right.ndim < 2:
        return None
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    return Contraction(
        left=np.broadcast_to(left, (*batch, *left.shape[-2:])).reshape(-1, *left.shape[-2:]),
        right=np.broadcast_to(right, (*batch, *right.shape[-2:])).reshape(-1, *right.shape[-2:]),
        finish=lambda total: total.reshape(shape).astype(np.float32),
    )


def _contract_gemm(node: ir.Node, left: np.ndarray, right: np.ndarray, bias: np.ndarray | None) -> Contraction:
    left = left.T if node.attributes.get_int("transA", 0) else left
    right = right.T if node.attributes.get_int("transB", 0) else right
    alpha, beta = node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0)
    added = 0.0 if bias is None else beta * bias.astype(np.float64)
    return Contraction(
        left=left[None], right=right[None], finish=lambda total: (alpha * total[0] + added).astype(np.float32)
    )


def _contract_conv(node: ir.Node, image: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> Contraction | None:
    rank = weight.ndim - 2
    groups = node.attributes.get_int("group", 1)
    strides = tuple(node.attributes.get_ints("strides", (1,) * rank))
    dilations = tuple(node.attributes.get_ints("dilations", (1,) * rank))
    windows = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations, strict=True)]
    pads = _resolve_pads(
        node.attributes.get_string("auto_pad", "NOTSET"),
        tuple(node.attributes.get_ints("pads", (0,) * (2 * rank))),
        image,
        windows,
        strides,
    )
    padded = np.pad(image, [(0, 0), (0, 0), *pads])
    view = np.lib.stride_tricks.sliding_window_view(padded, windows, tuple(range(2, 2 + rank)))
    steps = [1, 1, *strides, *dilations]
    view = view[tuple(slice(None, None, step) for step in steps)]
    count, places = image.shape[0], view.shape[2 : 2 + rank]
    # (count, groups, channels, places..., window...) -> (count * groups, channels * window, places)
    grouped = view.reshape(count, groups, -1, math.prod(places), math.prod(weight.shape[2:]))
    if grouped.size * math.prod(weight.shape[:1]) // groups > _LIMIT * 16:
        return None
    columns = grouped.transpose(0, 1, 2, 4, 3).reshape(count * groups, -1, math.prod(places))
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    added = 0.0 if bias is None else bias.astype(np.float64).reshape(1, -1, *[1] * rank)
    shape = (count, weight.shape[0], *places)
    return Contraction(
        left=np.tile(rows, (count, 1, 1)),
        right=columns,
        finish=lambda total: (total.reshape(shape) + added).astype(np.float32),
    )


def _resolve_pads(
    automatic: str, pads: Sequence[int], image: np.ndarray, windows: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    rank = len(windows)
    if automatic == "NOTSET":
        return [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    if automatic == "VALID":
        return [(0, 0)] * rank
    found = []
    for size, window, stride in zip(image.shape[2:], windows, strides, strict=True):
        total = max(0, (math.ceil(size / stride) - 1) * stride + window - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if automatic == "SAME_UPPER" else (more, less))
    return found
