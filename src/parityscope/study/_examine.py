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
from parityscope.comparison.warming import warm_kernels
from parityscope.errors import ParityError
from parityscope.pairing import pair_graphs
from parityscope.prediction import Expectation
from parityscope.records import Diagnosis, Skip
from parityscope.study._cut import Bounds, bound
from parityscope.study._document import Parts, document
from parityscope.study._found import Causes, Known
from parityscope.study._judging import reason_for
from parityscope.study._lockstep import compare_tensors
from parityscope.study._looking import (
    expectation_of,
    judged_outputs,
    overall,
    plain_pairs,
    tensor_pairs,
    worst_samples,
)
from parityscope.study._outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from parityscope.case import Case, Inputs
    from parityscope.records import Pair, Target

__all__ = ["Settings", "examine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How far to go.

    `layers` compares intermediate tensors, `localize` tells what each introduces, `causes` tests hypotheses and tries
    repairs.
    `memory` is in bytes, `seconds` the time for experiments, `mapping` renames tensors (reference -> candidate).
    `peer` is another target of the candidate's precision to hold it against (None: the simulation of that precision).
    `real` is DATA of real samples that the inputs are held against, read with `stacked` and `preprocess`.
    `states` are fed back (input -> output) for `steps` calls. `question` is what was asked, as plain data that the study keeps.
    With `only`, just the experiments that a study calls so are run.
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
    question: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] | None = None


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
    expectation = expectation_of(case, run, progress)
    lap("prediction")
    outputs = judged_outputs(case, run, expectation, names, paired.how)
    verdict = overall(outputs, run)
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
        tensors = plain_pairs(case, statistics, names, paired.how, Expectation(errors={}))
    elif settings.layers:
        from parityscope.study._layers import examine_layers

        chosen = worst_samples(outputs, case.inputs.indices)
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
        tensors = tensor_pairs(case, layers, outputs, names, paired.how, settings.memory, progress)
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
            known,
            folder=folder,
            peer=settings.peer,
            memory=settings.memory,
            seconds=settings.seconds,
            progress=progress,
            lap=lap,
            only=settings.only,
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
            sequence=causes.sequence,
            question=settings.question,
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
