"""Pipeline -> which stage's fault it is: every stage is held against its reference on what it was really given.

What a stage's reference makes of the candidate chain's own inputs divides the error exactly, as the severed replay does it for
layers: with r the reference chain, c the candidate chain and f(c_in) the reference of a stage on the candidate's inputs,

    c - r  =  (c - f(c_in))  +  (f(c_in) - r)
              introduced        inherited

The glue between stages is divided likewise: what the reference's glue makes of the candidate's upstream outputs, against what
the deployment's own makes of them. The first stage that introduces more than its arithmetic explains is examined in full.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named, probe_backend
from parityscope.backends.recording import ignore_progress
from parityscope.backends.targets import check_target, parse_target
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.records import Skip
from parityscope.request import Request
from parityscope.study._examining import examine_request
from parityscope.study._opening import open_request
from parityscope.study._pipeline_sides import PipelineSide, feed_stage, run_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Model
    from parityscope.request import Depth
    from parityscope.study._pipeline_file import Pipeline, Stage

    Arrays = Mapping[str, np.ndarray]

PIPELINE_SCHEMA = "parityscope-pipeline/1"
# Glue that computes in FP32 in another order may move its results by rounding.
_GLUE_LIMIT = margin_of("f32") * FLOAT32_ROUNDING
_NO_GLUE = {"glue": None, "glue_verdict": "within"}


def examine_pipeline(
    pipeline: Pipeline,
    *,
    folder: Path,
    samples: int | None = None,
    memory: int,
    seconds: float = math.inf,
    command: str = "",
    progress: Progress = ignore_progress,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The pipeline's document, and the study's document of the first stage that differs (None: none does).

    `folder` is scratch: what every stage got and gave is written there.

    Raises:
        ParityError: a stage cannot run, or its inputs are not what its model declares.
    """
    models = _load_models(pipeline)
    data = load_inputs(
        models[0],
        pipeline.inputs or None,
        spool=folder / "spool",
        samples=samples,
        stacked=pipeline.stacked,
        preprocess=pipeline.preprocess,
        memory=memory,
    )
    given = {place: dict(sample.arrays) for place, sample in enumerate(data)}
    reference, candidate = PipelineSide(folder=folder / "reference"), PipelineSide(folder=folder / "candidate")
    told: list[dict[str, Any]] = []
    skipped: list[Skip] = []
    study: dict[str, Any] | None = None
    first = ""
    for number, stage in enumerate(pipeline.stages):
        progress(f"stage {stage.name}", number, len(pipeline.stages))
        try:
            glue = feed_stage(pipeline, number, models[number], given, reference, candidate)
            entry, absent = _run_stage(stage, models[number], given, reference, candidate, folder, memory)
        except ParityError as error:
            if not first:
                raise _error_at(stage, error) from error
            # What an earlier stage does wrong may be why this one cannot run: it is named, and the chain ends here.
            unrun = pipeline.stages[number:]
            told += [
                {**_stage_entry(one), "calls": [0, 0], "verdict": "incomplete", "outputs": [], **_NO_GLUE}
                for one in unrun
            ]
            skipped.append(Skip(what=f"stage {stage.name}", reason=error.problem, fix=error.fix, asked=True))
            skipped += [
                Skip(what=f"stage {one.name}", reason=f"stage {stage.name} gave nothing", asked=True)
                for one in unrun[1:]
            ]
            break
        skipped += absent
        wrong_glue = glue is not None and glue > _GLUE_LIMIT
        told.append(
            {
                **entry,
                "glue": None if glue is None else _worst_number([glue]),
                "glue_verdict": "beyond" if wrong_glue else "within",
            }
        )
        if not first and (wrong_glue or entry["verdict"] == "beyond"):
            first = f"{stage.name} (glue)" if wrong_glue else stage.name
            if not wrong_glue:
                request = _request_of(stage, folder, memory=memory, seconds=seconds)
                study = _examine_stage(stage, folder, request, command, progress)
    progress("stages", len(pipeline.stages), len(pipeline.stages))
    verdict = "beyond" if first else "incomplete" if any(one["verdict"] == "incomplete" for one in told) else "within"
    document = {
        "schema": PIPELINE_SCHEMA,
        "verdict": verdict,
        "pipeline": str(pipeline.path),
        "samples": len(given),
        "first": first,
        "cause": _cause_sentence(study),
        "stages": told,
        "skipped": [
            {"what": one.what, "reason": one.reason, "fix": one.fix, "asked": one.asked}
            for one in dict.fromkeys(skipped)
        ],
    }
    plain: dict[str, Any] = json.loads(json.dumps(document, default=str))
    return plain, study


def _load_models(pipeline: Pipeline) -> tuple[Model, ...]:
    """The models of all stages, and whether their runtimes are here: told before the first stage runs."""
    found = []
    for stage in pipeline.stages:
        try:
            found.append(load_model(stage.model))
            for text in (stage.reference, stage.candidate):
                _check_here(text)
        except ParityError as error:
            raise _error_at(stage, error) from error
    return tuple(found)


