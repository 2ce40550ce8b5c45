"""The chain: outputs, expectations, verdict, layers, causes, repairs tried on copies, document."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.backends._libraries import library_in_use
from parityscope.backends.recording import Progress, model_of, silent
from parityscope.case import load_inputs
from parityscope.comparison.rows import aligner
from parityscope.comparison.warming import warm_kernels
from parityscope.errors import ParityError
from parityscope.pairing import pair_graphs
from parityscope.prediction import FLOAT32_ROUNDING, Expectation, distance, expect_outputs, expect_tensors, margin_of
from parityscope.records import Diagnosis, Site, Skip
from parityscope.study._cut import Bounds, bound
from parityscope.study._document import Parts, document
from parityscope.study._found import Causes, Known
from parityscope.study._judging import judge, pair_of, reason_for
from parityscope.study._lockstep import compare_tensors
from parityscope.study._outputs import error_by_sample, run_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from parityscope.case import Case, Inputs
    from parityscope.comparison import Statistics
    from parityscope.records import Pair, Target, Verdict
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun

__all__ = ["Settings", "examine"]

_LOCALIZED_SAMPLES = 3  # chosen: the worst ones; every sample's outputs are compared anyway
_PREDICTED_SAMPLES = 4  # chosen: expectations vary less between samples than the margins of the grades


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How far to go.

    `layers` compares intermediate tensors, `localize` tells what each introduces, `causes` tests hypotheses and tries
    repairs.
    `memory` is in bytes, `seconds` the time for experiments, `mapping` renames tensors (reference -> candidate).
    `peer` is another target of the candidate's precision to hold it against (None: the simulation of that precision).
    `real` is DATA of real samples that the inputs are held against, read with `stacked` and `preprocess`.
    `states` are fed back (input -> output) for `steps` calls.
    """

    layers: bool = True
    localize: bool = True
    causes: bool = True
    memory: int = 512 << 20
    seconds: float = math.inf
    mapping: Mapping[str, str] | None = None
    peer: Target | None = None
    command: str = ""
    real: str = ""
    stacked: bool = False
    preprocess: str = ""
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    steps: int = 0


