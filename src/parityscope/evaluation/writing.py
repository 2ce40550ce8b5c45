"""A stretch of steps as one small model, in which what a world changes is written down as nodes.

A rounding of float32 numbers to float16 or bfloat16 is a cast down and up: ONNX Runtime keeps such a pair between float32
nodes and rounds to nearest even, subnormals included (tested). For TF32 it is Veltkamp's splitting: with c = (2^13 + 1) x, c -
(c - x) is x rounded to 24 - 13 = 11 bits, to nearest even (T. J. Dekker, "A floating-point technique for extending the
available precision", Numerische Mathematik 18, 1971, section 4). It is done on k, which is x clipped to +-2^113, because c
overflows from 2^115 on; then k - x is taken off again, which is +0 inside (so that even -0 stays what it is) and exact
outside. Numbers from 2^113 on, infinities and NaN pass unrounded; below 2^-126 the 11 bits are counted from the leading one
and not on TF32's fixed grid: both are within 2^-137 of x. Everywhere else the result is `FloatRounding`'s, bit for bit.

Bodies of control flow are written too, so that a loop in which a world rounds runs as one node. What a world does to weights
is done to the arrays that are fed. Changes of any other kind cannot be written (`write_stretch` gives None): such steps run
one by
one. Nor can float8: ONNX Runtime 1.31 casts 482 to 448 and 61,649 to NaN where float8e4m3fn has NaN and float8e5m2 infinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.worlds import Then
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.worlds import Change, World

# Format -> ONNX's number of the type, and the first opset whose Cast takes it.
_CASTS = {"f16": (10, 6), "bf16": (16, 13)}
_SPLIT = {"splitter": 2.0**13 + 1.0, "minimum": -(2.0**113), "maximum": 2.0**113}
_SPLIT_OPSET = 11  # Clip with inputs


@dataclass(frozen=True, slots=True)
class OutsideValue:
    """A value from outside of a stretch: what is stored of `site`, or what a register holds of it."""

    site: str
    register: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A weight, and what is done to it before it is fed."""

    array: np.ndarray
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a single step takes as its input number `index`, as its world takes it."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenGraph:
    """A graph without declared inputs. `fed` says by name what it is given; `given` which sites its outputs are, in order."""

    graph: onnx.GraphProto
    fed: dict[str, OutsideValue | Held | Taken]
    given: tuple[OutsideValue, ...]


class _NotWrittenError(Exception):
    """A change that is no rounding, or not of float32."""


def is_written(change: Change, dtype: ir.DataType | None, opset: int) -> bool:
    """Whether a change of a value of type `dtype` can be written as nodes of `opset`; what it leaves alone can."""
    if isinstance(change, Then):
        return is_written(change.first, dtype, opset) and is_written(change.second, dtype, opset)
    if not isinstance(change, FloatRounding) or dtype is None or dtype == ir.DataType.DOUBLE:
        return False
    return _does_nothing(change, dtype) or _has_nodes(change, opset)


def write_stretch(
    world: World, program: Program, steps: Sequence[ProgramStep], given: Sequence[str], registers: frozenset[str]
) -> WrittenGraph | None:
    """The steps as `world` computes them; None where something that it changes cannot be written.

    Args:
        world: Its changes inside of `steps`.
        program: The program that the steps are of.
        steps: In order. The results of a single step with bodies are given as they are computed: storing them is the caller's.
        given: The sites that are wanted.
        registers: Of these sites what was computed is given too, behind what is stored.
    """
    alone = len(steps) == 1 and bool(steps[0].bodies)
    writer = _Writer(world=world, opset=program.opsets.get("", program.opsets.get("ai.onnx", 1)), alone=alone)
    try:
        writer.constants.append(program)
        for step in steps:
            writer.step(step)
    except _NotWrittenError:
        return None
    outputs = [OutsideValue(site) for site in given]
    outputs += [OutsideValue(site, register=True) for site in given if site in registers and site in writer.exact]
    graph = onnx.GraphProto(name="stretch", node=writer.nodes, initializer=writer.initializers.values())
    for out in outputs:
        names = writer.exact if out.register else writer.names
        graph.output.append(onnx.ValueInfoProto(name=names[out.site]))
    return WrittenGraph(graph=graph, fed=writer.fed, given=tuple(outputs))


