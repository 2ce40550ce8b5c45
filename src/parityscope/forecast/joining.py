"""Reference, simulation and replay of a model in one graph, each tensor of which is measured where it is computed.

In: a model and its simulation. Out: the simulation's graph, joined by the reference's nodes (their values are called
`reference::<name>`) and by `Observe` operators (`observing`): one for every float32 tensor, where the simulation rounds it.
Pointwise nodes between them are joined with them (`_chaining`).

**Introduced error.** f(c_in), a tensor in the reference's arithmetic on what the simulation stored of its inputs, is what the
simulation computes before it rounds, wherever it computes with the reference's own weights on stored tensors. Only nodes
of which that is not so (their weights are changed by rounding, or they read what is not stored) stand in the graph a third
time (`replay::<name>`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import constant_values, feed
from parityscope.arithmetic.domain import DOMAIN
from parityscope.arithmetic.element_types import infer_types, is_float32
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.standard import opset_of
from parityscope.forecast._chaining import chain
from parityscope.forecast._watching import ASKED, FIRST, OWN, REFERENCE, SAME, THIN, THIRD, Watching
from parityscope.forecast.observing import ROW_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np

__all__ = ["Joined", "join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The graph and what it measures.

    `watched` are the tensors that operators measure, in order of their rows. Of `same` c is f(c_in), and nothing is introduced
    there; of `first` f(c_in) is r, as they are computed of the model's inputs, and nothing is inherited. `replayed` are
    others of which introduced errors are measured, `thin` those of them that are computed again at some positions, with
    two further rows each, in this order: of f(c_in), and of e in its place. `copied` are tensors that only are another
    shape of one, whose numbers are theirs. `given` are tensors that the graph gives back, with the names of r, c and
    f(c_in) (None: not wanted or not to be had). `others` is what was left for another graph, `lacking` what the simulation
    has not. `alive` must live as long as sessions of the graph.
    """

    model: ir.Model
    watched: tuple[str, ...]
    same: frozenset[str]
    first: frozenset[str]
    replayed: frozenset[str]
    thin: tuple[str, ...]
    copied: Mapping[str, str]
    given: Mapping[str, tuple[str | None, ...]]
    others: tuple[str, ...]
    lacking: tuple[str, ...]
    alive: tuple[np.ndarray, ...]


def join(
    reference: ir.Model,
    simulation: ir.Model,
    names: Sequence[str],
    rows: int,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    introduced: bool,
    static: bool,
    chained: bool = True,
) -> Joined | None:
    """Edits `simulation` in place; None where the two have other opsets, or the model types tensors in float16 itself.

    Args:
        reference: The model that is simulated; used up.
        simulation: Its simulation, with compiled roundings.
        names: Tensors to measure.
        rows: The address of the accumulators: room for three rows of `ROW_BYTES` for each of `names`.
        shapes: Shapes of tensors as far as they are known: what is large is computed again at some positions (`_thinning`).
        introduced: Whether f(c_in) is measured as well.
        static: Measure the tensors that depend on no input of the model, instead of all others.
        chained: Let pointwise nodes be computed where they are measured (`_chaining`).
    """
    joining = _taken(reference, simulation, shapes)
    if joining is None:
        return None
    constant = constant_values(simulation)
    watched: list[str] = []
    given: list[str] = []
    others: list[str] = []
    lacking: list[str] = []
    for name in names:
        r, c = joining.reference.get(name), joining.stored.get(name)
        if r is None or c is None:
            lacking.append(name)
        elif (r in constant and c in constant) != static:
            others.append(name)
        else:
            (watched if is_float32(r) and is_float32(c) else given).append(name)
    kinds: dict[int, set[str]] = {kind: set() for kind in ASKED}
    thin: list[str] = []
    for at, name in enumerate(watched):
        further = rows + ROW_BYTES * (len(watched) + 2 * len(thin))
        found = joining.watch(name, rows + ROW_BYTES * at, further, introduced=introduced)
        kinds[found].add(name)
        thin.extend([name] if found == THIN else [])
    graph = simulation.graph
    graph.outputs.clear()
    back = {name: joining.given(name, introduced=introduced) for name in given}
    graph.outputs.extend(dict.fromkeys(value for values in back.values() for value in values if value is not None))
    if not graph.outputs:
        graph.outputs.extend(joining.last)
    graph.sort()
    alive: list[np.ndarray] = []
    if chained:
        alive = chain(simulation, joining.names, shapes)
        graph.sort()
    simulation.opset_imports[DOMAIN] = 1
    return Joined(
        model=simulation,
        watched=tuple(watched),
        same=frozenset(kinds[SAME]),
        first=frozenset(kinds[FIRST]),
        replayed=frozenset(kinds[OWN] | kinds[THIRD] | kinds[THIN]),
        thin=tuple(thin),
        copied=joining.copied,
        given={
            name: tuple(None if value is None else str(value.name) for value in values) for name, values in back.items()
        },
        others=tuple(others),
        lacking=tuple(lacking),
        alive=tuple(alive),
    )


