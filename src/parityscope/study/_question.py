"""What is asked, in the words of the command line, made into the case and the targets that are examined."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends.targets import parse_target
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.originals import with_originals
from parityscope.case.policy import check_outputs, overridden
from parityscope.case.policy_file import PolicyFile, read_policy
from parityscope.records import Policy
from parityscope.study._budgets import known_metrics
from parityscope.study._own import own_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.records import Budget, Target

__all__ = ["Posed", "Question", "posed"]


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
    inputs: str | Path | None = None
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
    """A question that can be examined."""

    case: Case
    reference: Target
    candidate: Target


@contextlib.contextmanager
def posed(question: Question) -> Iterator[Posed]:
    """The case and the targets of a question; samples that can be read only once are kept until the block ends.

    Raises:
        ParityError: a target, the policy, the model or the data cannot be used.
    """
    reference, candidate = parse_target(question.reference), parse_target(question.candidate)
    stated = _stated(question.policy)
    policy = overridden(stated.policy, question.declared, candidate, question.budgets)
    model = load_model(question.model)
    policy = replace(policy, matched=question.match or policy.matched)
    check_outputs(policy, [value.name for value in model.outputs])
    with tempfile.TemporaryDirectory(prefix="parityscope-spool-") as spool:
        inputs = load_inputs(
            model,
            question.inputs or None,
            spool=Path(spool),
            samples=stated.samples if question.samples is None else question.samples,
            stacked=question.stacked,
            preprocess=question.preprocess,
            shapes=question.shapes or None,
            seed=question.seed,
        )
        if question.images:
            inputs = with_originals(inputs, Path(question.images))
        own = own_inputs(question.own_inputs, candidate, inputs)
        case = Case(name=model.path.stem, model=model, inputs=inputs, policy=policy, own=own)
        yield Posed(case=case, reference=reference, candidate=candidate)


def _stated(policy: str | Path | Policy | None) -> PolicyFile:
    if policy is None:
        return PolicyFile(policy=Policy(declared=""))
    if isinstance(policy, Policy):
        return PolicyFile(policy=policy)
    return read_policy(Path(policy), known_metrics())
