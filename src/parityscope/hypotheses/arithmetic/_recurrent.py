"""Roundings inside LSTM, GRU and RNN: what products take, the state after each step, what activations give, sums so far.

Tensor cores take the state of every step rounded, whatever the state is kept in. An engine that stores tensors in a format
stores the state between time steps in it; a library that computes in the format rounds every sum. Which of it an engine does,
and in which order it adds, is seldom known: the vector is predicted for the usual cases, and where the candidate declares
the format their size is enough (`explanation.explaining`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.recurrent import Recurrence, is_recurrent, why_not_apart
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import constant_value
from parityscope.hypotheses.arithmetic import Inside, Variant
from parityscope.hypotheses.arithmetic._rounding import TENSOR_CORES, output_rounding, rounding_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["has_recurrence", "state_stored", "steps_multiplied", "sums_rounded"]

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
