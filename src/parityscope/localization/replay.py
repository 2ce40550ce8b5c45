"""The severed replay: the error that each region introduces, apart from what it inherits.

Every consumer of a tensor that the candidate let us see reads the *candidate's* value of it as a graph input. One run
of that graph in reference arithmetic gives f(c_in) for every such tensor, and then, exactly,

    c - r  =  (c - f(c_in))  +  (f(c_in) - r)
              introduced        inherited

Where the engine fused nodes and tensors between could not be seen, the same graph gives the error of the *region*
between observable tensors. It costs about one reference inference whatever the number of layers; graphs whose
tensors exceed the memory budget are replayed in windows, topologically, with the same result.

c and c_in have to be of one run. Where the candidate's tensors were recorded in parts, a window holds tensors of one part
and reads what that part gave, which is the reason why each part records again what its tensors are computed from. Where a maximum
of the candidate hands NaN on, the replay's does too (`keeping`).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import Progress, silent
from parityscope.case.deriving import SEVERED_SUFFIX, subgraph
from parityscope.comparison import ReplayStatistics, channel_axis, measure_replay
from parityscope.localization.keeping import severed_graphs
from parityscope.localization.sides import Sides
from parityscope.localization.spreading import between_parts
from parityscope.noise import FLOAT32_ROUNDING
from parityscope.records import Localization, Site, Skip, Suspect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.backends._ort_running import Run
    from parityscope.case import Inputs, Model
    from parityscope.case.deriving import Severed
    from parityscope.trace import Trace

__all__ = [
    "Options",
    "by_introduced",
    "localize",
    "observed_tensors",
    "open_window",
    "plan_windows",
    "replay",
    "replayed_values",
]

# Half a unit in the last place of float32, as a relative error: no two FP32 evaluations can be told apart below it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to localize: memory for windows in bytes, threads for arithmetic, how many suspects to inject.

    `optimization` is the level at which the reference arithmetic runs the replay.
    """

    memory: int = 512 << 20
    threads: int = 2
    injected: int = 12
    optimization: str = "all"


