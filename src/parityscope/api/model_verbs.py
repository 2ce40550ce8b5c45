"""The verbs that ask about a model: what its file says, what a format will do to it, what a target gives, what repairs it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from parityscope.api.arguments import with_checked_arguments
from parityscope.api.given import candidate_target, exported_file, model_and_data, model_file, own_reference
from parityscope.api.verbs import stated_budgets
from parityscope.private_folders import scratch_folder
from parityscope.request import Data as Asked
from parityscope.request import Judged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from parityscope.api.given import Candidate, Data, Network
    from parityscope.api.options import DataOptions
    from parityscope.api.results import Report
    from parityscope.backends.tensorrt.network import NetworkView
    from parityscope.expectation.forecasts import Forecast
    from parityscope.linting import Lint
    from parityscope.records import Policy
    from parityscope.repairs.search import RepairOutcome
    from parityscope.verification import Verification

_LOG = "build.log"


@with_checked_arguments
def look(model: Network, *, inputs: Data = None, **read: Unpack[DataOptions]) -> Report[Forecast]:
    """What FP16 and BF16 would do to a model, and what its file says; `record` is the forecast.

    Arguments as of `diagnose`, and `options.DataOptions`. Without inputs, samples are taken that lie beside the model's file,
    else generated. `exit` is BEYOND where an output would be lost.

    Raises:
        ParityError: bad input.
    """
    from parityscope.api.shared.forecasts import report_look

    with model_and_data(model, inputs) as (path, data):
        return report_look(path, Asked(inputs=data, **read))


@with_checked_arguments
def lint(
    model: Network,
    *,
    formats: Sequence[str] = ("f16", "bf16"),
    inputs: Data = None,
    network: str = "",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Report[Lint]:
    """What a model's file alone says about lower precision, without a run; `exit` is BEYOND where something will break.

    Args:
        model: As of `diagnose`.
        formats: Those that it is meant for: "f16", "bf16", "f8e4m3", "f8e5m2".
        inputs: Nothing but what a module of torch is exported with.
        network: A target of TensorRT ("trt"): it is parsed and built too, without a GPU.
        shapes: Of inputs that have dynamic ones, for `network`.

    Raises:
        ParityError: bad input, a format that there is not, or TensorRT is not installed.
    """
    from parityscope.api.shared.files import NetworkAsked, report_lint
    from parityscope.arithmetic.formats import format_word

    asked = NetworkAsked(target=network, shapes=shapes or {}) if network else None
    with model_file(model, inputs) as path, scratch_folder("network") as scratch:
        return report_lint(path, [format_word(name) for name in formats], asked, log=Path(scratch, _LOG))


@with_checked_arguments
def network(
    model: Network,
    *,
    target: str = "trt",
    inputs: Data = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    fix: Mapping[str, Any] | None = None,
    settle: bool = False,
    settled: str | Path | None = None,
    product: str = "",
    tf32: bool = False,
    keep_log: str | Path | None = None,
) -> Report[NetworkView]:
    """What TensorRT makes of a model, parsed and built without a GPU; `exit` is BEYOND where it is refused.

    The builder runs in this process, and may end it: the command of the same name keeps it in one of its own.

    Args:
        model: As of `diagnose`.
        target: How to build: "trt" or "trt?key=value&...".
        inputs: As of `diagnose`; their shapes are what dynamic inputs get.
        shapes: The same by name.
        fix: Inputs that become constants: numbers or arrays by name.
        settle: Whether what shapes and constants decide is computed before the build.
        settled: Where the settled model is written (.onnx).
        product: "tensorrt" or "rtx"; by default the first that is installed.
        tf32: Whether products may round to TF32.
        keep_log: Where the builder's verbose log is kept.

    Raises:
        ParityError: bad input, or TensorRT is not installed.
    """
    import numpy as np

    from parityscope.api.saving import refuse_file
    from parityscope.api.shared.files import NetworkAsked, report_network

    written = None if settled is None else Path(settled)
    if written is not None:
        refuse_file(written)
    with model_and_data(model, inputs) as (path, data), scratch_folder("network") as scratch:
        asked = NetworkAsked(
            target=target,
            inputs=data,
            shapes=shapes or {},
            values={name: np.asarray(value) for name, value in (fix or {}).items()},
            product=product,
            settle=settle or written is not None,
            tf32=tf32,
        )
        return report_network(path, asked, log=Path(keep_log or Path(scratch, _LOG)), settled=written)


@with_checked_arguments
def predict(
    model: Network,
    *,
    inputs: Data = None,
    formats: Sequence[str] = ("f16", "bf16", "tf32"),
    profile: str = "none",
    dynamic_range: str | Mapping[str, float] | None = None,
    outputs_only: bool = False,
    draws: int = 9,
    network: str = "",
    **read: Unpack[DataOptions],
) -> Report[Forecast]:
    """What each of `formats` will do to the model on these samples, without a candidate; `exit` is BEYOND if an output is lost.

    Args:
        model: As of `diagnose`.
        inputs: As of `diagnose`.
        formats: "f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "int8" or "fp8".
        profile: The engine whose fusion is simulated: none, openvino, onnxruntime-cuda or tensorrt.
        dynamic_range: For int8 and fp8: the largest magnitude of each activation, or the file of a calibration.
        outputs_only: Whether layers are left out.
        draws: Of the rounding of outputs of few numbers.
        network: A target of TensorRT ("trt"): it is parsed and built too, without a GPU.
        **read: `options.DataOptions`.

    Raises:
        ParityError: bad input, or a format or profile that there is not.
    """
    from parityscope.api.shared.forecasts import report_forecast
    from parityscope.arithmetic.formats import format_word
    from parityscope.case.formats.dynamic_ranges import dynamic_ranges
    from parityscope.expectation.forecasting import ForecastSettings

    with model_and_data(model, inputs) as (path, data), scratch_folder("network") as scratch:
        asked = Asked(inputs=data, **read)
        settings = ForecastSettings(
            profile=profile,
            dynamic_range=dynamic_ranges(dynamic_range) if isinstance(dynamic_range, str) else dynamic_range or {},
            layers=not outputs_only,
            introduced=not outputs_only,
            memory=asked.memory,
            draws=draws,
        )
        names = [format_word(name) for name in formats]
        return report_forecast(path, asked, names, settings, network=network, log=Path(scratch, _LOG))


@with_checked_arguments
def run(
    model: Network,
    *,
    target: Candidate = "ort",
    inputs: Data = None,
    all_tensors: bool = False,
    **read: Unpack[DataOptions],
) -> list[dict[str, np.ndarray]]:
    """What a target gives, a sample each: arrays by the names of outputs, with `all_tensors` of every tensor it shows.

    `target` is what is a `candidate` of `diagnose`, the others are those of `diagnose`, and `options.DataOptions`. Arrays are
    copies.

    Raises:
        ParityError: bad input, a missing runtime, or a target that cannot run.
    """
    import numpy as np

    from parityscope.api.shared.recordings import record_samples
    from parityscope.study import open_request

    with (
        model_and_data(model, inputs) as (path, data),
        candidate_target(target) as named,
        open_request(Asked(inputs=data, **read).make_request(path, named)) as asked,
    ):
        held = record_samples(asked, all_tensors=all_tensors)
        return [{name: np.array(array) for name, array in given.items()} for _, given in held]


@with_checked_arguments
def verify(
    model: Network,
    *,
    before: Candidate,
    after: Candidate,
    inputs: Data = None,
    reference: Candidate | None = None,
    metrics: Sequence[str | Callable[..., Any]] = (),
    labels: str | Path | None = None,
    budgets: Mapping[str, float] | None = None,
    policy: str | Path | Policy | None = None,
    match: tuple[str, ...] = (),
    decide: Mapping[str, str | float] | None = None,
    floor: float | None = None,
    timing: float = 20.0,
    workers: str = "",
    **read: Unpack[DataOptions],
) -> Report[Verification]:
    """Runs both deployments undisturbed and judges the paired differences; `exit` is WITHIN where the repair is one.

    Args:
        model: As of `diagnose`, and so are `inputs`, `reference`, `budgets`, `policy`, `match`, `decide` and `workers`.
        before: The deployment as it was, a candidate as of `diagnose`.
        after: The repaired one.
        inputs: See `model`.
        reference: See `model`.
        metrics: Task metrics: names of built-in ones, "file.py:function", or functions of (outputs, labels).
        labels: An `.npz` with a row a sample, or a folder of them; without, the truths that the data brings, if any ("none":
            these are not meant).
        budgets: See `model`.
        policy: See `model`.
        match: See `model`.
        decide: See `model`.
        floor: Absolute floor of budgets on rel_l2, a root mean square.
        timing: Seconds for measuring latency, 0 for none.
        workers: See `model`.
        **read: `options.DataOptions`; `seed` is also that of the bootstrap.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    from parityscope.api.shared.verifications import report_verification
    from parityscope.verification import VerificationSettings, metric_asked

    with (
        model_and_data(model, inputs, checked=reference is not None) as (path, data),
        candidate_target(before, exported_file(model, path)) as first,
        candidate_target(after, exported_file(model, path)) as second,
        candidate_target(own_reference(model, reference), exported_file(model, path)) as original,
    ):
        asked = Asked(inputs=data, **read)
        request = asked.make_request(
            path,
            second,
            reference=original,
            budgets=stated_budgets(budgets),
            policy=policy,
            match=match,
            decide=decide or {},
        )
        settings = VerificationSettings(
            metrics=tuple(map(metric_asked, metrics)), seed=asked.seed, timing=timing, floor=floor, workers=workers
        )
        return report_verification(request, first, settings, None if labels is None else Path(labels))


