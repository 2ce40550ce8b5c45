"""The chain: outputs, expectations, verdict, layers, causes, repairs tried on copies, document."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from parityscope.backends.command import seconds
from parityscope.backends.limiting import limited_runs
from parityscope.backends.opening import model_of
from parityscope.case import load_inputs
from parityscope.errors import ParityError
from parityscope.expectation import Expectation
from parityscope.memory import allow
from parityscope.pairing import pair_graphs
from parityscope.records import Diagnosis, Skip
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
from parityscope.study._telling import tell_causes, tell_place, tell_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from parityscope.backends.recording import Progress
    from parityscope.case import Case, Inputs
    from parityscope.localization.calls import Growth
    from parityscope.pairing import PairedGraphs
    from parityscope.records import Pair, Target, Verdict
    from parityscope.study._bench import Answers
    from parityscope.study._examine import Settings
    from parityscope.study._found import Proof
    from parityscope.study._layers import Layers
    from parityscope.study._outputs import OutputRun

    Lap = Callable[[str], None]  # takes the time of a stage that is over

__all__ = ["Asked", "chain"]

_NOT_LOOKED = Skip(
    what="localization",
    reason="every output is within FP32's own noise, so that no layer can matter",
    fix="look all the same: parityscope diagnose --thorough, or parityscope localize",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is examined, how far, and where; `folder` holds spilled tensors and repaired copies."""

    case: Case
    reference: Target
    candidate: Target
    folder: Path
    settings: Settings
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What was seen of intermediate tensors: by name, with what each introduces where that was asked for."""

    tensors: Mapping[str, Pair]
    layers: Layers | None = None
    problems: tuple[Skip, ...] = ()


def chain(asked: Asked, unreached: tuple[Skip, ...] = ()) -> dict[str, Any]:
    """The document of a case that both sides can run; `unreached` is what is known to lie behind it.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    case, settings, progress = asked.case, asked.settings, asked.progress
    reference, candidate = asked.reference, asked.candidate
    allow(settings.memory)
    started = time.perf_counter()
    timings: dict[str, float] = {}

    def lap(stage: str) -> None:
        timings[stage] = time.perf_counter() - started - sum(timings.values())

    its_model = model_of(case.model, candidate)
    timeout = candidate.option("timeout")
    with limited_runs(seconds(timeout, 0) if timeout else None):
        paired = pair_graphs(
            case.model, its_model, case.inputs, explicit=settings.mapping or {}, memory=settings.memory
        )
    names = {**{value.name: value.name for value in case.model.outputs}, **paired.names}
    lap("pairing")
    run = run_outputs(case, reference, candidate, names, progress, inspect=settings.localize or settings.causes)
    lap("outputs")
    # Only arithmetic that the engine was seen to honour is excused; what it was asked for is what it declares.
    expectation = expectation_of(case, run, reference, progress)
    lap("prediction")
    outputs = judged_outputs(case, run, expectation, names, paired.how, progress)
    verdict = overall(outputs, run)
    growth, grown = _growth(asked, names, lap)
    verdict = "beyond" if grown else verdict
    tell_verdict(outputs, verdict, case.policy, progress)
    proof, answers = _proof(asked, run, outputs, names, verdict, lap)
    looked = _looked_or_told(asked, names, paired.how, outputs, verdict, lap, proof)
    layers = looked.layers
    tell_place(layers, verdict, progress)
    causes = Causes(diagnosis=Diagnosis(findings=(), unexplained=layers.localization.unexplained if layers else None))
    failed: list[Skip] = []
    if settings.causes:
        from parityscope.study._causes import find_causes

        known = Known(
            case=case,
            reference=reference,
            candidate=candidate,
            run=run,
            outputs=outputs,
            tensors=looked.tensors,
            layers=layers,
            names=names,
            verdict=verdict,
            real=_real(asked),
            growth=growth,
            expectation=expectation,
            thorough=settings.thorough,
            answers=answers,
            proof=proof,
        )
        try:
            causes = find_causes(
                known,
                folder=asked.folder,
                peer=settings.peer,
                memory=settings.memory,
                seconds=settings.seconds,
                progress=progress,
                lap=lap,
                only=settings.only,
            )
        except ParityError as error:
            failed.append(_failed("causes", error, asked=verdict == "beyond"))
        tell_causes(causes.diagnosis, progress)
    unjudged = [*unreached, *failed, *_without_reference(outputs), *_unjudged(causes.diagnosis)]
    return document(
        Parts(
            case=case,
            reference=reference,
            candidate=candidate,
            run=run,
            outputs=outputs,
            reasons={pair.site.tensor: reason_for(pair, case.policy) for pair in outputs},
            tensors=looked.tensors,
            layers=layers,
            explanations=causes.explanations,
            triangles=causes.triangles,
            diagnosis=causes.diagnosis,
            verdict="incomplete" if verdict == "within" and any(skip.asked for skip in unjudged) else verdict,
            skipped=_skipped(asked, unjudged, looked, causes, (paired, run, expectation)),
            growth=growth,
            sequence=causes.sequence,
            question=settings.question,
            timings=timings,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            command=settings.command,
        )
    )


def _without_reference(outputs: Sequence[Pair]) -> list[Skip]:
    """The outputs where the reference itself gives no number, so that nothing is known of what would be right there."""
    return [
        Skip(
            what=f"{pair.nonfinite_reference + pair.nonfinite_agreeing} elements of output {pair.site.tensor}",
            reason="the reference itself gives NaN or infinity there",
            fix="run the model alone on these samples, and mend the model or the data first",
        )
        for pair in outputs
        if pair.nonfinite_reference + pair.nonfinite_agreeing
    ]


