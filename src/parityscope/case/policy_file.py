"""A policy file: the declared arithmetic and budgets, each with its reason, in TOML.

The report repeats every reason:

    declared = "f16"                     # f32, tf32, f16 or bf16
    declared_reason = "built with --fp16"
    samples = 200                        # at most so many
    match = ["logits", "boxes"]          # outputs whose rows have no order: they are paired before they are compared
    decide = {scores = 0.3}              # what outputs decide, where their graph does not say it

    [[budget]]                           # for every output that the metric applies to
    metric = "rel_l2"
    limit = 0.01
    reason = "boxes move by less than a pixel"

    [[budget]]                           # for one output; element by element
    output = "boxes"
    atol = 0.5
    rtol = 0.0
    reason = "half a pixel"

Unknown keys, missing reasons and two budgets about the same thing are errors. What `parityscope check` holds against it stands
in the same file, as `[[check]]` tables that may have any of these keys themselves (`study/checking/pairs.py` reads them).
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

from parityscope.case.limits import mistaken_limit
from parityscope.case.policy import DECLARED, OUTSIDE
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_documents import read_toml_file
from parityscope.records import Budget, Policy, Tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

POLICY_KEYS = ("declared", "declared_reason", "samples", "match", "decide", "budget")
_CHECK_KEYS = ("check", "baseline", "matrix")  # for `parityscope check` and `parityscope matrix`
_METRIC_KEYS = ("output", "metric", "limit", "reason")
_TOLERANCE_KEYS = ("output", "atol", "rtol", "reason")
_BUDGET_KEYS = tuple(dict.fromkeys(_METRIC_KEYS + _TOLERANCE_KEYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """What a policy file says: `policy.declared` is empty and `samples` None where it says nothing."""

    policy: Policy
    samples: int | None = None


def read_policy(path: Path, metrics: Mapping[str, str]) -> PolicyFile:
    """Reads a policy file; `metrics` are what a budget may be about, each "lower" or "higher" where better.

    Raises:
        ParityError: it cannot be read, or says something that has no meaning here.
    """
    found = read_toml_file(path, "the policy")
    check_keys(found, (*POLICY_KEYS, *_CHECK_KEYS), str(path))
    return policy_of_table(found, metrics, path, str(path))


def policy_of_table(found: Mapping[str, Any], metrics: Mapping[str, str], path: Path, where: str) -> PolicyFile:
    """What the keys of a policy say in a table of the file `path`; `where` is what errors call the table.

    Raises:
        ParityError: one of them says something that has no meaning here.
    """
    declared = read_text(found, "declared", where, fix='write declared = "f16"')
    if declared and declared not in DECLARED:
        raise ParityError(
            f"declared = {declared!r} is no declared arithmetic", where=where, fix=f"use one of: {', '.join(DECLARED)}"
        )
    said = read_text(found, "declared_reason", where, fix='write declared_reason = "built with --fp16"')
    if said and not declared:
        raise ParityError("declared_reason stands without declared", where=where, fix='add declared = "f16"')
    tables = found.get("budget", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ParityError("budget is not a list of tables", where=where, fix="head each budget with [[budget]]")
    budgets = tuple(_read_budget(table, metrics, f"{where}, budget {place}") for place, table in enumerate(tables, 1))
    _check_repeated(budgets, where)
    because = (said or f"{path.name} says so") if declared else ""
    matched = found.get("match", [])
    if not isinstance(matched, list) or not all(isinstance(name, str) for name in matched):
        raise ParityError("match is not a list of outputs", where=where, fix='write match = ["logits", "boxes"]')
    policy = Policy(
        declared=declared,
        declared_reason=because,
        budgets=budgets,
        matched=tuple(matched),
        decides=_read_decisions(found, where),
    )
    return PolicyFile(policy=policy, samples=_read_samples(found, where))


def _read_budget(table: dict[str, Any], metrics: Mapping[str, str], where: str) -> Budget:
    check_keys(table, _BUDGET_KEYS, where)
    output = read_text(table, "output", where, fix="name an output, or leave the key out for every output")
    where = f"{where} (output {output!r})" if output else where
    tolerated = "atol" in table or "rtol" in table
    wanted = _TOLERANCE_KEYS if tolerated else _METRIC_KEYS
    mixed = sorted(set(table) - set(wanted))
    if mixed:
        raise ParityError(
            f"{mixed[0]} stands beside atol or rtol", where=where, fix="write two [[budget]] tables, one for each"
        )
    # Both tolerances or neither: a default for the one that was left out would be a number that nobody chose.
    missing = [key for key in wanted if key != "output" and key not in table]
    if missing:
        raise ParityError(f"{missing[0]} is missing", where=where, fix=_ADVICE[missing[0]])
    reason = read_text(table, "reason", where, fix=_ADVICE["reason"])
    if tolerated:
        tolerance = Tolerance(atol=_read_number(table, "atol", where), rtol=_read_number(table, "rtol", where))
        _check_tolerance(tolerance, where)
        return Budget(output=output, metric=OUTSIDE, limit=0.0, reason=reason, tolerance=tolerance)
    metric = read_text(table, "metric", where, fix=_ADVICE["metric"])
    if metric not in metrics:
        close = difflib.get_close_matches(metric, list(metrics), n=1)
        fix = f"write {close[0]}" if close else f"use one of: {', '.join(sorted(metrics))}"
        raise ParityError(f"there is no metric {metric!r}", where=where, fix=fix)
    limit = _read_number(table, "limit", where)
    if wrong := mistaken_limit(metric, limit, metrics[metric]):
        raise ParityError(f"limit = {limit:g} {wrong}", where=where, fix=_ADVICE["limit"])
    return Budget(output=output, metric=metric, limit=limit, reason=reason)


_ADVICE = {
    "metric": 'write metric = "rel_l2", or atol and rtol',
    "limit": "write limit = 0.01",
    "atol": "write atol = 0.0 if only rtol is meant",
    "rtol": "write rtol = 0.0 if only atol is meant",
    "reason": 'say why this number: reason = "boxes move by less than a pixel"',
}


def _check_tolerance(tolerance: Tolerance, where: str) -> None:
    if tolerance.atol < 0 or not 0 <= tolerance.rtol < 1:
        # An rtol of 1 would let zero pass for every value.
        raise ParityError(
            f"atol = {tolerance.atol:g} and rtol = {tolerance.rtol:g} are no tolerance",
            where=where,
            fix="choose atol of at least 0 and rtol of at least 0 and below 1",
        )


def _check_repeated(budgets: Sequence[Budget], where: str) -> None:
    seen = set()
    for budget in budgets:
        about = (budget.output, budget.metric)
        if about in seen:
            what = "atol and rtol" if budget.metric == OUTSIDE else budget.metric
            whose = f"output {budget.output!r}" if budget.output else "every output"
            raise ParityError(f"two budgets are about {what} of {whose}", where=where, fix="keep one of them")
        seen.add(about)


def check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuses a key that is none of the known ones.

    Raises:
        ParityError: there is one.
    """
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            fix = f"write {close[0]}" if close else f"use one of: {', '.join(known)}"
            raise ParityError(f"{key!r} has no meaning here", where=where, fix=fix)


def read_text(table: Mapping[str, Any], key: str, where: str, *, fix: str) -> str:
    """What a key says in words; "" where it is not there.

    Raises:
        ParityError: it is no text, or an empty one.
    """
    if key not in table:
        return ""
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise ParityError(f"{key} = {value!r} is not a text", where=where, fix=fix)
    return value


def _read_number(table: dict[str, Any], key: str, where: str) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParityError(f"{key} = {value!r} is not a finite number", where=where, fix=_ADVICE[key])
    return float(value)


def _read_decisions(found: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """What a `[decide]` table says that outputs decide: a number, or words."""
    table = found.get("decide", {})
    fix = "write\n[decide]\nscores = 0.3"
    if not isinstance(table, dict):
        raise ParityError("decide is not a table of outputs", where=where, fix=fix)
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ParityError(f"decide says {value!r} of {name!r}", where=where, fix=fix)
    return tuple((name, str(value)) for name, value in table.items())


def _read_samples(found: Mapping[str, Any], where: str) -> int | None:
    value = found.get("samples")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParityError(f"samples = {value!r} is not a number of samples", where=where, fix="write samples = 100")
    return value
