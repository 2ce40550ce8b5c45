"""Methods of search on the same faithful simulation: any assignment is one run of the switchable graph per sample.

A method is a function of a `Replay` that gives the assignment it settles on (bool, (nodes,), true: low), or None where it
found none. An evaluation is one assignment that was run, on as many search samples as it took to see one miss the budget;
`runs` are those on one sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from _rivals.timing import cpu_seconds
from parityscope.arithmetic.typed import typed_model
from parityscope.repairs.search.judging import squared_error, worst_excess
from parityscope.repairs.search.staging import save_model
from parityscope.repairs.search.writing import typed_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Model, Sample
    from parityscope.evaluation.switching import Switchboard
    from parityscope.repairs.search.judging import Yardstick


class OutOfTime(Exception):  # noqa: N818 - it reads as a state: `except OutOfTime`
    """The method has used up its time."""


@dataclass(kw_only=True, eq=False)
class Replay:
    """What a method may ask, counted. `references` are the model's own outputs on `samples`; `best` the one with most nodes low
    that passed; `deadline` is in seconds of CPU."""

    board: Switchboard
    samples: Sequence[Sample]
    references: Sequence[Mapping[str, np.ndarray]]
    held: Yardstick
    deadline: float
    evaluations: int = 0
    runs: int = 0
    best: np.ndarray | None = None
    _known: dict[bytes, bool] = field(default_factory=dict)
    _plain: Mapping[str, np.ndarray] | None = None

    @property
    def count(self) -> int:
        """The number of nodes that can be low."""
        return len(self.board.graph.nodes)

    def passes(self, low: np.ndarray) -> bool:
        """Whether every search sample meets the budget. The same assignment is not run twice.

        Raises:
            OutOfTime: the time is used up.
        """
        key = low.tobytes()
        if key not in self._known:
            self._spend()
            pairs = zip(self.samples, self.references, strict=True)
            self._known[key] = all(worst_excess(self.held, one, self._run(sample, low)) <= 1 for sample, one in pairs)
        if self._known[key] and (self.best is None or low.sum() > self.best.sum()):
            self.best = low.copy()
        return self._known[key]

    def squared(self, low: np.ndarray) -> float:
        """The squared error on the first search sample, against the switchable graph with nothing low."""
        self._spend()
        sample = self.samples[0]
        if self._plain is None:
            self._plain = self._run(sample, np.zeros(self.count, np.bool_))
        return squared_error(self.held, self._plain, self._run(sample, low))

    def _run(self, sample: Sample, low: np.ndarray) -> Mapping[str, np.ndarray]:
        self.runs += 1
        return self.board.run(sample, low)

    def _spend(self) -> None:
        if cpu_seconds() > self.deadline:
            raise OutOfTime
        self.evaluations += 1


def write(model: Model, low_format: str, names: Sequence[str], low: np.ndarray, path: Path) -> None:
    """Writes an assignment with Parityscope's own writer, so that methods differ in what they choose alone."""
    graph = model.graph()
    deciding = typed_names(graph, low_format)
    keep = {name: "f32" for name, is_low in zip(names, low, strict=True) if not is_low and name in deciding}
    save_model(typed_model(model.graph(), low_format, keep).model, path)
