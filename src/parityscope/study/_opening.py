"""A request -> the case and the targets that are examined, and the other samples that it names.

The deployment's own inputs, sample by sample: from where the user says, or from the candidate's recording.

Two recordings without a model: what the first holds, as a model that nothing is computed of, and as samples without inputs.

Its outputs are those that the recording has, each made by an operator that no runtime has: what any arithmetic explains of a
difference is then not known, and only a budget, or what is not finite on one side alone, gives a verdict.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import format_word
from parityscope.backends import backend_named, is_recording
from parityscope.backends.declared_inputs import INPUTS, name_as_model
from parityscope.backends.matching import match_recordings
from parityscope.backends.opening import model_of
from parityscope.backends.saved import open_recording
from parityscope.backends.targets import check_target, parse_target, with_option, without_option
from parityscope.case import Case, Inputs, Sample, load_inputs, load_model
from parityscope.case.originals import with_originals
from parityscope.case.own import OwnInputs, stored_arrays
from parityscope.case.policy import DECLARED, fit_policy, override_policy
from parityscope.case.policy_file import PolicyFile, read_policy
from parityscope.errors import ParityError
from parityscope.examination import Examination
from parityscope.private_folders import scratch_folder
from parityscope.records import Policy, Skip, Target
from parityscope.study._budgets import known_metrics
from parityscope.study.sampling import draw_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.case import Model
    from parityscope.request import Request

_SUFFIXES = frozenset({".json", ".npy", ".npz", ".safetensors"})
_DOMAIN, _OPERATOR = "parityscope.recorded", "Recorded"
_HALVES = frozenset({"f16", "bf16"})
_TOLD = 5  # broken parts of a file that are named


def _declared_formats(model: Model, own: Model) -> tuple[str, ...]:
    """The formats that the candidate's file declares by its types.

    A graph that quantizes says with which scales: where the reference's does too, both compute the same function, and another
    quantization is no excuse. Half precision is, as a reference on a CPU computes it in FP32.
    """
    return tuple(name for name in own.formats if name in _HALVES or name not in model.formats)


def _as_typed(policy: Policy, model: Model) -> Policy:
    """The policy, whose arithmetic is not finer than the types that the reference's own file declares.

    A deployment that rounds where the file says so does what it should, though ONNX Runtime on a CPU computes it in FP32.
    """
    typed = next((name for name in reversed(model.formats) if name in _HALVES), "")
    if not typed or policy.budgets or DECLARED.index(policy.declared or DECLARED[0]) >= DECLARED.index(typed):
        return policy
    return replace(policy, declared=typed, declared_reason="the reference's own file is typed so")


@contextlib.contextmanager
def open_request(request: Request) -> Iterator[Examination]:
    """The examination of a request, of which nothing is known yet; samples read only once are kept until the block ends.

    Raises:
        ParityError: a target, the policy, the model or the data cannot be used.
    """
    reference, candidate = (
        _usable_target(request.reference),
        _usable_target(request.candidate),
    )  # before anything is read that may be large
    candidate = _with_recorded_names(candidate, request.mapping)
    peer = _usable_target(request.peer) if request.peer else None
    stated = _stated_policy(request.policy)
    # A folder is a recording beside another one; else it was meant as a model, and is refused as such.
    if _is_recorded(request.model) and (is_recording(candidate) or not Path(request.model).is_dir()):
        with scratch_folder("recorded") as folder:
            yield _open_recorded(request, stated.policy, candidate, Path(folder))
        return
    model = load_model(request.model)
    candidate = _with_named_inputs(candidate, model, request.mapping)
    candidate, own, left_out = _read_own_file(model, candidate)
    _check_types(model, own, candidate)
    policy = override_policy(
        stated.policy, format_word(request.declared), candidate, request.budgets, _declared_formats(model, own)
    )
    policy = fit_policy(_as_typed(request.judged.override(policy), model), model)
    with scratch_folder("spool") as spool:
        inputs = load_inputs(
            model,
            request.inputs or None,
            spool=Path(spool),
            samples=stated.samples if request.samples is None else request.samples,
            stacked=request.stacked,
            preprocess=request.preprocess,
            shapes=request.shapes or None,
            seed=request.seed,
            memory=request.memory,
            allow_skipped=request.allow_skipped,
            draw=draw_order(policy, request.seed) if request.until_sure else None,
        )
        if request.images:
            inputs = with_originals(inputs, Path(request.images))
        seen = _own_inputs(request.candidate_inputs, candidate, inputs, model, own)
        case = Case(name=model.path.stem, model=model, inputs=inputs, policy=policy, own=seen)
        yield Examination(
            request=request,
            case=case,
            reference=reference,
            candidate=candidate,
            peer=peer,
            skipped=left_out,
            real=_load_real(request, model, Path(spool, "real")),
        )


def _read_own_file(model: Model, candidate: Target) -> tuple[Target, Model, tuple[Skip, ...]]:
    """The candidate, its own model, and what of that cannot be read; a recording can be judged without its file.

    Raises:
        ParityError: its file cannot be read, and would be run.
    """
    path, fix = candidate.option("model"), "export it again, whole, and its differences are looked at as well"
    try:
        own = model_of(model, candidate)
    except ParityError as error:
        if not is_recording(candidate):
            raise
        left = without_option(candidate, "model")
        return left, model, (Skip(what=f"the candidate's file {path}", reason=error.problem, fix=error.fix or fix),)
    told = "; ".join(own.unread[:_TOLD]) + (f"; and {len(own.unread) - _TOLD} more" if len(own.unread) > _TOLD else "")
    return (
        candidate,
        own,
        ((Skip(what=f"a part of the candidate's file {path}", reason=told, fix=fix),) if told else ()),
    )


def _open_recorded(request: Request, policy: Policy, candidate: Target, folder: Path) -> Examination:
    """The examination of two recordings, for which no model is needed."""
    if not is_recording(candidate):
        raise ParityError(f"{request.model} is a recording, which cannot be run", fix="give a second recording")
    model, inputs, reference = _load_recorded(request, folder)
    policy = override_policy(policy, format_word(request.declared), candidate, request.budgets, ())
    policy = fit_policy(request.judged.override(policy), model)
    case = Case(
        name=f"{Path(request.model).name}, {Path(candidate.option('path')).name}",
        model=model,
        inputs=inputs,
        policy=policy,
    )
    return Examination(request=request, case=case, reference=reference, candidate=candidate, peer=None)


def _load_real(request: Request, model: Model, spool: Path) -> Inputs | None:
    """The real samples that the user gave to hold the inputs against, if any; what is read once is kept in `spool`."""
    if not request.real:
        return None
    return load_inputs(
        model,
        request.real,
        spool=spool,
        stacked=request.stacked,
        preprocess=request.preprocess,
        memory=request.memory,
    )


def _with_recorded_names(candidate: Target, mapping: Mapping[str, str]) -> Target:
    """A recording has no graph whose tensors `mapping` could name: what it calls otherwise is told with its own option."""
    if not mapping or not is_recording(candidate):
        return candidate
    told = [candidate.option("map"), *(f"{new}:{old}" for old, new in mapping.items())]
    return with_option(candidate, "map", ",".join(filter(None, told)))


def _with_named_inputs(candidate: Target, model: Model, mapping: Mapping[str, str]) -> Target:
    """A candidate with the inputs that `mapping` names; its file's are renamed before anything else is asked of it."""
    inputs = {value.name for value in model.inputs}
    named = [f"{new}:{old}" for old, new in mapping.items() if old in inputs]
    if not named or is_recording(candidate):
        return candidate
    return with_option(candidate, INPUTS, ",".join(filter(None, (candidate.option(INPUTS), *named))))


