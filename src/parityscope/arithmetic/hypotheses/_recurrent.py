"""Roundings inside LSTM, GRU and RNN: what products take, the state after each step, what activations give, sums so far.

Tensor cores take the state of every step rounded, whatever the state is kept in. An engine that stores tensors in a format
stores the state between time steps in it; a library that computes in the format rounds every sum. Which of it an engine does,
and in which order it adds, is seldom known: the vector is predicted for the usual cases, and where the candidate declares
the format their size is enough (`explanation.explaining`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic._graphs import Names, constant_tensor
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.hypotheses import Variant
from parityscope.arithmetic.hypotheses._rounding import TENSOR_CORES, output_rounding, rounded
from parityscope.arithmetic.inserting import insert
from parityscope.arithmetic.primitives import Rewriting
from parityscope.arithmetic.recurrent import is_recurrent, refusal, take_apart
from parityscope.arithmetic.simulation import PRECISIONS
from parityscope.arithmetic.sites import PRODUCTS, Plan, is_float
from parityscope.arithmetic.standard import opset_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["has_recurrence", "state_stored", "steps_multiplied", "sums_rounded"]

_TERMS = (1, 2, 4)  # that are added at once; more are hardly different from FP32 sums (docs/fidelity.md)


def has_recurrence(graph: ir.Graph, name: str) -> bool:
    """Whether a region holds recurrent operators, and they can be taken apart and rounded to the format called `name`.

    Their weights are parameters, so that what they become needs nothing from outside.
    """
    found = [node for node in graph if is_recurrent(node)]
    opset = opset_of(graph)
    return (
        bool(found)
        and opset >= PRECISIONS[name]
        and all(
            not refusal(node, opset) and all(value is None or constant_tensor(value) for value in node.inputs[1:4])
            for node in found
        )
    )


def steps_multiplied(name: str, *, output: bool = False) -> Variant:
    """The variant whose products take their operands in the format called `name` in every step, the state among them.

    The state itself stays in FP32; `output` stores what the region gives in the format.
    """
    title = FORMATS[name].title
    return Variant(
        words=f"what is multiplied in each step{' and the output are' if output else ' is'} rounded to {title}",
        rewrite=_operands_inside(FORMATS[name]),
        operands=rounded(name),
        output=output_rounding(name) if output else None,
        accumulator=TENSOR_CORES,
    )


def state_stored(name: str) -> Iterator[Variant]:
    """Variants that store the state after each step in the format called `name`; and what activations give, too."""
    title = FORMATS[name].title
    for kinds, words in (
        (("states",), "the state after each step"),
        (("states", "gates", "products"), "the state, the gates and the products of each step"),
    ):
        yield Variant(
            words=f"inputs, parameters, {words} and the output are stored in {title}",
            rewrite=_rounding_inside(name, kinds),
            stored=rounded(name),
            output=output_rounding(name),
        )


def sums_rounded(name: str) -> Iterator[Variant]:
    """Variants that compute a recurrent operator in the format called `name` altogether."""
    for terms in _TERMS:
        yield Variant(
            words=f"every step is computed in {FORMATS[name].title}, its sums {terms} terms at a time",
            rewrite=_rounding_inside(name, ("states", "gates", "products", "sums"), terms),
            stored=rounded(name),
            output=output_rounding(name),
        )


def _operands_inside(number_format: Format) -> Rewrite:
    def rewrite(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
        infer_types(model)
        names = Names(model)
        multiplied = [
            (node, index)
            for taken in take_apart(model, names)
            for node in taken.scan.attributes["body"].as_graph()
            for index in PRODUCTS.get(node.op_type) or ()
        ]
        plan = Plan(storage={}, operands=dict.fromkeys(multiplied, number_format), exact=frozenset())
        insert(plan, frozenset(), Rewriting(model=model, names=names, overflow="infinity"))

    return rewrite


def _rounding_inside(name: str, kinds: Collection[str], terms: int = 0) -> Rewrite:
    number_format = FORMATS[name]

    def rewrite(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
        infer_types(model)
        names = Names(model)
        stored: list[ir.Value] = []
        for taken in take_apart(model, names, terms=terms):
            stored.extend(value for kind in kinds for value in taken.values[kind])
            body = taken.scan.attributes["body"].as_graph()
            stored.extend(value for value in body.initializers.values() if is_float(value))
        plan = Plan(storage=dict.fromkeys(stored, number_format), operands={}, exact=frozenset())
        insert(plan, frozenset(), Rewriting(model=model, names=names, overflow="infinity"))

    return rewrite
