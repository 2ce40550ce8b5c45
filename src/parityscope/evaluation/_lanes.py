"""One world's way through one graph: its live values, and how a step is executed in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from parityscope.evaluation.program import Program, Step
    from parityscope.evaluation.sessions import Sessions
    from parityscope.evaluation.worlds import World

__all__ = ["Lane", "Shared"]

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(slots=True, kw_only=True, eq=False)
class Shared:
    """What the lanes of one evaluation share: sessions, what was computed in this round, and what is watched."""

    sessions: Sessions
    watch: frozenset[str] | None
    notes: list[str]
    _computed: dict[object, tuple[Any, list[Any]]] = field(default_factory=dict)
    _changed: dict[object, tuple[Any, Any]] = field(default_factory=dict)
    _drawn: dict[str, list[Any]] = field(default_factory=dict)
    _needed: dict[tuple[int, bool], frozenset[str]] = field(default_factory=dict)

    def watches(self, site: str) -> bool:
        """Whether somebody looks at `site`."""
        return self.watch is None or site in self.watch

    def run(self, step: Step, inputs: list[Any], captured: list[Any], program: Program) -> list[Any]:
        """What `step` gives on these inputs, computed once for all who ask in one round."""
        if step.op_type in _RANDOM:
            if step.key not in self._drawn:
                self._drawn[step.key] = self.sessions.run(step, inputs, program, captured)
            return self._drawn[step.key]
        key = (step.kind, *map(id, inputs), *map(id, captured))
        found = self._computed.get(key)
        if found is None:
            results = self.sessions.run(step, inputs, program, captured)
            # The inputs are kept beside the results, or another array might get the place in memory that tells them apart.
            found = self._computed[key] = ((inputs, captured), results)
        return found[1]

    def change(self, change: Callable[[np.ndarray], np.ndarray], value: Any) -> Any:
        """The changed value, computed once for all who ask in one round."""
        if not isinstance(value, np.ndarray):
            return value
        key = (id(value), change)
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = (value, change(value))
        return found[1]

    def needed(self, program: Program, *, within: bool) -> frozenset[str]:
        """The keys of the steps of `program` that have to run; in a body (`within`) for what it gives too."""
        place = (id(program), within)
        if place not in self._needed:
            self._needed[place] = _needed(program, self.watch, within=within)
        return self._needed[place]

    def forget(self) -> None:
        """Ends the round."""
        self._computed.clear()
        self._changed.clear()


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """The live values of `world` in `program`: its own, or a body of it, then inside of `outer`.

    `stored` holds what readers see, `registers` what registers hold beside that, `computed` what the step that was executed last
    gave. `steered` are the steps whose inputs are changed, `raw` the sites that registers are read of, `needed` the keys of
    the steps to execute, `changed` the sites and keys where the world changes something, `position` the index of the next step.
    `recent` steps were executed in this round; `late` values have no reader here any more, but the leader may. `types` is the
    lane of the first world, for one that follows another.
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
    recent: list[Step] = field(default_factory=list)
    late: set[str] = field(default_factory=set)
    types: Lane | None = None

    @classmethod
    def start(cls, world: World, feeds: Mapping[str, np.ndarray], shared: Shared) -> Lane:
        """A lane at the beginning of the world's program."""
        lane = cls(world=world, program=world.program, shared=shared, changed=world.changed_sites())
        lane.steered = frozenset(key for key, _ in (*world.taken, *world.registers, *world.constants))
        lane.raw = frozenset(_read_from_registers(world.program, world))
        fed = {**feeds, **world.feeds}
        lane.enter({name: _as_value(fed[name]) for name in world.program.inputs if name in fed})
        return lane

    def inside(self, body: Program, feeds: Mapping[str, Any]) -> Lane:
        """A lane at the beginning of a body."""
        lane = Lane(world=self.world, program=body, shared=self.shared, outer=self, changed=self.changed)
        lane.steered, lane.raw = self.steered, self.raw
        lane.enter(feeds)
        return lane

    def enter(self, feeds: Mapping[str, Any]) -> None:
        """Takes what is fed, and finds which steps are needed."""
        for name, value in feeds.items():
            self._store(name, value)
        within = self.outer is not None
        if self.world.given:  # what leads to a given value alone is not needed
            self.needed = _needed(self.program, self.shared.watch, within=within, given=self.world.given)
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
            return self._constant(site)
        return None if self.outer is None else self.outer.find(site)

    def opens(self, step: Step) -> bool:
        """Whether a step is control flow that has to be run from inside."""
        if not step.bodies or self.world.follows:
            return False
        watched = self.shared.watch is not None and not step.inner.isdisjoint(self.shared.watch)
        borders = any(step.key == key for key, _, _ in self.world.given_back)
        return watched or borders or not step.inner.isdisjoint(self.changed)

    def given_back(self, step: Step, body: str, inner: Lane) -> list[Any]:
        """What the body called `body` of `step` gives back, as `inner` has it."""
        found = []
        for position, name in enumerate(inner.program.outputs):
            change = self.world.given_back.get((step.key, body, position))
            value = inner.find(name)
            found.append(value if change is None else self.shared.change(change, value))
        return found

    def until(self, step: Step) -> Iterator[Step]:
        """The steps to execute next, up to the one that gives what `step` gives."""
        mine = self.program.steps_of.get(step.key)
        if mine is None or mine.index < self.position:
            return
        while self.position <= mine.index:
            yield from self._next()

    def rest(self) -> Iterator[Step]:
        """The steps that are left."""
        while self.position < len(self.program.steps):
            yield from self._next()

    def inputs_of(self, step: Step, source: Lane | None = None) -> list[Any]:
        """What a step takes: a value for each input, None where one is left out."""
        source = source or self
        return [self._taken(step, index, name, source) if name else None for index, name in enumerate(step.inputs)]

    def execute(self, step: Step, named: Mapping[str, Lane]) -> None:
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
        captured = [self._read(name, source) for name in step.captured]
        if source is not self and any(value is None for name, value in zip(step.inputs, inputs, strict=True) if name):
            self.computed = {}  # the world that is followed has no such value
            return
        self.finish(step, self.shared.run(step, inputs, captured, self.program))

    def finish(self, step: Step, results: list[Any]) -> None:
        """Stores what a step gave."""
        self.computed = {}
        for site, value in zip(step.outputs, results, strict=True):
            if site:
                self.computed[site] = value
                self._store(site, value)

    def free(self, leader: Lane, step: Step) -> None:
        """Drops what nobody reads any more, now that `step` of the leader is over."""
        last = self.program.last_reader
        for each in self.recent:
            over = (name for name in (*each.reads, *each.outputs) if name and last.get(name, -1) <= each.index)
            self.late.update(over)
        self.recent.clear()
        if self.program is leader.program:
            done = list(self.late)
        else:  # another order of steps: a value stays until the leader is done with it too
            done = [name for name in self.late if _is_over(name, leader.program, step.index)]
        for name in done:
            self.stored.pop(name, None)
            self.registers.pop(name, None)
        self.late.difference_update(done)

    def _next(self) -> Iterator[Step]:
        each = self.program.steps[self.position]
        self.position += 1
        if each.key in self.needed:
            self.recent.append(each)
            yield each

    def _store(self, site: str, value: Any) -> None:
        if site in self.raw:
            self.registers[site] = value
        if site in self.world.given:
            return  # its readers find what is given
        change = self.world.stored.get(site)
        self.stored[site] = value if change is None else self.shared.change(change, value)

    def _taken(self, step: Step, index: int, name: str, source: Lane) -> Any:
        place = (step.key, index)
        if step.key not in self.steered:
            return self._read(name, source)
        if place in self.world.constants:
            return self.world.constants[place]
        change = self.world.taken.get(place)
        if name in self.program.constants and name not in self.world.stored:
            array = self.program.constants[name]
            return array if change is None else self.shared.sessions.weights.changed(array, change)
        value = self.register(name) if place in self.world.registers else self._read(name, source)
        return value if change is None else self.shared.change(change, value)

    def _read(self, name: str, source: Lane) -> Any:
        if source is not self:
            # Weights are this world's own: what the other one did to them is part of what it introduces.
            return self._constant(name) if name in self.program.constants else self._typed(name, source.find(name))
        value = self.find(name)
        if value is None and name not in self.stored:
            raise ParityError(f"nothing is fed to {name!r}", fix="give the samples an array for every input")
        return value

    def _typed(self, name: str, value: Any) -> Any:
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

    def _constant(self, name: str) -> np.ndarray:
        """A weight as the world stores it."""
        array = self.program.constants[name]
        change = self.world.stored.get(name)
        return array if change is None else self.shared.sessions.weights.changed(array, change)


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


def _needed(
    program: Program,
    watch: frozenset[str] | None,
    *,
    within: bool,
    given: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> frozenset[str]:
    """The keys of the steps that watched sites depend on; in a body also those that what it gives depends on.

    What is `given` depends on nothing.
    """
    if watch is None:
        return frozenset(step.key for step in program.steps)
    wanted = set(watch)
    if within:
        wanted.update(program.outputs)
    found = set()
    for step in reversed(program.steps):
        if not watch.isdisjoint(step.inner) or any(name in wanted for name in step.outputs):
            found.add(step.key)
            wanted.update(name for name in step.reads if name not in given)
    return frozenset(found)


def _is_over(name: str, program: Program, index: int) -> bool:
    """Whether step `index` of `program` is behind the last use of `name`, or the program has no such value."""
    if name in program.last_reader:
        return program.last_reader[name] <= index
    made = program.steps_of.get(name)
    return made is None or made.index <= index
