"""The magnitudes and sizes of what the bodies of If, Loop and Scan compute, watched in FP32 runs over all iterations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.gating import inner_nodes
from parityscope.arithmetic.sites import is_float
from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx_ir as ir

    from parityscope.case import Model, Sample

_PLAIN = "plain"


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a tensor held over all iterations of all bodies around it, as it stands where none ran.

    `largest` is its largest finite magnitude, `smallest` the smallest that is not zero; `elements` were there, and the longest
    last dimension was `last` (1 of a number).
    """

    largest: float = 0.0
    smallest: float = math.inf
    elements: int = 0
    last: int = 0

    def add(self, array: np.ndarray) -> None:
        """Adds what one iteration gave."""
        size = np.abs(array)
        finite = size < np.inf  # nor is NaN
        self.largest = max(self.largest, float(size.max(initial=0.0, where=finite)))
        self.smallest = min(self.smallest, float(size.min(initial=np.inf, where=finite & (size > 0))))
        self.elements += array.size
        self.last = max(self.last, array.shape[-1] if array.ndim else 1)


def seen_within(model: Model, samples: Iterable[Sample], threads: int) -> Iterator[dict[ir.Value, Seen]]:
    """For each sample, every float tensor that a node inside a body gives, by the values of `program.wide_program`.

    Raises:
        ParityError: the reference cannot run.
    """
    graph, program = wide_program(model)
    values = {
        program.sites[value]: value
        for node in graph.graph
        if bodies_of_node(node)
        for inner in inner_nodes(node)
        for value in inner.outputs
        if value.name and is_float(value) and constant_value(value) is None
    }
    if not values:
        return
    world, sessions = World(name=_PLAIN, program=program), Sessions(threads=threads)
    for sample in samples:
        found = {value: Seen() for value in values.values()}
        for moment in evaluate_worlds([world], sample.arrays, list(values), sessions):
            for site in moment.sites:
                found[values[site]].add(moment.stored(_PLAIN, site))
        yield found
