"""Where no cause is proved: kinds of faults that were tried, how large one would have had to be, and what comes nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.words import as_number, clean, format_count, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WEAK = 0.5  # of the error: what is found from a larger share on alone rules out little; chosen
_NEARLY_ALL = 0.9  # of a kind's changes: where fewer were tried it is not ruled out; chosen
_KINDS = 4  # in a sentence; the table has all. Chosen.


def list_ruled_out(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The kinds that the first finding without a cause names; nothing where none does."""
    return next((found for one in document.get("findings", ()) if (found := one.get("ruled_out"))), ())


def view_ruled_out(finding: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of a finding's table, those with the most power first."""
    return [
        {
            "kind": clean(one.get("kind", "")),
            "tried": _count_tried(one),
            "least": format_percent(one.get("least")) if _is_tried(one) else "not ruled out",
            "nearest": _describe_nearest(one),
        }
        for one in _by_power(finding.get("ruled_out") or ())
    ]


def describe_ruled_out(kinds: Sequence[Mapping[str, Any]], most: int = _KINDS) -> str:
    """What was ruled out, the largest kinds first, and from which size on it would have been found; "" for nothing."""
    tried = [one for one in kinds if _is_tried(one) and not one.get("in_part")]
    if not tried:
        return ""
    tried.sort(key=lambda one: (as_number(one.get("least")) or 0.0) > _WEAK)  # those with little power last
    told, others = tried[:most], tried[most:]
    listed = "; ".join(f"{clean(one.get('kind', ''))} ({_count_tried(one)})" for one in told)
    count = f"{format_count(len(others))} other {'kind' if len(others) == 1 else 'kinds'}"
    also = f"; and by {count} from {_least_of(others)} on" if others else ""
    return f"faults that make {_least_of(told)} or more of the error, by {listed}{also}"


def _least_of(kinds: Sequence[Mapping[str, Any]]) -> str:
    """From which share of the error on a fault of any of these kinds would have been found."""
    return format_percent(max(as_number(one.get("least")) or 0.0 for one in kinds))


def say_ruled_out(kinds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was ruled out; what was not, since there was no time."""
    if told := describe_ruled_out(kinds):
        yield f"Ruled out by trying: {told}."
    untried = [one for one in kinds if not _is_tried(one)]
    if untried:
        listed = "; ".join(f"{clean(one.get('kind', ''))} ({_count_tried(one)})" for one in untried)
        yield f"Not ruled out, as there was no time to try all of it: {listed}."


def say_what_is_left(document: Mapping[str, Any]) -> str:
    """How many changes were tried of how many, where there was no time for all; "" else."""
    kinds = list_ruled_out(document)
    tried, generated = (sum(int(one.get(key) or 0) for one in kinds) for key in ("tried", "generated"))
    if tried >= generated:
        return ""
    told = f"{format_count(tried)} of {format_count(generated)} changes, the likeliest first"
    asked = (document.get("question") or {}).get("asked") or {}
    return told if asked.get("thorough") else f"{told}; --thorough tries more"


def describe_nearest(document: Mapping[str, Any]) -> str:
    """The description that explains most, whatever that is, with its share; "" where none explains anything."""
    told = [(as_number(one.get("most")) or 0.0, clean(one.get("nearest", ""))) for one in list_ruled_out(document)]
    for suspect in document.get("suspects", ())[:1]:
        explanation = suspect.get("explanation") or {}
        described = (*explanation.get("nearest", ()), *explanation.get("rejected", ()))
        told += [(as_number(one.get("share")) or 0.0, clean(one.get("words", ""))) for one in described]
    share, words = max(told, default=(0.0, ""))
    return f"{format_percent(share)} of the error: {words}" if share > 0 else ""


def _by_power(kinds: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that would have been found first; what was not tried last."""
    return sorted(kinds, key=lambda one: (not _is_tried(one), as_number(one.get("least")) or 0.0))


def _is_tried(one: Mapping[str, Any]) -> bool:
    """Whether so many of a kind's changes were tried that one of them would have been found."""
    return int(one.get("tried") or 0) >= max(1.0, _NEARLY_ALL * int(one.get("generated") or 0))


def _count_tried(one: Mapping[str, Any]) -> str:
    tried, generated = int(one.get("tried") or 0), int(one.get("generated") or 0)
    return (
        f"{format_count(tried)} tried"
        if tried == generated
        else f"{format_count(tried)} of {format_count(generated)} tried"
    )


def _describe_nearest(one: Mapping[str, Any]) -> str:
    share = as_number(one.get("most")) or 0.0
    if share <= 0:
        return ""
    part = "" if one.get("in_part") else ", no more than chance"
    return f"{clean(one.get('nearest', ''))} ({format_percent(share)}{part})"
