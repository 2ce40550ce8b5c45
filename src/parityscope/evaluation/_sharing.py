"""What the lanes of one evaluation share: what was computed and changed in a round, and the way that they take."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.evaluation.program import RANDOM
from parityscope.evaluation.stretches import Course, alone_in, course_of, ranges_of
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.evaluation._lanes import Lane
    from parityscope.evaluation.joining import Joined
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions


@dataclass(slots=True, kw_only=True, eq=False)
class Shared:
    """What the lanes of one evaluation share: sessions, what was computed in this round, and what is watched."""

    sessions: Sessions
    watch: frozenset[str] | None
    _computed: dict[object, tuple[Any, list[Any]]] = field(default_factory=dict)
    _changed: dict[object, tuple[Any, Any]] = field(default_factory=dict)
    _drawn: dict[tuple[str, tuple[int, ...]], list[Any]] = field(default_factory=dict)
    _needed: dict[tuple[int, bool], frozenset[str]] = field(default_factory=dict)
    _courses: dict[tuple[int, tuple[str, ...]], Course] = field(default_factory=dict)

    def watches(self, site: str) -> bool:
        """Whether somebody looks at `site`."""
        return self.watch is None or site in self.watch

    def run(
        self, step: ProgramStep, inputs: list[Any], captured: list[Any], program: Program, iteration: tuple[int, ...]
    ) -> list[Any]:
        """What `step` gives on these inputs, computed once for all who ask in one round; chance falls once for all worlds."""
        if step.op_type in RANDOM:
            place = (step.key, iteration)
            if place not in self._drawn:
                self._drawn[place] = self.sessions.run(step, inputs, program, captured)
            return self._drawn[place]
        key = (step.kind, *map(id, inputs), *map(id, captured))
        found = self._computed.get(key)
        if found is None:
            results = self.sessions.run(step, inputs, program, captured)
            # The inputs are kept beside the results, or another array might get the place in memory that tells them apart.
            found = self._computed[key] = ((inputs, captured), results)
        return found[1]

    def run_joined(self, joined: Joined, values: Sequence[Any]) -> list[Any]:
        """What a stretch gives on these values, computed once for all who ask in one round."""
        key = (id(joined), *map(id, values))
        found = self._computed.get(key)
        if found is None:
            found = self._computed[key] = ((values, joined), joined.run(values))
        return found[1]

    def course(self, lanes: Sequence[Lane]) -> Course:
        """The way that lanes of one program take through it, the same at every iteration and for every sample."""
        program = lanes[0].program
        place = (id(program), tuple(lane.world.name for lane in lanes))
        if place not in self._courses:
            needed = frozenset().union(*(lane.needed for lane in lanes))
            worlds = [lane.world for lane in lanes]
            together = ranges_of(program, self.sessions.together.get(program, {}))
            alone = alone_in(program, self.watch, worlds)
            kept = self.sessions.courses.setdefault(program, {})
            key = (needed, self.watch, alone, together)
            if key not in kept:
                kept[key] = course_of(program, needed, self.watch, alone, together)
            self._courses[place] = kept[key]
        return self._courses[place]

    def change(self, change: Callable[[np.ndarray], np.ndarray], value: Any) -> Any:
        """The changed value, computed once for all who ask in one round."""
        if not isinstance(value, np.ndarray):
            return value
        key = (id(value), change)
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = (value, np.asarray(change(value)))  # arithmetic with a scalar gives no array
        return found[1]

    def needed(self, program: Program, *, within: bool) -> frozenset[str]:
        """The keys of the steps of `program` that have to run; in a body (`within`) for what it gives too."""
        place = (id(program), within)
        if place not in self._needed:
            self._needed[place] = needed_steps(program, self.watch, within=within)
        return self._needed[place]

    def begin_again(self) -> None:
        """Steps are put together differently from here on."""
        self.forget()
        self._courses.clear()

    def forget(self) -> None:
        """Ends the round."""
        self._computed.clear()
        self._changed.clear()


def needed_steps(
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
