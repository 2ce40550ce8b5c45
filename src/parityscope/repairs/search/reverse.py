"""Squared sensitivities of all nodes at once: one sweep backwards with random projections of the outputs.

With d_i what node i gives rounded less what it gives, both computed from exact inputs, and u a vector of outputs,
<u, J_i d_i> = <adjoint of node i's outputs for the seed u, d_i>: one sweep (`evaluation.backward`) gives it for every i. If the
elements of u are independent signs, its square is on average |J_i d_i|², what an evaluation with only node i low would
measure; the mean of k projections is off by a factor of about 1 ± sqrt(2 / k) (the estimator is that of
M. F. Hutchinson, A stochastic estimator of the trace of the influence matrix, Commun. Statist. Simula. 18, 1989). A seed is
divided by the scale that `judging.relative_error` divides by times the budget, so that the mean of the squared products
estimates what `Oracle.squared` measures for one node at a time.

It is first order: it knows nothing of what overflows on the way, of quantization that follows, of ties that break. Nodes above
one that cannot be differentiated are left out; nodes inside bodies and those with bodies are too.

A run with k directions computes the network once as it is, once rounded, and once backwards, where each direction costs about
as much as two inferences: `cost_of_passes(k)` = 2 + 2 k. As many directions are carried at once as `--memory` has room for.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.evaluation.backward import Sweep
from parityscope.evaluation.evaluating import evaluate_worlds
from parityscope.evaluation.switching import Switchboard
from parityscope.light_dataclasses import dataclass, field
from parityscope.memory import allowed_memory, relieve_memory
from parityscope.spilling import Keeper, note_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.case import Sample
    from parityscope.evaluation.worlds import World
    from parityscope.repairs.search.judging import Yardstick

# Chosen: with four samples the mean of sixteen squares, off by a third; sensitivities differ by factors of thousands.
PASSES = 4
# What a direction holds, in sizes of the largest tensor: adjoints that wait for others, a step's results, a copy. Chosen.
_HELD = 8
_BLOCK = 1 << 18  # elements of a tensor that are multiplied in float64 at once. Chosen
_MEMORY = 4 << 30  # bytes of activations that are kept at once, in files beyond their share of the memory. Chosen


def cost_of_passes(passes: int) -> int:
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

        None where it cannot be told for at least `needed` nodes: operators that cannot be differentiated, activations that are
        too many to be held, or outputs that are floats other than float32.
        """
        board = Switchboard(self.graph(), self.low, threads=self.threads, products=self.products)
        sweep = Sweep(program=board.program, threads=self.threads or 2)
        random = np.random.default_rng(self.seed)
        total: dict[str, float] = {}
        known = set(_decisions_of(board))
        for sample, outputs in zip(samples, plain, strict=True):
            seeds = self._seeds(outputs, random)
            changes = _changes_of_rounding(board, sample) if seeds is not None else None
            if seeds is None or changes is None:
                return None
            found, lost = _project_in_groups(board, sweep, changes, seeds)
            known -= lost
            if len(known) < needed:
                return None
            for name, products in found.items():
                with np.errstate(over="ignore", invalid="ignore"):
                    total[name] = total.get(name, 0.0) + float(np.mean(products**2))
        squared = {name: total.get(name, 0.0) / len(samples) for name in known}
        return Estimate(squared={name: value for name, value in squared.items() if math.isfinite(value)})

    def _seeds(self, outputs: Mapping[str, np.ndarray], random: np.random.Generator) -> dict[str, np.ndarray] | None:
        """A seed for each float output that has elements; None where one is no float32."""
        floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f" and array.size}
        if any(array.dtype != np.float32 for array in floats.values()):
            return None
        return {
            name: np.moveaxis(self._seed(self.passes, name, array, random), 0, -1) for name, array in floats.items()
        }

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """What the network computes, by site, and what rounding changes about the results of each node that decides, by name."""

    values: Mapping[str, np.ndarray]
    changes: Mapping[str, Mapping[str, np.ndarray]]


def _decisions_of(board: Switchboard) -> dict[str, str]:
    """The key of the step of each node of the main graph that decides, by its name; nodes with bodies are left out."""
    steps = board.program.steps_of
    return {
        node.name: steps[node.tensor].key
        for node in board.graph.nodes
        if node.tensor in steps and not steps[node.tensor].bodies
    }


