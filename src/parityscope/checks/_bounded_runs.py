"""The reference with bounds taken away: what stands before the first of them is computed once a sample, the rest is one session.

A trial costs what lies behind the first bound that it takes away, and of a network whose early layers are large that is little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.bounds import feed_bounds, loosen_bounds
from parityscope.arithmetic.opsets import OLDEST, prepare_in_place
from parityscope.errors import ParityError
from parityscope.evaluation.kernels import SessionKernel
from parityscope.evaluation.machine import usable_cores
from parityscope.evaluation.program import compile_program
from parityscope.evaluation.worlds import World
from parityscope.evaluation.writing import Held, OutsideValue, write_stretch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np

    from parityscope.arithmetic.bounds import Bound
    from parityscope.case import Model
    from parityscope.evaluation.program import Program, ProgramStep

    Arrays = Mapping[str, np.ndarray]

__all__ = ["BoundedRuns"]

_PLACES = 8  # from which on the network is one session, at most; chosen: each keeps what it reads of a sample


class BoundedRuns:
    """The outputs of a model on samples of its data, without any of its `bounds` (`arithmetic.bounds`).

    Args:
        model: The model.
        inputs: Gives the inputs of a sample.

    Raises:
        ParityError: (when run) the model has no program, or the runtime refuses it.
    """

    def __init__(self, model: Model, inputs: Callable[[int], Arrays]) -> None:
        graph = model.graph()
        self.bounds: Sequence[Bound] = loosen_bounds(graph)
        self._inputs, self._outputs = inputs, [value.name for value in model.outputs]
        self._stretches: list[_Stretch] = []
        self._sample: int | None = None
        self._values: dict[str, Any] = {}
        self._graph, self._first = graph, dict[str, int]()

    def _find_stretches(self) -> list[_Stretch]:
        program = compile_program(prepare_in_place(self._graph, OLDEST))
        sources = {bound.source for bound in self.bounds}
        reading = [place for place, step in enumerate(program.steps) if sources & {*step.reads}]
        self._first = {name: place for place in reversed(reading) for name in sources & {*program.steps[place].reads}}
        apart = -(-len(reading) // _PLACES)
        return [_Stretch(program, start, self._outputs) for start in (0, *filter(None, reading[::apart]))]

    def run(self, index: int, lost: Collection[Bound]) -> dict[str, np.ndarray]:
        """The outputs on a sample of the data with these bounds lost."""
        self._stretches = self._stretches or self._find_stretches()
        if self._sample != index:
            self._sample = None
            self._values = {**self._inputs(index), **feed_bounds(self.bounds)}
            kept = {name for one in self._stretches[1:] for name in one.read} - self._values.keys()
            self._values |= self._stretches[0].run(self._values, sorted({*self._outputs, *kept}))
            self._sample = index
        first = min((self._first[bound.source] for bound in lost), default=0)
        stretch = next(one for one in reversed(self._stretches) if one.start <= first)
        outputs = {name: self._values[name] for name in self._outputs if name in self._values}
        return outputs | stretch.run({**self._values, **feed_bounds(self.bounds, lost)}, stretch.given)


class _Stretch:
    """The steps of a program from one on that lead to outputs, as sessions: one for each list of values that is wanted."""

    def __init__(self, program: Program, start: int, outputs: Sequence[str]) -> None:
        self.program, self.start = program, start
        steps: list[ProgramStep] = []
        needed = {*outputs}
        for step in reversed(program.steps[start:]):
            if needed & {*step.outputs}:
                steps.append(step)
                needed |= {*step.reads}
        self.steps = steps[::-1]
        given = {name for step in self.steps for name in step.outputs}
        self.given = [name for name in outputs if name in given]
        self.read = needed - given - program.constants.keys() - {*outputs}
        self._opened: dict[tuple[str, ...], tuple[SessionKernel, Mapping[str, str]]] = {}

    def run(self, values: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
        """What is `wanted` of what its steps give; of the rest `values` hold what they read."""
        key = tuple(wanted)
        try:
            if key not in self._opened:
                self._opened[key] = self._open(values, key)
            kernel, read = self._opened[key]
            return dict(zip(key, kernel.run({name: values[site] for name, site in read.items()}), strict=True))
        except (MemoryError, KeyboardInterrupt, ParityError):
            raise
        except Exception as error:  # the runtime's own types are children of Exception, every one
            raise ParityError(" ".join(str(error).split())) from error

    def _open(self, values: Mapping[str, Any], wanted: Sequence[str]) -> tuple[SessionKernel, Mapping[str, str]]:
        written = write_stretch(
            World(name="plain", program=self.program), self.program, self.steps, wanted, frozenset()
        )
        if written is None:
            raise NotImplementedError  # a plain world changes nothing
        held = {name: what.array for name, what in written.fed.items() if isinstance(what, Held)}
        read = {name: what.site for name, what in written.fed.items() if isinstance(what, OutsideValue)}
        known = {name: values[site] for name, site in read.items()}
        return SessionKernel(written.graph, known, held, self.program, threads=usable_cores()), read
