"""Every intermediate tensor: captured on both sides, compared, localized."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.backends.opening import model_of
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import with_option
from parityscope.comparison import channel_axis, measure_pair, merge_statistics
from parityscope.errors import ParityError
from parityscope.examination import Layers
from parityscope.explanation import explain_suspects
from parityscope.light_dataclasses import dataclass, replace
from parityscope.localization import (
    MOST,
    LocalizationOptions,
    Sides,
    attribute_error,
    inject_errors,
    localize,
    narrow_regions,
    reads_of,
)
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.comparison import Statistics
    from parityscope.examination import Examination, Proof
    from parityscope.explanation import Explanation
    from parityscope.records import Localization, Target
    from parityscope.trace import Trace

_THREADS = 2
_CONFIRMING = 3  # suspects; chosen
_SEARCHING = 0.1  # of the usual time for searches there: nothing is left to be explained; chosen
_LITTLE = 1e-3  # of the output error; chosen


def observe_layers(
    examination: Examination, samples: Sequence[int], *, folder: Path, inject: bool, proof: Proof | None = None
) -> Layers | None:
    """Captures, compares and localizes on `samples`; None when the candidate shows no intermediate tensors.

    With `inject` suspects get their shares of the output error. Where there is a `proof`, only its places are looked at.
    """
    case, candidate = examination.case, examination.candidate
    if not backend_named(candidate.backend).observes:
        return None
    pairing = examination.names if proof is None else proof.pairing
    plan = _Plan(
        case=case,
        reference=examination.reference,
        pairing=pairing,
        samples=tuple(samples),
        memory=examination.request.memory,
        inject=inject,
        thorough=examination.request.looks_everywhere,
        between=tuple(name for name in observable_tensors(case.model) if proof is None or name in pairing),
    )
    known = set(observable_tensors(model_of(case.model, candidate)))
    found = _capture_layers(plan, candidate, known, folder / "layers", examination.progress)
    if found is None or not inject or proof is not None:
        return found
    try:
        return _refine_region(plan, candidate, found, known, folder / "refined", examination.progress) or found
    except ParityError as error:  # what was seen from outside of the region stays
        lost = Skip(
            what=f"the inside of {found.localization.suspects[0].site.node}", reason=error.problem, fix=error.fix
        )
        return replace(found, skipped=(*found.skipped, lost))


def explain_layers(examination: Examination, layers: Layers) -> dict[str, Explanation]:
    """What the error of each leading suspect is; few, and shortly, where outputs err as what it computes in."""
    sides = Sides(
        model=examination.case.model,
        inputs=examination.case.inputs,
        reference=layers.reference,
        candidate=layers.candidate,
        pairing=layers.pairing,
    )
    computes = examination.computes
    expected = not examination.request.thorough and all(pair.grade == computes for pair in examination.outputs)
    most, searches = (_CONFIRMING, _SEARCHING) if expected else (MOST, examination.request.patience)
    return explain_suspects(sides, layers.localization, declared=computes, most=most, searches=searches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What stays the same when layers are captured again; `between` are the tensors looked at, outputs left out, in order.

    `thorough`: those suspects too that nothing is left for.
    """

    case: Case
    reference: Target
    pairing: Mapping[str, str]
    samples: tuple[int, ...]
    memory: int
    inject: bool
    thorough: bool
    between: tuple[str, ...]


def _refine_region(
    plan: _Plan, candidate: Target, found: Layers, known: set[str], folder: Path, progress: Progress
) -> Layers | None:
    """Looks inside the leading suspect's fused region: the same borders, and the tensors between its nodes.

    None when the suspect is one node already, when the backend always shows everything, or when looking inside
    changes the outputs by as much as half of what the suspect explains: then it would be another program's error.
    """
    suspects = found.localization.suspects
    if not suspects or len(suspects[0].region) < 2 or "observe" not in backend_named(candidate.backend).options:
        return None
    members = set(suspects[0].region)
    inside = {plan.pairing.get(name, "") for name, site in plan.case.model.sites.items() if site.node in members}
    seen = set(found.candidate.names)
    if not (inside & known) - seen:
        return None
    again = _capture_layers(
        plan,
        with_option(candidate, "observe", "all"),
        known & (seen | inside),
        folder,
        progress,
    )
    size = suspects[0].injected
    if again is None or size is None or again.localization.disturbance > size / 2:
        return None
    method = f"{again.localization.method}, the leading region observed inside"
    skipped = tuple(skip for skip in found.skipped if skip.what.removeprefix("tensor ") not in again.candidate.names)
    return replace(again, localization=replace(again.localization, method=method), skipped=(*skipped, *again.skipped))


