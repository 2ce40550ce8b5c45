"""One recurrent operator replaced by a Scan: what stands before it, its body, and what stands behind.

One time step of LSTM, GRU and RNN as ONNX nodes: the equations of the operators' specification.

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

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._cells import GATES, Cell, CellWeights, activations_of
from parityscope.arithmetic.graphs import drop_if_unread, give_back, redirect_uses
from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic._cells import Activation
    from parityscope.arithmetic.graphs import Names


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScanWork:
    """The operator, its body under construction, and the nodes that go before the Scan."""

    node: ir.Node
    cell: Cell
    count: int
    before: list[ir.Node] = field(default_factory=list)

    def input(self, index: int) -> ir.Value | None:
        """An input of the operator; None where it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def ahead(
        self, op_type: str, *inputs: ir.Value, dtype: ir.DataType | None = None, attributes: Sequence[ir.Attr] = ()
    ) -> ir.Value:
        """A node before the Scan; gives its output."""
        made = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        value = made.outputs[0]
        value.name = made.name = self.fresh(op_type.lower())
        value.type = ir.TensorType(dtype or self.cell.dtype)
        self.before.append(made)
        return value

    def number(self, array: np.ndarray) -> ir.Value:
        """A constant before the Scan."""
        made = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))], num_outputs=1)
        made.outputs[0].name = made.name = self.fresh("constant")
        made.outputs[0].type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        made.outputs[0].shape = ir.Shape(array.shape)
        self.before.append(made)
        return made.outputs[0]

    def fresh(self, title: str) -> str:
        return self.cell.names.fresh(self.node.name or self.node.op_type, title)

    def entering(self, title: str, dtype: ir.DataType | None = None) -> ir.Value:
        """An input of the body."""
        return ir.Value(name=self.fresh(title), type=ir.TensorType(dtype or self.cell.dtype))


def directions_of(node: ir.Node) -> int:
    """1, or 2 for a bidirectional operator."""
    return 2 if node.attributes.get_string("direction", "forward") == "bidirectional" else 1


def hidden_of(node: ir.Node) -> int | None:
    """The size of the state, told by the operator or the shape of R: (directions, gates * hidden, hidden)."""
    weights = node.inputs[2] if len(node.inputs) > 2 else None
    tensor = None if weights is None else constant_value(weights)
    shape = tensor.shape if tensor is not None else None if weights is None else weights.shape
    size = None if shape is None or len(shape) != 3 else shape[2]
    return size if isinstance(size, int) else node.attributes.get_int("hidden_size", 0) or None


