"""If, Loop and Scan run from inside: the body as a program, once an iteration, in all worlds that look or change there.

The semantics are those of ONNX: Loop-21 (trip count, condition, carried values, scan outputs stacked along a new first axis) and
Scan-11 (axes and directions of what is scanned). Worlds whose condition or trip count differ go on alone, and it is told.

A loop in which somebody only looks, or worlds round, runs some iterations at a time as one node that gives what is looked at
as scan outputs: a call for each iteration would cost twenty times what the iteration does. All else (another computation of
a step, values given from elsewhere, sites in bodies further in, shapes that change) takes one iteration after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.evaluation.joining import RefusedError
from parityscope.evaluation.moments import Moment
from parityscope.evaluation.writing import Taken
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.evaluation._lanes import Lane
    from parityscope.evaluation._sharing import Shared
    from parityscope.evaluation.joining import Joined
    from parityscope.evaluation.program import Program, ProgramStep

    Runner = Callable[[Sequence[Lane], Shared, tuple[int, ...]], Iterator[Moment]]
    Opened = Sequence[tuple[Lane, ProgramStep]]

_ITERATIONS, _ROWS = 256, 1 << 22  # at most so many at a time, and so many bytes of what is looked at. Chosen
_ENDLESS = np.iinfo(np.int64).max


def run_control(opened: Opened, shared: Shared, iteration: tuple[int, ...], run_lanes: Runner) -> Iterator[Moment]:
    """Runs one control-flow node in several lanes, and finishes its step in each."""
    kind = opened[0][1].op_type
    if kind == "If":
        yield from _run_if(opened, shared, iteration, run_lanes)
    else:
        turns = [_Turn.of(lane, step) for lane, step in opened]
        yield from _run_loop(turns, shared, iteration, run_lanes)


def _run_if(opened: Opened, shared: Shared, iteration: tuple[int, ...], run_lanes: Runner) -> Iterator[Moment]:
    branches: dict[str, list[tuple[Lane, ProgramStep]]] = {}
    for lane, step in opened:
        chosen = bool(np.asarray(lane.inputs_of(step)[0]).reshape(-1)[0])
        branches.setdefault("then_branch" if chosen else "else_branch", []).append((lane, step))
    for branch, those in branches.items():
        inner = [lane.inside(step.bodies[branch], {}, iteration) for lane, step in those]
        yield from run_lanes(inner, shared, iteration)
        for (lane, step), body in zip(those, inner, strict=True):
            lane.finish(step, lane.given_back(step, branch, body))


@dataclass(slots=True, kw_only=True, eq=False)
class _Turn:
    """A loop in one world, between two iterations."""

    lane: Lane
    step: ProgramStep
    body: Program
    trips: int
    carried: list[Any]
    scanned: list[np.ndarray] = field(default_factory=list)
    stacked: list[list[np.ndarray]] = field(default_factory=list)  # of each scan output blocks of rows, in order
    going: bool = True

    @classmethod
    def of(cls, lane: Lane, step: ProgramStep) -> _Turn:
        """The loop before its first iteration."""
        body = step.bodies["body"]
        values = lane.inputs_of(step)
        if step.op_type == "Loop":
            trips = _ENDLESS if values[0] is None else int(np.asarray(values[0]).reshape(-1)[0])
            going = values[1] is None or bool(np.asarray(values[1]).reshape(-1)[0])
            count = len(body.outputs) - 1 - len(values[2:])
            return cls(
                lane=lane,
                step=step,
                body=body,
                trips=trips,
                carried=values[2:],
                stacked=[[] for _ in range(count)],
                going=going,
            )
        count = step.node.attributes["num_scan_inputs"].as_int()
        states = len(values) - count
        axes, directions = (_scan_attribute(step, f"scan_input_{what}", count) for what in ("axes", "directions"))
        scanned = [
            np.moveaxis(value, axis, 0)[:: -1 if backwards else 1]
            for value, axis, backwards in zip(values[states:], axes, directions, strict=True)
        ]
        return cls(
            lane=lane,
            step=step,
            body=body,
            trips=len(scanned[0]),
            carried=values[:states],
            scanned=scanned,
            stacked=[[] for _ in range(len(body.outputs) - states)],
        )

    def runs(self, number: int) -> bool:
        """Whether there is an iteration `number`."""
        return self.going and number < self.trips

    def feeds(self, number: int) -> dict[str, Any]:
        """What iteration `number` is fed."""
        if self.step.op_type == "Loop":
            values = [np.array(number, np.int64), np.array(True), *self.carried]
        else:
            values = [*self.carried, *(np.ascontiguousarray(one[number]) for one in self.scanned)]
        return dict(zip(self.body.inputs, values, strict=True))

    def take(self, inner: Lane) -> None:
        """Takes what an iteration gave."""
        given = self.lane.given_back(self.step, "body", inner)
        if self.step.op_type == "Loop":
            self.going = bool(np.asarray(given[0]).reshape(-1)[0])
            given = given[1:]
        states = len(self.carried)
        self.carried = given[:states]
        for rows, value in zip(self.stacked, given[states:], strict=True):
            rows.append(np.asarray(value)[None])

    def block(self, joined: Joined, shared: Shared, number: int, count: int) -> list[Any]:
        """What `count` iterations from `number` on give, with what is at sites of the body; nothing is taken yet."""
        if self.step.op_type == "Loop":
            values = [np.array(count), np.array(True), *self.carried, np.array(number)]
        else:
            values = [*self.carried, *(np.ascontiguousarray(one[number : number + count]) for one in self.scanned)]
        fed = joined.written.fed.values()
        taken = [values[what.index] if isinstance(what, Taken) else self.lane.fed(what) for what in fed]
        return shared.run_joined(joined, taken)

    def take_block(self, found: Sequence[Any]) -> tuple[int, list[Any]]:
        """Takes what `block` found; gives how many iterations there were, and the rows of what is looked at, as it is `given`."""
        states, scans = len(self.carried), len(self.stacked)
        self.carried = list(found[:states])
        rest = list(found[states:])
        for rows, value in zip(self.stacked, rest, strict=False):
            rows.append(value)
        rest = rest[scans:]
        if self.step.op_type == "Loop":
            conditions, rest = rest[0], rest[1:]
            self.going = bool(conditions[-1])
        return len(rest[0]), rest

    def results(self) -> list[Any]:
        """What the node gives, after the last iteration."""
        if self.step.op_type == "Loop":
            return [*self.carried, *(self._stack_iterations(rows, 0) for rows in range(len(self.stacked)))]
        count = len(self.stacked)
        axes, directions = (_scan_attribute(self.step, f"scan_output_{what}", count) for what in ("axes", "directions"))
        for rows, backwards in zip(self.stacked, directions, strict=True):
            if backwards:
                rows[:] = [block[::-1] for block in reversed(rows)]
        return [*self.carried, *(self._stack_iterations(at, axis) for at, axis in enumerate(axes))]

    def _stack_iterations(self, at: int, axis: int) -> np.ndarray:
        rows = self.stacked[at]
        if rows:
            return np.moveaxis(np.concatenate(rows), 0, axis)
        # No iteration: as long as nothing, of the type and the shape that the body declares.
        name = self.body.outputs[len(self.body.outputs) - len(self.stacked) + at]
        value = next(value for value, site in self.body.sites.items() if site == name)
        dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
        dims = [dim if isinstance(dim, int) else 0 for dim in value.shape] if value.shape is not None else []
        dims.insert(axis, 0)
        return np.zeros(dims, dtype)


def _run_loop(
    turns: Sequence[_Turn], shared: Shared, iteration: tuple[int, ...], run_lanes: Runner
) -> Iterator[Moment]:
    number = 0
    blocks = _Blocks.of(turns, shared)
    while active := [turn for turn in turns if turn.runs(number)]:
        if blocks is not None:
            found = blocks.run(active, number)
            if found is not None:
                yield from blocks.tell(active, found, iteration, number)
                number += max(count for count, _ in found)
                continue
            blocks = None
        inner = [turn.lane.inside(turn.body, turn.feeds(number), (*iteration, number)) for turn in active]
        yield from run_lanes(inner, shared, (*iteration, number))
        for turn, lane in zip(active, inner, strict=True):
            turn.take(lane)
        number += 1
    for turn in turns:
        turn.lane.finish(turn.step, turn.results())


@dataclass(slots=True, kw_only=True, eq=False)
class _Blocks:
    """Iterations that run some at a time: `sites` are looked at, by the step of the body that gives them (None: its inputs)."""

    shared: Shared
    joined: dict[int, Joined]
    sites: tuple[str, ...]
    steps: dict[ProgramStep | None, tuple[str, ...]]
    count: int = 1

    @classmethod
    def of(cls, turns: Sequence[_Turn], shared: Shared) -> _Blocks | None:
        """None where iterations have to run one after the other."""
        body, step = turns[0].body, turns[0].step
        watched = frozenset() if shared.watch is None else step.inner & shared.watch
        steps: dict[ProgramStep | None, tuple[str, ...]] = {}
        entering = tuple(site for site in body.inputs if site in watched)
        if entering:
            steps[None] = entering
        steps.update(
            (each, there) for each in body.steps if (there := tuple(site for site in each.outputs if site in watched))
        )
        sites = tuple(site for there in steps.values() for site in there)
        if not sites or len(sites) < len(watched) or step.has_random:
            return None
        joined = {}
        for turn in turns:
            lane = turn.lane
            if not lane.whole_inside(turn.step):
                return None
            found = shared.sessions.joins.rows(lane.world, lane.program, turn.step, sites)
            if found is None:
                return None
            joined[id(turn)] = found
        return cls(shared=shared, joined=joined, sites=sites, steps=steps)

    def run(self, active: Sequence[_Turn], number: int) -> list[tuple[int, list[Any]]] | None:
        """The next iterations of each turn; None where the runtime cannot run them so."""
        left = min(turn.trips for turn in active if turn.trips > number) - number
        try:
            found = [turn.block(self.joined[id(turn)], self.shared, number, min(self.count, left)) for turn in active]
        except RefusedError:
            return None
        self.shared.forget()
        taken = [turn.take_block(each) for turn, each in zip(active, found, strict=True)]
        one = sum(
            rows.nbytes // max(1, len(rows)) for _, each in taken for rows in each if isinstance(rows, np.ndarray)
        )
        self.count = max(1, min(_ITERATIONS, _ROWS // max(1, one)))
        return taken

    def tell(
        self, active: Sequence[_Turn], found: Sequence[tuple[int, list[Any]]], iteration: tuple[int, ...], number: int
    ) -> Iterator[Moment]:
        """What worlds gave at each iteration, one after the other."""
        lanes = {turn.lane.world.name: turn.lane.inside_rows(turn.body) for turn in active}
        views = [
            (lane, *_values_by_row(self.joined[id(turn)], rows))
            for turn, lane, (_, rows) in zip(active, lanes.values(), found, strict=True)
        ]
        least = min(count for count, _ in found)
        for row in range(max(count for count, _ in found)):
            there = lanes
            if row >= least:
                there = {lane.world.name: lane for lane, stored, _ in views if row < len(stored)}
            for lane, stored, computed in views:
                if row < len(stored):
                    lane.stored, lane.computed = stored[row], computed[row]
            place = (*iteration, number + row)
            for step, sites in self.steps.items():
                yield Moment(step=step, sites=sites, iteration=place, lanes=there)


def _values_by_row(joined: Joined, rows: Sequence[Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What is stored, and what was computed, by site: of each iteration."""
    given = joined.written.given
    stored = [(one.site, list(each)) for one, each in zip(given, rows, strict=True) if not one.register]
    exact = [(one.site, list(each)) for one, each in zip(given, rows, strict=True) if one.register]
    kept = _by_row(stored)
    return kept, [{**one, **other} for one, other in zip(kept, _by_row(exact), strict=True)] if exact else kept


def _by_row(columns: Sequence[tuple[str, list[Any]]]) -> list[dict[str, Any]]:
    """Columns as one dict a row; filled column by column, as a row may cost no more than a microsecond."""
    found: list[dict[str, Any]] = [{} for _ in columns[0][1]]
    for site, column in columns:
        for row, value in zip(found, column, strict=True):
            row[site] = value
    return found


def _scan_attribute(step: ProgramStep, name: str, count: int) -> list[int]:
    """A list attribute of Scan; zeros where it is left out."""
    attribute = step.node.attributes.get(name)
    return list(attribute.as_ints()) if attribute is not None else [0] * count
