"""A graph as what is aligned: its steps, the constants that it folds to, and every value on one sample.

What depends on no input is computed once and is a constant from then on, so that a scale that an exporter folded into a weight,
or a weight that a DequantizeLinear makes of integers, is held against the other graph's by its values. A constant that came out
of a DequantizeLinear keeps its step of quantization (`Graph.grids`).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.evaluation.program import program_of
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import base_of, of_kind, operators_that_move
from parityscope.spilling import Keeper, note_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from parityscope.case import Model
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions

_MOST = 1 << 30  # bytes of one sample's tensors that are kept, chosen
_PIECE = 1 << 24  # bytes, chosen: of a weight that is read from its file
_RANDOM = of_kind("random")
_LAID_OUT = operators_that_move("in order") | operators_that_move("permuted")  # they leave each element on its grid
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


def is_training_step(step: ProgramStep) -> bool:
    """Whether a normalization takes the statistics of the batch at hand, as the file says: it has no constants to fold."""
    return step.op_type == "BatchNormalization" and bool(step.node.attributes.get_int("training_mode", 0))


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
        elif step.op_type in _LAID_OUT and step.inputs[0] in grids:
            grid = np.broadcast_to(grids[step.inputs[0]], constants[step.inputs[0]].shape).astype(np.float32)
            others = [constants[name] if name else None for name in step.inputs[1:]]
            grids[step.outputs[0]] = run_step(step, [grid, *others], program, sessions)[0]
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideValues:
    """The values of one graph on one sample, as far as they are known.

    `refused` says by the places of steps why nothing here runs them, `made_up` are the sites that rest on values of our own.
    """

    values: Values
    refused: Mapping[int, str]
    made_up: frozenset[str] = frozenset()


def values_of(
    graph: ReadGraph,
    feeds: Mapping[str, np.ndarray],
    sessions: Sessions,
    given: Mapping[str, np.ndarray],
    *,
    invent: bool = False,
) -> SideValues:
    """Every value of a graph on one sample, without constants; what exceeds the memory for it lies in a file.

    What a step that nothing here runs gives is taken from what is `given`, by site. `invent` puts random numbers in place of what
    is not given either, so that what lies behind can be compared from them.

    Raises:
        ParityError: all of them together are too large to be kept.
    """
    found: Values = {name: np.asarray(feeds[name]) for name in graph.inputs if name in feeds}
    refused: dict[int, str] = {}
    made_up: set[str] = set()
    size, keeper = 0, Keeper()
    for step in graph.steps:
        read: list[Any] = [found.get(name, graph.constants.get(name)) for name in (*step.inputs, *step.captured)]
        inputs, captured = read[: len(step.inputs)], read[len(step.inputs) :]
        results: list[Any] = [given.get(name) for name in step.outputs]
        if all(name in found or name in graph.constants for name in step.reads):
            try:
                results = run_step(step, inputs, graph.program, sessions, captured)
                made_up.update(step.outputs if not made_up.isdisjoint(step.reads) else ())
            except ParityError as error:
                refused[step.index] = error.problem
                if invent and any(value is None for value in results):
                    results = _invent_results(step, inputs, guess=made_up.isdisjoint(step.reads))
                    made_up.update(step.outputs)
        for name, value in zip(step.outputs, results, strict=True):
            if name and value is not None:
                found[name] = keeper.keep(value)
                size += getattr(value, "nbytes", 0)
        if size > _MOST:
            raise ParityError("the tensors of one sample take more than 1 GiB", fix="give a smaller sample")
    return SideValues(values=found, refused=refused, made_up=frozenset(made_up))


def _invent_results(step: ProgramStep, inputs: Sequence[Any], *, guess: bool) -> list[Any]:
    """Normal numbers for each result in the shape that the file declares, or else (`guess`) in that of the first floats read."""
    draw = np.random.default_rng(step.index)
    floats = [value for value in inputs if isinstance(value, np.ndarray) and value.dtype.kind in "fV" and value.ndim]
    found: list[Any] = []
    for value in step.node.outputs:
        shape = value.shape.numpy() if value.shape is not None and value.shape.is_static() else None
        if shape is None and guess and floats:
            shape = floats[0].shape
        dtype = value.dtype.numpy() if value.dtype is not None else floats[0].dtype if floats else np.dtype(np.float32)
        known = shape is not None and dtype.kind in "fV"
        found.append(draw.standard_normal(shape).astype(dtype) if known else None)
    return found
