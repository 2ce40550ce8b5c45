"""What is asked, in the words of the command line, made into the case and the targets that are examined."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import format_word
from parityscope.backends import backend
from parityscope.backends.opening import model_of
from parityscope.backends.targets import check_target, parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.inputs import MEMORY
from parityscope.case.originals import with_originals
from parityscope.case.policy import DECLARED, check_outputs, overridden
from parityscope.case.policy_file import PolicyFile, read_policy
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder
from parityscope.records import Policy
from parityscope.study._budgets import known_metrics
from parityscope.study._own import own_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case import Model
    from parityscope.case.sources import Stream
    from parityscope.records import Budget, Target

__all__ = ["Posed", "Question", "posed"]

_HALVES = frozenset({"f16", "bf16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A model, two targets in the grammar of targets, DATA and how to read it, and what counts as within.

    `declared`, `budgets` and `samples` take the place of what the policy says about the same; a policy is a file or a
    record. `match` names outputs whose rows have no order, `images` is the folder of the images that samples were made
    from, `own_inputs` the recorded inputs of the deployment's own model. Empty and None say nothing.
    """

    model: str | Path
    candidate: str
    reference: str = "ort"
    inputs: str | Path | Stream | None = None
    preprocess: str = ""
    stacked: bool = False
    shapes: Mapping[str, tuple[int, ...]] | None = None
    samples: int | None = None
    seed: int = 0
    declared: str = ""
    budgets: tuple[Budget, ...] = ()
    policy: str | Path | Policy | None = None
    match: tuple[str, ...] = ()
    images: str | Path | None = None
    own_inputs: str | Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Posed:
    """A question that can be examined; `candidate_model` is what the candidate runs: its own model, or the reference's."""

    case: Case
    reference: Target
    candidate: Target
    candidate_model: Model


def _formats(model: Model, own: Model) -> tuple[str, ...]:
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
def posed(question: Question, *, memory: int = MEMORY) -> Iterator[Posed]:
    """The case and the targets of a question; samples that can be read only once are kept until the block ends.

    Raises:
        ParityError: a target, the policy, the model or the data cannot be used.
    """
    reference, candidate = parse_target(question.reference), parse_target(question.candidate)
    for target in (reference, candidate):  # before anything is read that may be large
        check_target(target, backend(target.backend))
    stated = _stated(question.policy)
    model = load_model(question.model)
    own = model_of(model, candidate)
    _check_types(model, own, candidate)
    policy = overridden(
        stated.policy, format_word(question.declared), candidate, question.budgets, _formats(model, own)
    )
    policy = _as_typed(replace(policy, matched=question.match or policy.matched), model)
    check_outputs(policy, [value.name for value in model.outputs])
    with scratch_folder("spool") as spool:
        inputs = load_inputs(
            model,
            question.inputs or None,
            spool=Path(spool),
            samples=stated.samples if question.samples is None else question.samples,
            stacked=question.stacked,
            preprocess=question.preprocess,
            shapes=question.shapes or None,
            seed=question.seed,
            memory=memory,
        )
        if question.images:
            inputs = with_originals(inputs, Path(question.images))
        seen = own_inputs(question.own_inputs, candidate, inputs)
        case = Case(name=model.path.stem, model=model, inputs=inputs, policy=policy, own=seen)
        yield Posed(case=case, reference=reference, candidate=candidate, candidate_model=own)


def _check_types(model: Model, own: Model, candidate: Target) -> None:
    """One sample is given to both sides: the candidate's own file must take what the reference takes.

    Raises:
        ParityError: an input of it is of another type.
    """
    taken = {value.name: value.dtype for value in model.inputs}
    for value in own.inputs if backend(candidate.backend).reads_model else ():
        if value.dtype != taken.get(value.name, value.dtype):
            raise ParityError(
                f"input {value.name!r} is {value.dtype} in the candidate's file and {taken[value.name]} in the reference's",
                where=str(own.path),
                fix="convert it again with its inputs kept as they are (keep_io_types=True), or take "
                f"parityscope evaluate {own.path.name} --reference {model.path.name}, which puts a Cast in front",
            )


def _stated(policy: str | Path | Policy | None) -> PolicyFile:
    if policy is None:
        return PolicyFile(policy=Policy(declared=""))
    if isinstance(policy, Policy):
        return PolicyFile(policy=policy)
    return read_policy(Path(policy), known_metrics())
