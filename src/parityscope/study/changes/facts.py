"""What two studies tell of what they examined, and tell differently: versions, settings, files, machine.

What changed first is what may have changed the result: the candidate, then the files and the data, then the machine. A fact
that only one of them tells is no change, but for an option or a budget, which is a change by being there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import parse_target
from parityscope.environment import MATTERS
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_numbers import as_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.records import Target

_SIDES = ("candidate", "reference")
_ASKED = ("depth", "seed", "preprocess", "stacked", "shapes", "mapping", "states", "steps")
_ALIKE = {"simulated": "precision", "executed precision": "precision"}  # facts that say the same in other words
_OF_TARGET = frozenset({"target", "precision"})
_DIGITS = 12  # of a digest that is shown: enough to tell two apart


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One fact that is not the same: `place` says whose it is, `matters` why it may change results ("" where nobody knows)."""

    place: str
    name: str
    before: str
    after: str
    matters: str = ""


def list_fact_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FactChange, ...]:
    """Every fact of two studies that changed, what is nearest to the candidate first."""
    found = [
        *_changes_of_side("candidate", before, after),
        *_changes_of_files(before, after),
        *_changes_of_data(before, after),
        *_changes_of_policy(before, after),
        *_changes_of_side("reference", before, after),
        *_changes_of_texts("machine", _facts_of(before), _facts_of(after)),
        *_changes_of_question(before, after),
        *_changes_of_texts("Parityscope", _own_version(before), _own_version(after)),
    ]
    return tuple(_merge_sides(found))


def _changes_of_side(side: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FactChange]:
    old, new = before.get(side) or {}, after.get(side) or {}
    yield from _changes_of_targets(side, str(old.get("target", "")), str(new.get("target", "")))
    facts = [_with_version(one) for one in (old, new)]
    yield from _changes_of_texts(side, *facts)
    yield from _changes_of_texts(
        side, *({"executed precision": str(one.get("executed") or "")} for one in (old, new)), matters=MATTERS
    )
    if side == "candidate":
        yield from _changes_of_texts(side, *({"declared": str(one.get("declared") or "")} for one in (old, new)))


def _with_version(side: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a side with its runtime's version, under its package's name."""
    facts = _facts_of(side)
    version, name = str(side.get("version") or ""), str(side.get("backend") or "")
    try:
        package = backend_named(name).package or name
    except ParityError:  # a plug-in that is not here
        package = name
    return {package: version, **facts} if version else facts


def _changes_of_targets(side: str, before: str, after: str) -> Iterator[FactChange]:
    """What of a target is written otherwise; the file that `model=` names is a matter of its digest."""
    if before == after:
        return
    old, new = _read_target(before), _read_target(after)
    if old is None or new is None or old.backend != new.backend:
        yield FactChange(place=side, name="target", before=before, after=after)
        return
    if old.precision != new.precision:
        yield FactChange(place=side, name="precision", before=old.precision, after=new.precision)
    options = dict(old.options), dict(new.options)
    for key in sorted(options[0].keys() | options[1].keys()):
        was, now = options[0].get(key, ""), options[1].get(key, "")
        if was != now and not (key == "model" and was and now):
            yield FactChange(place=side, name=f"{key}=", before=was, after=now)


def _read_target(text: str) -> Target | None:
    try:
        return parse_target(text)
    except ParityError:
        return None


def _changes_of_files(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FactChange]:
    old, new = before.get("model") or {}, after.get("model") or {}
    yield from _changes_of_digests("model", str(old.get("name", "")), old.get("sha256"), new.get("sha256"))
    marks = [dict((one.get("question") or {}).get("files") or {}) for one in (before, after)]
    for name in sorted(marks[0].keys() & marks[1].keys()):
        yield from _changes_of_digests("file", name, *(_digest_of_mark(one[name]) for one in marks))


def _digest_of_mark(mark: Any) -> str:
    return str(mark.get("sha256") or "") if isinstance(mark, dict) else ""


def _changes_of_digests(place: str, name: str, before: object, after: object) -> Iterator[FactChange]:
    if before and after and before != after:
        yield FactChange(place=place, name=name, before=str(before)[:_DIGITS], after=str(after)[:_DIGITS])


def _changes_of_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FactChange]:
    old, new = before.get("inputs") or {}, after.get("inputs") or {}
    yield from _changes_of_digests("data", str(new.get("origin") or "samples"), old.get("sha256"), new.get("sha256"))
    yield from _changes_of_texts("data", *({"samples": str(one.get("samples", ""))} for one in (old, new)))


def _changes_of_policy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FactChange]:
    old, new = _budgets_of(before), _budgets_of(after)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield FactChange(place="policy", name=name, before=old.get(name, ""), after=new.get(name, ""))


def _budgets_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The budgets of a study in words, by output and metric."""
    found = {}
    for one in (document.get("policy") or {}).get("budgets") or ():
        limits = {key: as_number(value) for key, value in (one.get("tolerance") or {"limit": one.get("limit")}).items()}
        about = f"{one.get('output') or 'every output'}:{one.get('metric')}"
        found[about] = ", ".join(f"{key} {'none' if value is None else f'{value:g}'}" for key, value in limits.items())
    return found


def _changes_of_question(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FactChange]:
    asked = [dict((one.get("question") or {}).get("asked") or {}) for one in (before, after)]
    held = [{name: str(one[name]) for name in _ASKED if name in one} for one in asked]
    yield from _changes_of_texts("asked", *held)


def _own_version(document: Mapping[str, Any]) -> dict[str, str]:
    return {"version": str((document.get("tool") or {}).get("version") or "")}


def _facts_of(held: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in (held.get("environment") or {}).items()}


def _changes_of_texts(
    place: str, before: Mapping[str, str], after: Mapping[str, str], *, matters: Mapping[str, str] = MATTERS
) -> Iterator[FactChange]:
    """What both tell and tell differently: what is known to matter first, then by name."""
    both = [name for name in before if name in after and before[name] != after[name] and before[name] and after[name]]
    order = list(matters)
    for name in sorted(both, key=lambda one: (order.index(one) if one in matters else len(order), one)):
        yield FactChange(place=place, name=name, before=before[name], after=after[name], matters=matters.get(name, ""))


def _merge_sides(found: list[FactChange]) -> Iterator[FactChange]:
    """What changed alike on more than one side, once, where it was told first; what a target asks for is each side's own."""
    told = set()
    for one in found:
        name = _ALIKE.get(one.name, one.name)
        own = name in _OF_TARGET or name.endswith("=")
        key = (name, one.before, one.after, one.place if own else "")
        if one.place in {*_SIDES, "machine"} and key in told:
            continue
        told.add(key)
        yield one
