"""Whether what was asked for succeeded on every sample tried, though too few samples were given to certify it.

A certificate about samples like these is more than most people ask for: where every budget is kept on every sample, or every
sample became better, that is the answer, and the certificate is told in a second line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.words import as_number, format_count, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_succeeded(document: Mapping[str, Any]) -> bool:
    """Whether the verification is "not proved" for want of samples alone: nothing got worse on any of them.

    With budgets: each is kept on every sample. Without: each number became better over all, and on no sample worse.
    """
    numbers = document["quantities"]
    if document["verdict"] != "not proved" or not document["needed"]:
        return False
    if budgets := document["budgets"]:
        return all(not one["misses"] for one in budgets) and not any(_has_worsened(one) for one in numbers)
    return bool(numbers) and not any(one["worsened"] for one in numbers) and any(one["improved"] for one in numbers)


def _has_worsened(one: Mapping[str, Any]) -> bool:
    """Whether a decision of the task was lost; errors are the budgets' matter."""
    return one["kind"] == "task" and bool(one["worsened"])


def describe_missing_samples(document: Mapping[str, Any]) -> str:
    """How many more samples would certify what was seen, and for how many of samples like these: a sentence."""
    more = int(as_number(document["needed"]) or 0) - len(document["inputs"]["samples"])
    told = f"{format_count(max(more, 1))} more {'sample' if more <= 1 else 'samples'} would certify it"
    shares = [one for one in document["budgets"] if as_number(one.get("coverage"))]
    if not shares:
        return f"{told}."
    share, sure = format_percent(shares[0]["coverage"]), format_percent(shares[0]["confidence"])
    return f"{told} for {share} of samples like these, with {sure} confidence."