def _usable_target(text: str) -> Target:
    target = parse_target(text)
    check_target(target, backend_named(target.backend))
    return target


def _check_types(model: Model, own: Model, candidate: Target) -> None:
    """One sample is given to both sides: the candidate's own file must take what the reference takes.

    Raises:
        ParityError: it has none of the reference's inputs, or one of another type.
    """
    taken = {value.name: value.dtype for value in model.inputs}
    wanted = [value.name for value in own.inputs]
    unknown = [name for name in wanted if name not in taken]
    missing = [name for name in taken if name not in wanted]
    if backend_named(candidate.backend).reads_model and unknown and missing:
        named = " ".join(f"--map {mine}={its}" for mine, its in zip(missing, unknown, strict=False))
        raise ParityError(
            f"the candidate's inputs are {', '.join(wanted)}, the reference's {', '.join(taken)}: "
            "types and shapes do not tell which is which",
            where=str(own.named),
            fix=f"say it, for example {named}; or give the file that was made from this model",
        )
    for value in own.inputs if backend_named(candidate.backend).reads_model else ():
        if value.dtype != taken.get(value.name, value.dtype):
            raise ParityError(
                f"input {value.name!r} is {value.dtype} in the candidate's file and {taken[value.name]} in the reference's",
                where=str(own.path),
                fix="convert it again with its inputs kept as they are (keep_io_types=True), or take "
                f"parityscope evaluate {own.path.name} --reference {model.path.name}, which puts a Cast in front",
            )


