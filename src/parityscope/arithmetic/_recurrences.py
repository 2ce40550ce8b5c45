"""One time step of LSTM, GRU and RNN as ONNX nodes: the equations of the operators' specification.

With X the input of a step, H (and C) the state before it, `.` a matrix product, `*` elementwise:

* RNN:  H' = f(X.W + H.R + Wb + Rb)
* GRU:  z, r = f(X.W + H.R + Wb + Rb);  H' = (1 - z) * g(X.Wh + (r * H).Rh + Rbh + Wbh) + z * H; with
  `linear_before_reset` the bracket is r * (H.Rh + Rbh)
* LSTM: i, f = f(X.W + H.R + P * C + Wb + Rb);  c = g(...);  C' = f * C + i * c;  o = f(... + Po * C');  H' = o * h(C');
  with `input_forget` f is 1 - i

`clip` bounds what enters a gate's activation, and C' is not bounded on its way into h (ONNX Runtime's own operators).
Source: ONNX operators LSTM, GRU and RNN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from parityscope.arithmetic._cells import Activation, Cell, CellWeights

__all__ = ["has_own_reset", "state_after_step"]


def has_own_reset(node: ir.Node) -> bool:
    """Whether the last gate reads another state than the others: GRU resets it before the product."""
    return node.op_type == "GRU" and not node.attributes.get_int("linear_before_reset", 0)


def state_after_step(
    cell: Cell, activations: Sequence[Activation], weights: CellWeights, entering: ir.Value, state: Sequence[ir.Value]
) -> tuple[ir.Value, ...]:
    """The state after one step: H', and C' behind it for LSTM.

    `entering` is (batch, inputs), each of `state` is (1, batch, hidden).
    """
    after = {"LSTM": _lstm_step, "GRU": _gru_step, "RNN": _rnn_step}[cell.node.op_type](
        cell, activations, weights, entering, state
    )
    cell.states.extend(after)
    return after


def _rnn_step(
    cell: Cell, activations: Sequence[Activation], weights: CellWeights, entering: ir.Value, state: Sequence[ir.Value]
) -> tuple[ir.Value, ...]:
    first = cell.product(entering, weights.inputs, weights.input_bias)
    second = cell.product(state[0], weights.state[0], weights.state_bias[0])
    return (cell.activated(activations[0], cell.bounded(cell.add("Add", first, second))),)


def _gru_step(
    cell: Cell, activations: Sequence[Activation], weights: CellWeights, entering: ir.Value, state: Sequence[ir.Value]
) -> tuple[ir.Value, ...]:
    from_input = cell.split(cell.product(entering, weights.inputs, weights.input_bias), 3)
    before = state[0]
    outer, inner = activations
    if cell.node.attributes.get_int("linear_before_reset", 0):
        from_state = cell.split(cell.product(before, weights.state[0], weights.state_bias[0]), 3)
        update, reset = (
            cell.gate(outer, cell.add("Add", *each)) for each in zip(from_input[:2], from_state[:2], strict=True)
        )
        recurrent = cell.add("Mul", reset, from_state[2])
    else:
        from_state = cell.split(cell.product(before, weights.state[0], weights.state_bias[0]), 2)
        update, reset = (
            cell.gate(outer, cell.add("Add", *each)) for each in zip(from_input[:2], from_state, strict=True)
        )
        recurrent = cell.product(cell.add("Mul", reset, before), weights.state[1], weights.state_bias[1])
    fresh = cell.gate(inner, cell.add("Add", from_input[2], recurrent))
    kept = cell.add("Mul", update, before)
    return (cell.add("Add", cell.add("Mul", cell.add("Sub", cell.number(1.0), update), fresh), kept),)


def _lstm_step(
    cell: Cell, activations: Sequence[Activation], weights: CellWeights, entering: ir.Value, state: Sequence[ir.Value]
) -> tuple[ir.Value, ...]:
    before, memory = state
    total = cell.add(
        "Add",
        cell.product(entering, weights.inputs, weights.input_bias),
        cell.product(before, weights.state[0], weights.state_bias[0]),
    )
    entered, gone, forgotten, fresh = cell.split(total, 4)
    outer, inner, last = activations
    if weights.peephole:
        entered = cell.add("Add", entered, cell.add("Mul", weights.peephole[0], memory))
        forgotten = cell.add("Add", forgotten, cell.add("Mul", weights.peephole[2], memory))
    opened = cell.gate(outer, entered)
    if cell.node.attributes.get_int("input_forget", 0):
        kept = cell.add("Sub", cell.number(1.0), opened)
    else:
        kept = cell.gate(outer, forgotten)
    fresh = cell.gate(inner, fresh)
    after = cell.add("Add", cell.add("Mul", kept, memory), cell.add("Mul", opened, fresh))
    if weights.peephole:
        gone = cell.add("Add", gone, cell.add("Mul", weights.peephole[1], after))
    given = cell.gate(outer, gone)
    return cell.add("Mul", given, cell.activated(last, after)), after
