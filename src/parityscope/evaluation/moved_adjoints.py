"""The derivative of a node that only moves elements: where each of its results came from is asked of the runtime itself.

The node runs on the numbers of its inputs' elements in place of the elements; what it gives says for each result which element
it is a copy of. That holds for every way to move (pads that reflect, axes as attributes), without a rule of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.operators import of_kind, operators_that_move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scipy.sparse import csr_matrix

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import Sessions

__all__ = ["MOVES", "MovedAdjoints"]

MOVES = of_kind("movement") - {"Scatter"}
_IN_ORDER = operators_that_move("in order")
_MOST = 1 << 24  # numbers that float32 holds exactly


class MovedAdjoints:
    """Adjoints of the inputs of one kind of step, of one shape.

    Raises:
        ParityError: the step cannot be run on numbers of elements, or has too many of them.
    """

    def __init__(
        self,
        step: ProgramStep,
        inputs: Sequence[np.ndarray | None],
        wanted: Sequence[int],
        program: Program,
        sessions: Sessions,
    ) -> None:
        self._names = [step.outputs.index(name) for name in step.outputs if name]
        self._shapes = {at: array.shape for at, array in enumerate(inputs) if at in wanted and array is not None}
        self._tables: dict[tuple[int, int], csr_matrix] = {}
        self._in_order = step.op_type in _IN_ORDER and list(wanted) == [0]
        if not self._in_order:
            self._find(step, inputs, wanted, program, sessions)

    def _find(
        self,
        step: ProgramStep,
        inputs: Sequence[np.ndarray | None],
        wanted: Sequence[int],
        program: Program,
        sessions: Sessions,
    ) -> None:
        from scipy.sparse import csr_matrix

        sizes = [int(np.prod(self._shapes[index])) for index in wanted]
        if sum(sizes) >= _MOST:
            raise ParityError("it has too many elements")
        starts = np.cumsum([1, *sizes])
        # Numbers with either sign: what is put in beside the elements (pads of a constant) comes out the same both times.
        given = []
        for sign in (1, -1):
            fed = list(inputs)
            for index, start, size in zip(wanted, starts, sizes, strict=False):
                fed[index] = (sign * np.arange(start, start + size, dtype=np.float32)).reshape(self._shapes[index])
            given.append(sessions.run(step, fed, program))
        for at in self._names:
            numbers, others = (np.asarray(one[at], np.float32).ravel() for one in given)
            came = np.where(numbers == -others, numbers, 0).astype(np.int64)
            for index, start, size in zip(wanted, starts, sizes, strict=False):
                places = np.flatnonzero((came >= start) & (came < start + size))
                rows = came[places] - start
                ones = np.ones(places.size, np.float32)
                self._tables[at, index] = csr_matrix((ones, (rows, places)), shape=(size, came.size))

    def run(self, seeds: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The adjoints of the wanted inputs, (dimensions, directions), from those of results, by place."""
        directions = next(iter(seeds.values())).shape[-1]
        if self._in_order:
            return {0: seeds[0].reshape(*self._shapes[0], directions)}
        found = {}
        for index, shape in self._shapes.items():
            parts = [self._tables[at, index] @ seed.reshape(-1, directions) for at, seed in seeds.items()]
            found[index] = np.sum(parts, axis=0, dtype=np.float32).reshape(*shape, directions)
        return found
