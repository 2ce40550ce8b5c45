"""The verbs: each means what the command of its name does, on what a program has in its hands."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, SupportsFloat

from parityscope.api.given import candidate_target, data_source, model_file
from parityscope.api.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.api.given import Candidate, Data, Network
    from parityscope.expectation.forecasts import Forecast
    from parityscope.records import Budget, Policy
    from parityscope.study.changes.comparing import StudyChanges
    from parityscope.verification import Verification

__all__ = [
    "MEMORY",
    "compare",
    "diagnose",
    "diff",
    "input_names",
    "load_study",
    "localize",
    "predict",
    "stated_budgets",
    "verify",
]

MEMORY = 512 << 20  # bytes, as on the command line


def diagnose(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate = "ort",
    declared: str = "",
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = MEMORY,
) -> Result:
    """The whole chain: compare, localize, test causes, try repairs.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        candidate: A target as on the command line ("trt:f16"), a callable (a dict of arrays by input name -> the outputs, by name
            or in order), an `onnxruntime.InferenceSession`, or the answers themselves, one a sample.
        inputs: A path, a dict of arrays (one sample), or an iterable of those; arrays may be any that numpy takes. Without any,
            inputs are generated, and the result says so.
        reference: As `candidate`.
        declared: f32, tf32, f16 or bf16; by default what the policy or the candidate's target says.
        budgets: A limit by metric ({"rel_l2": 1e-3}), or by output and metric ({"boxes:rel_l2": 1e-3}).
        policy: A policy file or a `records.Policy`.
        mapping: Tensors of the reference -> those of the candidate.
        memory: In bytes.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    asked = {"declared": declared, "policy": policy, "mapping": mapping or {}, "memory": memory}
    return _answer_request(model, candidate, reference, inputs, budgets, **asked)


def compare(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate = "ort",
    declared: str = "",
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = MEMORY,
    all_tensors: bool = False,
) -> Result:
    """The outputs of two sides (every tensor with `all_tensors`); arguments as of `diagnose`."""
    asked = {"declared": declared, "policy": policy, "mapping": mapping or {}, "memory": memory}
    depth = "tensors" if all_tensors else "outputs"
    return _answer_request(model, candidate, reference, inputs, budgets, **asked, depth=depth)


def localize(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate = "ort",
    declared: str = "",
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: int = MEMORY,
) -> Result:
    """Introduced and inherited error of every layer or region; arguments as of `diagnose`."""
    asked = {"declared": declared, "policy": policy, "mapping": mapping or {}, "memory": memory}
    return _answer_request(model, candidate, reference, inputs, budgets, **asked, depth="layers")


def predict(
    model: Network,
    *,
    inputs: Data = None,
    formats: Sequence[str] = ("f16", "bf16", "tf32"),
    profile: str = "none",
    memory: int = MEMORY,
) -> Forecast:
    """What each of `formats` will do to the model on these samples, without a candidate.

    `profile` is the engine whose fusion is simulated: none, openvino, onnxruntime-cuda or tensorrt. The others are those of
    `diagnose`.

    Raises:
        ParityError: bad input, or a format or profile that there is not.
    """
    from parityscope.expectation import forecasting
    from parityscope.study import Request, open_request

    with model_file(model) as path:
        request = Request(model=path, candidate="ort", inputs=data_source(inputs, input_names(path)), memory=memory)
        with open_request(request) as asked:
            settings = forecasting.ForecastSettings(profile=profile, memory=memory)
            return forecasting.forecast(asked.case.model, asked.case.inputs, list(formats), settings)