def written_rows(world: World, program: Program, step: ProgramStep, sites: Sequence[str]) -> WrittenGraph | None:
    """A Loop or Scan of some iterations, which gives beside its own results what is at `sites` of its body, stacked.

    Its inputs are `Taken`: of a Loop the number of iterations, the condition, what is carried and the number of iterations
    before; of a Scan what is carried and what is scanned, along the first axis and forwards. Its outputs are what is carried on,
    the rows of each scan output, of a Loop the condition after each iteration, and what is `given`: for each site what is stored,
    and behind it what was computed, where that is something else.

    Returns:
        None where something cannot be written, or the rank of a site in a Scan is not known.
    """
    body, is_loop = step.bodies["body"], step.op_type == "Loop"
    carried = len(step.inputs) - (2 if is_loop else step.node.attributes["num_scan_inputs"].as_int())
    writer = _Writer(world=world, opset=program.opsets.get("", program.opsets.get("ai.onnx", 1)), alone=True)
    writer.constants.append(program)
    node = onnx.NodeProto(op_type=step.op_type)
    try:
        node.input.extend(writer.slot(index, Taken(index)) for index in range(len(step.inputs)))
        before = writer.slot("before", Taken(len(step.inputs))) if is_loop else ""
        counted = before if body.inputs and _is_read(body.inputs[0], body, sites) else ""
        message = writer.body(step, "body", body, step.node.attributes["body"].as_graph(), counted)
        given = [OutsideValue(site, register=exact) for site in sites for exact in (False, True)]
        given = [one for one in given if not one.register or one.site in writer.exact]
        rows = [(one.site, (writer.exact if one.register else writer.names)[one.site]) for one in given]
        for site, name in [*([("", message.output[0].name)] if is_loop else []), *rows]:
            _add_row(message, site, name, writer, _declared_row("", site, body, is_loop=is_loop))
    except _NotWrittenError:
        return None
    node.attribute.append(onnx.helper.make_attribute("body", message))
    if not is_loop:
        node.attribute.append(onnx.helper.make_attribute("num_scan_inputs", len(step.inputs) - carried))
    node.output.extend(writer.fresh() for _ in message.output[1 if is_loop else 0 :])
    graph = onnx.GraphProto(name="rows", node=[node], initializer=writer.initializers.values())
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
    return WrittenGraph(graph=graph, fed=writer.fed, given=tuple(given))


def _is_read(site: str, body: Program, sites: Sequence[str]) -> bool:
    """Whether somebody reads or looks at what a body is given as `site`."""
    return site in sites or site in body.outputs or any(site in (*step.reads, *step.inner) for step in body.steps)


def _add_row(message: onnx.GraphProto, site: str, name: str, writer: _Writer, declared: onnx.ValueInfoProto) -> None:
    """Makes what is called `name` one of a body's outputs: what a node of it gives as it is, all else handed on by a node."""
    made = {out for node in message.node for out in node.output}
    if not site or name not in made or name in {out.name for out in message.output}:
        message.node.append(onnx.NodeProto(op_type="Identity", input=[name], output=[writer.fresh()]))
        name = str(message.node[-1].output[0])
    declared.name = name
    message.output.append(declared)


def _declared_row(name: str, site: str, body: Program, *, is_loop: bool) -> onnx.ValueInfoProto:
    """An output of a body that gives what is at `site`; the condition, where it is "". Scan wants to know its rank."""
    dtype = body.types.get(site) if site else ir.DataType.BOOL
    value = next((value for value, known in body.sites.items() if known == site), None) if site else None
    shape = (
        None if value is None or value.shape is None else [dim if isinstance(dim, int) else None for dim in value.shape]
    )
    if dtype is None and is_loop:
        return onnx.ValueInfoProto(name=name)  # the runtime infers it
    if dtype is None or (shape is None and not is_loop):
        raise _NotWrittenError
    return onnx.helper.make_tensor_value_info(name, int(dtype), shape if site else [])


