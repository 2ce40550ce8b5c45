"""Findings of rules, and how numbers, names and lists are written in them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from parityscope.plain_numbers import list_first
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.arithmetic import Format
    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Role

_NAMED = 3  # names written out in a sentence; details hold them all
_KEPT = 200  # names that details hold


def make_finding(
    role: Role,
    claim: str,
    *,
    because: str,
    places: Sequence[Place] = (),
    details: Mapping[str, Any] | None = None,
    repairs: tuple[OfferedRepair, ...] = (),
) -> Finding:
    """A finding whose evidence is the file itself: `because` says what was read and by what rule it was judged.

    Its code and its title are its rule's, which signs it (`Rule.find`).
    """
    experiment = Experiment(
        check="",
        claim=claim,
        change="nothing: the file was read, no model was run",
        measure="what the file holds, against the definition of the operator and the format",
        if_true="as claimed",
        if_false="not found in the file",
    )
    facts = dict(details or {})
    if places:
        facts["nodes"] = [place.name for place in places[:_KEPT]]
        facts["node_count"] = len(places)
    return Finding(
        code="",
        title="",
        role=role,
        claim=claim,
        confidence=1.0,
        confidence_from="read in the file; whether it matters is what its role says",
        site=site_of(places[0]) if places else None,
        evidence=(Evidence(experiment=experiment, outcome="supports", before=0.0, after=1.0, because=because),),
        repairs=repairs,
        details=facts,
    )


def site_of(place: Place) -> Site:
    """The site of a node's first named output."""
    tensor = next((str(value.name) for value in place.node.outputs if value.name), "")
    return Site(tensor=tensor, node=place.name, op_type=place.node.op_type, index=place.index, scope=place.inside)


def offer_by_hand(name: str, text: str) -> OfferedRepair:
    """A repair that is an edit of the model or of the export."""
    return OfferedRepair(repair=name, text=text)


def offer_proof(sheet: Sheet, name: str, text: str, number_format: Format) -> OfferedRepair:
    """A repair or proof by a simulated candidate; DATA stands for real samples."""
    command = f"parityscope diagnose {shlex.quote(str(sheet.path))} --candidate sim:{number_format.name} --inputs DATA"
    return OfferedRepair(repair=name, text=text, command=command)


def name_places(places: Sequence[Place]) -> str:
    """Nodes in a sentence: their operator once, the first names, and how many more."""
    ops = list(dict.fromkeys(place.node.op_type for place in places))
    return f"{'/'.join(ops[:_NAMED])} {list_names(place.name for place in places)}"


def list_names(names: Iterable[str]) -> str:
    """The first names, and how many more."""
    return list_first(names, _NAMED)


def format_plural(count: int, noun: str) -> str:
    """A count with its noun: "1 node", "2 nodes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
