"""Two studies -> what became better or worse: outputs by verdict and error, causes, layers, time and size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.expectation.grades import margin_of
from parityscope.light_dataclasses import dataclass
from parityscope.plain_numbers import as_number
from parityscope.records import Skip
from parityscope.study.changes.facts import FactChange, list_fact_changes
from parityscope.study.changes.noise import direction_beyond_noise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_RANKS = {"within": 0, "beyond": 1}
_WAYS = {-1: "better", 0: "same", 1: "worse"}
_NAMED = ("cause", "contributing")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChange:
    """One output, its verdict and its relative L2 error (None where it has none) in both studies.

    `change` is "better", "worse" or "same"; `nonfinite` counts elements that are NaN or infinite in the candidate alone.
    """

    name: str
    change: str
    verdicts: tuple[str, str]
    errors: tuple[float | None, float | None]
    nonfinite: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseChange:
    """A cause that is "new", "gone" or the "same"; `shares` are the parts of the output error that it explains, or None."""

    change: str
    code: str
    title: str
    place: str
    shares: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """A layer whose error is another beyond noise: what it introduces (`measure` "introduced"), or all of it ("rel_l2").

    `index` is its place in topological order.
    """

    tensor: str
    node: str
    op_type: str
    index: int
    change: str
    measure: str
    errors: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyChanges:
    """All that two studies tell differently.

    `verdict` is "worse", "incomplete" (nothing worse, and something could not be compared), "better" or "same". `layers` are in
    topological order; `precisions` name layers that compute in another precision, with both. `seconds` are of a sample in the
    candidate's runtime, measured once and on whatever else the machine did: told, and no part of the verdict. `nbytes` are
    the sizes of the candidate's file.
    """

    verdict: str
    outputs: tuple[OutputChange, ...]
    facts: tuple[FactChange, ...]
    causes: tuple[CauseChange, ...]
    layers: tuple[LayerChange, ...]
    layers_compared: int
    precisions: tuple[tuple[str, str, str], ...]
    seconds: tuple[float | None, float | None]
    nbytes: tuple[int | None, int | None]
    skipped: tuple[Skip, ...]


def compare_studies(before: Mapping[str, Any], after: Mapping[str, Any]) -> StudyChanges:
    """What became better or worse from one study's document to another's.

    Raises:
        ParityError: they have no output in common.
    """
    skipped: list[Skip] = []
    outputs = tuple(_changes_of_outputs(before, after, skipped))
    causes = tuple(_changes_of_causes(before, after, skipped))
    layers, compared = _changes_of_layers(before, after)
    return StudyChanges(
        verdict=_verdict_of(outputs, skipped),
        outputs=outputs,
        facts=list_fact_changes(before, after),
        causes=causes,
        layers=layers,
        layers_compared=compared,
        precisions=tuple(_changes_of_precisions(before, after)),
        seconds=(_seconds_per_sample(before), _seconds_per_sample(after)),
        nbytes=(_candidate_nbytes(before), _candidate_nbytes(after)),
        skipped=tuple(skipped),
    )


def nothing_compared(why: Skip) -> StudyChanges:
    """The changes between two studies of which nothing could be compared."""
    return StudyChanges(
        verdict="incomplete",
        outputs=(),
        facts=(),
        causes=(),
        layers=(),
        layers_compared=0,
        precisions=(),
        seconds=(None, None),
        nbytes=(None, None),
        skipped=(why,),
    )


def _verdict_of(outputs: Sequence[OutputChange], skipped: Sequence[Skip]) -> str:
    changes = {one.change for one in outputs}
    if "worse" in changes:
        return "worse"
    return "incomplete" if skipped else "better" if "better" in changes else "same"


def _changes_of_outputs(
    before: Mapping[str, Any], after: Mapping[str, Any], skipped: list[Skip]
) -> Iterator[OutputChange]:
    old, new = ({str(one["name"]): one for one in held.get("outputs", ())} for held in (before, after))
    if not old.keys() & new.keys():
        raise ParityError(
            f"the studies have no output in common: {_quote_names(old)} before, {_quote_names(new)} after",
            fix="give two studies of one model: parityscope diff BEFORE AFTER",
        )
    for name in (one for one in {**old, **new} if one not in old or one not in new):
        where = "second" if name in old else "first"
        skipped.append(Skip(what=f"output {name!r}", reason=f"the {where} study has none", asked=True))
    alike = _have_same_data(before, after)
    if not alike:
        skipped.append(
            Skip(
                what="errors of the outputs",
                reason="the studies were made with other samples",
                fix="make both with the same --inputs",
                asked=True,
            )
        )
    spread = max(as_number((one.get("candidate") or {}).get("spread")) or 0.0 for one in (before, after))
    for name in (one for one in old if one in new):
        verdicts = (str(old[name].get("verdict")), str(new[name].get("verdict")))
        skipped.extend(
            Skip(what=f"output {name!r}", reason=f"it could not be judged in the {place} study", asked=True)
            for place, verdict in zip(("first", "second"), verdicts, strict=True)
            if verdict not in _RANKS
        )
        yield _change_of_output(name, old[name], new[name], spread, alike=alike)


def _quote_names(held: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, held)) or "none"


def _have_same_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    old, new = before.get("inputs") or {}, after.get("inputs") or {}
    return all(old.get(key) == new.get(key) for key in ("sha256", "samples"))


def _change_of_output(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], spread: float, *, alike: bool
) -> OutputChange:
    errors = (as_number(old.get("rel_l2")), as_number(new.get("rel_l2")))
    nonfinite = tuple(int((one.get("nonfinite") or {}).get("candidate") or 0) for one in (old, new))
    verdicts = (str(old.get("verdict")), str(new.get("verdict")))
    way = _RANKS[verdicts[1]] - _RANKS[verdicts[0]] if all(one in _RANKS for one in verdicts) else 0
    if not way:
        way = (nonfinite[1] > 0) - (nonfinite[0] > 0)
    if not way and alike and errors[0] is not None and errors[1] is not None:
        way = direction_beyond_noise(
            errors[0], errors[1], floor=max(spread, _floor_of(old), _floor_of(new)), pairs=_sample_pairs(old, new)
        )
    return OutputChange(
        name=name, change=_WAYS[way], verdicts=verdicts, errors=errors, nonfinite=(nonfinite[0], nonfinite[1])
    )


def _floor_of(row: Mapping[str, Any]) -> float:
    """What FP32 itself explains of this tensor's error: below that nothing is told apart."""
    expected = as_number((row.get("expected") or {}).get("f32"))
    return margin_of("f32") * expected if expected is not None and math.isfinite(expected) else 0.0


