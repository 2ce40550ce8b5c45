"""BF16 as a third label: what a search with FP16 and FP32 has chosen, offered BF16.

BF16 has FP32's range and is as fast as FP16: a node that is kept in FP32 because it overflows in FP16 can be in BF16 where
its coarser rounding (2^-9 against 2^-12) fits into the budget. Its squared sensitivities come from backward passes with
BF16's roundings (`reverse`); a node of which none are known is offered BF16 only if it is kept. Labellings that are
cheaper by the cost model come from `expanding` for growing prices on error, and from "all that is kept in BF16"; the cheapest
that is predicted to meet the target is evaluated first, as the model that would be written, de-typed, on the search samples up
to the first that misses the target.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.arithmetic.typed import typed_model
from parityscope.evaluation.simulating import open_simulation
from parityscope.light_dataclasses import dataclass, replace
from parityscope.repairs.search.expanding import BF16, F16, LABELS, expand_labels
from parityscope.repairs.search.fp8 import chosen_products
from parityscope.repairs.search.network import F32, price_assignment, resolve_labels
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.writing import typed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.case import Model
    from parityscope.repairs.search.finding import Finder
    from parityscope.repairs.search.records import Flag, KeptNode, Point

_EVALUATED = 6  # labellings that are run at most. Chosen
_PRICES = 13  # multipliers, over twelve decades as in `cut.path_of_optima`. Chosen
_GAIN = 0.002  # of the modelled time; less is not worth an evaluation. Chosen
_OPTIMISM = 1.5  # predicted squares that are still worth an evaluation, times the target. Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What labellings need beside what the finder knows."""

    model: Model
    products: Mapping[str, Scalings]
    unwritable: Iterable[str]
    threads: int
    full: str


def offer_second_format(finder: Finder, point: Point, target: float, second: Second) -> tuple[Point, frozenset[str]]:
    """The point with some nodes in BF16 where that is cheaper and meets the target, and their names; else itself.

    It is itself, too, where time or evaluations do not reach for more.
    """
    names = finder.oracle.names
    start = np.array([F32 if name in set(point.kept) else F16 for name in names], np.intp)
    squared = _squared_sensitivities(finder, start, second)
    for labels in _list_candidates(finder, start, squared, target, point.seconds)[:_EVALUATED]:
        try:
            worst = finder.oracle.labelled(labels, target, partial(_open_written, names, labels, second))
        except Spent:
            finder.spent = True
            break
        if worst <= target:
            cost = price_assignment(finder.network, labels)
            kept = tuple(name for name, label in zip(names, labels, strict=True) if label != F16)
            brain = frozenset(name for name, label in zip(names, labels, strict=True) if label == BF16)
            chosen = replace(
                point,
                step="with BF16",
                kept=kept,
                excess=worst,
                seconds=cost.seconds,
                flops=cost.flops,
                casts=cost.casts,
            )
            finder.offers[chosen] = brain
            return chosen, brain
    return point, frozenset()


def kept_in_bf16(kept: Iterable[KeptNode], brain: frozenset[str], flagged: Iterable[Flag]) -> tuple[KeptNode, ...]:
    """The kept nodes with the format of those in BF16, and why they are: FP16's range, or Casts that it saves."""
    beyond = {flag.node for flag in flagged}
    return tuple(
        replace(one, format=LABELS[BF16], reason=f"in BF16: {one.reason if one.node in beyond else 'it saves Casts'}")
        if one.node in brain
        else one
        for one in kept
    )


def _squared_sensitivities(finder: Finder, start: np.ndarray, second: Second) -> np.ndarray:
    """Squared sensitivities: float64, (labels, decisions), infinite where a label is not to be had."""
    names = finder.oracle.names
    squared = np.zeros((len(LABELS), len(names)))
    if finder.sensed is not None:
        squared[F16] = finder.sensed.squared
    squared[F16, finder.pinned & (start != F16)] = np.inf
    before = finder.oracle.passes
    estimate = finder.oracle.estimated(replace(finder.reverse, low="bf16")) if finder.reverse is not None else None
    finder.excused += finder.oracle.passes - before
    known = estimate.squared if estimate is not None else {}
    unwritable = set(second.unwritable)
    for place, name in enumerate(names):
        unknown = 0.0 if start[place] == F32 else np.inf
        out = name in unwritable or name.endswith(IN_FP8)
        squared[BF16, place] = np.inf if out else known.get(name, unknown)
    return squared


def _list_candidates(
    finder: Finder, start: np.ndarray, squared: np.ndarray, target: float, seconds: float
) -> list[np.ndarray]:
    """Labels of decisions that are cheaper than what there is, and predicted to meet the target; the cheapest first."""
    everything = np.arange(len(start))
    kept = np.where((start == F32) & np.isfinite(squared[BF16]), BF16, start)
    found = [kept]
    finite = squared[np.isfinite(squared)]
    network = finder.network
    time = sum(vertex.times.full for vertex in network.vertices) + sum(wire.cast for wire in network.wires)
    vertices = resolve_labels(network, start)
    for step in range(_PRICES):
        multiplier = time / max(float(finite.sum()), np.finfo(float).tiny) * 10.0 ** (step - 4.0)
        labels = expand_labels(network, squared, multiplier, vertices)
        decided = start.copy()
        for vertex, label in zip(network.vertices, labels, strict=True):
            if vertex.decision is not None:
                decided[vertex.decision] = label
        found.append(decided)
    told: dict[bytes, tuple[float, np.ndarray]] = {}
    for labels in found:
        predicted = float(squared[labels, everything].sum())
        cost = price_assignment(network, labels).seconds
        if (labels == BF16).any() and cost < seconds * (1 - _GAIN) and predicted <= _OPTIMISM * target**2:
            told[labels.tobytes()] = cost, labels
    return [labels for _, labels in sorted(told.values(), key=lambda one: one[0])]


def _open_written(names: Sequence[str], labels: np.ndarray, second: Second) -> Run:
    """A session of the model that would be written, de-typed."""
    kept = {name: LABELS[label] for name, label in zip(names, labels, strict=True) if label != F16}
    eighths = chosen_products(second.products, kept)
    nodes = {name: held for name, held in kept.items() if not name.endswith(IN_FP8)}
    graph = second.model.graph()
    deciding = typed_names(second.model.graph(), "f16", eighths)
    nodes = {name: held for name, held in nodes.items() if name in deciding}
    made = typed_model(graph, "f16", nodes, products=eighths, inside=True)
    return open_simulation(
        arrange_precision(made.model, None if second.full == "f32" else second.full), threads=second.threads
    )
