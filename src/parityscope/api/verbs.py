"""The verbs that hold two sides against each other and give a study: each means what the command of its name does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, Unpack

from parityscope.api.arguments import with_checked_arguments
from parityscope.api.given import candidate_target, exported_file, model_and_data, model_file, own_reference
from parityscope.api.results import Result
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.api.given import Candidate, Data, Network
    from parityscope.api.options import DataOptions, DiagnosisOptions, RequestOptions
    from parityscope.records import Budget, Policy
    from parityscope.study import Examination


@with_checked_arguments
def diagnose(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate | None = None,
    budgets: Mapping[str, float] | None = None,
    **asked: Unpack[DiagnosisOptions],
) -> Result:
    """The whole chain: compare, localize, test causes, try repairs.

    Args:
        model: A path, bytes, an `onnx.ModelProto`, an `onnx_ir.Model`, or a `torch.nn.Module` or `ExportedProgram`, which is
            exported with the inputs (by onnxscript where it is installed).
        candidate: A target as on the command line ("trt:f16"), a callable (a dict of arrays by input name -> the outputs, by name
            or in order), a module of torch, also a compiled one, an `onnxruntime.InferenceSession`, or the answers
            themselves, one a sample.
        inputs: A path, a dict of arrays (one sample), or an iterable of those; arrays may be any that numpy takes. Without any,
            inputs are generated, and the result says so.
        reference: As `candidate`; by default ONNX Runtime, and the network itself where the model is one of torch.
        budgets: A limit by metric ({"rel_l2": 1e-3}), or by output and metric ({"boxes:rel_l2": 1e-3}).
        **asked: Further options: `options.DiagnosisOptions` (declared, policy, samples, memory, seconds ...).

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    return _answer_request(model, candidate, reference, inputs, budgets, depth="causes", **asked)


@with_checked_arguments
def compare(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate | None = None,
    budgets: Mapping[str, float] | None = None,
    all_tensors: bool = False,
    **asked: Unpack[RequestOptions],
) -> Result:
    """The outputs of two sides (every tensor with `all_tensors`); arguments as of `diagnose`, and `options.RequestOptions`."""
    depth = "tensors" if all_tensors else "outputs"
    return _answer_request(model, candidate, reference, inputs, budgets, depth=depth, **asked)


@with_checked_arguments
def localize(
    model: Network,
    *,
    candidate: Candidate,
    inputs: Data = None,
    reference: Candidate | None = None,
    budgets: Mapping[str, float] | None = None,
    **asked: Unpack[RequestOptions],
) -> Result:
    """Introduced and inherited error of every layer; arguments as of `diagnose`, and `options.RequestOptions`."""
    return _answer_request(model, candidate, reference, inputs, budgets, depth="layers", **asked)


@with_checked_arguments
def evaluate(
    model: Network,
    *,
    inputs: Data = None,
    reference: Network | None = None,
    declared: str = "",
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    all_tensors: bool = False,
    workers: str = "",
    **read: Unpack[DataOptions],
) -> Result:
    """The faithful error of a model in FP16, BF16, mixed or quantized precision, and what a CPU hides of it.

    `reference` is the FP32 original, a model as of `diagnose`; without it, the model's own low formats are lifted to FP32.
    The others are those of `diagnose` and `compare`, and `options.DataOptions`.

    Raises:
        ParityError: bad input, or there is neither an original nor a value of a low format.
    """
    from contextlib import nullcontext

    from parityscope import request
    from parityscope.study.typed_model import examine_typed, open_typed

    original = nullcontext() if reference is None else model_file(reference, inputs)
    with model_and_data(model, inputs) as (path, data), original as before:
        opened = open_typed(
            path,
            before,
            request.Data(inputs=data, **read),
            declared=declared,
            budgets=stated_budgets(budgets),
            policy=policy,
            workers=workers,
            depth="tensors" if all_tensors else "outputs",
        )
        with opened as (asked, sides):
            return _examine_apart(asked, lambda known: examine_typed(known, sides))


def _answer_request(
    model: Network,
    candidate: Candidate,
    reference: Candidate | None,
    inputs: Data,
    budgets: Mapping[str, float] | None,
    **asked: Any,
) -> Result:
    """What `diagnose`, `compare` and `localize` do: they differ in their depth; `asked` are other fields of the request."""
    from parityscope.study import Request, examine_request, open_request, question_of

    # What lay in memory cannot be asked again; what has a name can, by `experiment` and `reduce`.
    named = all(isinstance(one, str | Path | None) for one in (model, candidate, reference, inputs))
    with (
        # With the network itself as the reference, its export is a stage of its own, which causes speak of.
        model_and_data(model, inputs, checked=reference is not None) as (path, data),
        candidate_target(candidate, exported_file(model, path)) as tested,
        candidate_target(own_reference(model, reference), exported_file(model, path)) as original,
    ):
        request = Request(
            model=path,
            candidate=tested,
            reference=original,
            inputs=data,
            budgets=stated_budgets(budgets),
            **asked,
        )
        with open_request(request) as examination:
            question = question_of(examination, Path.cwd())
            if not named:
                question = {"asked": {"depth": question["asked"]["depth"]}}
            return _examine_apart(replace(examination, question=question), examine_request)


def _examine_apart(asked: Examination, examine: Callable[[Examination], dict[str, Any]]) -> Result:
    """Examines in a scratch folder, none of whose files is kept."""
    from parityscope.private_folders import scratch_folder
    from parityscope.study import list_errors

    with scratch_folder("run") as scratch:
        folder = Path(scratch)
        document = list_errors(examine(replace(asked, folder=folder)), folder)
    trials = (one.get("trial") for finding in document["findings"] for one in finding["repairs"])
    for trial in trials:
        if trial:
            trial["file"] = ""
    return Result(document=document)


def stated_budgets(limits: Mapping[str, float] | None) -> tuple[Budget, ...]:
    """Budgets of limits by metric, or by output and metric.

    Raises:
        ParityError: there is no such metric, or a limit is no number.
    """
    if not limits:
        return ()
    if not isinstance(limits, Mapping):
        raise ParityError(f"budgets are a {type(limits).__name__}", fix="give a dict, {'rel_l2': 1e-3}")
    from parityscope.study import stated_budget

    return tuple(stated_budget(head, _limit_as_float(limit), "budgets") for head, limit in limits.items())


def _limit_as_float(value: object) -> float:
    """A limit as a float; NaN, which `stated_budget` refuses, where it is no number."""
    return float(value) if isinstance(value, SupportsFloat) else math.nan