def _growth(asked: Asked, names: Mapping[str, str], lap: Lap) -> tuple[Growth | None, bool]:
    """How the error grows over calls, where states are fed back, and whether it grows beyond what is honest."""
    settings = asked.settings
    if not settings.states:
        return None, False
    from parityscope.localization.calls import beyond
    from parityscope.study._sequences import measure_growth

    growth = measure_growth(
        asked.case, asked.reference, asked.candidate, names, settings.states, settings.steps, asked.progress
    )
    lap("calls")
    return growth, beyond(growth) is not None


def _proof(
    asked: Asked, run: OutputRun, outputs: Sequence[Pair], names: Mapping[str, str], verdict: Verdict, lap: Lap
) -> tuple[Proof | None, Answers | None]:
    """What is proved before layers are looked at, and what was answered on the way."""
    if verdict != "beyond" or not asked.settings.causes:
        return None, None
    from parityscope.study._bench import Answers
    from parityscope.study._proof import prove_from_file

    answers = Answers()
    proof = prove_from_file(asked, run, outputs, names, answers)
    lap("files")
    return proof, answers


def _looked_or_told(
    asked: Asked,
    names: Mapping[str, str],
    how: Mapping[str, str],
    outputs: Sequence[Pair],
    verdict: Verdict,
    lap: Lap,
    proof: Proof | None,
) -> _Looked:
    """As `_look`; where that fails, the reason. The outputs' verdict stands without it."""
    try:
        return _look(asked, names, how, outputs, verdict, lap, proof)
    except ParityError as error:
        return _Looked(tensors={}, problems=(_failed("localization", error, asked=not asked.settings.causes),))


def _failed(stage: str, error: ParityError, *, asked: bool) -> Skip:
    """What is told of a stage behind the verdict that failed: it takes nothing with it that is known already."""
    return Skip(what=stage, reason=error.problem, fix=error.fix, asked=asked)


def _look(
    asked: Asked,
    names: Mapping[str, str],
    how: Mapping[str, str],
    outputs: Sequence[Pair],
    verdict: Verdict,
    lap: Lap,
    proof: Proof | None,
) -> _Looked:
    """The intermediate tensors, as far as was asked and nothing is proved; `names` and `how` pair them."""
    case, settings, progress = asked.case, asked.settings, asked.progress
    if not settings.layers:
        return _Looked(tensors={})
    if verdict == "within" and not settings.looks_everywhere and all(pair.grade == "f32" for pair in outputs):
        return _Looked(tensors={}, problems=(_NOT_LOOKED,))
    # What localization and causes need takes longer to import than outputs take to compare: only who asks pays for it.
    if not settings.localize:
        statistics, problems = compare_tensors(
            case,
            asked.reference,
            asked.candidate,
            names,
            folder=asked.folder / "compared",
            memory=settings.memory,
            progress=progress,
        )
        lap("tensors")
        tensors = plain_pairs(case, statistics, names, how, Expectation(errors={}))
        return _Looked(tensors=tensors, problems=tuple(problems))
    from parityscope.study._layers import examine_layers

    names = names if proof is None else proof.pairing
    layers = examine_layers(
        case,
        asked.reference,
        asked.candidate,
        names,
        worst_samples(outputs, case.inputs.indices),
        folder=asked.folder,
        memory=settings.memory,
        inject=verdict != "within",
        thorough=settings.looks_everywhere,
        progress=progress,
        among=None if proof is None else proof.pairing,
    )
    lap("layers")
    tensors = tensor_pairs(case, layers, outputs, names, how, progress, thorough=settings.looks_everywhere)
    lap("grading tensors")
    told = () if proof is None else (_elsewhere(case, proof),)
    return _Looked(tensors=tensors, layers=layers, problems=told)


def _elsewhere(case: Case, proof: Proof) -> Skip:
    others = sum(name not in proof.pairing for name in case.model.sites)
    return Skip(what=f"{others} tensors elsewhere", reason=proof.reason, fix="look all the same: --thorough")


def _skipped(
    asked: Asked,
    unjudged: Sequence[Skip],
    looked: _Looked,
    causes: Causes,
    found: tuple[PairedGraphs, OutputRun, Expectation],
) -> tuple[Skip, ...]:
    """Everything that was not run, paired or judged, each once."""
    skipped = [*unjudged, *looked.problems, *causes.absent]
    for one in found:
        skipped.extend(one.skipped)
    skipped.extend((*causes.diagnosis.skipped, *asked.case.inputs.skipped))
    if looked.layers is not None:
        skipped.extend((*looked.layers.skipped, *looked.layers.localization.skipped))
    elif asked.settings.layers and asked.settings.localize and not looked.problems:
        skipped.append(
            Skip(
                what="localization",
                reason=f"{asked.candidate.backend} gave no intermediate tensors back",
                fix="record some with the recorder, or let the program write them beside its outputs",
            )
        )
    return tuple({(skip.what, skip.reason): skip for skip in skipped}.values())


def _unjudged(diagnosis: Diagnosis) -> list[Skip]:
    """What the verdict does not say, because the reference that the candidate agrees with is wrong."""
    return [
        Skip(
            what="whether the candidate is right",
            reason="the reference is not, and shares a bug of its optimizer with the candidate",
            fix=finding.repairs[0].command,
            asked=True,
        )
        for finding in diagnosis.findings
        if finding.details.get("shared")
    ][:1]


def _real(asked: Asked) -> Inputs | None:
    """The real samples that the user gave to hold the inputs against, if any; what is read once is kept in `folder`."""
    settings = asked.settings
    if not settings.real:
        return None
    spool, stacked, preprocess = asked.folder / "real", settings.stacked, settings.preprocess
    return load_inputs(
        asked.case.model,
        settings.real,
        spool=spool,
        stacked=stacked,
        preprocess=preprocess,
        memory=settings.memory,
    )