@dataclass(slots=True, kw_only=True, eq=False)
class _Writer:
    """The graph that is being written: `names` of what is stored, `exact` of what was computed, where these differ."""

    world: World
    opset: int
    alone: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    fed: dict[str, OutsideValue | Held | Taken] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    exact: dict[str, str] = field(default_factory=dict)
    constants: list[Program] = field(default_factory=list)
    rounded: dict[tuple[str, Change], str] = field(default_factory=dict)
    _slots: dict[object, str] = field(default_factory=dict)
    _count: int = 0

    def fresh(self) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"v{self._count}"

    def step(self, step: ProgramStep) -> None:
        """Writes one step."""
        node = onnx.NodeProto(op_type=step.node.op_type, domain=step.node.domain, overload=step.node.overload)
        node.input.extend(
            self._write_taken(step, index, name) if name else "" for index, name in enumerate(step.inputs)
        )
        for name, attribute in step.node.attributes.items():
            if name in step.bodies:
                body = self.body(step, name, step.bodies[name], attribute.as_graph())
                node.attribute.append(onnx.helper.make_attribute(name, body))
            else:
                node.attribute.append(ir.serde.serialize_attribute(attribute))
        own = self.alone and len(self.constants) == 1
        made = [
            (site, value, self.fresh() if site else "")
            for site, value in zip(step.outputs, step.node.outputs, strict=True)
        ]
        node.output.extend(name for _, _, name in made)
        self.nodes.append(node)
        for site, value, name in made:
            if site:
                self._write_stored(site, value, name, changed=not own)

    def _write_stored(self, site: str, value: ir.Value, name: str, *, changed: bool = True) -> None:
        """What is called `name` was computed of a site; what is stored of it is written."""
        change = self.world.stored.get(site) if changed else None
        self.names[site] = name if change is None else self._write_change(name, change, value.dtype)
        if self.names[site] != name:
            self.exact[site] = name

    def _write_taken(self, step: ProgramStep, index: int, site: str) -> str:
        place, world = (step.key, index), self.world
        if self.alone and len(self.constants) == 1:  # the caller takes them
            return self.slot(("input", index), Taken(index))
        if place in world.constants:
            return self.slot(("array", place), Held(world.constants[place]))
        change = world.taken.get(place)
        array = self._write_constant(site)
        if array is not None and (site not in world.stored or place in world.registers):
            return self.slot((site, change), Held(array, change))
        name = self._write_register(site) if place in world.registers else self._write_value(site)
        return name if change is None else self._write_change(name, change, self._dtype(step, index))

    def _write_value(self, site: str) -> str:
        if site in self.names:
            return self.names[site]
        array = self._write_constant(site)
        if array is not None:
            return self.slot((site, "stored"), Held(array, self.world.stored.get(site)))
        return self.slot(OutsideValue(site), OutsideValue(site))

    def _write_register(self, site: str) -> str:
        if site in self.exact or site in self.names:
            return self.exact.get(site, self.names.get(site, ""))
        return self.slot(OutsideValue(site, register=True), OutsideValue(site, register=True))

    def _write_constant(self, site: str) -> np.ndarray | None:
        return next((each.constants[site] for each in self.constants if site in each.constants), None)

    def slot(self, key: object, what: OutsideValue | Held | Taken) -> str:
        """The name of something that is fed."""
        if key not in self._slots:
            self._slots[key] = f"::{len(self._slots)}"
            self.fed[self._slots[key]] = what
        return self._slots[key]

    def _dtype(self, step: ProgramStep, index: int) -> ir.DataType | None:
        value = step.node.inputs[index]
        return None if value is None else value.dtype

    def body(
        self, step: ProgramStep, name: str, program: Program, graph: ir.Graph, before: str = ""
    ) -> onnx.GraphProto:
        """A body; to the number of the iteration is added what is called `before`."""
        outside, known = self.nodes, dict(self.rounded)
        self.nodes = []
        self.constants.append(program)
        message = onnx.GraphProto(name=name)
        for site, value in zip(program.inputs, _values_entering(graph), strict=True):
            entering = ir.serde.serialize_value(value)
            entering.name = self.fresh()
            message.input.append(entering)
            if before and site == program.inputs[0]:
                self.nodes.append(onnx.NodeProto(op_type="Add", input=[entering.name, before], output=[self.fresh()]))
                self._write_stored(site, value, str(self.nodes[-1].output[0]))
            else:
                self._write_stored(site, value, entering.name)
        for each in program.steps:
            self.step(each)
        for position, site in enumerate(program.outputs):
            change = self.world.given_back.get((step.key, name, position))
            value = graph.outputs[position]
            given = self._write_value(site)
            if change is not None:
                given = self._write_change(given, change, value.dtype)
            if given not in {*(out for node in self.nodes for out in node.output)} - {
                out.name for out in message.output
            }:
                # An output of a body is made inside of it, and is none of the others.
                self.nodes.append(onnx.NodeProto(op_type="Identity", input=[given], output=[self.fresh()]))
                given = str(self.nodes[-1].output[0])
            leaving = ir.serde.serialize_value(value)
            leaving.name = given
            message.output.append(leaving)
        message.node.extend(self.nodes)
        self.constants.pop()
        self.nodes, self.rounded = outside, known
        return message

    def _write_change(self, name: str, change: Change, dtype: ir.DataType | None) -> str:
        """The name of what `change` makes of the value called `name`."""
        if not is_written(change, dtype, self.opset):
            raise _NotWrittenError
        if isinstance(change, Then):
            return self._write_change(self._write_change(name, change.first, dtype), change.second, dtype)
        if not isinstance(change, FloatRounding) or _does_nothing(change, dtype):
            return name
        if (name, change) not in self.rounded:
            self.rounded[name, change] = (
                self._write_split(name) if change.format == "tf32" else self._write_cast(name, change)
            )
        return self.rounded[name, change]

    def _write_cast(self, name: str, change: FloatRounding) -> str:
        down, up = (onnx.NodeProto(op_type="Cast", input=[each], output=[self.fresh()]) for each in (name, ""))
        down.attribute.append(onnx.helper.make_attribute("to", _CASTS[change.format][0]))
        up.input[0] = down.output[0]
        up.attribute.append(onnx.helper.make_attribute("to", 1))
        self.nodes += [down, up]
        return str(up.output[0])

    def _write_split(self, name: str) -> str:
        for title, number in _SPLIT.items():
            if title not in self.initializers:
                self.initializers[title] = numpy_helper.from_array(np.array(number, np.float32), title)

        def add(op_type: str, *inputs: str) -> str:
            self.nodes.append(onnx.NodeProto(op_type=op_type, input=inputs, output=[self.fresh()]))
            return str(self.nodes[-1].output[0])

        clipped = add("Clip", name, "minimum", "maximum")
        scaled = add("Mul", clipped, "splitter")
        head = add("Sub", scaled, add("Sub", scaled, clipped))
        return add("Sub", head, add("Sub", clipped, name))


def _values_entering(graph: ir.Graph) -> Iterator[ir.Value]:
    held = {id(value) for value in graph.initializers.values()}
    return (value for value in graph.inputs if id(value) not in held)


def _does_nothing(change: FloatRounding, dtype: ir.DataType | None) -> bool:
    return dtype != ir.DataType.FLOAT or change.format == "f32"


def _has_nodes(change: FloatRounding, opset: int) -> bool:
    least = _SPLIT_OPSET if change.format == "tf32" else _CASTS.get(change.format, (0, 0))[1]
    return 0 < least <= opset and change.overflow == "infinity"
