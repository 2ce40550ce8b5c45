"""The contract of checks, for those who write them: every example must, or must not, be found.

`findings_of(example, folder)` runs the whole chain on an example and gives its findings; `check_examples(check, folder)`
raises AssertionError with a sentence when an example of the check is judged wrongly. `prepare_example` makes the examination
that the chain begins with, of which both sides can be run.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.recording import observable_tensors
from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.own import OwnInputs
from parityscope.checks import known_checks
from parityscope.checks.asking import ask_check, describe_mistyped
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.program import compile_program
from parityscope.evaluation.worlds import Replaced, World
from parityscope.examination import OutputRun
from parityscope.records import Policy
from parityscope.study import Examination, Request, examine_request
from parityscope.testing.networks import write_network
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.case import Inputs, Model
    from parityscope.checks import Check, Example
    from parityscope.records import Finding


def check_examples(check: Check, folder: Path) -> None:
    """Runs every example of `check`, each in a folder of its own below `folder`; of those that hold `study.json` is left there.

    Raises:
        AssertionError: a parameter is annotated as what is not given, a finding that must be there is not, one that must not be
            is, or it names another tensor.
    """
    if mistyped := describe_mistyped(check):
        raise AssertionError("; ".join(mistyped))
    for number, example in enumerate(check.holds):
        if example.executed is not None:
            if not findings_told(check, example, folder / f"holds-{number}"):
                raise AssertionError(f"{check.code}: example {number} of holds is not found in what the runtime tells")
            continue
        study = examine_request(prepare_example(example, folder / f"holds-{number}"))
        write_whole(folder / f"holds-{number}" / "study.json", json.dumps(study, allow_nan=False))
        found = [one for one in study["findings"] if one["code"] == check.code]
        if not found:
            raise AssertionError(f"{check.code}: example {number} of holds is not found: {_why_not(check.code, study)}")
        sites = [one["site"]["tensor"] for one in found if one["site"]]
        if example.site and example.site not in sites:
            raise AssertionError(f"{check.code}: example {number} of holds names {sites}, not {example.site}")
    for number, example in enumerate(check.holds_not):
        found = [one for one in findings_of(example, folder / f"not-{number}") if one["code"] == check.code]
        if found:
            raise AssertionError(f"{check.code}: example {number} of holds_not is found: {found[0]['claim']}")


def findings_of(example: Example, folder: Path) -> list[dict[str, Any]]:
    """The findings of the whole chain on one example."""
    return list(examine_request(prepare_example(example, folder))["findings"])


def findings_told(check: Check, example: Example, folder: Path) -> list[Finding]:
    """What a check alone finds where a candidate is known to execute what the example says, and nothing is run."""
    folder.mkdir(parents=True)
    model = load_model(write_network(folder / "model.onnx", example.model, example.constants))
    target = parse_target(example.candidate)
    policy = Policy(declared=example.declared or target.precision or "f32")
    known = Examination(
        request=Request(model=model.path, candidate=example.candidate),
        case=Case(name="example", model=model, inputs=load_inputs(model, None, spool=folder / "spool"), policy=policy),
        reference=parse_target(example.reference),
        candidate=target,
        run=OutputRun(executed=example.executed),
    )
    results = [proposal.test() for proposal in ask_check(check, known)]
    return [result.finding for result in results if result.finding is not None]


def _why_not(code: str, study: Mapping[str, Any]) -> str:
    """What became of a check's claims in a study without a finding of it: failed, not examined, refuted, or none was made."""
    names = (f"check {code}", f"experiment {code}-")
    missed = [f"{one['what']}: {one['reason']}" for one in study["skipped"] if one["what"].startswith(names)]
    against = [one["because"] for one in study["refuted"] if one["experiment"]["check"] == code]
    if code not in known_checks():
        return "it is not registered (`parityscope new` prints the lines), and examples run through the whole chain"
    return "; ".join(missed + against) or "it makes no claim here: `propose` gives none, or what it names is not known"