def examine(
    case: Case,
    reference: Target,
    candidate: Target,
    *,
    folder: Path,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Runs the chain and gives the study's document; `folder` holds spilled tensors and repaired copies.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    settings = settings or Settings()
    mapping = settings.mapping or {}
    bounds: Bounds | None = None
    warm_kernels()
    with library_in_use(reference.option("custom_ops")):
        while True:
            try:
                if bounds is None:
                    return _chain(case, reference, candidate, folder, settings, progress)
                chosen = replace(settings, mapping=bounds.mapping)
                found = _chain(bounds.case, reference, bounds.candidate, folder, chosen, progress, bounds.skipped)
                return bounds.told(found, case, candidate)
            except ParityError as refusal:
                further = bound(refusal, case, reference, candidate, mapping, folder, bounds)
                if further is None:
                    if bounds is None:
                        raise
                    raise bounds.explained(refusal) from refusal
                bounds = further


def _chain(
    case: Case,
    reference: Target,
    candidate: Target,
    folder: Path,
    settings: Settings,
    progress: Progress,
    unreached: tuple[Skip, ...] = (),
) -> dict[str, Any]:
    """The chain on a case that both sides can run; `unreached` is what is known to lie behind it."""
    started = time.perf_counter()
    timings: dict[str, float] = {}

    def lap(stage: str) -> None:
        timings[stage] = time.perf_counter() - started - sum(timings.values())

    its_model = model_of(case.model, candidate)
    paired = pair_graphs(case.model, its_model, case.inputs, explicit=settings.mapping or {}, memory=settings.memory)
    names = {**{value.name: value.name for value in case.model.outputs}, **paired.names}
    lap("pairing")
    run = run_outputs(case, reference, candidate, names, progress, inspect=settings.localize or settings.causes)
    lap("outputs")
    # Only arithmetic that the engine was seen to honour is excused; what it was asked for is what it declares.
    expectation = _expectation(case, run, progress)
    lap("prediction")
    outputs = _judged_outputs(case, run, expectation, names, paired.how)
    verdict = _overall(outputs, run)
    growth = None
    if settings.states:
        from parityscope.localization.calls import beyond
        from parityscope.study._sequences import measure_growth

        growth = measure_growth(case, reference, candidate, names, settings.states, settings.steps, progress)
        verdict = "beyond" if beyond(growth) is not None else verdict
        lap("calls")
    layers = None
    tensors: dict[str, Pair] = {}
    problems: list[Skip] = []
    # What localization and causes need takes longer to import than outputs take to compare: only who asks pays for it.
    if settings.layers and not settings.localize:
        statistics, problems = compare_tensors(
            case, reference, candidate, names, folder=folder / "compared", memory=settings.memory, progress=progress
        )
        lap("tensors")
        tensors = _plain_pairs(case, statistics, names, paired.how, Expectation(errors={}))
    elif settings.layers:
        from parityscope.study._layers import examine_layers

        chosen = _worst_samples(outputs, case.inputs.indices)
        layers = examine_layers(
            case,
            reference,
            candidate,
            names,
            chosen,
            folder=folder,
            memory=settings.memory,
            inject=verdict != "within",
            progress=progress,
        )
        lap("layers")
        tensors = _tensor_pairs(case, layers, outputs, names, paired.how, settings, progress)
        lap("grading tensors")
    causes = Causes(diagnosis=Diagnosis(findings=(), unexplained=layers.localization.unexplained if layers else None))
    if settings.causes:
        from parityscope.study._causes import find_causes

        known = Known(
            case=case,
            reference=reference,
            candidate=candidate,
            run=run,
            outputs=outputs,
            tensors=tensors,
            layers=layers,
            names=names,
            verdict=verdict,
            real=_real(case, settings, folder),
            growth=growth,
        )
        causes = find_causes(
            known, folder=folder, peer=settings.peer, seconds=settings.seconds, progress=progress, lap=lap
        )
    problems += causes.absent
    skipped = [*unreached, *problems, *paired.skipped, *run.skipped, *expectation.skipped, *causes.diagnosis.skipped]
    skipped += case.inputs.skipped
    if settings.layers and settings.localize and layers is None:
        skipped.append(
            Skip(
                what="localization",
                reason=f"{candidate.backend} gave no intermediate tensors back",
                fix="record some with the recorder, or let the program write them beside its outputs",
            )
        )
    if layers is not None:
        skipped.extend((*layers.skipped, *layers.localization.skipped))
    return document(
        Parts(
            case=case,
            reference=reference,
            candidate=candidate,
            run=run,
            outputs=outputs,
            reasons={pair.site.tensor: reason_for(pair, case.policy) for pair in outputs},
            tensors=tensors,
            layers=layers,
            explanations=causes.explanations,
            triangles=causes.triangles,
            diagnosis=causes.diagnosis,
            verdict="incomplete" if verdict == "within" and any(skip.asked for skip in unreached) else verdict,
            skipped=tuple({(skip.what, skip.reason): skip for skip in skipped}.values()),
            growth=growth,
            timings=timings,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            command=settings.command,
        )
    )


def _real(case: Case, settings: Settings, folder: Path) -> Inputs | None:
    """The real samples that the user gave to hold the inputs against, if any; what is read once is kept in `folder`."""
    if not settings.real:
        return None
    spool, stacked, preprocess = folder / "real", settings.stacked, settings.preprocess
    return load_inputs(case.model, settings.real, spool=spool, stacked=stacked, preprocess=preprocess)


def _expectation(case: Case, run: OutputRun, progress: Progress) -> Expectation:
    """What each format would cost; nothing has to be predicted for outputs that one FP32 rounding explains."""
    least = dict.fromkeys(run.statistics, FLOAT32_ROUNDING)
    if all(distance(found) <= margin_of("f32") * FLOAT32_ROUNDING for found in run.statistics.values()):
        return Expectation(errors={"f32": least})
    chosen = _predicted_samples(case.inputs.indices, run)
    align = aligner(case.policy.matched)
    return expect_outputs(case.model, case.inputs, chosen, progress=progress, align=align)


def _predicted_samples(indices: Sequence[int], run: OutputRun) -> tuple[int, ...]:
    """The first samples and, as many, those of the largest errors: where a Softmax is saturated rounding is nothing."""
    sizes = error_by_sample(run, indices)
    worst = sorted(indices, key=lambda index: -sizes[index])[: _PREDICTED_SAMPLES // 2]
    rest = [index for index in indices if index not in worst][: _PREDICTED_SAMPLES - len(worst)]
    return tuple(sorted([*worst, *rest]))


def _judged_outputs(
    case: Case, run: OutputRun, expectation: Expectation, names: Mapping[str, str], how: Mapping[str, str]
) -> tuple[Pair, ...]:
    places = case.model.sites
    pairs = []
    for name, statistics in run.statistics.items():
        site = places.get(name, Site(tensor=name, node="", op_type="", index=-1))
        pair = pair_of(
            site,
            statistics,
            candidate_name=names.get(name, name),
            how=how.get(name, "name"),
            per_sample=run.per_sample[name],
            expected=expectation.of(name),
            outside=run.outside.get(name),
            is_output=True,
        )
        pairs.append(replace(pair, verdict=judge(pair, statistics, case.policy)))
    return tuple(pairs)


def _overall(outputs: Sequence[Pair], run: OutputRun) -> Verdict:
    verdicts = {pair.verdict for pair in outputs}
    if "beyond" in verdicts:
        return "beyond"
    asked = any(skip.asked for skip in run.skipped)
    return "incomplete" if asked or "incomplete" in verdicts else "within"


def _worst_samples(outputs: Sequence[Pair], indices: Sequence[int]) -> tuple[int, ...]:
    """The samples with the largest output errors, worst first."""
    size = [0.0] * len(indices)
    for pair in outputs:
        if len(pair.per_sample) == len(indices):
            size = [max(a, math.inf if math.isnan(b) else b) for a, b in zip(size, pair.per_sample, strict=True)]
    order = sorted(range(len(indices)), key=lambda position: -size[position])
    return tuple(indices[position] for position in order[:_LOCALIZED_SAMPLES])


def _tensor_pairs(
    case: Case,
    layers: Layers | None,
    outputs: Sequence[Pair],
    names: Mapping[str, str],
    how: Mapping[str, str],
    settings: Settings,
    progress: Progress,
) -> dict[str, Pair]:
    if layers is None:
        return {}
    # What is declared, and what the outputs turned out to be: a run in another arithmetic is graded by that one.
    formats = dict.fromkeys((case.policy.declared, *(pair.grade for pair in outputs)))
    expectation = expect_tensors(
        case.model,
        case.inputs,
        layers.reference,
        list(layers.statistics),
        formats=tuple(name for name in formats if name in {"tf32", "f16", "bf16"}),
        memory=settings.memory,
        progress=progress,
    )
    return _plain_pairs(case, layers.statistics, names, how, expectation)


def _plain_pairs(
    case: Case,
    found: Mapping[str, Statistics],
    names: Mapping[str, str],
    how: Mapping[str, str],
    expectation: Expectation,
) -> dict[str, Pair]:
    places = case.model.sites
    outputs = {value.name for value in case.model.outputs}
    return {
        name: pair_of(
            places[name],
            statistics,
            candidate_name=names.get(name, name),
            how=how.get(name, "name"),
            expected=expectation.of(name),
            is_output=name in outputs,
        )
        for name, statistics in found.items()
    }
