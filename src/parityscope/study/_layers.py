"""Every intermediate tensor: captured on both sides, compared, localized."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.backends import backend
from parityscope.backends.recording import Request, model_of, observable, record
from parityscope.case.graph import sites
from parityscope.comparison import channel_axis, measure_pair
from parityscope.localization import Options, injection, localize
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.records import Localization, Target
    from parityscope.trace import Trace

__all__ = ["Layers", "examine_layers"]

_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Both traces, statistics of every tensor that both have, and where the error begins."""

    reference: Trace
    candidate: Trace
    pairing: Mapping[str, str]
    statistics: Mapping[str, Statistics]
    localization: Localization
    skipped: tuple[Skip, ...]


def examine_layers(
    case: Case,
    reference: Target,
    candidate: Target,
    pairing: Mapping[str, str],
    samples: Sequence[int],
    *,
    folder: Path,
    memory: int,
    inject: bool,
    progress: Progress,
) -> Layers | None:
    """Captures, compares and localizes on `samples`; None when the candidate shows no intermediate tensors."""
    if not backend(candidate.backend).observes:
        return None
    mine = observable(case.model)
    known = set(observable(model_of(case.model, candidate)))
    wanted = [pairing[name] for name in mine if name in pairing and pairing[name] in known]
    theirs = record(
        case.model,
        case.inputs,
        candidate,
        Request(samples=tuple(samples), tensors=tuple(wanted), folder=folder, memory=memory, label="candidate"),
        progress,
    )
    held = set(theirs.names)
    shown = [name for name in mine if pairing.get(name) in held]
    if not shown:
        return None
    ours = record(
        case.model,
        case.inputs,
        reference,
        Request(samples=tuple(samples), tensors=tuple(shown), folder=folder, memory=memory, label="reference"),
        progress,
    )
    options = Options(memory=memory, threads=1)
    found = localize(case.model, case.inputs, ours, theirs, pairing, options, progress)
    if inject and found.suspects:
        found = injection(case.model, case.inputs, ours, theirs, pairing, found, samples[0], options, progress)
    statistics, problems = _compare(case, ours, theirs, pairing, progress)
    return Layers(
        reference=ours,
        candidate=theirs,
        pairing=pairing,
        statistics=statistics,
        localization=found,
        skipped=(*theirs.absent, *ours.absent, *problems),
    )


def _compare(
    case: Case, ours: Trace, theirs: Trace, pairing: Mapping[str, str], progress: Progress
) -> tuple[dict[str, Statistics], list[Skip]]:
    """Statistics of every tensor on both sides, in graph order, a tensor a thread."""
    order = sites(case.model.graph())
    names = sorted((name for name in ours.names if name in order), key=lambda name: order[name].index)
    problems: list[Skip] = []

    def one(name: str) -> Statistics | None:
        total: Statistics | None = None
        for sample in ours.samples:
            if not theirs.has(sample, pairing.get(name, name)):
                return None
            left, right = ours.get(sample, name), theirs.get(sample, pairing.get(name, name))
            try:
                part = measure_pair(left, right, channel_axis=channel_axis(left.ndim))
            except ValueError as error:
                problems.append(Skip(what=f"tensor {name}", reason=str(error)))
                return None
            total = part if total is None else total.merge(part)
        return total

    with ThreadPoolExecutor(_THREADS) as pool:
        measured = list(pool.map(one, names))
    progress("comparing tensors", 1, 1)
    return {name: found for name, found in zip(names, measured, strict=True) if found is not None}, problems
