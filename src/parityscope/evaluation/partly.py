"""Some products of a network in another format, and all else as it is: what a runtime does that has no other kernel for a few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.case.extending import inferred_shapes
from parityscope.evaluation.estimating import estimate_seconds
from parityscope.evaluation.evaluating import run_worlds
from parityscope.evaluation.machine import usable_cores
from parityscope.evaluation.program import prepared_graph
from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.simulating import simulated_world
from parityscope.evaluation.worlds import World
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.case import Model
    from parityscope.evaluation.program import Program

_OPERANDS = "tf32"  # which rounds what products take, and nothing else
_TOGETHER = 8  # worlds that are computed side by side; chosen: each holds its own values behind its product


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartlyRounded:
    """A network whose products can be computed in a coarser format one by one.

    `products` are the tensors that they give, in the network's order; `operands` the places of their inputs.
    """

    model: Model
    program: Program
    products: tuple[str, ...]
    operands: Mapping[str, tuple[tuple[str, int], ...]]
    sessions: Sessions

    def run(
        self, feeds: Mapping[str, np.ndarray], groups: Sequence[Collection[str]], precision: str
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The outputs with the products of each group in "tf32", "f16" or "bf16"; of an empty one the plain network's."""
        change = FloatRounding(precision)
        for start in range(0, len(groups), _TOGETHER):
            together = enumerate(groups[start : start + _TOGETHER])
            worlds = [self._world(str(number), group, change) for number, group in together]
            yield from run_worlds(worlds, feeds, self.program.outputs, self.sessions)

    def seconds(self, feeds: Mapping[str, np.ndarray]) -> float:
        """What one run takes, estimated; infinite where no shape is known, as in a file too large to be looked through."""
        fed = {name: tuple(array.shape) for name, array in feeds.items()}
        inferred = inferred_shapes(self.model.path, fed)
        return estimate_seconds(self.program, {**inferred, **fed}) if inferred else math.inf

    def _world(self, name: str, group: Collection[str], change: FloatRounding) -> World:
        return World(
            name=name,
            program=self.program,
            taken={place: change for product in group for place in self.operands[product]},
            stored={} if change.format == _OPERANDS else dict.fromkeys(group, change),
        )


def round_partly(model: Model) -> PartlyRounded:
    """The products of a model, each of which can be computed in a coarser format.

    Raises:
        ParityError: the model cannot be simulated.
    """
    whole = simulated_world(_OPERANDS, arrange_precision(prepared_graph(model), _OPERANDS))
    places: dict[str, list[tuple[str, int]]] = {}
    for key, index in whole.taken:
        if key in whole.program.steps_of:  # bodies of control flow are no part of it
            places.setdefault(key, []).append((key, index))
    order = sorted(places, key=lambda key: whole.program.steps_of[key].index)
    return PartlyRounded(
        model=model,
        program=whole.program,
        products=tuple(order),
        operands={key: tuple(places[key]) for key in order},
        sessions=Sessions(threads=usable_cores()),
    )
