"""A graph as what is aligned: its steps, the constants that it folds to, and every value on one sample.

What depends on no input is computed once and is a constant from then on, so that a scale that an exporter folded into a weight,
or a weight that a DequantizeLinear makes of integers, is held against the other graph's by its values. A constant that came out
of a DequantizeLinear keeps its step of quantization (`Graph.grids`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.evaluation.program import program_of
from parityscope.operators import base_of, of_kind
from parityscope.spilling import Keeper, note_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from parityscope.case import Model
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions

__all__ = [
    "ReadGraph",
    "Values",
    "content_of",
    "is_quantized_step",
    "operator_family",
    "read_graph",
    "run_step",
    "values_of",
]

_MOST = 1 << 30  # bytes of one sample's tensors that are kept, chosen
_PIECE = 1 << 24  # bytes, chosen: of a weight that is read from its file
_RANDOM = of_kind("random")
Values = dict[str, "np.ndarray"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadGraph:
    """A program, and of it: the steps that depend on an input, what makes and what reads each site, and all constants.

    `grids` holds the step of quantization (broadcast over its constant) of what a DequantizeLinear gave.
    """

    program: Program
    steps: tuple[ProgramStep, ...]
    makers: Mapping[str, ProgramStep]
    readers: Mapping[str, tuple[tuple[ProgramStep, int], ...]]
    constants: Mapping[str, np.ndarray]
    grids: Mapping[str, np.ndarray]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sites that are fed."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The sites that are given back."""
        return self.program.outputs


def operator_family(step: ProgramStep) -> str:
    """The operator's name without what a runtime's optimizer adds to it."""
    return base_of(step.op_type)


def is_quantized_step(step: ProgramStep) -> bool:
    """Whether a step computes in integers, or goes to them or back, by what its operator is called."""
    return "Quantize" in step.op_type or step.op_type.startswith("QLinear") or step.op_type.endswith("Integer")


def content_of(array: np.ndarray) -> bytes:
    """What equal arrays share: a digest of type, shape and elements."""
    if array.dtype == object:
        return repr(array.tolist()).encode()
    head = f"{array.dtype} {array.shape}".encode()
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, whole.size, _PIECE):  # so that the pages of a large weight go before its last one comes
        piece = whole[start : start + _PIECE]
        note_read(piece.nbytes)
        digest.update(piece.data)
    return digest.digest() + head


def read_graph(model: Model, sessions: Sessions) -> ReadGraph:
    """The graph of a model, constants folded.

    Raises:
        ParityError: the graph cannot be read.
    """
    program = program_of(model)
    constants = dict(program.constants)
    grids: dict[str, np.ndarray] = {}
    steps = []
    for step in program.steps:
        if step.op_type in _RANDOM or step.bodies or not all(name in constants for name in step.reads):
            steps.append(step)
            continue
        try:
            found = run_step(step, [constants[name] if name else None for name in step.inputs], program, sessions)
        except ParityError:
            steps.append(step)
            continue
        constants.update((name, value) for name, value in zip(step.outputs, found, strict=True) if name)
        if step.op_type == "DequantizeLinear":
            grids[step.outputs[0]] = _grid_of_dequantize(step, constants)
    readers: dict[str, list[tuple[ProgramStep, int]]] = {}
    for step in steps:
        for place, name in enumerate(step.inputs):
            if name:
                readers.setdefault(name, []).append((step, place))
    return ReadGraph(
        program=replace(program, constants=constants),  # sessions ask what is constant
        steps=tuple(steps),
        makers={name: step for step in steps for name in step.outputs if name},
        readers={name: tuple(found) for name, found in readers.items()},
        constants=constants,
        grids=grids,
    )


def _grid_of_dequantize(step: ProgramStep, constants: Mapping[str, np.ndarray]) -> np.ndarray:
    scale = np.asarray(constants[step.inputs[1]], np.float64)
    whole = constants[step.outputs[0]]
    if scale.ndim != 1 or scale.size == 1:
        return scale.reshape(()) if scale.size == 1 else np.ones(())
    axis = step.node.attributes.get_int("axis", 1) % whole.ndim
    return scale.reshape([-1 if place == axis else 1 for place in range(whole.ndim)])


def run_step(
    step: ProgramStep, inputs: Sequence[Any], program: Program, sessions: Sessions, captured: Sequence[Any] = ()
) -> list[Any]:
    """What a step gives on these inputs.

    Raises:
        ParityError: ONNX Runtime refuses.
    """
    note_read(sum(getattr(value, "nbytes", 0) for value in (*inputs, *captured)))
    return sessions.run(step, list(inputs), program, list(captured))


def values_of(graph: ReadGraph, feeds: Mapping[str, np.ndarray], sessions: Sessions) -> Values:
    """Every value of a graph on one sample, without constants; what exceeds the memory for it lies in a file.

    Raises:
        ParityError: ONNX Runtime refuses a step, or all of them together are too large to be kept.
    """
    found: Values = {name: np.asarray(feeds[name]) for name in graph.inputs if name in feeds}
    size, keeper = 0, Keeper()
    for step in graph.steps:
        inputs = [_value_of(graph, found, name) if name else None for name in step.inputs]
        captured = [_value_of(graph, found, name) for name in step.captured]
        for name, value in zip(step.outputs, run_step(step, inputs, graph.program, sessions, captured), strict=True):
            if name:
                found[name] = keeper.keep(value)
                size += getattr(value, "nbytes", 0)
        if size > _MOST:
            raise ParityError("the tensors of one sample take more than 1 GiB", fix="give a smaller sample")
    return found


def _value_of(graph: ReadGraph, found: Values, name: str) -> Any:
    return found[name] if name in found else graph.constants[name]
