"""Every intermediate tensor: captured on both sides, compared, localized."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parityscope.backends import backend
from parityscope.backends.recording import Request, model_of, observable, record
from parityscope.comparison import channel_axis, measure_pair
from parityscope.explanation import explain_suspects
from parityscope.localization import Options, Sides, attribute, injection, localize
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.explanation import Explanation
    from parityscope.records import Localization, Target
    from parityscope.trace import Trace

__all__ = ["Layers", "examine_layers", "explain_layers"]

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
    plan = _Plan(case=case, reference=reference, pairing=pairing, samples=tuple(samples), memory=memory, inject=inject)
    mine = observable(case.model)
    known = set(observable(model_of(case.model, candidate)))
    wanted = [pairing[name] for name in mine if name in pairing and pairing[name] in known]
    found = _captured(plan, candidate, wanted, folder / "layers", progress)
    if found is None or not inject:
        return found
    return _refined(plan, candidate, found, known, folder / "refined", progress) or found


def explain_layers(case: Case, layers: Layers, computes: str) -> dict[str, Explanation]:
    """What the error of each leading suspect is; `computes` is the format that the candidate computes in."""
    sides = Sides(
        model=case.model,
        inputs=case.inputs,
        reference=layers.reference,
        candidate=layers.candidate,
        pairing=layers.pairing,
    )
    return explain_suspects(sides, layers.localization, declared=computes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What stays the same when layers are captured again."""

    case: Case
    reference: Target
    pairing: Mapping[str, str]
    samples: tuple[int, ...]
    memory: int
    inject: bool


def _refined(
    plan: _Plan, candidate: Target, found: Layers, known: set[str], folder: Path, progress: Progress
) -> Layers | None:
    """Looks inside the leading suspect's fused region: the same borders, and the tensors between its nodes.

    None when the suspect is one node already, when the backend always shows everything, or when looking inside
    changes the outputs by as much as half of what the suspect explains: then it would be another program's error.
    """
    suspects = found.localization.suspects
    if not suspects or len(suspects[0].region) < 2 or "observe" not in backend(candidate.backend).options:
        return None
    members = set(suspects[0].region)
    inside = [name for name, site in plan.case.model.sites.items() if site.node in members]
    seen = set(found.candidate.names)
    wanted = [plan.pairing[name] for name in inside if plan.pairing.get(name) in known]
    if not set(wanted) - seen:
        return None
    options = tuple(sorted({**dict(candidate.options), "observe": "all"}.items()))
    again = _captured(
        plan,
        replace(candidate, options=options),
        [name for name in found.candidate.names if name in known] + [name for name in wanted if name not in seen],
        folder,
        progress,
    )
    size = suspects[0].injected
    if again is None or size is None or again.localization.disturbance > size / 2:
        return None
    method = f"{again.localization.method}, the leading region observed inside"
    skipped = tuple(skip for skip in found.skipped if skip.what.removeprefix("tensor ") not in again.candidate.names)
    return replace(again, localization=replace(again.localization, method=method), skipped=(*skipped, *again.skipped))


def _captured(plan: _Plan, candidate: Target, wanted: Sequence[str], folder: Path, progress: Progress) -> Layers | None:
    """Both sides' tensors, their statistics and the localization; None when the candidate shows no tensor."""
    case, pairing, samples, memory = plan.case, plan.pairing, plan.samples, plan.memory
    theirs = record(
        case.model,
        case.inputs,
        candidate,
        Request(samples=tuple(samples), tensors=tuple(wanted), folder=folder, memory=memory, label="candidate"),
        progress,
    )
    held = set(theirs.names)
    shown = [name for name in observable(case.model) if pairing.get(name) in held]
    if not shown:
        return None
    ours = record(
        case.model,
        case.inputs,
        plan.reference,
        Request(samples=tuple(samples), tensors=tuple(shown), folder=folder, memory=memory, label="reference"),
        progress,
    )
    options = Options(memory=memory)
    found = localize(case.model, case.inputs, ours, theirs, pairing, options, progress)
    if plan.inject and found.suspects:
        found = injection(case.model, case.inputs, ours, theirs, pairing, found, samples[0], options, progress)
        sides = Sides(model=case.model, inputs=case.inputs, reference=ours, candidate=theirs, pairing=pairing)
        found = replace(found, stretches=attribute(sides, samples[0], progress=progress))
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
    order = case.model.sites
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