def localize(
    model: Model,
    inputs: Inputs,
    reference: Trace,
    candidate: Trace,
    pairing: Mapping[str, str],
    options: Options | None = None,
    progress: Progress = silent,
) -> Localization:
    """Introduced and inherited error of every tensor in `pairing`, and the leading suspects' share of the output error.

    `reference` and `candidate` hold the same samples with their intermediate tensors; `pairing` maps the names of
    tensors of the reference's graph to the candidate's. Suspects come worst first: by share where it was measured,
    then by introduced error.
    """
    options = options or Options()
    sides = Sides(model=model, inputs=inputs, reference=reference, candidate=candidate, pairing=pairing)
    places = model.sites
    observed, skipped = observed_tensors(sides)
    if not observed:
        return Localization(suspects=(), method="none", observed=0, windows=0, skipped=tuple(skipped))
    totals: dict[str, list[ReplayStatistics]] = {name: [] for name in observed}
    graphs = severed_graphs(sides, observed)
    severed = graphs[0][0]
    skipped += _mixed(sides, severed)
    windows = []
    for graph, names in graphs:
        planned = plan_windows(sides, names, options.memory // 2) if names else []
        windows += planned
        for found in replay(sides, graph, planned, options, progress):
            totals[found.tensor].append(found.statistics)
    relative = {name: _relative_error(parts) for name, parts in totals.items()}
    suspects = [
        _suspect(places[name], parts, severed, relative, floor=FLOAT32_ROUNDING) for name, parts in totals.items()
    ]
    suspects.sort(key=by_introduced)
    return Localization(
        suspects=tuple(suspects),
        method="severed replay" if len(windows) == 1 else f"severed replay in {len(windows)} windows",
        observed=len(observed),
        windows=len(windows),
        samples=reference.samples,
        disturbance=candidate.disturbance,
        spreads=between_parts(sides),
        skipped=tuple(skipped),
    )


def observed_tensors(sides: Sides) -> tuple[list[str], list[Skip]]:
    """The tensors that both sides have for every sample, alike in shape and kind, in topological order; and the rest."""
    observed = sides.observed()
    skipped = []
    for name in sorted(set(sides.pairing) & set(sides.model.sites) - set(observed)):
        problem = next(filter(None, (sides.unlike(sample, name) for sample in sides.reference.samples)))
        skipped.append(Skip(what=f"tensor {name}", reason=problem))
    return observed, skipped


def plan_windows(sides: Sides, observed: Sequence[str], limit: int) -> list[list[str]]:
    """Cuts `observed` into windows of tensors of one part whose replayed values take at most `limit` bytes together.

    The order is kept within a part; a tensor that is larger than the limit is a window of its own.
    """
    parts: dict[int, list[str]] = {}
    for name in observed:
        parts.setdefault(sides.part(name), []).append(name)
    return [window for names in parts.values() for window in _windows(sides, names, limit)]


def _windows(sides: Sides, names: Sequence[str], limit: int) -> list[list[str]]:
    windows: list[list[str]] = [[]]
    filled = 0
    for name in names:
        nbytes = max(sides.nbytes(sample, name) for sample in sides.reference.samples)
        if windows[-1] and filled + nbytes > limit:
            windows.append([])
            filled = 0
        windows[-1].append(name)
        filled += nbytes
    return windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the replay of one tensor on one sample showed."""

    tensor: str
    sample: int
    statistics: ReplayStatistics


def replay(
    sides: Sides,
    severed: Severed,
    windows: Sequence[Sequence[str]],
    options: Options,
    progress: Progress = silent,
) -> Iterator[Replayed]:
    """Runs the severed graph window by window and measures each tensor against both sides."""
    for number, window in enumerate(windows):
        run = open_window(sides, severed, window, options)
        needed = tuple(dict.fromkeys(name for tensor in window for name in severed.reads[tensor]))
        for sample in sides.reference.samples:
            progress("replaying", number, len(windows))
            arrays = replayed_values(run, sides, needed, sample, reader=window[0])

            def measure(name: str, sample: int = sample, arrays: dict[str, np.ndarray] = arrays) -> ReplayStatistics:
                return measure_replay(
                    sides.reference.get(sample, name),
                    sides.candidate.get(sample, sides.pairing[name]),
                    arrays.pop(name),
                    channel_axis=channel_axis(len(sides.reference.info(sample, name)[1])),
                )

            # A thread a tensor: most tensors are too small to be worth splitting, and the kernels hold no lock.
            with ThreadPoolExecutor(options.threads) as pool:
                for name, statistics in zip(window, pool.map(measure, window), strict=True):
                    yield Replayed(tensor=name, sample=sample, statistics=statistics)
    progress("replaying", len(windows), len(windows))


def replayed_values(
    run: Run, sides: Sides, needed: Iterable[str], sample: int, *, reader: str
) -> dict[str, np.ndarray]:
    """Runs a severed (sub)graph on the candidate's tensors `needed` of one sample, as the run of `reader` gave them.

    Gives arrays by value name, of the graph's own shapes and dtypes.

    Raises:
        ParityError: ONNX Runtime fails on them.
    """
    feeds: dict[str, np.ndarray] = dict(sides.inputs.sample(sample).arrays)
    feeds.update((name + SEVERED_SUFFIX, sides.its(sample, name, reader=reader)) for name in needed)
    return run(feeds)


def open_window(sides: Sides, severed: Severed, window: Sequence[str], options: Options) -> Run:
    """A session that computes the tensors of `window` again from what they read of the candidate."""
    return open_session(
        subgraph(severed.model, window), optimization=options.optimization, folder=sides.model.path.parent
    )


def _mixed(sides: Sides, severed: Severed) -> Iterator[Skip]:
    """Where c and c_in are of different runs after all: the candidate did not give an input back with its output."""
    for name, needed in severed.reads.items():
        apart = next((read for read in needed if sides.apart(read, reader=name)), None)
        if apart is not None:
            yield Skip(
                what=f"introduced error of {name}",
                reason=f"it holds the difference between two recorded runs at {apart}, which was not given back again",
                fix="record everything in one run, with more memory (--memory)",
            )


def _suspect(
    site: Site,
    parts: Sequence[ReplayStatistics],
    severed: Severed,
    relative: Mapping[str, float],
    *,
    floor: float,
) -> Suspect:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    entering = math.sqrt(sum(relative[name] ** 2 for name in severed.reads[site.tensor]))
    return Suspect(
        site=site,
        introduced=total.introduced,
        inherited=total.inherited,
        gain=total.inherited / entering if entering > 0 and math.isfinite(entering) else math.nan,
        angle=total.angle,
        floor=floor,
        region=severed.nodes[site.tensor],
        introduced_nonfinite=total.introduced_nonfinite,
        introduced_max=total.introduced_max,
        worst_index=total.worst_index,
        per_sample=tuple(part.introduced for part in parts),
    )


def _relative_error(parts: Sequence[ReplayStatistics]) -> float:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total.total


def by_introduced(suspect: Suspect) -> tuple[bool, float, int]:
    """Sorts the largest introduced error first, an infinite one before all."""
    size = suspect.introduced
    return (not math.isinf(size), -size if math.isfinite(size) else 0.0, suspect.site.index)