def _stated_policy(policy: str | Path | Policy | None) -> PolicyFile:
    if policy is None:
        return PolicyFile(policy=Policy(declared=""))
    if isinstance(policy, Policy):
        return PolicyFile(policy=policy)
    return read_policy(Path(policy), known_metrics())


def _own_inputs(
    data: str | Path | None, candidate: Target, inputs: Inputs, model: Model, own: Model
) -> OwnInputs | None:
    """The inputs in `data`, else those in the candidate's recording; None where there are none.

    Which file belongs to which sample is told as for recorded outputs (`backends.matching`).

    Raises:
        ParityError: `data` cannot be read.
    """
    asked = data is not None
    if data is None:
        recorded = candidate.option("path")
        if not is_recording(candidate) or not recorded or not (Path(recorded) / "inputs").is_dir():
            return None
        data = Path(recorded) / "inputs"
    try:
        stored, files = stored_arrays(Path(data))
    except ParityError:
        if asked:
            raise
        return None  # blobs and the like, beside outputs that can be read
    if asked:  # what cannot be read is said before anything is run
        stored.read(0, stored.names(0))
    match = match_recordings(stored, files, candidate.option("pair", "name"))

    def read(index: int) -> Mapping[str, np.ndarray]:
        place = match(inputs.sample(index))
        return name_as_model(stored.read(place, stored.names(place)), model, own, candidate)

    return OwnInputs(origin=stored.origin, read=read)


def _is_recorded(model: str | Path) -> bool:
    """Whether what stands in a model's place is a recording."""
    return Path(model).suffix.lower() in _SUFFIXES or Path(model).is_dir()


def _load_recorded(request: Request, folder: Path) -> tuple[Model, Inputs, Target]:
    """The model that is written into `folder`, one sample without inputs for each that was recorded, and the recording's target.

    Raises:
        ParityError: more is asked for than outputs tell, or it cannot be read.
    """
    path = str(request.model)
    if request.goes_to("tensors"):
        raise ParityError(
            f"{path} is a recording, and has no layers", fix="parityscope compare holds its outputs beside others"
        )
    if request.inputs:
        raise ParityError(
            "two recordings have no inputs", fix="leave --inputs out, or give the model in place of the first"
        )
    stored, files = open_recording(path)
    names = files or stored.labels
    first = stored.read(0, stored.names(0))
    written = folder / f"{Path(path).stem}.onnx"
    _write_model({name: (str(array.dtype), array.ndim) for name, array in first.items()}, written)
    model = load_model(written)
    inputs = Inputs(
        origin=path,
        names=(),
        sha256="",
        indices=tuple(range(len(names))),
        count=len(names),
        read=lambda index: Sample(index=index, name=names[index], arrays={}),
    )
    return model, inputs, Target(backend="saved", options=(("path", path),))


def _write_model(tensors: dict[str, tuple[str, int]], path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import helper

    nodes, values = [], []
    for name, (dtype, axes) in tensors.items():
        nodes.append(helper.make_node(_OPERATOR, [], [name], name=name, domain=_DOMAIN))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        values.append(helper.make_tensor_value_info(name, kind, [None] * axes))
    graph = helper.make_graph(nodes, path.stem, [], values)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