def prepare_example(example: Example, folder: Path) -> Examination:
    """The examination of an example, whose files lie below `folder`, which is made; `examine_request` examines it.

    Raises:
        ParityError: a runtime that the example's faults are recorded with is not there.
    """
    folder.mkdir(parents=True)
    model = load_model(write_network(folder / "model.onnx", example.model, example.constants))
    inputs = folder / "inputs.npz"
    if example.inputs is not None:
        write_npz(inputs, example.inputs)
    rows = {len(array) for array in (example.inputs or {}).values() if array.ndim}
    stacked = example.inputs is not None and any(
        dim is None or isinstance(dim, str) for dim in _batch_sizes(model.inputs)
    )
    data = load_inputs(
        model,
        inputs if example.inputs is not None else None,
        spool=folder / "spool",
        stacked=stacked and len(rows) == 1,
    )
    network = str(_write_module(example, folder / "network.py"))
    candidate = example.candidate.replace("{network}", network)
    reference = example.reference.replace("{network}", network)
    if example.candidate_model:
        other = write_network(folder / "candidate.onnx", example.candidate_model, example.constants)
        candidate += f"{'&' if '?' in candidate else '?'}model={other}"
    if example.fault is not None:
        candidate = f"saved?path={_record_fault(example, model, folder)}"
    if example.inputs_fault is not None or example.outputs_fault is not None:
        recorded = _record_path_fault(example, model, data, folder / "recorded")
        candidate = f"saved?path={recorded}&pair=order"
        if example.environment is not None:
            (folder / "environment.json").write_text(json.dumps(dict(example.environment)), encoding="utf-8")
            candidate += f"&environment={folder / 'environment.json'}"
    if example.reference_fault is not None:
        wrong = replace(example, inputs_fault=None, outputs_fault=example.reference_fault)
        reference = f"saved?path={_record_path_fault(wrong, model, data, folder / 'reference')}&pair=order"
    target = parse_target(candidate)
    policy = Policy(declared=example.declared or target.precision or "f32", budgets=example.budgets)
    case = Case(name="example", model=model, inputs=data, policy=policy, own=_own_inputs_of(example, data))
    real = _write_real_samples(example, folder)
    request = Request(
        model=model.path,
        candidate=candidate,
        reference=reference,
        real=real,
        states=example.states,
        steps=example.steps,
    )
    asked = Examination(
        request=request,
        case=case,
        reference=parse_target(reference),
        candidate=target,
        real=load_inputs(model, real, spool=folder / "real-spool") if real else None,
    )
    (folder / "tensors").mkdir()
    return replace(asked, folder=folder / "tensors")


def _own_inputs_of(example: Example, data: Inputs) -> OwnInputs | None:
    """What the example's candidate computed on, where that is said to have been recorded."""
    if not example.records_inputs:
        return None
    samples: Sequence[Mapping[str, np.ndarray]] = [sample.arrays for sample in data]
    recorded = samples if example.inputs_fault is None else example.inputs_fault(samples)
    places = {index: place for place, index in enumerate(data.indices)}
    return OwnInputs(origin="the example", read=lambda index: recorded[places[index]])


def _write_real_samples(example: Example, folder: Path) -> str:
    """The file of the example's real samples, "" if it has none; they are stacked as its inputs are."""
    if example.real is None:
        return ""
    (folder / "real").mkdir()
    for number in range(len(next(iter(example.real.values())))):
        rows = {name: array[number : number + 1] for name, array in example.real.items()}
        write_npz(folder / "real" / f"{number:06d}.npz", rows)
    return str(folder / "real")


def _batch_sizes(values: Any) -> list[Any]:
    return [value.shape[0] for value in values if value.shape]


def _write_module(example: Example, path: Path) -> str:
    """The example's network as a file; what a target calls it by."""
    path.write_text(example.network, encoding="utf-8")
    return f"torch?module={path}:make"


def _record_fault(example: Example, model: Any, folder: Path) -> Path:
    """What the reference gives when the fault is planted: the tensor changed, and everything behind it computed on."""
    if example.fault is None or example.inputs is None:
        raise ValueError("an example with a fault needs inputs")
    tensor, change = example.fault
    names = [*(value.name for value in model.outputs), *observable_tensors(model)]
    clean = open_session(model.graph(), outputs=names)(example.inputs)
    program = compile_program(prepare_copy(model.graph(), OLDEST))
    faulty = World(name="faulty", program=program, stored={tensor: Replaced(change(clean[tensor]))})
    recorded = run_world(faulty, example.inputs, names)
    path = folder / "recorded.npz"
    write_npz(path, recorded)
    return path


def _record_path_fault(example: Example, model: Model, data: Inputs, recorded: Path) -> Path:
    """What the reference gives when the fault lies in the data path: one file for each sample, outputs only."""
    samples: Sequence[Mapping[str, np.ndarray]] = [sample.arrays for sample in data]
    if example.inputs_fault is not None:
        samples = example.inputs_fault(samples)
    run = open_session(model.graph(), folder=model.path.parent)
    outputs: Sequence[Mapping[str, np.ndarray]] = [run(arrays) for arrays in samples]
    if example.outputs_fault is not None:
        outputs = example.outputs_fault(outputs)
    recorded.mkdir()
    for number, arrays in enumerate(outputs):
        write_npz(recorded / f"{number:06d}.npz", arrays)
    return recorded
