"""What `parityscope repair` is asked, of its options: the format and whether to write types, budgets, the user's metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.cli import _options as o
from parityscope.errors import ParityError
from parityscope.plain_numbers import plain_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case.formats.loader import UserFunction
    from parityscope.records import Budget
    from parityscope.repairs.plan import RepairPlan

__all__ = ["aim_of", "budgets_asked", "budgets_planned", "check_numbers", "consents_of", "matched_of", "plan_asked"]


def check_numbers(
    *,
    search_samples: int,
    held_out: int,
    margin: float,
    pick: int,
    evaluations: int,
    sensing: int,
    threads: int,
) -> None:
    """Checks the numbers that have a meaning in a range only; 0 is "chosen by the search" for all of them.

    Raises:
        ParityError: one is negative, or a margin would loosen the budget.
    """
    for number, name in (
        (search_samples, "search-samples"),
        (held_out, "held-out"),
        (margin, "margin"),
        (pick, "pick"),
        (evaluations, "evaluations"),
        (sensing, "sensing"),
        (threads, "threads"),
    ):
        if number < 0 or (name == "margin" and 0 < number < 1):
            raise ParityError(f"--{name} {number:g} makes no sense", fix=f"leave --{name} out, or use a larger number")


def aim_of(candidate: str, low: str, types: str) -> tuple[str, bool]:
    """The low format, and whether types and Casts are written into the model, by the target where no option says it.

    Raises:
        ParityError: an option is not known, or two contradict each other.
    """
    from parityscope.arithmetic.formats import format_word
    from parityscope.backends import known_backend
    from parityscope.backends.targets import parse_target

    low = ",".join(format_word(one) for one in low.split(",")) if low else low
    if types not in {"", "strong", "f32"}:
        raise ParityError(f"--types {types!r} is not known", fix="use --types strong or --types f32")
    target = parse_target(candidate) if candidate else None
    if target is not None and low and target.precision and low != target.precision:
        raise ParityError(f"--low {low} contradicts --candidate {candidate}", fix="leave one of them out")
    chosen = low or (target.precision if target is not None else "") or "f16"
    # A runtime that converts an FP32 model by itself gets the range repairs in FP32 and no Casts.
    converts = target is not None and (found := known_backend(target.backend)) is not None and found.converts
    return chosen, types == "strong" if types else not converts


def budgets_asked(
    items: list[str] | None, functions: Mapping[str, UserFunction], policy: Path | None
) -> tuple[Budget, ...]:
    """Budgets of the options, of the policy file, or the default; `NAME=VALUE` may name a function of the user's.

    Raises:
        ParityError: an item or the policy cannot be read, or a metric of the user's has no budget.
    """
    from parityscope.records import Budget
    from parityscope.repairs.search import DEFAULT_BUDGET

    own, rest = [], []
    for item in items or []:
        head, _, value = item.rpartition("=")
        if head in functions:
            own.append(Budget(output="", metric=head, limit=_limit_of(item, value), reason="given with --budget"))
        else:
            rest.append(item)
    missing = sorted(set(functions) - {one.metric for one in own})
    if missing:
        raise ParityError(f"the metric {missing[0]!r} has no budget", fix=f"add --budget {missing[0]}=VALUE")
    found = (*o.budgets_of(rest), *own)
    if policy is not None and not found:
        from parityscope.case.policy_file import read_policy
        from parityscope.study import known_metrics

        found = read_policy(policy, known_metrics()).policy.budgets
    return found or (DEFAULT_BUDGET,)


def consents_of(names: list[str] | None) -> tuple[str, ...]:
    """The repairs that may change the function.

    Raises:
        ParityError: one of them is none.
    """
    if not names:
        return ()
    from parityscope.repairs import known_repairs

    known = sorted(name for name, repair in known_repairs().items() if repair.consent)
    for name in names:
        if name not in known:
            raise ParityError(
                f"--consent {name!r} is no repair that asks for it", fix=f"use one of: {', '.join(known)}"
            )
    return tuple(names)


def plan_asked(path: Path, *, low: str, types: str, pick: int) -> RepairPlan:
    """The plan that is to be applied, which says itself what options of a search would say.

    Raises:
        ParityError: it cannot be read, or one of these options is given.
    """
    from parityscope.repairs.plan import read_plan

    for name, given in (("low", low), ("types", types), ("pick", pick)):
        if given:
            raise ParityError(
                f"--{name} is for a search, and --plan applies what is written there", fix=f"leave --{name} out"
            )
    return read_plan(path)


def budgets_planned(plan: RepairPlan, default: tuple[Budget, ...]) -> tuple[Budget, ...]:
    """The budgets that a plan was found for, for a new certificate; the default where it names none.

    Raises:
        ParityError: one is in a metric of the user's.
    """
    from parityscope.study import known_metrics

    unknown = sorted({one.metric for one in plan.budgets} - set(known_metrics()))
    if unknown:
        raise ParityError(
            f"the plan has a budget in {unknown[0]!r}, which is no metric of ours",
            fix=f"add --metric and --budget {unknown[0]}=VALUE, as for the search",
        )
    return plan.budgets or default


def matched_of(match: str, policy: Path | None, budgets: tuple[Budget, ...], outputs: Sequence[str]) -> tuple[str, ...]:
    """Outputs whose rows have no order: of the option, else of the policy file.

    Raises:
        ParityError: the model has no such output, or none that a budget is for, or the policy cannot be read.
    """
    from parityscope.case.policy import check_outputs
    from parityscope.records import Policy

    names = tuple(name for name in match.split(",") if name)
    if policy is not None and not names:
        from parityscope.case.policy_file import read_policy
        from parityscope.study import known_metrics

        names = read_policy(policy, known_metrics()).policy.matched
    check_outputs(Policy(budgets=budgets, matched=names), outputs)
    return names


def _limit_of(item: str, value: str) -> float:
    limit = plain_number(value)
    if math.isnan(limit):
        raise ParityError(f"--budget {item!r} is not NAME=VALUE", fix="write --budget accuracy=0.99")
    return limit
