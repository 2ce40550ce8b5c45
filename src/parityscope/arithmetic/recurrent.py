"""LSTM, GRU and RNN taken apart into a Scan over their time steps, so that what lies inside them can be rounded.

In: a graph with such operators. Out: the same graph, where each became one Scan of the same name whose body is the
operator's equations (`_steps`), and what there is in the body: products, gates, states. A recurrent operator of an
engine of lower precision hands its state from step to step in that precision; from outside of the operator only the
state behind the last step can be rounded.

Both directions of a bidirectional operator stand in one body, the second scanned from the end. With `sequence_lens` a
state stays as it is where a sequence has ended, and what is given there is 0. Computed in FP32 the results are those of
ONNX Runtime's own operators but for the order of sums (tested).

Left as they are (`why_not_apart`): operators with the batch first (`layout`, which ONNX Runtime's CPU provider refuses too), with
activations outside of the standard set, and with weights of unknown shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._cells import GATES, activations_of
from parityscope.arithmetic._steps import directions_of, hidden_of, replace_by_scan
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import computing_nodes, node_name
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from parityscope.arithmetic._cells import Cell
    from parityscope.arithmetic.graphs import Names

_OPSET = 11  # Scan without a batch axis (9), Range and Where (11, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """How an engine computes recurrent operators in a lower precision.

    `stored` are the kinds of values inside that it rounds (those of `TakenApart`). `terms` is the number of terms that its
    products add up before the sum is rounded, where sums are among them.
    """

    stored: frozenset[str]
    terms: int = 0


# cuDNN as ONNX Runtime calls it: float16 is also the type of its arithmetic (`mathPrec` of `cudnnSetRNNDescriptor_v8`,
# onnxruntime/core/providers/cuda/rnn/cudnn_rnn_base.h). How many terms are added at a time is not published. With two, the
# errors of the one recurrent layer that was measured (an NVIDIA H200) are predicted at 0.93 to 0.99 of their size, with
# four at 0.89 to 0.91, with FP32 sums at 0.66 to 0.82.
_HALF = Recurrence(stored=frozenset({"states", "gates", "products", "sums"}), terms=2)
_STATES = Recurrence(stored=frozenset({"states"}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TakenApart:
    """A recurrent operator that became `scan`: the floating-point values that its body computes, by what they are.

    `states` are carried from step to step and given, `gates` are what activations give, `products` matrix products with
    their bias, `sums` the sums so far inside of those. What is none of these is under "others".
    """

    scan: ir.Node
    values: Mapping[str, frozenset[ir.Value]]


def recurrence_of_format(precision: str) -> Recurrence:
    """What the format called `precision` costs inside a recurrent operator, where no engine is named.

    In FP16 everything, since GPUs compute so; in other formats the state that is kept between steps.
    """
    return _HALF if precision == "f16" else _STATES


def opset_for(model: ir.Model, opset: int) -> int:
    """The least opset in which recurrent operators of `model` can be taken apart; `opset` where it has none."""
    return max(opset, _OPSET) if any(is_recurrent(node) for node in model.graph.all_nodes()) else opset


def is_recurrent(node: ir.Node) -> bool:
    """Whether a node is one of ONNX's recurrent operators."""
    return node.op_type in GATES and node.domain in {"", "ai.onnx"}


def why_not_apart(node: ir.Node, opset: int) -> str:
    """Why a recurrent operator cannot be taken apart; empty if it can."""
    if opset < _OPSET:
        return f"opset {opset} has no Scan to take it apart into"
    if node.attributes.get_int("layout", 0):
        return "its batch comes first (layout)"
    if hidden_of(node) is None:
        return "its weights are of unknown shape"
    if activations_of(node, directions_of(node)) is None:
        return "it has activations outside of the standard set"
    return ""


def take_apart(model: ir.Model, names: Names, *, terms: int = 0, typed: bool = False) -> tuple[TakenApart, ...]:
    """Takes the recurrent operators of `model` apart that can be, in place; its types are inferred.

    `typed` takes those alone that are float16 or bfloat16 by their own types.

    Where `terms` is not 0, products with constant weights are added up so many terms at a time (or the next smaller
    number by which their length can be divided), one block after another.
    """
    opset = opset_of(model)
    chosen = [
        node
        for node in model.graph.all_nodes()
        if is_recurrent(node) and not why_not_apart(node, opset) and (not typed or _is_half(node))
    ]
    if chosen:
        # A node without a name goes by its operator and its place, which the new nodes would change.
        for index, node in enumerate(computing_nodes(model)):
            node.name = node_name(node, index)
    found = []
    for node in chosen:
        scan, cell = replace_by_scan(node, names, opset, terms)
        found.append(TakenApart(scan=scan, values=_values_by_kind(cell)))
    return tuple(found)


def values_in_registers(taken: Iterable[TakenApart], stored: Collection[str]) -> frozenset[ir.Value]:
    """The values inside that are not rounded, where an engine rounds those kinds that are named in `stored`."""
    return frozenset(
        value for each in taken for kind, values in each.values.items() if kind not in stored for value in values
    )


def _is_half(node: ir.Node) -> bool:
    return node.inputs[0] is not None and node.inputs[0].dtype in {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def _values_by_kind(cell: Cell) -> dict[str, frozenset[ir.Value]]:
    found: dict[str, frozenset[ir.Value]] = {}
    known: set[ir.Value] = set()
    made = [value for each in cell.nodes for value in each.outputs if value.dtype == cell.dtype]
    for kind, values in (
        ("states", cell.states),
        ("gates", cell.gates),
        ("products", cell.products),
        ("sums", cell.sums),
        ("others", made),
    ):
        found[kind] = frozenset(values) - known
        known |= found[kind]
    return found
