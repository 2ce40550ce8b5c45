"""A graph as a program: steps in order, each a node with all that running it needs, and what each value is called.

In: a graph (`onnx_ir`), of which nothing is copied and nothing changed. Out: a `Program`, which any number of worlds may run.

* A value is known by its **site**: its name, or, where bodies of control flow use one name twice, the name of the node around it
  and its own (`loop_node/x`). Programs of the same network call the same value alike.
* Weights are arrays that the graph holds or maps from its external files; they are never copied (`Program.constants`).
* A body of If, Loop or Scan is a program too (`Step.bodies`). It reads what it captures from outside by those values' sites.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.detyping import float32_copy, is_wide
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import OLDEST, prepare_in_place
from parityscope.arithmetic.standard import SHAPE_READERS
from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from parityscope.case import Model

RANDOM = of_kind("random")
_CONTROL = of_kind("control flow")
_ONNX = frozenset({"", "ai.onnx"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramStep:
    """One node.

    `key` is the site of its first result and stands for the step; `inputs` and `outputs` are sites ("" where one is left
    out), `captured` the sites that its bodies read from outside with the names that these have there. `kind` is the same
    for steps that do the same to the same inputs: operator, version and attributes, serialized. `inner` are the sites inside
    its bodies, at any depth. `reads` is every site that the step needs, `op_type` the operator's name.
    """

    key: str
    index: int
    node: ir.Node
    kind: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, Program] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    reads: tuple[str, ...] = field(init=False)
    op_type: str = field(init=False)

    def __post_init__(self) -> None:
        """Keeps what is asked for wherever a step is computed again."""
        object.__setattr__(self, "reads", (*filter(None, self.inputs), *self.captured))
        object.__setattr__(self, "op_type", self.node.op_type)

    @property
    def has_random(self) -> bool:
        """Whether chance falls in one of its bodies."""
        inside = (step for body in self.bodies.values() for step in body.steps)
        return any(step.op_type in RANDOM or step.has_random for step in inside)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Program:
    """Steps in topological order.

    `inputs` are the sites that are fed, `outputs` those that are given back. `constants` holds the arrays of weights by
    site, `sites` the site of each value, `last_reader` the index of the last step that reads a value (its outputs are
    read by whoever gave the program, `len(steps)`), `steps_of` the step that gives each site, and `types` the element type of
    each, in bodies too, as far as the graph tells it.
    """

    steps: tuple[ProgramStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    sites: Mapping[ir.Value, str]
    last_reader: Mapping[str, int]
    steps_of: Mapping[str, ProgramStep]
    opsets: Mapping[str, int]
    ir_version: int
    types: Mapping[str, ir.DataType | None]

    @property
    def inner(self) -> frozenset[str]:
        """The sites inside bodies, at any depth."""
        return frozenset().union(*(step.inner for step in self.steps))


def program_of(model: Model) -> Program:
    """The program of a model as it stands, compiled once for all who ask: functions inlined, constants as initializers.

    Raises:
        ParityError: as `compile_program`, or the model's opset cannot be converted.
    """
    return _prepared(model.path, model.sha256, bool(model.unread)).program


def prepared_graph(model: Model) -> ir.Model:
    """The graph of a model with functions inlined, constants as initializers and types inferred; read once, to be cloned."""
    return _prepared(model.path, model.sha256, bool(model.unread)).graph


def wide_program(model: Model) -> tuple[ir.Model, Program]:
    """A model in FP32 (`arithmetic.detyping.float32_copy`) and its program, made once for all who ask; neither is to be changed.

    Raises:
        ParityError: as `program_of`.
    """
    return _prepared(model.path, model.sha256, bool(model.unread)).wide


@dataclass(frozen=True)
class _PreparedModel:
    """A prepared graph and what is made of it, kept and forgotten together: a program names the nodes of its own graph."""

    graph: ir.Model

    @cached_property
    def program(self) -> Program:
        return compile_program(self.graph)

    @cached_property
    def wide(self) -> tuple[ir.Model, Program]:
        if is_wide(self.graph):
            return self.graph, self.program
        graph = float32_copy(self.graph)
        return graph, compile_program(graph)


@functools.lru_cache(maxsize=2)  # the model, and the corrected copy that is examined after it
def _prepared(path: Path, _sha256: str, in_part: bool) -> _PreparedModel:  # noqa: FBT001 - a key of the cache
    graph = prepare_in_place(read_graph(path, in_part=in_part), OLDEST)
    infer_types(graph)
    return _PreparedModel(graph=graph)


def compile_program(model: ir.Model) -> Program:
    """The program of `model`, whose graph is put in topological order.

    Raises:
        ParityError: the model calls functions of its own (inline them first: `arithmetic.opsets.prepare_copy`).
    """
    model.graph.sort()
    called = {(key[0], key[1]) for key in model.functions}
    for node in model.graph.all_nodes():
        if (node.domain, node.op_type) in called:
            raise ParityError(f"{node.name} calls a function of the model", fix="inline the functions first")
    return _Compiler(dict(model.opset_imports), model.ir_version or 9).program(model.graph, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRegion:
    """What lies between a site and the nearest ones above it that are seen: what it reads of them, and the steps, in order."""

    reads: tuple[str, ...]
    steps: tuple[ProgramStep, ...]


def regions_of(program: Program, seen: Collection[str]) -> dict[str, ObservedRegion]:
    """The region of each site of `seen` that a step computes; it costs as much as the regions together hold."""
    known = frozenset(seen)
    return {
        site: _region_above(step, program, known) for step in program.steps for site in step.outputs if site in known
    }


def _region_above(last: ProgramStep, program: Program, known: frozenset[str]) -> ObservedRegion:
    steps = {last.index: last}
    reads: set[str] = set()
    left = [last]
    while left:
        for name in left.pop().reads:
            above = program.steps_of.get(name)
            if name in known:
                reads.add(name)
            elif above is not None and above.index not in steps:
                steps[above.index] = above
                left.append(above)
    inside = tuple(steps[index] for index in sorted(steps))
    order = dict.fromkeys(name for step in inside for name in step.reads if name in reads)
    return ObservedRegion(reads=tuple(order), steps=inside)


def steps_fed(
    program: Program, besides: Collection[str] = (), is_data: Callable[[ProgramStep], bool] | None = None
) -> list[ProgramStep]:
    """The steps that depend on what is fed, on more than its shape; and the operators `besides`, whatever they read.

    `is_data` says what depends on the shape alone and counts all the same: positions, distances between them.
    """
    reached, shaped = set(program.inputs), set[str]()
    found: list[ProgramStep] = []
    for step in program.steps:
        reads_shape, given = step.op_type in SHAPE_READERS, [name for name in step.outputs if name]
        if not reads_shape and (step.op_type in besides or not reached.isdisjoint(step.reads)):
            reached.update(given)
            found.append(step)
        elif not shaped.isdisjoint(step.reads) or (reads_shape and not reached.isdisjoint(step.reads)):
            shaped.update(given)
            if not reads_shape and is_data is not None and is_data(step):
                reached.update(given)
                found.append(step)
    return found


def keys_of(program: Program) -> dict[ir.Node, str]:
    """The key of each node's step, in bodies too."""
    found = {step.node: step.key for step in program.steps}
    for step in program.steps:
        for body in step.bodies.values():
            found.update(keys_of(body))
    return found


