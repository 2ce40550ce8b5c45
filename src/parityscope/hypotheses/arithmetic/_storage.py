"""The variants of an engine that stores tensors in a format: its inputs, its output, both, or everything between as well.

Products of narrow operands run on tensor cores; a fused kernel rounds at its edges only (docs/numerics.md).

Kernels hold float attributes (alpha, beta, epsilon) in the tensors' own type too: ONNX Runtime's CUDA HardSigmoid in FP16
computes with 0.166626 for an alpha of 1/6 (measured on an NVIDIA H200), which is arithmetic, and no other slope. Defaults, as
the ONNX operator specification has them, are rounded like given attributes.

Inside LSTM, GRU and RNN it may be what products take, the state after each step, what activations give, or the sums so far.
Tensor cores take the state of every step rounded, whatever the state is kept in. An engine that stores tensors in a format
stores the state between time steps in it; a library that computes in the format rounds every sum. Which of it an engine does,
and in which order it adds, is seldom known: the vector is predicted for the usual cases, and where the candidate declares the
format their size is enough (`explanation.explaining`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.recurrent import Recurrence, is_recurrent, why_not_apart
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.sites import PRODUCTS
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import constant_value
from parityscope.hypotheses.arithmetic import Inside, Variant
from parityscope.hypotheses.arithmetic._folding import can_be_folded, fold_all
from parityscope.hypotheses.arithmetic._rounding import FOLDED, TENSOR_CORES, output_rounding, rounding_to
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Operand, RegionContext, Rewrite, Transform, Variants

_TERMS = (1, 2, 4)  # that are added at once; more are hardly different from FP32 sums (docs/fidelity.md)


def has_recurrence(graph: ir.Graph) -> bool:
    """Whether a region holds recurrent operators, and all of them can be taken apart.

    Their weights are parameters, so that what they become needs nothing from outside.
    """
    found = [node for node in graph if is_recurrent(node)]
    opset = opset_of(graph)
    return bool(found) and all(
        not why_not_apart(node, opset) and all(value is None or constant_value(value) for value in node.inputs[1:4])
        for node in found
    )


def steps_multiplied(name: str, *, output: bool = False) -> Variant:
    """The variant whose products take their operands in the format called `name` in every step, the state among them.

    The state itself stays in FP32; `output` stores what the region gives in the format.
    """
    title = FORMATS[name].title
    return Variant(
        words=f"what is multiplied in each step{' and the output are' if output else ' is'} rounded to {title}",
        inside=Inside(format=name, recurrence=Recurrence(stored=frozenset())),
        operands=rounding_to(name),
        output=output_rounding(name) if output else None,
        accumulator=TENSOR_CORES,
    )


def state_stored(name: str) -> Iterator[Variant]:
    """Variants that store the state after each step in the format called `name`; and what activations give, too."""
    title = FORMATS[name].title
    for kinds, words in (
        ({"states"}, "the state after each step"),
        ({"states", "gates", "products"}, "the state, the gates and the products of each step"),
    ):
        yield Variant(
            words=f"inputs, parameters, {words} and the output are stored in {title}",
            inside=Inside(format=name, recurrence=Recurrence(stored=frozenset(kinds))),
            stored=rounding_to(name),
            output=output_rounding(name),
        )


def sums_rounded(name: str) -> Iterator[Variant]:
    """Variants that compute a recurrent operator in the format called `name` altogether."""
    kinds = frozenset({"states", "gates", "products", "sums"})
    for terms in _TERMS:
        yield Variant(
            words=f"every step is computed in {FORMATS[name].title}, its sums {terms} terms at a time",
            inside=Inside(format=name, recurrence=Recurrence(stored=kinds, terms=terms)),
            stored=rounding_to(name),
            output=output_rounding(name),
        )


_DEFAULTS = {one.name: one.defaults for one in STANDARD.values() if one.defaults}


def attributes_change(name: str, graph: ir.Graph) -> bool:
    """Whether a float attribute of a node is another number in the format called `name`."""
    return any(_round_attribute(value, name) != value for node in graph for value in _float_attributes(node).values())


def attributes_rounded(name: str) -> Rewrite:
    """A rewriting of a whole region that rounds all float attributes to the format called `name`, to nearest even."""

    def rewrite(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
        import onnx_ir as ir

        for node in model.graph:
            for attribute, value in _float_attributes(node).items():
                node.attributes.add(ir.AttrFloat32(attribute, _round_attribute(value, name)))

    return rewrite


def _float_attributes(node: ir.Node) -> dict[str, float]:
    given = {key: each.as_float() for key, each in node.attributes.items() if each.type.name == "FLOAT"}
    known = _DEFAULTS.get(node.op_type, {}) if not node.domain else {}
    return {**{key: node.attributes.get_float(key, default) for key, default in known.items()}, **given}


def _round_attribute(value: float, name: str) -> float:
    """To the nearest number of the format; what is beyond its range stays (a bound of 3.4e38 means none)."""
    single = np.array(value, np.float32)
    near = float(round_to(single, FORMATS[name], overflow="infinity"))
    return near if np.isfinite(near) else float(single)


def output_stored(name: str) -> Variants:
    """Variants that compute in FP32 and store only the output in the format called `name`."""
    variant = Variant(words=f"only the output is stored in {FORMATS[name].title}", output=output_rounding(name))
    return lambda _node, _context: (variant,)


def inputs_rounded(name: str) -> Variants:
    """Inputs rounded, result kept in FP32: what products multiply, or everything that the region reads."""
    title = FORMATS[name].title

    def variants(_node: ir.Node, context: RegionContext) -> Iterator[Variant]:
        multiplied = Variant(
            words=f"what is multiplied is rounded to {title}", operands=rounding_to(name), accumulator=TENSOR_CORES
        )
        yield multiplied
        yield Variant(
            words=f"inputs and parameters are stored in {title}", stored=rounding_to(name), accumulator=TENSOR_CORES
        )
        # Smaller files: everything is computed in FP32.
        yield Variant(words=f"weights are stored in {title}", operands=_transform_parameters(rounding_to(name)))
        yield Variant(words=f"all parameters are stored in {title}", stored=_transform_parameters(rounding_to(name)))
        if can_be_folded(context.model.graph):
            yield replace(multiplied, words=f"{multiplied.words}, {FOLDED}", rewrite=fold_all)
        if has_recurrence(context.model.graph):
            yield steps_multiplied(name)

    return variants


def inputs_and_output_stored(name: str) -> Variants:
    """Inputs and output rounded: fused (only the region's edges are stored) or with every tensor between stored too.

    Where a float attribute is another number in the format, also with attributes rounded.
    """

    def variants(_node: ir.Node, context: RegionContext) -> Iterator[Variant]:
        graph = context.model.graph
        for variant in _variants_of_storage(name, graph):
            yield replace(variant, accumulator=TENSOR_CORES)
        if has_recurrence(graph):
            yield from state_stored(name)
            yield steps_multiplied(name, output=True)
        if attributes_change(name, graph):
            title, output = FORMATS[name].title, output_rounding(name)
            for words, between in (
                ("inputs, parameters and output are stored", None),
                ("every tensor is stored", rounding_to(name)),
            ):
                yield Variant(
                    words=f"{words} in {title}, attributes rounded too",
                    rewrite=attributes_rounded(name),
                    stored=rounding_to(name),
                    between=between,
                    output=output,
                    accumulator=TENSOR_CORES,
                )

    return variants


def _variants_of_storage(name: str, graph: ir.Graph) -> Iterator[Variant]:
    title = FORMATS[name].title
    output = output_rounding(name)
    yield Variant(words=f"inputs, parameters and output are stored in {title}", stored=rounding_to(name), output=output)
    yield Variant(
        words=f"what is multiplied and the output are rounded to {title}, a bias is added in FP32",
        operands=rounding_to(name),
        output=output,
    )
    yield Variant(
        words=f"every tensor is stored in {title}", stored=rounding_to(name), between=rounding_to(name), output=output
    )
    if can_be_folded(graph):
        yield Variant(
            words=f"inputs, parameters and output are stored in {title}, {FOLDED}",
            rewrite=fold_all,
            stored=rounding_to(name),
            output=output,
        )
        yield Variant(
            words=f"what is multiplied and the output are rounded to {title}, {FOLDED}, a bias is added in FP32",
            rewrite=fold_all,
            operands=rounding_to(name),
            output=output,
        )
    for rewrite in (fold_all, None) if can_be_folded(graph) else (None,):
        yield Variant(
            words=f"what products read, their bias too, and the output are stored in {title}, the rest is fused in FP32"
            f"{f'; {FOLDED}' if rewrite else ''}",
            rewrite=rewrite,
            stored=_transform_products(rounding_to(name)),
            output=output,
        )


def _transform_parameters(transform: Transform) -> Transform:
    """The transform, of parameters of the model."""

    def chosen(array: np.ndarray, operand: Operand) -> np.ndarray:
        return transform(array, operand) if operand.constant else array

    return chosen


def _transform_products(transform: Transform) -> Transform:
    """The transform, of what products read: measured on an engine to keep the constants of fused pointwise nodes in FP32."""

    def chosen(array: np.ndarray, operand: Operand) -> np.ndarray:
        return transform(array, operand) if operand.node.op_type in PRODUCTS else array

    return chosen
