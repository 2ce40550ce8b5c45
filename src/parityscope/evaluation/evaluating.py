"""All worlds advance together, step by step, and whoever asks sees what each of them computed while it is in the cache.

    for moment in evaluate(worlds, feeds, watch):
        moment.stored("f16", site), moment.computed("f16", site)

* A step that gets the very same arrays in two worlds is computed once; so is a rounding of the same array.
* A value is freed behind its last reader, so that the memory needed is that of the live tensors of each world.
* Programs may differ (another opset, a recurrent layer taken apart): what counts is the order of the first world's steps; the
  others go on until they gave the same sites.
* Control flow runs whole, unless a world changes, or somebody watches, something inside it. Then its body is run as a program,
  once an iteration, in all worlds together (`control_flow`). Random operators are drawn once, for all worlds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.evaluation._lanes import Lane
from parityscope.evaluation._sharing import Shared
from parityscope.evaluation.control_flow import run_control
from parityscope.evaluation.moments import Moment
from parityscope.evaluation.sessions import NotAloneError, Sessions
from parityscope.evaluation.stretches import widen_stretch
from parityscope.memory import relieve_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.evaluation.program import ProgramStep
    from parityscope.evaluation.worlds import World

__all__ = ["Moment", "evaluate_worlds", "run_world", "run_worlds"]


def evaluate_worlds(
    worlds: Sequence[World],
    feeds: Mapping[str, np.ndarray],
    watch: Collection[str] | None = None,
    sessions: Sessions | None = None,
) -> Iterator[Moment]:
    """Runs `worlds` on one sample.

    Args:
        worlds: The first one's order of steps is everybody's; one that follows another stands behind it.
        feeds: Arrays by input.
        watch: Sites to stop at, in bodies too; None for every value of the main graph. What none of them depends on is not run.
        sessions: Given, what was opened for one sample serves the next.

    Raises:
        ParityError: a node cannot be run alone, or a site is not one of the first world's.
    """
    shared = Shared(
        sessions=Sessions() if sessions is None else sessions,
        watch=None if watch is None else frozenset(watch),
    )
    first = worlds[0].program
    known = first.steps_of.keys() | first.constants.keys() | set(first.inputs)
    lost = sorted(shared.watch - known - first.inner) if shared.watch is not None else []
    if lost:
        raise ParityError(
            f"the graph has no value {lost[0]!r}", fix="ask for the names that parityscope localize prints"
        )
    told = 0  # sites; they come in the same order when steps are put together differently
    while True:
        lanes = [Lane.start(world, feeds, shared) for world in worlds]
        seen = 0
        try:
            for moment in run_lanes(lanes, shared, ()):
                seen += len(moment.sites)
                if seen > told:
                    told = seen
                    yield moment
        except NotAloneError as refused:
            widen_stretch(shared.sessions.together.setdefault(refused.program, {}), refused)
            shared.begin_again()
        else:
            lanes.clear()
            relieve_memory()
            return


def run_worlds(
    worlds: Sequence[World], feeds: Mapping[str, np.ndarray], wanted: Sequence[str], sessions: Sessions | None = None
) -> list[dict[str, np.ndarray]]:
    """What each world stores at the sites `wanted`, in this order."""
    found: list[dict[str, np.ndarray]] = [{} for _ in worlds]
    for moment in evaluate_worlds(worlds, feeds, wanted, sessions):
        for world, values in zip(worlds, found, strict=True):
            values.update((site, moment.stored(world.name, site)) for site in moment.sites)
    return [{site: values[site] for site in wanted} for values in found]


def run_world(
    world: World, feeds: Mapping[str, np.ndarray], wanted: Sequence[str], sessions: Sessions | None = None
) -> dict[str, np.ndarray]:
    """What one world stores at the sites `wanted`, in this order."""
    return run_worlds([world], feeds, wanted, sessions)[0]


def run_lanes(lanes: Sequence[Lane], shared: Shared, iteration: tuple[int, ...]) -> Iterator[Moment]:
    """Takes lanes of one graph, the main one or a body, through all of their steps."""
    leader = lanes[0]
    named = {lane.world.name: lane for lane in lanes}
    before = tuple(site for site in (*leader.program.inputs, *leader.program.constants) if shared.watches(site))
    if before and shared.watch is not None:
        yield Moment(step=None, sites=before, iteration=iteration, lanes=named)
    _take_courses(lanes, shared)
    for stretch in () if leader.course is None else leader.course.stretches:
        several = len(stretch.parts) > 1
        behind = [lane for lane in lanes if lane.course is leader.course and lane.jump(stretch)] if several else []
        whole = len(behind) == len(lanes) and not stretch.fixed
        for step in stretch.parts[-1:] if whole else stretch.parts:
            opened: list[tuple[Lane, ProgramStep]] = []
            for group in _side_by_side([lane for lane in lanes if lane not in behind], leader):
                ways = [(lane, lane.until(step, leader)) for lane in group]
                yield from _advance_lanes(ways, step, leader, named, iteration, opened)
            if opened:
                yield from run_control(opened, shared, iteration, run_lanes)
            sites = tuple(site for site in step.outputs if site and shared.watches(site))
            if sites and (shared.watch is not None or leader.outer is None):
                yield Moment(step=step, sites=sites, iteration=iteration, lanes=named)
            shared.forget()
            for lane in lanes:
                lane.free(leader, step)
    for group in _side_by_side(lanes, leader):
        yield from _advance_lanes([(lane, lane.rest()) for lane in group], None, leader, named, iteration, [])
        shared.forget()


def _side_by_side(lanes: Sequence[Lane], leader: Lane) -> list[list[Lane]]:
    """Lanes in their order, those of one course that is not the leader's together: they may have several steps to go."""
    groups: dict[object, list[Lane]] = {}
    for place, lane in enumerate(lanes):
        alone = lane.course is leader.course or lane.world.follows
        groups.setdefault(place if alone else id(lane.course), []).append(lane)
    return list(groups.values())


def _advance_lanes(
    ways: Sequence[tuple[Lane, Iterator[ProgramStep]]],
    step: ProgramStep | None,
    leader: Lane,
    named: Mapping[str, Lane],
    iteration: tuple[int, ...],
    opened: list[tuple[Lane, ProgramStep]],
) -> Iterator[Moment]:
    """Takes lanes along their ways, in turns, each value freed behind its last reader.

    Control flow that gives what `step` of the leader gives is `opened` instead: all worlds go through it together.
    """
    shared, first = leader.shared, True
    while ways:
        going = [(lane, way, next(way, None)) for lane, way in ways]
        ways = [(lane, way) for lane, way, each in going if each is not None]
        if ways and not first:
            shared.forget()
            for lane, _ in ways:
                lane.free_behind(leader, step)
        first = False
        for lane, _, each in going:
            if each is None:
                continue
            if not lane.opens(each):
                lane.execute(each, named)
            elif step is not None and each.key == step.key:
                opened.append((lane, each))
            else:
                yield from run_control([(lane, each)], shared, iteration, run_lanes)


def _take_courses(lanes: Sequence[Lane], shared: Shared) -> None:
    """Gives each lane the course that it and all others of its program take."""
    programs = {id(lane.program): lane.program for lane in lanes}
    for program in programs.values():
        those = [lane for lane in lanes if lane.program is program]
        course = shared.course(those)
        for lane in those:
            lane.course = course