def _taken(reference: ir.Model, simulation: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> Watching | None:
    """Moves the reference's nodes into the simulation's graph; None where opsets or types differ."""
    opset = opset_of(simulation)
    copy = prepared(reference, opset)
    if opset_of(copy) != opset:
        return None
    infer_types(copy)
    for model in (copy, simulation):
        _forget_sizes(model)
    graph = simulation.graph
    stored = {str(value.name): value for node in graph for value in node.outputs if value.name}
    found = {str(value.name): value for node in copy.graph for value in node.outputs if value.name}
    if any(value.dtype != stored[name].dtype for name, value in found.items() if name in stored):
        return None
    inputs = {str(value.name): value for value in graph.inputs}
    for read in copy.graph.inputs:
        feed(list(read.uses()), inputs[str(read.name)])
    copy.graph.outputs.clear()  # first, as a constant may be one, which its graph would not let go
    for name, constant in list(copy.graph.initializers.items()):
        mine = graph.initializers.get(name)
        if mine is not None and _are_equal(constant, mine):
            feed(list(constant.uses()), mine)
            continue
        copy.graph.initializers.pop(name)
        constant.name = REFERENCE + name
        graph.register_initializer(constant)
    nodes = list(copy.graph)
    copy.graph.remove(nodes, safe=False)
    for node in nodes:
        node.name = REFERENCE + node.name if node.name else ""
        for value in node.outputs:
            value.name = REFERENCE + value.name if value.name else value.name
    graph.extend(nodes)
    for domain, version in copy.opset_imports.items():
        simulation.opset_imports.setdefault(domain, version)
    names = {value: name for name, value in (*found.items(), *stored.items())}
    return Watching(model=simulation, reference=found, stored=stored, names=names, replays={}, last=[], shapes=shapes)


def _forget_sizes(model: ir.Model) -> None:
    """Leaves open the dimensions that no input declares: how many elements Unique or NonZero gives depends on the numbers.

    ONNX Runtime takes dimensions of one name for equal, and would use the memory of one graph's tensor for the other's.
    """
    inputs = (value.shape for value in model.graph.inputs if value.shape is not None)
    known = {dim.value for shape in inputs for dim in shape if isinstance(dim, ir.SymbolicDim)}
    for node in model.graph:
        for value in node.outputs:
            if value.shape is not None and any(_is_open(dim, known) for dim in value.shape):
                value.shape = ir.Shape([None if _is_open(dim, known) else dim for dim in value.shape])


def _is_open(dim: int | ir.SymbolicDim, known: Collection[str | None]) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value not in known


def _are_equal(value: ir.Value, other: ir.Value) -> bool:
    """Whether two constants hold the same bits."""
    mine, its = value.const_value, other.const_value
    if mine is None or its is None or mine.dtype != its.dtype or mine.shape != its.shape:
        return False
    if mine.dtype == ir.DataType.STRING:
        return False
    return mine is its or mine.tobytes() == its.tobytes()
