"""What counts as within: the declared arithmetic, budgets, and which budget is about which output.

A budget for one output takes the place of the one for every output in the same metric. What is given as an option takes
the place of what a policy file says about the same thing.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.case.deciding import stated_rule
from parityscope.errors import ParityError
from parityscope.records import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.case.model import Model
    from parityscope.records import Budget, Target

# Arithmetics that a candidate may declare, the finest first.
DECLARED = ("f32", "tf32", "f16", "bf16", "int8")

# The metric of a tolerance: how many elements lie outside of it. None may.
OUTSIDE = "outside"


def declared_policy(
    declared: str, candidate: Target, budgets: tuple[Budget, ...] = (), formats: Sequence[str] = ()
) -> Policy:
    """The policy of a candidate: `declared` if it is given, else what its target says, else the types of its file, else FP32.

    `formats` are those below float32 that its file holds, the finest first: the coarsest decides.

    Raises:
        ParityError: there is no such arithmetic.
    """
    if declared and declared not in DECLARED:
        raise ParityError(f"{declared!r} is no declared arithmetic", fix=f"use one of: {', '.join(DECLARED)}")
    if declared:
        return Policy(declared=declared, declared_reason="given with --declared", budgets=budgets)
    if candidate.precision in DECLARED:
        said = "the candidate's target says so"
        return Policy(declared=candidate.precision, declared_reason=said, budgets=budgets)
    if formats:
        said = "the types of the candidate's file say so"
        return Policy(declared=formats[-1], declared_reason=said, budgets=budgets)
    return Policy(budgets=budgets)


def override_policy(
    file: Policy, declared: str, candidate: Target, budgets: Sequence[Budget], formats: Sequence[str] = ()
) -> Policy:
    """The policy of a file, with `declared` and `budgets` of the options in place of what it says about the same.

    A budget for every output takes the place of all that the file says in this metric. `declared` is empty where no
    option gives it, and the file's is where it says nothing; `formats` are as in `declared_policy`.

    Raises:
        ParityError: there is no such arithmetic.
    """
    kept = (one for one in file.budgets if not any(_replaces_budget(given, one) for given in budgets))
    chosen = (*kept, *budgets)
    if declared or not file.declared:
        return replace(
            declared_policy(declared, candidate, chosen, formats), matched=file.matched, decides=file.decides
        )
    return replace(file, budgets=chosen)


def merge_policies(general: Policy, own: Policy) -> Policy:
    """The policy for all with what one case of it says itself in place of what it says about the same."""
    kept = (one for one in general.budgets if not any(_replaces_budget(said, one) for said in own.budgets))
    by = own if own.declared else general
    return Policy(
        declared=by.declared,
        declared_reason=by.declared_reason,
        budgets=(*kept, *own.budgets),
        matched=own.matched or general.matched,
        decides=own.decides or general.decides,
    )


def budgets_for(policy: Policy, output: str) -> tuple[Budget, ...]:
    """The budgets that are about `output`: its own, and those for every output in other metrics."""
    own = [one for one in policy.budgets if one.output == output]
    named = {one.metric for one in own}
    return (*own, *(one for one in policy.budgets if not one.output and one.metric not in named))


def fit_policy(policy: Policy, model: Model) -> Policy:
    """The policy for a model, with the outputs of which its graph says that values decide how many rows they have.

    Raises:
        ParityError: a budget, an output to match or one that decides something names no output of it.
    """
    outputs = [value.name for value in model.outputs]
    for budget in policy.budgets:
        if budget.output and budget.output not in outputs:
            close = difflib.get_close_matches(budget.output, list(outputs), n=1)
            fix = f"write {close[0]}" if close else f"use one of: {', '.join(outputs)}"
            raise ParityError(f"a budget is for {budget.output!r}, and the model has no such output", fix=fix)
    for name, words in policy.decides:
        if name not in outputs:
            close = difflib.get_close_matches(name, list(outputs), n=1)
            fix = f"write {close[0]}" if close else f"use one of: {', '.join(outputs)}"
            raise ParityError(f"something is decided by {name!r}, and the model has no such output", fix=fix)
        stated_rule(words)
    for name in policy.matched:
        if name not in outputs:
            close = difflib.get_close_matches(name, list(outputs), n=1)
            fix = f"write {close[0]}" if close else f"use some of: {', '.join(outputs)}"
            raise ParityError(f"the rows of {name!r} are to be matched, and the model has no such output", fix=fix)
    return replace(policy, counted=model.counted)


def _replaces_budget(given: Budget, said: Budget) -> bool:
    return given.metric == said.metric and given.output in {"", said.output}