def verify(
    model: Network,
    *,
    before: Candidate,
    after: Candidate,
    inputs: Data = None,
    reference: Candidate = "ort",
    metrics: Sequence[str] = (),
    labels: str | Path | None = None,
    policy: str | Path | Policy | None = None,
) -> Verification:
    """Runs both deployments undisturbed and judges the paired differences; arguments as of `diagnose`.

    `metrics` are names of built-in task metrics; `labels` an `.npz` with a row a sample, or a folder of them; without,
    they are the truths that the data brings, if any ("none": these are not meant).

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    from pathlib import Path

    from parityscope import verification
    from parityscope.backends.recording import ignore_progress
    from parityscope.backends.targets import parse_target
    from parityscope.private_folders import scratch_folder
    from parityscope.study import Request, open_request

    with (
        model_file(model) as path,
        candidate_target(before) as first,
        candidate_target(after) as second,
        candidate_target(reference) as original,
    ):
        data = data_source(inputs, input_names(path))
        request = Request(model=path, candidate=second, reference=original, inputs=data, policy=policy)
        with open_request(request) as asked, scratch_folder("verify") as scratch:
            settings = verification.VerificationSettings(
                metrics=tuple(verification.chosen_metric(name) for name in metrics),
                labels=verification.load_labels(
                    None if labels is None else Path(labels), asked.case.inputs, limited=False
                ),
            )
            targets = verification.Targets(reference=asked.reference, before=parse_target(first), after=asked.candidate)
            return verification.verify(asked.case, targets, settings, folder=Path(scratch), progress=ignore_progress)


def load_study(folder: str | Path) -> Result:
    """Reads a study again.

    Raises:
        ParityError: there is none, or another version wrote it.
    """
    from pathlib import Path

    from parityscope import study

    found = study.load_study(Path(folder))
    return Result(document=found.document, folder=found.folder)


def diff(before: str | Path | Result, after: str | Path | Result) -> StudyChanges:
    """What became better or worse between two studies, beyond noise, and which versions and settings changed.

    Raises:
        ParityError: a folder holds no study, or they have no output in common.
    """
    from parityscope.study import as_written, list_errors
    from parityscope.study.changes.comparing import compare_studies

    results = [one if isinstance(one, Result) else load_study(one) for one in (before, after)]
    with as_written():
        first, second = (list_errors(one.document, one.folder) for one in results)
        return compare_studies(first, second)


def _answer_request(
    model: Network,
    candidate: Candidate,
    reference: Candidate,
    inputs: Data,
    budgets: Mapping[str, float] | None,
    **asked: Any,
) -> Result:
    """What `diagnose`, `compare` and `localize` do: they differ in their depth; `asked` are other fields of the request."""
    from dataclasses import replace
    from pathlib import Path

    from parityscope.private_folders import scratch_folder
    from parityscope.study import Request, examine_request, list_errors, open_request

    with (
        model_file(model) as path,
        candidate_target(candidate) as tested,
        candidate_target(reference) as original,
    ):
        request = Request(
            model=path,
            candidate=tested,
            reference=original,
            inputs=data_source(inputs, input_names(path)),
            budgets=stated_budgets(budgets or {}),
            **asked,
        )
        with scratch_folder("run") as scratch, open_request(request) as examination:
            folder = Path(scratch)
            document = examine_request(replace(examination, folder=folder))
            return Result(document=_without_copies(list_errors(document, folder)))


def _without_copies(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a study whose files are not kept, which names none of them."""
    trials = (one.get("trial") for finding in document["findings"] for one in finding["repairs"])
    for trial in trials:
        if trial:
            trial["file"] = ""
    return document


def stated_budgets(limits: Mapping[str, float]) -> tuple[Budget, ...]:
    """Budgets of limits by metric, or by output and metric."""
    if not limits:
        return ()
    from parityscope.study import stated_budget

    return tuple(stated_budget(head, _limit_as_float(limit), "budgets") for head, limit in limits.items())


def _limit_as_float(value: object) -> float:
    """A limit as a float; NaN, which `stated_budget` refuses, where it is no number."""
    return float(value) if isinstance(value, SupportsFloat) else math.nan


def input_names(path: Path) -> Callable[[], Sequence[str]]:
    """Gives the names of the model's inputs, in order; the model is read when they are first asked for."""

    @functools.cache
    def names() -> Sequence[str]:
        from parityscope.case import load_model

        return tuple(value.name for value in load_model(path).inputs)

    return names
