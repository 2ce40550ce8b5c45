"""Stretches that became sessions: which are open, for which world, and when one is worth opening.

A stretch runs step by step the first two times in a world, and as a session from then on: opening it costs about what that
cost (1.9 s against 1.1 s a pass on 20,000 small nodes, 6 s against 2.5 s with roundings written into it; then 0.2 s and 0.3 s
a pass), so that whatever comes, at most about twice of what would have been best is spent. At most `LIMIT` are open; those of
worlds that nobody holds any more close by themselves, and what finds no place runs step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from parityscope.evaluation.kernels import PACKED, SessionKernel, is_vector
from parityscope.evaluation.writing import Held, write_stretch, written_rows
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx

    from parityscope.evaluation.machine import Threads
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.stretches import StepStretch
    from parityscope.evaluation.worlds import World
    from parityscope.evaluation.writing import WrittenGraph

LIMIT = 1000  # chosen: 32,000 nodes, in sessions of about 150 kB
_LARGE = 1 << 14  # elements a step, chosen: more are rounded sooner by the compiled loop than by casts in a session
_MOST = 128  # nodes with those of roundings: what more of them cost to open (`stretches`) is not earned back
_STEERS = 64  # elements: integer constants up to this size are part of the session
# Nodes with those in bodies, chosen: the runtime takes 14 processor seconds to open 3,149 of them (an LSTM taken apart).
_MOST_WITHIN = 800
_HELD_ALL = 1 << 12  # elements, chosen: constants up to this size are, where the stretch is refused otherwise
_EARNED = 2  # runs step by step
_NEVER = -1


class RefusedError(Exception):
    """The runtime does not open a stretch."""


@dataclass(slots=True, kw_only=True, eq=False)
class Joined:
    """A stretch as one world computes it; opened at its first run, again where ranks or types are others, or what it holds."""

    written: WrittenGraph
    program: Program
    threads: Threads
    _kernel: SessionKernel | None = field(default=None)
    _names: tuple[str, ...] = field(default=())
    _kinds: tuple[object, ...] = field(default=())
    _held: dict[str, np.ndarray] = field(default_factory=dict)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """What the stretch gives at `written.given`; values are those of `written.fed`, in order.

        Raises:
            RefusedError: the runtime does not open it, or fails at it.
        """
        kinds = tuple(_kind_of_value(value) for value in values)
        fed = dict(zip(self.written.fed, values, strict=True))
        # A weight that a world changes may be another one in each of its draws.
        same = all(fed[name] is one or np.array_equal(fed[name], one) for name, one in self._held.items())
        try:
            if self._kernel is None or kinds != self._kinds or not same:
                self._kernel, self._held = self._open_session(fed)
                self._names = tuple(name for name in fed if name not in self._held)
                self._kinds = kinds
            return self._kernel.run({name: fed[name] for name in self._names})
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # the runtime's own types are children of Exception, every one
            raise RefusedError(" ".join(str(error).split())[:400]) from error

    def _open_session(self, fed: Mapping[str, Any]) -> tuple[SessionKernel, dict[str, np.ndarray]]:
        """The session, and the weights that are part of it."""
        weights = {name: fed[name] for name, what in self.written.fed.items() if isinstance(what, Held)}
        elements = sum(value.size for value in fed.values() if isinstance(value, np.ndarray))
        threads = self.threads.take(elements, heavy=True)
        steering = {name: one for name, one in weights.items() if _steers_computation(one)}
        small = {name: one for name, one in weights.items() if one.size <= _HELD_ALL or name in steering}
        for held in (steering, small):
            given = {name: value for name, value in fed.items() if name not in held}
            try:
                kernel = SessionKernel(self.written.graph, given, held, self.program, threads)
            except Exception:
                if held is small or len(small) == len(steering):
                    raise
            else:
                return kernel, held
        raise RefusedError


class Joins:
    """The stretches of every world, opened or counted."""

    def __init__(self, threads: Threads, limit: int = LIMIT) -> None:
        self._threads = threads
        self._limit = limit
        self._known: WeakKeyDictionary[World, dict[object, Joined | int]] = WeakKeyDictionary()

    def __len__(self) -> int:
        """How many are open."""
        every = (one for known in self._known.values() for one in known.values())
        return sum(isinstance(one, Joined) for one in every)

    def clear(self) -> None:
        """Closes all."""
        self._known.clear()

    def find(self, world: World, program: Program, stretch: StepStretch, registers: frozenset[str]) -> Joined | None:
        """The stretch to be run as one; None where it is not worth it yet, or cannot be."""
        known = self._known.get(world)
        if known is None:
            known = self._known[world] = {}
        found = known.get(stretch, 0)
        if isinstance(found, Joined):
            return found
        at_once = stretch.fixed or len(stretch.parts) == 1
        if found == _NEVER or (found < _EARNED and not at_once):
            return None
        made = None
        if at_once or len(self) < self._limit:
            graph = write_stretch(world, program, stretch.parts, stretch.outputs, registers)
            dear = graph is not None and (
                _count_nodes(graph.graph) > _MOST_WITHIN if at_once else len(graph.graph.node) > _MOST
            )
            made = None if graph is None or dear else Joined(written=graph, program=program, threads=self._threads)
        known[stretch] = _NEVER if made is None else made
        return made

    def rows(self, world: World, program: Program, step: ProgramStep, sites: tuple[str, ...]) -> Joined | None:
        """Some iterations of a loop with what is at sites of its body (`written_rows`); None where it cannot be had."""
        known = self._known.setdefault(world, {})
        found = known.get((step, sites))
        if found is None:
            graph = written_rows(world, program, step, sites)
            made = None if graph is None else Joined(written=graph, program=program, threads=self._threads)
            found = known[step, sites] = _NEVER if made is None else made
        return found if isinstance(found, Joined) else None

    def passed(self, world: World, stretch: StepStretch, elements: int) -> None:
        """A stretch was run step by step, and its steps gave so many elements."""
        known = self._known[world]
        count = known.get(stretch, 0)
        if isinstance(count, int) and count != _NEVER:
            known[stretch] = count + 1 if elements <= _LARGE * len(stretch.parts) else _NEVER

    def refused(self, world: World, stretch: object) -> None:
        """It is not tried again."""
        self._known[world][stretch] = _NEVER

    def forget(self, worlds: Iterable[World]) -> None:
        """Closes what is open of these worlds."""
        for world in worlds:
            self._known.pop(world, None)


def _count_nodes(graph: onnx.GraphProto) -> int:
    """The nodes of a graph and of the bodies in it."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(_count_nodes, inner))


def _steers_computation(array: np.ndarray) -> bool:
    return (array.size <= _STEERS and array.dtype.kind in "iub") or array.dtype.name in PACKED


def _kind_of_value(value: Any) -> object:
    """What a session depends on of a value."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape if is_vector(value) else value.ndim
    if isinstance(value, list):
        return "list", _kind_of_value(value[0]) if value else None
    return type(value)
