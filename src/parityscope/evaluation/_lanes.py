"""One world's way through one graph: its live values, and how a step is executed in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.evaluation._sharing import Shared, needed_steps
from parityscope.evaluation.joining import RefusedError
from parityscope.evaluation.sessions import NotAloneError
from parityscope.evaluation.writing import Held, Taken
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.stretches import Course, StepStretch
    from parityscope.evaluation.worlds import World


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """The live values of `world` in `program`: its own, or a body of it, then inside of `outer`.

    `stored` holds what readers see, `registers` what registers hold beside that, `computed` what the step that was executed last
    gave. `steered` are the steps whose inputs are changed, `raw` the sites that registers are read of, `needed` the keys of
    the steps to execute, `changed` the sites and keys where the world changes something, `position` the index of the next step.
    `recent` steps were executed in this round; `late` values have no reader here any more, but the leader may. `types` is the
    lane of the first world, for one that follows another; `course` the stretches it goes by, `passing` the one that it
    runs step by step, and `elements` what it gave of that.
    """

    world: World
    program: Program
    shared: Shared
    outer: Lane | None = None
    stored: dict[str, Any] = field(default_factory=dict)
    registers: dict[str, Any] = field(default_factory=dict)
    computed: dict[str, Any] = field(default_factory=dict)
    steered: frozenset[str] = frozenset()
    raw: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    position: int = 0
    recent: list[ProgramStep | StepStretch] = field(default_factory=list)
    late: set[str] = field(default_factory=set)
    types: Lane | None = None
    iteration: tuple[int, ...] = ()
    course: Course | None = None
    passing: StepStretch | None = None
    elements: int = 0

    @classmethod
    def start(cls, world: World, feeds: Mapping[str, np.ndarray], shared: Shared) -> Lane:
        """A lane at the beginning of the world's program."""
        lane = cls(world=world, program=world.program, shared=shared, changed=world.changed_sites())
        lane.steered = frozenset(key for key, _ in (*world.taken, *world.registers, *world.constants))
        lane.raw = frozenset(_read_from_registers(world.program, world))
        fed = {**feeds, **world.feeds}
        lane.enter({name: _as_value(fed[name]) for name in world.program.inputs if name in fed})
        return lane

    def inside(self, body: Program, feeds: Mapping[str, Any], iteration: tuple[int, ...]) -> Lane:
        """A lane at the beginning of a body."""
        lane = Lane(world=self.world, program=body, shared=self.shared, outer=self, changed=self.changed)
        lane.iteration = iteration
        lane.steered, lane.raw = self.steered, self.raw
        lane.enter(feeds)
        return lane

    def inside_rows(self, body: Program) -> Lane:
        """A lane in a body of which somebody else computes the values."""
        return Lane(world=self.world, program=body, shared=self.shared, outer=self, changed=self.changed)

    def enter(self, feeds: Mapping[str, Any]) -> None:
        """Takes what is fed, and finds which steps are needed."""
        for name, value in feeds.items():
            self._store_value(name, value)
        within = self.outer is not None
        if self.world.given:  # what leads to a given value alone is not needed
            self.needed = needed_steps(self.program, self.shared.watch, within=within, given=self.world.given)
        else:
            self.needed = self.shared.needed(self.program, within=within)

    def find(self, site: str) -> Any:
        """What readers see of a site, a constant or a value from outside; None where there is none."""
        if site in self.stored:
            return self.stored[site]
        if site in self.world.given:
            self.stored[site] = self.world.given[site]
            return self.stored[site]
        if site in self.program.constants:
            return self._constant_of_world(site)
        return None if self.outer is None else self.outer.find(site)

    def opens(self, step: ProgramStep) -> bool:
        """Whether a step is control flow that has to be run from inside."""
        if not step.bodies or self.world.follows:
            return False
        watched = self.shared.watch is not None and not step.inner.isdisjoint(self.shared.watch)
        if watched or step.has_random or not self._changes_inside(step):
            return watched or step.has_random
        return self.shared.sessions.joins.find(self.world, self.program, self._runs_alone(step), self.raw) is None

    def whole_inside(self, step: ProgramStep) -> bool:
        """Whether nothing is given from elsewhere, or computed in another way, inside a step's bodies."""
        return step.inner.isdisjoint(self.world.given) and step.inner.isdisjoint(self.world.instead)

    def _runs_alone(self, step: ProgramStep) -> StepStretch:
        if self.course is None:
            raise ValueError("a lane takes its course before it runs")
        return self.course.alone[step.key]

    def _changes_inside(self, step: ProgramStep) -> bool:
        borders = any(step.key == key for key, _, _ in self.world.given_back)
        return borders or not step.inner.isdisjoint(self.changed)

    def given_back(self, step: ProgramStep, body: str, inner: Lane) -> list[Any]:
        """What the body called `body` of `step` gives back, as `inner` has it."""
        found = []
        for position, name in enumerate(inner.program.outputs):
            change = self.world.given_back.get((step.key, body, position))
            value = inner.find(name)
            found.append(value if change is None else self.shared.change(change, value))
        return found

    def until(self, step: ProgramStep, leader: Lane) -> Iterator[ProgramStep]:
        """The steps to execute next, up to the one that gives what `step` of the leader gives.

        Stretches that run as one are behind it. A lane of another course than the leader's stops before a stretch that it would
        have to leave in the middle: nobody looks at anything in there.
        """
        mine = self.program.steps_of.get(step.key)
        if mine is not None:
            yield from self._up_to(mine.index, stops=self.course is not leader.course)

    def rest(self) -> Iterator[ProgramStep]:
        """The steps that are left."""
        yield from self._up_to(len(self.program.steps) - 1)

    def _up_to(self, index: int, *, stops: bool = False) -> Iterator[ProgramStep]:
        while self.position <= index:
            stretch = None if self.course is None else self.course.starting.get(self.position)
            if stretch is not None:
                if stops and stretch.index > index:
                    return
                if stretch.index <= index and self.jump(stretch):
                    continue
                self.passing, self.elements = stretch, 0
            yield from self._next_step()
            if self.passing is not None and self.position > self.passing.index:
                self.shared.sessions.joins.passed(self.world, self.passing, self.elements)
                self.passing = None

    def inputs_of(self, step: ProgramStep, source: Lane | None = None) -> list[Any]:
        """What a step takes: a value for each input, None where one is left out."""
        source = source or self
        return [self._take_input(step, index, name, source) if name else None for index, name in enumerate(step.inputs)]

    def execute(self, step: ProgramStep, named: Mapping[str, Lane]) -> None:
        """Computes a step and stores what it gives."""
        source = self
        if self.world.follows:
            self.stored.clear()  # nobody reads what it stores; it is there to be looked at until the next step
            source, self.types = named[self.world.follows], next(iter(named.values()))
        inputs = self.inputs_of(step, source)
        instead = self.world.instead.get(step.key)
        if instead is not None:
            self.finish(step, list(instead(inputs)))
            return
        if step.bodies and source is self and self._changes_inside(step):
            self._run_written(step, inputs)
            return
        captured = [self._read_source(name, source) for name in step.captured]
        if source is not self and any(value is None for name, value in zip(step.inputs, inputs, strict=True) if name):
            self.computed = {}  # the world that is followed has no such value
            return
        try:
            results = self.shared.run(step, inputs, captured, self.program, self.iteration)
        except NotAloneError:
            raise
        except ParityError as refusal:
            raise self._naming_changes(step, refusal) from refusal
        self.finish(step, results)

    def _naming_changes(self, step: ProgramStep, refusal: ParityError) -> ParityError:
        """The refusal of a step, with the sites that it takes as this world changes them: a change may give another shape."""
        changed = [
            repr(site)
            for index, site in enumerate(step.inputs)
            if site in self.world.stored or (step.key, index) in self.world.taken
        ]
        if not changed:
            return refusal
        problem = f"{refusal.problem}; it takes what the world {self.world.name!r} changes: {', '.join(changed)}"
        return ParityError(problem, where=refusal.where, fix="a change must keep shape and type")

    def _run_written(self, step: ProgramStep, inputs: Sequence[Any]) -> None:
        """Control flow in which the world changes something, as one node with the changes written into its bodies."""
        joined = self.shared.sessions.joins.find(self.world, self.program, self._runs_alone(step), self.raw)
        if joined is None:
            raise ValueError(f"{step.key} was to be opened")
        values = [
            inputs[what.index] if isinstance(what, Taken) else self.fed(what) for what in joined.written.fed.values()
        ]
        try:
            results = iter(self.shared.run_joined(joined, values))
        except RefusedError as error:
            raise _refused_together(self.program, (step,), error) from error
        self.finish(step, [next(results) if name else None for name in step.outputs])

    def jump(self, stretch: StepStretch) -> bool:
        """Runs a stretch as one, if it is worth it: then it is behind this lane."""
        partly = any(step.key not in self.needed for step in stretch.parts)
        if self.position > stretch.parts[0].index or (partly and not stretch.fixed):
            return False
        joined = self.shared.sessions.joins.find(self.world, self.program, stretch, self.raw)
        if joined is None:
            if stretch.fixed:
                raise _refused_together(
                    self.program, stretch.parts, "a value in it is changed in a way that takes it apart"
                )
            return False
        try:
            found = self.shared.run_joined(joined, [self.fed(what) for what in joined.written.fed.values()])
        except RefusedError as error:
            if stretch.fixed:
                raise _refused_together(self.program, stretch.parts, error) from error
            self.shared.sessions.joins.refused(self.world, stretch)
            return False
        self.computed = {}
        for what, value in zip(joined.written.given, found, strict=True):
            if what.register or what.site in self.raw:
                self.registers[what.site] = value
            if not what.register and what.site not in self.world.given:
                self.stored[what.site] = value
        self.position = stretch.index + 1
        self.recent.append(stretch)
        return True

    def fed(self, what: Any) -> Any:
        """What a stretch is fed."""
        if isinstance(what, Held):
            return what.array if what.change is None else self.shared.sessions.weights.changed(what.array, what.change)
        return self.register(what.site) if what.register else self._read_source(what.site, self)

    def finish(self, step: ProgramStep, results: list[Any]) -> None:
        """Stores what a step gave."""
        self.computed = {}
        for site, value in zip(step.outputs, results, strict=True):
            if site:
                self.computed[site] = value
                self._store_value(site, value)
                self.elements += value.size if isinstance(value, np.ndarray) else 0

    def free(self, leader: Lane, step: ProgramStep) -> None:
        """Drops what nobody reads any more, now that `step` of the leader is over."""
        executed, self.recent = self.recent, []
        self._free(executed, leader, step.index)

    def free_behind(self, leader: Lane, step: ProgramStep | None) -> None:
        """Drops what nobody reads any more before the step that comes next here, on the way to `step` of the leader."""
        executed, self.recent = self.recent[:-1], self.recent[-1:]
        self._free(executed, leader, len(leader.program.steps) if step is None else step.index - 1)

    def _free(self, executed: Sequence[ProgramStep | StepStretch], leader: Lane, index: int) -> None:
        """Drops what those steps read last, unless the leader reads it behind its step `index`."""
        last = self.program.last_reader
        for each in executed:
            over = (name for name in (*each.reads, *each.outputs) if name and last.get(name, -1) <= each.index)
            self.late.update(over)
        if self.program is leader.program:
            done = list(self.late)
        else:  # another order of steps: a value stays until the leader is done with it too
            done = [name for name in self.late if _is_over(name, leader.program, index)]
        for name in done:
            self.stored.pop(name, None)
            self.registers.pop(name, None)
        self.late.difference_update(done)

    def _next_step(self) -> Iterator[ProgramStep]:
        each = self.program.steps[self.position]
        self.position += 1
        if each.key in self.needed:
            self.recent.append(each)
            yield each

    def _store_value(self, site: str, value: Any) -> None:
        if site in self.raw:
            self.registers[site] = value
        if site in self.world.given:
            return  # its readers find what is given
        change = self.world.stored.get(site)
        self.stored[site] = value if change is None else self.shared.change(change, value)

    def _take_input(self, step: ProgramStep, index: int, name: str, source: Lane) -> Any:
        place = (step.key, index)
        if step.key not in self.steered:
            return self._read_source(name, source)
        if place in self.world.constants:
            return self.world.constants[place]
        change = self.world.taken.get(place)
        if name in self.program.constants and name not in self.world.stored:
            array = self.program.constants[name]
            return array if change is None else self.shared.sessions.weights.changed(array, change)
        value = self.register(name) if place in self.world.registers else self._read_source(name, source)
        return value if change is None else self.shared.change(change, value)

    def _read_source(self, name: str, source: Lane) -> Any:
        if source is not self:
            # Weights are this world's own: what the other one did to them is part of what it introduces.
            return (
                self._constant_of_world(name)
                if name in self.program.constants
                else self._typed_as_first(name, source.find(name))
            )
        value = self.find(name)
        if value is None and name not in self.stored:
            raise ParityError(f"nothing is fed to {name!r}", fix="give the samples an array for every input")
        return value

    def _typed_as_first(self, name: str, value: Any) -> Any:
        """What another world stores, in the type that the first world has it in (a simulation holds float16 as float32)."""
        own = None if self.types is None else self.types.find(name)
        if isinstance(value, np.ndarray) and isinstance(own, np.ndarray) and own.dtype != value.dtype:
            return value.astype(own.dtype)
        return value

    def register(self, name: str) -> Any:
        """What a register holds of a site, before it is stored."""
        if name in self.registers:
            return self.registers[name]
        if name in self.program.constants:
            return self.program.constants[name]
        return None if self.outer is None else self.outer.register(name)

    def _constant_of_world(self, name: str) -> np.ndarray:
        """A weight as the world stores it."""
        array = self.program.constants[name]
        change = self.world.stored.get(name)
        return array if change is None else self.shared.sessions.weights.changed(array, change)


def _refused_together(program: Program, parts: Sequence[ProgramStep], error: object) -> NotAloneError:
    names = f"{parts[0].op_type} {parts[0].node.name or parts[0].key!r}"
    if len(parts) > 1:
        names = f"{len(parts)} nodes from {names} to {parts[-1].node.name or parts[-1].key!r}"
    problem = f"ONNX Runtime cannot run {names}: {error}"
    return NotAloneError(problem, program, parts[0].index, parts[-1].index, parts[0].key)


def _as_value(fed: Any) -> Any:
    """What is fed, as the runtime takes it: an array, or a sequence or map as it is."""
    if isinstance(fed, list | dict):
        return fed
    array = np.asarray(fed)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _read_from_registers(program: Program, world: World) -> Iterator[str]:
    for step in program.steps:
        yield from (name for index, name in enumerate(step.inputs) if (step.key, index) in world.registers)
        for body in step.bodies.values():
            yield from _read_from_registers(body, world)


def _is_over(name: str, program: Program, index: int) -> bool:
    """Whether step `index` of `program` is behind the last use of `name`, or the program has no such value."""
    if name in program.last_reader:
        return program.last_reader[name] <= index
    made = program.steps_of.get(name)
    return made is None or made.index <= index