def _sample_pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[float, float]]:
    both = [[as_number(one) for one in row.get("per_sample") or ()] for row in (old, new)]
    if len(both[0]) != len(both[1]):
        return []
    return [(was, now) for was, now in zip(*both, strict=True) if was is not None and now is not None]


def _changes_of_causes(
    before: Mapping[str, Any], after: Mapping[str, Any], skipped: list[Skip]
) -> Iterator[CauseChange]:
    depths = [_depth_of(one) for one in (before, after)]
    if depths[0] != depths[1] and all(depths):
        skipped.append(
            Skip(
                what="causes and layers",
                reason=f"the first study went as far as {depths[0]}, the second as {depths[1]}",
                fix="make both with the same command",
                asked=True,
            )
        )
        return
    old, new = _causes_by_place(before), _causes_by_place(after)
    for key in {**new, **old}:
        held = new.get(key) or old[key]
        yield CauseChange(
            change="same" if key in old and key in new else "new" if key in new else "gone",
            code=str(held.get("code", "")),
            title=str(held.get("title", "")),
            place=key[1],
            shares=(as_number(old.get(key, {}).get("share")), as_number(new.get(key, {}).get("share"))),
        )


def _depth_of(document: Mapping[str, Any]) -> str:
    return str(((document.get("question") or {}).get("asked") or {}).get("depth") or "")


def _causes_by_place(document: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    found = {}
    for one in document.get("findings", ()):
        site = one.get("site") or {}
        if one.get("role") in _NAMED:
            found[str(one.get("code")), str(site.get("node") or site.get("tensor") or "")] = one
    return found


def _changes_of_layers(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[tuple[LayerChange, ...], int]:
    """The layers that changed beyond noise, in topological order, and how many both studies looked at."""
    if not _have_same_data(before, after):
        return (), 0
    old, new = ({str(one["name"]): one for one in held.get("tensors", ())} for held in (before, after))
    both = [name for name in new if name in old]
    found = [change for name in both if (change := _change_of_layer(old[name], new[name])) is not None]
    return tuple(sorted(found, key=lambda one: one.index)), len(both)


def _change_of_layer(old: Mapping[str, Any], new: Mapping[str, Any]) -> LayerChange | None:
    for measure in ("introduced", "rel_l2"):
        was, now = as_number(old.get(measure)), as_number(new.get(measure))
        if was is None or now is None:
            continue
        way = direction_beyond_noise(was, now, floor=max(_floor_of(old), _floor_of(new)))
        if not way:
            return None
        return LayerChange(
            tensor=str(new["name"]),
            node=str(new.get("node") or ""),
            op_type=str(new.get("op_type") or ""),
            index=int(new.get("index") or 0),
            change=_WAYS[way],
            measure=measure,
            errors=(was, now),
        )
    return None


def _changes_of_precisions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Nodes that the runtime says to compute in another precision than before: name, then both."""
    old, new = _precision_by_node(before), _precision_by_node(after)
    for node, now in new.items():
        if old.get(node, now) != now:
            yield node, old[node], now


def _precision_by_node(document: Mapping[str, Any]) -> dict[str, str]:
    layers = (document.get("candidate") or {}).get("executed_layers") or ()
    return {
        str(node): str(one["precision"]) for one in layers if one.get("precision") for node in one.get("nodes") or ()
    }


def _seconds_per_sample(document: Mapping[str, Any]) -> float | None:
    seconds = as_number((document.get("candidate") or {}).get("seconds"))
    samples = as_number((document.get("inputs") or {}).get("samples"))
    return seconds / samples if seconds and samples else None


def _candidate_nbytes(document: Mapping[str, Any]) -> int | None:
    """The bytes of the engine or other file that the candidate's target names, else of its model."""
    marks = (document.get("question") or {}).get("files") or {}
    named = [one.get("bytes") for name, one in marks.items() if name.startswith("candidate.") and isinstance(one, dict)]
    sizes = [size for size in named if isinstance(size, int)]
    own = as_number((document.get("candidate") or {}).get("nbytes"))
    return sum(sizes) if sizes else None if own is None else int(own)
