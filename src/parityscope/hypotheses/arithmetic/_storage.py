"""The variants of an engine that stores tensors in a format: its inputs, its output, both, or everything between as well.

Products of narrow operands run on tensor cores; a fused kernel rounds at its edges only (docs/numerics.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.sites import PRODUCTS
from parityscope.hypotheses.arithmetic import Variant
from parityscope.hypotheses.arithmetic._attributes import attributes_change, attributes_rounded
from parityscope.hypotheses.arithmetic._folding import fold, foldable
from parityscope.hypotheses.arithmetic._recurrent import has_recurrence, state_stored, steps_multiplied
from parityscope.hypotheses.arithmetic._rounding import FOLDED, TENSOR_CORES, output_rounding, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Context, Operand, Transform, Variants

__all__ = ["inputs_and_output_stored", "inputs_rounded", "output_stored"]


def output_stored(name: str) -> Variants:
    """Variants that compute in FP32 and store only the output in the format called `name`."""
    variant = Variant(words=f"only the output is stored in {FORMATS[name].title}", output=output_rounding(name))
    return lambda _node, _context: (variant,)


def inputs_rounded(name: str) -> Variants:
    """Inputs rounded, result kept in FP32: what products multiply, or everything that the region reads."""
    title = FORMATS[name].title

    def variants(_node: ir.Node, context: Context) -> Iterator[Variant]:
        multiplied = Variant(
            words=f"what is multiplied is rounded to {title}", operands=rounded(name), accumulator=TENSOR_CORES
        )
        yield multiplied
        yield Variant(
            words=f"inputs and parameters are stored in {title}", stored=rounded(name), accumulator=TENSOR_CORES
        )
        # Smaller files: everything is computed in FP32.
        yield Variant(words=f"weights are stored in {title}", operands=_of_parameters(rounded(name)))
        yield Variant(words=f"all parameters are stored in {title}", stored=_of_parameters(rounded(name)))
        if foldable(context.model.graph):
            yield replace(multiplied, words=f"{multiplied.words}, {FOLDED}", rewrite=fold)
        if has_recurrence(context.model.graph):
            yield steps_multiplied(name)

    return variants


def inputs_and_output_stored(name: str) -> Variants:
    """Inputs and output rounded: fused (only the region's edges are stored) or with every tensor between stored too.

    Where a float attribute is another number in the format, also with attributes rounded.
    """

    def variants(_node: ir.Node, context: Context) -> Iterator[Variant]:
        graph = context.model.graph
        for variant in _stored(name, graph):
            yield replace(variant, accumulator=TENSOR_CORES)
        if has_recurrence(graph):
            yield from state_stored(name)
            yield steps_multiplied(name, output=True)
        if attributes_change(name, graph):
            title, output = FORMATS[name].title, output_rounding(name)
            for words, between in (
                ("inputs, parameters and output are stored", None),
                ("every tensor is stored", rounded(name)),
            ):
                yield Variant(
                    words=f"{words} in {title}, attributes rounded too",
                    rewrite=attributes_rounded(name),
                    stored=rounded(name),
                    between=between,
                    output=output,
                    accumulator=TENSOR_CORES,
                )

    return variants


def _stored(name: str, graph: ir.Graph) -> Iterator[Variant]:
    title = FORMATS[name].title
    output = output_rounding(name)
    yield Variant(words=f"inputs, parameters and output are stored in {title}", stored=rounded(name), output=output)
    yield Variant(
        words=f"what is multiplied and the output are rounded to {title}, a bias is added in FP32",
        operands=rounded(name),
        output=output,
    )
    yield Variant(
        words=f"every tensor is stored in {title}", stored=rounded(name), between=rounded(name), output=output
    )
    if foldable(graph):
        yield Variant(
            words=f"inputs, parameters and output are stored in {title}, {FOLDED}",
            rewrite=fold,
            stored=rounded(name),
            output=output,
        )
        yield Variant(
            words=f"what is multiplied and the output are rounded to {title}, {FOLDED}, a bias is added in FP32",
            rewrite=fold,
            operands=rounded(name),
            output=output,
        )
    for rewrite in (fold, None) if foldable(graph) else (None,):
        yield Variant(
            words=f"what products read, their bias too, and the output are stored in {title}, the rest is fused in FP32"
            f"{f'; {FOLDED}' if rewrite else ''}",
            rewrite=rewrite,
            stored=_of_products(rounded(name)),
            output=output,
        )


def _of_parameters(transform: Transform) -> Transform:
    """The transform, of parameters of the model."""

    def chosen(array: np.ndarray, operand: Operand) -> np.ndarray:
        return transform(array, operand) if operand.constant else array

    return chosen


def _of_products(transform: Transform) -> Transform:
    """The transform, of what products read: measured on an engine to keep the constants of fused pointwise nodes in FP32."""

    def chosen(array: np.ndarray, operand: Operand) -> np.ndarray:
        return transform(array, operand) if operand.node.op_type in PRODUCTS else array

    return chosen