class _Compiler:
    """Names sites while it goes through a graph and its bodies."""

    def __init__(self, opsets: dict[str, int], ir_version: int) -> None:
        self.opsets = opsets
        self.ir_version = ir_version
        self.sites: dict[ir.Value, str] = {}
        self.types: dict[str, ir.DataType | None] = {}
        self.taken: set[str] = set()

    def program(self, graph: ir.Graph, scope: str) -> Program:
        constants: dict[str, np.ndarray] = {}
        weights = list(graph.initializers.values())
        held = {id(value) for value in weights}
        inputs = tuple(self._name_value(value, scope) for value in graph.inputs if id(value) not in held)
        for value in weights:
            if value.const_value is not None:
                constants[self._name_value(value, scope)] = _array_of_tensor(value.const_value)
        steps: list[ProgramStep] = []
        for node in graph:
            tensor = constant_value(node.outputs[0]) if node.op_type == "Constant" and node.outputs else None
            if tensor is not None:
                constants[self._name_value(node.outputs[0], scope)] = _array_of_tensor(tensor)
            else:
                steps.append(self._compile_step(node, len(steps), scope))
        outputs = tuple(self.sites[value] for value in graph.outputs)
        last = {name: step.index for step in steps for name in step.reads}
        last.update(dict.fromkeys(outputs, len(steps)))
        return Program(
            steps=tuple(steps),
            inputs=inputs,
            outputs=outputs,
            constants=constants,
            sites=self.sites,
            last_reader=last,
            steps_of={name: step for step in steps for name in step.outputs if name},
            opsets=self.opsets,
            ir_version=self.ir_version,
            types=self.types,
        )

    def _compile_step(self, node: ir.Node, index: int, scope: str) -> ProgramStep:
        inputs = tuple("" if value is None else self.sites[value] for value in node.inputs)
        # What a body calls its own is told apart by the node around it.
        inner = scope + (node.name or (node.outputs[0].name if node.outputs else "") or str(index)) + "/"
        programs: dict[str, Program] = {}
        captured = (
            {self.sites[value]: str(value.name) for value in _values_captured(node)} if bodies_of_node(node) else {}
        )
        if node.op_type in _CONTROL and node.domain in _ONNX:
            programs = {
                name: self.program(attribute.as_graph(), inner)
                for name, attribute in node.attributes.items()
                if attribute.type == ir.AttributeType.GRAPH
            }
        outputs = tuple(self._name_value(value, scope) if value.name else "" for value in node.outputs)
        return ProgramStep(
            key=next((name for name in outputs if name), f"{inner}#{index}"),
            index=index,
            node=node,
            kind=self._kind_of_step(node),
            inputs=inputs,
            outputs=outputs,
            captured=captured,
            bodies=programs,
            inner=frozenset().union(
                *({*one.steps_of, *one.inputs, *one.constants, *one.inner} for one in programs.values())
            ),
        )

    def _kind_of_step(self, node: ir.Node) -> bytes:
        opset = self.opsets.get(node.domain, self.opsets.get("ai.onnx", 1) if node.domain in _ONNX else 1)
        proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, overload=node.overload, name=str(opset))
        for name in sorted(node.attributes):
            proto.attribute.append(ir.serde.serialize_attribute(node.attributes[name]))
        # Whether an input or output is there is part of what a session is made for.
        proto.input.extend("" if value is None else "x" for value in node.inputs)
        proto.output.extend("y" if value.name else "" for value in node.outputs)
        kind: bytes = proto.SerializeToString(deterministic=True)
        return kind

    def _name_value(self, value: ir.Value, scope: str) -> str:
        name = str(value.name)
        if name in self.taken:
            name = scope + name
        number = 2
        while name in self.taken:
            name, number = f"{scope}{value.name}#{number}", number + 1
        self.taken.add(name)
        self.sites[value] = name
        self.types[name] = value.dtype
        return name


def _values_captured(node: ir.Node) -> Iterable[ir.Value]:
    """What the bodies of `node` read from outside of it."""
    for body in bodies_of_node(node):
        yield from _free_values(body)


def _free_values(graph: ir.Graph) -> Iterator[ir.Value]:
    own = {*graph.inputs, *graph.initializers.values()}
    own.update(value for node in graph for value in node.outputs)
    for node in graph:
        yield from (value for value in node.inputs if value is not None and value not in own)
        yield from (value for value in _values_captured(node) if value not in own)
    yield from (value for value in graph.outputs if value not in own)


def _array_of_tensor(tensor: ir.TensorProtocol) -> np.ndarray:
    """The elements where they lie: in the message, or mapped from an external file. Strings are objects, as the runtime's."""
    if tensor.dtype == ir.DataType.STRING:
        held = np.asarray(tensor.numpy(), object)
        told = [one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else one for one in held.reshape(-1)]
        return np.array(told, object).reshape(held.shape)
    return np.asarray(tensor.numpy())