@with_checked_arguments
def repair(
    model: Network,
    *,
    inputs: Data = None,
    candidate: str = "",
    low: str = "",
    output: str | Path | None = None,
    budgets: Mapping[str, float] | None = None,
    metrics: Sequence[str | Callable[..., Any]] = (),
    policy: str | Path | Policy | None = None,
    match: tuple[str, ...] = (),
    decide: Mapping[str, str | float] | None = None,
    floor: float | None = None,
    search_samples: int = 0,
    held_out: int = 0,
    margin: float = 0.0,
    evaluations: int = 0,
    sensing: int = 0,
    seconds: float = math.inf,
    pick: int = 0,
    types: str = "",
    range_repairs: bool = True,
    consents: Sequence[str] = (),
    profile: str | Path | None = None,
    settings: Sequence[str] = (),
    plan: str | Path | None = None,
    write_plan: str | Path | None = None,
    threads: int = 0,
    **read: Unpack[DataOptions],
) -> Report[RepairOutcome]:
    """Searches the smallest change with which the model keeps its budgets in `low`, and certifies it on samples held out.

    Args:
        model: As of `diagnose`.
        inputs: As of `diagnose`; some are searched on, the others certify.
        candidate: The target that the model is for ("openvino:f16").
        low: The formats that it is meant for: "f16", "bf16", "f8e4m3", or several ("f8e4m3,f16"); by default the candidate's,
            else "f16".
        output: Where the repaired model is written (.onnx); it is not there where nothing was found.
        budgets: As of `diagnose`, and by the names of `metrics`; without any, a relative L2 error of 1 % at every output.
        metrics: Names of task metrics, "file.py:function", or functions of (reference's outputs, candidate's outputs) of one
            sample; each needs a budget.
        policy: A policy file or a `records.Policy`, for budgets and matched outputs where none are given.
        match: Outputs whose rows have no order.
        decide: What outputs decide, as of `diagnose`: no decision may change that the budget does not explain.
        floor: Absolute floor of rel_l2, a root mean square.
        search_samples: How many samples to search on; 0 is chosen by the search, here and below.
        held_out: How many samples to certify on.
        margin: Divides the budget while searching.
        evaluations: The search ends after so many evaluations.
        sensing: At most so many of them for sensitivities.
        seconds: The search ends after so long, with the best that it has.
        pick: Which row of the Pareto front is taken.
        types: "strong" writes types and Casts into the model; "f32" leaves it in FP32, for a runtime that converts by itself. By
            default by the candidate.
        range_repairs: Whether values may be moved into range, or nodes only kept in FP32.
        consents: Repairs that may change the function and are agreed to.
        profile: Measured node times (.json).
        settings: Kinds of settings that are written beside `output` ("trtexec").
        plan: A plan (.toml) that is applied without a search.
        write_plan: Where the plan is written; by default beside `output`.
        threads: Inside an operator.
        **read: `options.DataOptions`.

    Returns:
        `verdict` is "certified", "unproved", "infeasible" or "nothing". `record.statement` says it in a sentence,
        `record.kept` names the nodes that stay in FP32, `record.edits` the changes of ranges, and `record.certificate` what
        was shown on the samples held out. `exit` is WITHIN where every sample that was tried keeps its budgets.

    Raises:
        ParityError: bad input, a format that cannot be searched, or a file that cannot be written.
    """
    from parityscope.api.saving import refuse_file
    from parityscope.api.shared.repairs import RepairAsked, functions_of, plan_path, report_repair

    functions = functions_of(metrics)
    limits = {name: float(limit) for name, limit in (budgets or {}).items() if name in functions}
    file = None if output is None else Path(output)
    written = None if write_plan is None else Path(write_plan)
    if (place := plan_path(file, written)) is not None:
        refuse_file(place)
    asked = RepairAsked(
        candidate=candidate,
        low=low,
        types=types,
        budgets=stated_budgets({name: limit for name, limit in (budgets or {}).items() if name not in functions}),
        functions=functions,
        limits=limits,
        judged=Judged(policy=policy, match=match, decide=decide or {}),
        floor=floor,
        search_samples=search_samples,
        held_out=held_out,
        margin=margin,
        evaluations=evaluations,
        sensing=sensing,
        seconds=seconds,
        pick=pick,
        range_repairs=range_repairs,
        consents=tuple(consents),
        profile=None if profile is None else Path(profile),
        threads=threads,
        settings=tuple(settings),
        plan=None if plan is None else Path(plan),
        output=file,
        write_plan=written,
    )
    with model_and_data(model, inputs) as (path, data):
        return report_repair(path, Asked(inputs=data, **read), asked)