def _capture_layers(plan: _Plan, candidate: Target, among: set[str], folder: Path, progress: Progress) -> Layers | None:
    """Both sides' tensors, their statistics and the localization; None when the candidate shows none of what lies inside.

    The candidate is asked for those `among` its tensors that have a partner in the reference.
    """
    case, pairing, samples, memory = plan.case, plan.pairing, plan.samples, plan.memory
    # In the order of the reference's graph, each once; two of its tensors may be one of the candidate's.
    wanted = tuple(dict.fromkeys(pairing[name] for name in plan.between if pairing.get(name) in among))
    outputs = {value.name for value in model_of(case.model, candidate).outputs}

    def reads() -> dict[str, tuple[str, ...]]:
        return reads_of(case.model.graph(), pairing, outputs.union(wanted))

    request = RecordingRequest(
        samples=samples, tensors=wanted, folder=folder, memory=memory, label="candidate", reads=reads
    )
    theirs = record_trace(case.model, case.inputs, candidate, request, progress)
    held = set(theirs.names)
    shown = [name for name in plan.between if pairing.get(name) in held]
    if plan.between and not shown:
        return None
    ours = record_trace(
        case.model,
        case.inputs,
        plan.reference,
        RecordingRequest(samples=samples, tensors=tuple(shown), folder=folder, memory=memory, label="reference"),
        progress,
    )
    options = LocalizationOptions(thorough=plan.thorough)
    sides = Sides(model=case.model, inputs=case.inputs, reference=ours, candidate=theirs, pairing=pairing)
    found = localize(case.model, case.inputs, ours, theirs, pairing, options, progress)
    if plan.inject and found.suspects:
        found = inject_errors(case.model, case.inputs, ours, theirs, pairing, found, samples[0], options, progress)
        if plan.thorough or not _does_one_make_all(found):
            found = replace(found, stretches=attribute_error(sides, samples[0], progress=progress))
    found = narrow_regions(sides, found)
    statistics, problems = compare_traces(case, ours, theirs, pairing, progress)
    return Layers(
        reference=ours,
        candidate=theirs,
        pairing=pairing,
        statistics=statistics,
        localization=found,
        skipped=(*theirs.absent, *ours.absent, *problems),
    )


def _does_one_make_all(found: Localization) -> bool:
    """Whether one suspect alone makes the error of the outputs: exact shares of stretches then say the same."""
    first = found.suspects[0].share
    return found.unexplained is not None and found.unexplained <= _LITTLE and first is not None and first >= 1 - _LITTLE


def compare_traces(
    case: Case, reference: Trace, candidate: Trace, pairing: Mapping[str, str], progress: Progress
) -> tuple[dict[str, Statistics], list[Skip]]:
    """Statistics of every tensor on both sides, in graph order, a tensor a thread."""
    order = case.model.sites
    names = sorted((name for name in reference.names if name in order), key=lambda name: order[name].index)
    problems: list[Skip] = []

    def one(name: str) -> Statistics | None:
        total: Statistics | None = None
        for sample in reference.samples:
            if not candidate.has(sample, pairing.get(name, name)):
                return None
            left, right = reference.get(sample, name), candidate.get(sample, pairing.get(name, name))
            try:
                part = measure_pair(left, right, channel_axis=channel_axis(left.ndim))
            except ValueError as error:
                problems.append(Skip(what=f"tensor {name}", reason=str(error)))
                return None
            total = part if total is None else merge_statistics(total, part)
        return total

    with ThreadPoolExecutor(_THREADS) as pool:
        measured = list(pool.map(one, names))
    progress("comparing tensors", 1, 1)
    return {name: found for name, found in zip(names, measured, strict=True) if found is not None}, problems