def _changes_of_rounding(board: Switchboard, sample: Sample) -> _Changes | None:
    """One run as it is, beside every node rounded on the exact inputs; None where that is more than can be held."""
    names = [node.name for node in board.graph.nodes]
    eighth = np.array([name.endswith(IN_FP8) for name in names], np.bool_)
    plain = board.world("plain", np.zeros(len(names), np.bool_))
    lows: dict[str, World] = {}
    for name, chosen in (("low", ~eighth), ("eighth", eighth)):
        if chosen.any():
            lows[name] = board.world(name, chosen, follows="plain")
    keys = _decisions_of(board)
    deciding: dict[str, list[tuple[str, str]]] = {}
    for name, key in keys.items():
        deciding.setdefault(key, []).append((name, "eighth" if name.endswith(IN_FP8) else "low"))
    values: dict[str, np.ndarray] = {}
    changes: dict[str, dict[str, np.ndarray]] = {}
    held, keeper = 0, Keeper()
    for moment in evaluate_worlds([plain, *lows.values()], sample.arrays, None, board.sessions):
        for site in moment.sites:
            values[site] = keeper.keep(moment.stored("plain", site))
            held += values[site].nbytes
            for name, world in deciding.get(moment.step.key if moment.step else "", ()):
                rounded = moment.stored(world, site)
                if rounded is not None and values[site].dtype == np.float32 and rounded.shape == values[site].shape:
                    with np.errstate(invalid="ignore"):
                        changes.setdefault(name, {})[site] = keeper.keep(rounded - values[site])
                    held += rounded.nbytes
        relieve_memory()
        if held > _MEMORY:
            return None
    return _Changes(values=values, changes=changes)


def _project_in_groups(
    board: Switchboard, sweep: Sweep, found: _Changes, seeds: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], set[str]]:
    """As `_project_changes`, in as many sweeps as it takes for the adjoints of each to fit into the memory."""
    passes = next((seed.shape[-1] for seed in seeds.values()), 1)
    largest = max((array.nbytes for array in found.values.values()), default=1)
    together = min(max(1, allowed_memory() // (_HELD * max(1, largest))), passes)
    groups = [slice(at, at + together) for at in range(0, passes, together)]
    each = [
        _project_changes(board, sweep, found, {name: seed[..., part] for name, seed in seeds.items()})
        for part in groups
    ]
    names = {name: None for products, _ in each for name in products}
    return (
        {name: np.concatenate([products[name] for products, _ in each if name in products]) for name in names},
        set().union(*(lost for _, lost in each)),
    )


def _project_changes(
    board: Switchboard, sweep: Sweep, found: _Changes, seeds: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], set[str]]:
    """<adjoint, change> of each node that reaches an output, (passes,); and the nodes of which it is not known."""
    program = board.program
    names: dict[str, list[str]] = {}
    for name, key in _decisions_of(board).items():
        names.setdefault(key, []).append(name)

    def value(site: str) -> np.ndarray | None:
        if site in program.constants:
            return program.constants[site]
        known = found.values.get(site)
        note_read(0 if known is None else known.nbytes)
        return known

    products: dict[str, np.ndarray] = {}
    lost: set[str] = set()
    for step, adjoints, complete in sweep.run(
        value, {name: seed for name, seed in seeds.items() if name in program.steps_of}
    ):
        relieve_memory()
        for name in names.get(step.key, ()):
            if not complete:
                lost.add(name)
                continue
            parts = list(_project_by_site(found.changes.get(name, {}), adjoints))
            if parts:
                products[name] = np.sum(parts, axis=0)
    return products, lost


def _project_by_site(changes: Mapping[str, np.ndarray], adjoints: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    for site, change in changes.items():
        adjoint = adjoints.get(site)
        if adjoint is None:
            continue
        flat, rows = change.reshape(-1), adjoint.reshape(change.size, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.zeros(rows.shape[1])
            for at in range(0, flat.size, _BLOCK):
                total += flat[at : at + _BLOCK].astype(np.float64) @ rows[at : at + _BLOCK].astype(np.float64)
        yield total