def _check_here(text: str) -> None:
    target = parse_target(text)
    runtime = backend_named(target.backend)
    check_target(target, runtime)
    if (probe := probe_backend(runtime)).problem:
        raise ParityError(probe.problem, where=text, fix=probe.fix)


def _error_at(stage: Stage, error: ParityError) -> ParityError:
    """The error with the stage that it is of."""
    named = f"stage {stage.name}"
    where = error.where if named in error.where else ", ".join(part for part in (named, error.where) if part)
    return ParityError(error.problem, where=where, fix=error.fix)


def _stage_entry(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "model": str(stage.model),
        "reference": stage.reference,
        "candidate": stage.candidate,
    }


def _run_stage(
    stage: Stage,
    model: Model,
    given: Mapping[int, Arrays],
    ours: PipelineSide,
    theirs: PipelineSide,
    folder: Path,
    memory: int,
) -> tuple[dict[str, Any], list[Skip]]:
    """Runs both sides, and the reference on the candidate's inputs; what each output's error is made of, and the verdict."""
    order: list[Arrays] = []
    counts = [0, 0]
    total: dict[str, list[float]] = {}
    inherited: dict[str, list[float]] = {}
    skipped: list[Skip] = []
    own = f"{stage.name}.inputs"
    with run_target(model, stage.reference) as reference, run_target(model, stage.candidate) as candidate:
        for sample in given:
            r_in, c_in = ours.get(own, sample), theirs.get(own, sample)
            counts[0] += len(r_in)
            counts[1] += len(c_in)
            r_out = [reference(arrays) for arrays in r_in]
            # A recording answers for the place of a call in the chain, and for nothing else.
            c_out = [candidate(arrays) for arrays in c_in]
            for call_, outputs in enumerate(r_out):
                ours.put(stage.name, sample, call_, outputs)
            for call_, outputs in enumerate(c_out):
                theirs.put(stage.name, sample, call_, outputs)
            order.extend(c_in)
            if len(r_in) != len(c_in):
                reason = f"{len(r_in)} calls of the reference and {len(c_in)} of the candidate for sample {sample}"
                skipped.append(Skip(what=f"inherited error of stage {stage.name}", reason=reason))
                continue
            for r, c, own_in in zip(r_out, c_out, c_in, strict=True):
                f = reference(own_in)
                for name in r:
                    total.setdefault(name, []).append(distance_between(r[name], c.get(name)))
                    inherited.setdefault(name, []).append(distance_between(r[name], f.get(name)))
    entry: dict[str, Any] = {**_stage_entry(stage), "calls": counts}
    if not order:
        return {**entry, "verdict": "incomplete", "outputs": []}, [
            *skipped,
            Skip(what=f"stage {stage.name}", reason="the candidate's chain gives it no calls", asked=True),
        ]
    for place, arrays in enumerate(order):
        write_npz(folder / "given" / stage.name / f"{place:06d}.npz", arrays)
    found = _examine_stage(
        stage, folder, _request_of(stage, folder, memory=memory, depth="outputs"), "", ignore_progress
    )
    told = [
        {
            "name": one["name"],
            "introduced": one["rel_l2"],
            "inherited": _worst_number(inherited.get(one["name"], [])),
            "total": _worst_number(total.get(one["name"], [])),
            "grade": one["grade"],
            "verdict": one["verdict"],
        }
        for one in found["outputs"]
    ]
    return {**entry, "verdict": found["verdict"], "outputs": told}, skipped


def _request_of(
    stage: Stage, folder: Path, *, memory: int, depth: Depth = "causes", seconds: float = math.inf
) -> Request:
    """What is asked of a stage: on what the candidate's chain gave it."""
    return Request(
        model=stage.model,
        candidate=stage.candidate,
        reference=stage.reference,
        inputs=folder / "given" / stage.name,
        declared=stage.declared,
        policy=stage.policy,
        memory=memory,
        depth=depth,
        seconds=seconds,
    )


def _examine_stage(stage: Stage, folder: Path, request: Request, command: str, progress: Progress) -> dict[str, Any]:
    """The stage examined."""
    with open_request(request) as asked:
        scratch = folder / "examined" / stage.name
        scratch.mkdir(parents=True, exist_ok=True)
        return examine_request(replace(asked, folder=scratch, command=command, progress=progress))


def _worst_number(values: Sequence[float]) -> float | str | None:
    """The worst of some calls, as strict JSON."""
    if not values:
        return None
    worst = max(math.inf if math.isnan(one) else one for one in values)
    return "Infinity" if math.isinf(worst) else worst


def _cause_sentence(study: Mapping[str, Any] | None) -> str:
    found = study["findings"] if study else ()
    return next((f"{one['code']}: {one['claim']}" for one in found if one["role"] == "cause"), "")
