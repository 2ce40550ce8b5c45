"""Squared sensitivities of all nodes at once: a few backward passes with random projections of the outputs.

`arithmetic.projecting` builds the graph; here it is run on samples. A seed is a vector of independent signs over the
scale that `judging.relative_error` divides by times the budget, so that the mean of the squared products estimates what
`Oracle.squared` measures for one node at a time. No framework but ONNX Runtime is needed.

One run with k passes computes the network once as it is, once rounded, and k times backwards at about twice the price of
forwards (measured: what a derivative reads and writes counts more than the products): `cost(k)` = 2 + 2 k plain inferences.
A large graph is run once for each pass instead, 4 k. Dimensions are written into the graph, so that samples of other shapes
need a graph of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.projecting import PROJECTED, SEEDS, SHAPE_SUFFIX, probing, projecting
from parityscope.backends._onnxruntime import open_session
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.projecting import Projecting
    from parityscope.case import Sample
    from parityscope.repairs.search.judging import Yardstick

__all__ = ["PASSES", "Estimate", "Reverse", "cost"]

# Chosen: with four samples the mean of sixteen squares, off by a third; sensitivities differ by factors of thousands.
PASSES = 4
# Tensors of a graph that holds all passes; of a larger one they are run one after another, each with a forward pass of its
# own, since loading takes longer than that. Chosen: of a chain of 2000 nodes four passes took 17 seconds to load.
_AT_ONCE = 1500
_MEMORY = 4 << 30  # bytes of activations that are held at once. Chosen
_HELD_BYTES = 8  # an activation and what rounding changes about it, until the last pass has read both
_SHAPES = 8  # graphs that are built for samples of different shapes. Chosen: as many as samples are active


def cost(passes: int) -> int:
    """What one run with so many passes costs, in plain inferences."""
    return 2 + 2 * passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Squared sensitivities by the name of the node, in units of the squared budget; what is missing is unknown."""

    squared: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse:
    """What the passes need beside samples: a fresh graph of the searched model, the format, the budgets."""

    graph: Callable[[], ir.Model]
    low: str
    held: Yardstick
    folder: Path
    threads: int
    seed: int
    passes: int = PASSES
    products: Mapping[str, Scalings] = field(default_factory=lambda: MappingProxyType({}))

    def asked(self) -> dict[str, str | int]:
        """What an answer depends on, beside the model and the samples."""
        return {"low": self.low, "passes": self.passes, "seed": self.seed}

    def estimate(
        self, samples: Sequence[Sample], plain: Sequence[Mapping[str, np.ndarray]], needed: int = 1
    ) -> Estimate | None:
        """The mean over samples, whose outputs without rounding are `plain`.

        None where it cannot be told for at least `needed` nodes: operators without an adjoint, shapes that differ too
        much, or a graph that the runtime does not take.
        """
        groups: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
        for place, sample in enumerate(samples):
            shapes = tuple((name, array.shape) for name, array in sorted(sample.arrays.items()))
            groups.setdefault(shapes, []).append(place)
        if len(groups) > _SHAPES:
            return None
        totals: dict[str, float] = {}
        counts: dict[str, int] = {}
        random = np.random.default_rng(self.seed)
        for places in groups.values():
            try:
                found = self._of_one_shape([(samples[place], plain[place]) for place in places], random, needed)
            except ParityError:
                return None
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + 1
        known = (name for name, count in counts.items() if count == len(groups) and math.isfinite(totals[name]))
        return Estimate(squared={name: totals[name] / len(samples) for name in known})

    def _of_one_shape(
        self, pairs: Sequence[tuple[Sample, Mapping[str, np.ndarray]]], random: np.random.Generator, needed: int
    ) -> dict[str, float]:
        """The sum over samples of one shape. A node that reaches no output has 0; one that is unknown is left out."""
        made = self.opened(pairs[0][0])
        if len(made.nodes) + len(made.idle) < needed:
            raise ParityError("too few nodes have an adjoint", fix="measure their errors directly")
        level = (
            "basic" if made.passes > 1 else "disabled"
        )  # which a large graph is loaded with in a fraction of the time
        run = open_session(made.model, threads=self.threads, optimization=level, folder=self.folder)
        total = np.zeros(len(made.nodes))
        for sample, plain in pairs:
            if {name for name, array in plain.items() if array.dtype.kind == "f" and array.size} != set(made.seeds):
                raise ParityError("an output is of floats other than float32", fix="measure its error directly")
            for _ in range(self.passes // made.passes):
                seeds = {f"{SEEDS}{name}": self._seed(made.passes, name, plain[name], random) for name in made.seeds}
                products = run({**sample.arrays, **seeds})[PROJECTED].astype(np.float64).reshape(made.passes, -1)
                with np.errstate(over="ignore", invalid="ignore"):
                    total += np.sum(products**2, axis=0) / self.passes
        return dict(zip(made.nodes, total.tolist(), strict=True)) | dict.fromkeys(made.idle, 0.0)

    def opened(self, sample: Sample) -> Projecting:
        """The graph for samples of this one's shapes.

        Raises:
            ParityError: the runtime refuses it.
        """
        probe = open_session(
            probing(self.graph(), self.low, self.products),
            threads=self.threads,
            optimization="disabled",
            folder=self.folder,
        )
        shapes = {
            name.removesuffix(SHAPE_SUFFIX): tuple(int(dim) for dim in dims)
            for name, dims in probe(sample.arrays).items()
        }
        held = sum(math.prod(shape) for shape in shapes.values()) * _HELD_BYTES
        if held > _MEMORY:
            raise ParityError("the activations are too many to be held at once", fix="measure errors directly")
        passes = self.passes if len(shapes) <= _AT_ONCE else 1
        return projecting(self.graph(), self.low, shapes, passes, self.products)

    def _seed(self, passes: int, name: str, plain: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Signs over the scale of relative errors times the budget: float32, (passes, dimensions of the output).

        Elements that are not finite have no error that could be told, and no part in it.
        """
        held = plain.astype(np.float64)
        finite = np.isfinite(held)
        floor = self.held.floors.get(name, 0.0) * math.sqrt(held.size)
        scale = max(float(np.linalg.norm(held[finite])), floor) * self.held.limit_of(name)
        signs = random.choice([-1.0, 1.0], size=(passes, *held.shape)) * finite
        return (signs / scale if scale > 0 else np.zeros_like(signs)).astype(np.float32)
