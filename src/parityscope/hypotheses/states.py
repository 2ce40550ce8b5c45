"""Which input of a step or of a call is the state that which of its outputs leaves, and what it is where that is not reset.

A recurrent operator calls both alike (`initial_h`, `Y_h`), Scan and Loop give them in the same order, and a network that feeds
itself has an input and an output of one shape and type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.schemas import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from parityscope.hypotheses.stretch import ComputedStretch

# As the standard calls the first state that an operator is given, and the last that it gives.
_INITIAL, _LAST = "initial_", "Y_"
_KINDS_BITS = 6.0  # as many bits as saying that another tensor stands in a result's place
# Where the batch lies in what a recurrent operator reads and gives, by `layout` (ONNX: LSTM, GRU, RNN). The weights have none.
_BATCH_READ = (
    {"X": 1, "sequence_lens": 0, "initial_h": 1, "initial_c": 1},
    dict.fromkeys(("X", "sequence_lens", "initial_h", "initial_c"), 0),
)
_BATCH_GIVEN: tuple[dict[str, int], dict[str, int]] = ({"Y": 2, "Y_h": 1, "Y_c": 1}, {})


def states_left(arrays: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What inputs hold that were not reset after a call gave `given`: of one shape and type, the first of each is one state."""
    groups: dict[tuple[tuple[int, ...], np.dtype], tuple[list[str], list[str]]] = {}
    for side, held in enumerate((arrays, given)):
        for name, array in held.items():
            groups.setdefault((array.shape, array.dtype), ([], []))[side].append(name)
    alike = (
        pair for takes, gives in groups.values() if len(takes) == len(gives) for pair in zip(takes, gives, strict=True)
    )
    return {
        name: given[state]
        for name, state in alike
        if given[state].size and not np.array_equal(arrays[name], given[state])
    }


def kept_state_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """A step that begins with the state in which the sample before left it, or the row of the batch before."""
    schema = schema_of(node, stretch.context.opsets)
    if schema is None or len(stretch.steps) > 1:
        return
    states = _states_of(node, schema)
    if not states:
        return
    given = [one.name for one in schema.outputs]

    def across_samples(one: ComputedStretch, sample: int) -> np.ndarray:
        results: list[np.ndarray] = []
        for position in (*one.samples_before(sample), sample):
            kept = {index: results[output] for index, output in states.items()} if results else {}
            results = _run_with_states(one, place, one.read(position, one.steps[place]), kept, given)
        return _output_of(one, place, results)

    if any(map(stretch.knows_before, range(len(stretch.base)))):
        words = f"the state of {node.op_type} kept from the sample before (not reset)"
        yield StretchEdit(words=words, bits=_KINDS_BITS, whole=across_samples)
    layout = next((one.i for one in node.attribute if one.name == "layout"), 0)
    read = _BATCH_READ[layout]
    axes = {index: read[one.name] for index, one in enumerate(schema.inputs) if one.name in read}
    if not axes:
        return  # Scan and Loop have no batch of their own

    def across_batch(one: ComputedStretch, sample: int) -> np.ndarray:
        arrays, parts = one.read(sample, one.steps[place]), []
        results: list[np.ndarray] = []
        count = next(
            array.shape[axes[index]] for index, array in enumerate(arrays) if array is not None and index in axes
        )
        for row in range(count):
            own = [
                np.take(array, [row], axes[index]) if array is not None and index in axes else array
                for index, array in enumerate(arrays)
            ]
            kept = {index: results[output] for index, output in states.items()} if results else {}
            results = _run_with_states(one, place, own, kept, given)
            parts.append(_output_of(one, place, results))
        return np.concatenate(
            parts, _BATCH_GIVEN[layout].get(given[one.steps[place].outputs.index(one.context.output)], 0)
        )

    array = stretch.value(0, node.input[0])
    if array is not None and array.ndim > axes[0] and array.shape[axes[0]] > 1:
        words = f"the state of {node.op_type} kept from the row of the batch before (not reset)"
        yield StretchEdit(words=words, bits=_KINDS_BITS, whole=across_batch)


def _states_of(node: onnx.NodeProto, schema: Any) -> dict[int, int]:
    """The output that leaves each input that is a state, both by place."""
    given = [one.name for one in schema.outputs]
    if node.op_type == "Loop":  # M, cond, states -> states, what is collected
        return {index: index - 2 for index in range(2, len(node.input))}
    if node.op_type == "Scan":  # states, sequences -> states, sequences
        scanned = next((one.i for one in node.attribute if one.name == "num_scan_inputs"), len(node.input))
        return {index: index for index in range(len(node.input) - scanned)}
    return {
        index: given.index(_LAST + one.name.removeprefix(_INITIAL))
        for index, one in enumerate(schema.inputs)
        if one.name.startswith(_INITIAL) and _LAST + one.name.removeprefix(_INITIAL) in given
    }


def _run_with_states(
    one: ComputedStretch,
    place: int,
    arrays: Sequence[np.ndarray | None],
    kept: Mapping[int, np.ndarray],
    given: Sequence[str],
) -> list[np.ndarray]:
    """All results of a step, those too that nobody reads, where states are what was kept."""
    step = one.steps[place]
    if not step.bodies:
        names = (*step.outputs, *[""] * len(given))[: max(len(given), len(step.outputs))]
        named = tuple(name or f"::{index}" for index, name in enumerate(names))
        step = replace(step, outputs=named, kind=step.kind + b"all states")
    count = max(len(arrays), *(index + 1 for index in kept), 0) if kept else len(arrays)
    filled = [kept.get(index, array) for index, array in enumerate([*arrays, *[None] * count][:count])]
    return one.compute_all(step, filled)


def _output_of(one: ComputedStretch, place: int, results: Sequence[np.ndarray]) -> np.ndarray:
    return results[one.steps[place].outputs.index(one.context.output)]