def replace_by_scan(node: ir.Node, names: Names, opset: int, terms: int = 0) -> tuple[ir.Node, Cell]:
    """Puts a Scan where a recurrent operator is, in place; gives it and its body (of which `Cell` tells `terms`).

    Raises:
        ValueError: nothing tells how large the state is.
    """
    hidden = hidden_of(node)
    if hidden is None:
        raise ValueError(f"the weights of {node.name} are of unknown shape")
    dtype = _required_input(node, 0).dtype or ir.DataType.FLOAT
    cell = Cell(node=node, hidden=hidden, dtype=dtype, names=names, opset=opset, terms=terms)
    work = _ScanWork(node=node, cell=cell, count=directions_of(node))
    both = range(work.count)
    initial = [_initial_state(work, index) for index in ((5, 6) if node.op_type == "LSTM" else (5,))]
    lengths = work.input(4)
    mask = None if lengths is None else _step_mask(work, lengths)
    states = [work.entering("state") for _ in initial]
    reads = [work.entering("input") for _ in both]
    within = [] if mask is None else [work.entering("within", ir.DataType.BOOL) for _ in both]
    carried, given = _step_body(work, states, reads, within)
    for value, rows in [*((each, work.count) for each in (*states, *carried)), *((each, 1) for each in given)]:
        value.shape = ir.Shape([rows, None, hidden])  # ONNX Runtime makes room for what comes out of a body by its rank
    cell.states.extend([*states, *carried, *given])
    body = ir.Graph(
        [*states, *reads, *within],
        [*carried, *given],
        nodes=cell.nodes,
        initializers=cell.constants,
        opset_imports={"": opset},
        name=f"{node.name or node.op_type}::step",
    )
    ways = [0, 1] if work.count == 2 else [int(node.attributes.get_string("direction", "forward") == "reverse")]
    scanned = [_required_input(node, 0)] * work.count + ([] if mask is None else [mask] * work.count)
    attributes = [
        ir.AttrGraph("body", body),
        ir.AttrInt64("num_scan_inputs", len(scanned)),
        ir.AttrInt64s("scan_input_directions", ways * (len(scanned) // work.count)),
        ir.AttrInt64s("scan_output_directions", ways),
    ]
    scan = ir.Node("", "Scan", [*initial, *scanned], attributes, num_outputs=len(initial) + work.count, name=node.name)
    _hand_over(work, scan)
    return scan, cell


def _step_body(
    work: _ScanWork, states: Sequence[ir.Value], reads: Sequence[ir.Value], within: Sequence[ir.Value]
) -> tuple[list[ir.Value], list[ir.Value]]:
    """The step of each direction: what is carried on, each state for all directions, and what is given."""
    cell, count = work.cell, work.count
    activations = activations_of(work.node, count) or []
    each = len(activations) // count
    before = [cell.split(state, count, axis=0, size=1) if count > 1 else (state,) for state in states]
    carried: list[Sequence[ir.Value]] = []
    given = []
    for at in range(count):
        held = [parts[at] for parts in before]
        after = state_after_step(
            cell, activations[at * each : (at + 1) * each], _direction_weights(work, at), reads[at], held
        )
        if within:
            carried.append([cell.add("Where", within[at], new, old) for new, old in zip(after, held, strict=True)])
            given.append(cell.add("Where", within[at], after[0], cell.number(0.0)))
        else:
            carried.append(after)
            given.append(cell.add("Identity", after[0]))  # an output of a body must not be one twice
    kinds = [[direction[kind] for direction in carried] for kind in range(len(states))]
    joined = [
        values[0] if count == 1 else cell.add("Concat", *values, attributes=[ir.AttrInt64("axis", 0)])
        for values in kinds
    ]
    cell.states.extend(part for parts in before for part in parts)
    return joined, given


def _initial_state(work: _ScanWork, index: int) -> ir.Value:
    """The state before the first step, (directions, batch, hidden); 0 where nothing is given."""
    value = work.input(index)
    if value is not None:
        return value
    sizes = work.ahead("Shape", _required_input(work.node, 0), dtype=ir.DataType.INT64)
    batch = work.ahead("Gather", sizes, work.number(np.array([1])), dtype=ir.DataType.INT64)
    one = work.number(np.array([1]))
    shape = work.ahead("Concat", one, batch, one, dtype=ir.DataType.INT64, attributes=[ir.AttrInt64("axis", 0)])
    nothing = np.zeros((work.count, 1, work.cell.hidden), work.cell.dtype.numpy())
    return work.ahead("Expand", work.number(nothing), shape)


def _step_mask(work: _ScanWork, lengths: ir.Value) -> ir.Value:
    """Whether a step lies within each sequence: bool, (steps, batch, 1)."""
    whole, flag = ir.DataType.INT64, ir.DataType.BOOL
    sizes = work.ahead("Shape", _required_input(work.node, 0), dtype=whole)
    count = work.ahead("Gather", sizes, work.number(np.array(0)), dtype=whole)
    steps = work.ahead("Range", work.number(np.array(0)), count, work.number(np.array(1)), dtype=whole)
    steps = work.ahead("Reshape", steps, work.number(np.array([-1, 1, 1])), dtype=whole)
    lengths = work.ahead("Cast", lengths, dtype=whole, attributes=[ir.AttrInt64("to", int(whole))])
    lengths = work.ahead("Reshape", lengths, work.number(np.array([1, -1, 1])), dtype=whole)
    return work.ahead("Less", steps, lengths, dtype=flag)


def _direction_weights(work: _ScanWork, at: int) -> CellWeights:
    """The weights of one direction."""
    gates, hidden, node = GATES[work.node.op_type], work.cell.hidden, work.node
    whole = range(gates * hidden)
    pieces = [whole[: 2 * hidden], whole[2 * hidden :]] if has_own_reset(node) else [whole]
    bias = work.input(3)
    peephole = work.input(7) if node.op_type == "LSTM" else None
    return CellWeights(
        inputs=_rows_of_parameter(work, _required_input(node, 1), at, whole),
        input_bias=None if bias is None else _rows_of_parameter(work, bias, at, whole),
        state=tuple(_rows_of_parameter(work, _required_input(node, 2), at, rows) for rows in pieces),
        state_bias=tuple(
            None
            if bias is None
            else _rows_of_parameter(work, bias, at, range(len(whole) + rows.start, len(whole) + rows.stop))
            for rows in pieces
        ),
        peephole=()
        if peephole is None
        else tuple(
            _rows_of_parameter(work, peephole, at, range(gate * hidden, (gate + 1) * hidden)) for gate in range(3)
        ),
    )


def _rows_of_parameter(work: _ScanWork, value: ir.Value, at: int, rows: range) -> ir.Value:
    """Some rows of one direction of a parameter, transposed where it is a matrix.

    Of a constant a constant of the body, so that the Scan needs nothing from outside; else it is taken in every step.
    """
    tensor = constant_value(value)
    if tensor is not None:
        return work.cell.constant(tensor.numpy()[at, rows.start : rows.stop].T, str(value.name))
    cell, axis = work.cell, [ir.AttrInt64("axis", 0)]
    chosen = cell.add("Gather", value, cell.constant(np.array(at), "direction"), attributes=axis)
    chosen = cell.add("Gather", chosen, cell.constant(np.array(rows), "rows"), attributes=axis)
    return cell.add("Transpose", chosen)


def _hand_over(work: _ScanWork, scan: ir.Node) -> None:
    """Lets the outputs of `scan`, put together over the directions, take the place of the operator's."""
    node, count, graph = work.node, work.count, work.node.graph
    if graph is None:
        raise ValueError(f"{node.name} belongs to no graph")
    for value in scan.outputs:
        value.name, value.type = work.fresh("given"), ir.TensorType(work.cell.dtype)
    last, steps = scan.outputs[: len(scan.outputs) - count], scan.outputs[len(scan.outputs) - count :]
    behind: list[ir.Node] = []
    every = steps[0]  # of one direction (steps, 1, batch, hidden) already
    if count > 1:
        join = ir.Node("", "Concat", list(steps), [ir.AttrInt64("axis", 1)], num_outputs=1, name=work.fresh("joined"))
        behind.append(join)
        every = join.outputs[0]
    for old, new in zip(node.outputs, (every, *last), strict=False):
        if not old.name:
            new.name = new.name or work.fresh("joined")
            continue
        new.type, new.shape = old.type or ir.TensorType(work.cell.dtype), old.shape
        redirect_uses(list(old.uses()), new)
        give_back(old, new)
        new.name, old.name = old.name, work.fresh("replaced")
    graph.insert_before(node, [*work.before, scan, *behind])
    parameters = {value for value in node.inputs[1:4] if value is not None}
    graph.remove(node, safe=True)
    for value in parameters:
        if value.is_initializer():
            drop_if_unread(value)


def _required_input(node: ir.Node, index: int) -> ir.Value:
    """Input `index`, which the operator cannot do without.

    Raises:
        ValueError: it is left out.
    """
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"{node.op_type} {node.name} lacks its input {index}")
    return value
