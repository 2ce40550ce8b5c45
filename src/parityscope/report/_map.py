"""The map of the page: what every tensor and node of the network did, as compact columns that the page's script draws from.

A state a tensor: as expected of the arithmetic, hands on what it inherits, introduces an error, not finite, or not judged.
Text that repeats (operators, grades, shapes) is held once and pointed to, of a name only what the name before it lacks, and
what is rare is held by row, so that a tensor takes some 150 bytes of the page, however long its name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._screen_place import place_outside
from parityscope.report.words import as_number, clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# In the order of what a cell of the strip shows where several tensors share it: the last one wins.
STATES = ("not judged", "as expected", "hands on or amplifies what enters", "introduces error", "not finite")
_UNKNOWN, _EXPECTED, _INHERITS, _INTRODUCES, _BROKEN = range(len(STATES))
_SMALL = 0.1  # of what a layer inherits: it only passes that on; chosen, as on the first screen


def network_map(document: Mapping[str, Any]) -> dict[str, Any]:
    """How many nodes there are, which one the first cause (else the first suspect) is, and what each node reads.

    `cause` is a node's index, None where the cause is not in a layer or nothing points to one. `wiring` is empty in studies that
    do not hold it; a node that has a row of its own is called there as that row says.
    """
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    ranked = document.get("suspects", ()) if document.get("verdict") != "within" else ()
    outside = bool(causes and place_outside(causes[0]))
    sites = [] if outside else [one.get("site") or {} for one in (*causes[:1], *ranked[:1])]
    places = [int(place) for site in sites if (place := as_number(site.get("index"))) is not None and place >= 0]
    indices = [int(place) for row in document.get("tensors", ()) if (place := as_number(row.get("index"))) is not None]
    nodes = int(as_number((document.get("model") or {}).get("nodes")) or 0)
    return {
        "nodes": max([nodes, *(index + 1 for index in indices)]) if indices else 0,
        "cause": places[0] if places else None,
        "wiring": _compact_wiring(document.get("wiring") or {}, set(indices)),
    }


def _compact_wiring(wiring: Mapping[str, Any], rows: set[int]) -> dict[str, Any]:
    if not wiring:
        return {}
    called = {
        key: ["" if place in rows else clean(text) for place, text in enumerate(wiring.get(key, ()))]
        for key in ("names", "operators")
    }
    return {
        "names": _shared_starts(called["names"]),
        "operators": _share_texts(called["operators"]),
        "reads": wiring["reads"],
    }


def state_of_tensor(row: Mapping[str, Any]) -> int:
    """Which of `STATES` a tensor of the document is in."""
    lost = as_number((row.get("nonfinite") or {}).get("candidate")) or 0
    error = as_number(row.get("rel_l2"))
    if lost or (error is not None and math.isnan(error)):
        return _BROKEN
    if not row.get("grade"):
        return _UNKNOWN
    if row["grade"] != "beyond":
        return _EXPECTED
    introduced, inherited = as_number(row.get("introduced")), as_number(row.get("inherited"))
    if introduced is None or inherited is None:
        return _UNKNOWN
    return _INHERITS if introduced <= _SMALL * inherited else _INTRODUCES


def columns_of_rows(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of `document["tensors"]`, worded in `rows` (view's `tensors`), column by column."""
    names = [row["name"] for row in rows]
    nodes = ["" if row["node"] == row["name"] else row["node"] for row in rows]
    tensors = document.get("tensors", ())
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    outside = bool(causes and place_outside(causes[0]))  # then no layer introduces it
    found: dict[str, Any] = {
        "count": len(rows),
        "index": [int(row["index"]) if row["index"].isdigit() else -1 for row in rows],
        "name": _shared_starts(names),
        "node": _shared_starts(nodes, names),
        "state": "".join(
            str(_UNKNOWN if outside and state == _INTRODUCES else state) for state in map(state_of_tensor, tensors)
        ),
        "level": "".join(str(row["errors"][1]["level"]) for row in rows),
        "max": [row["max_abs"][0] for row in rows],
        "channel": [row["channel"][0] for row in rows],
        "lost": {str(place): row["nonfinite"] for place, row in enumerate(rows) if row["nonfinite"][0]},
        "how": {
            str(place): clean(tensors[place].get("how") or "name") for place, row in enumerate(rows) if row["pairing"]
        },
        "classes": {str(place): row["classes"] for place, row in enumerate(rows) if row["classes"]},
    }
    for place, name in enumerate(("total", "introduced", "inherited")):
        found[name] = [row["errors"][place]["text"] for row in rows]
    others = {place: clean(tensors[int(place)].get("candidate_name") or names[int(place)]) for place in found["how"]}
    found["other"] = _shared_starts([others.get(str(place), "") for place in range(len(rows))], names)
    for name, key in (("operator", "op_type"), ("grade", "grade"), ("shape", "shape"), ("dtype", "dtype")):
        found[name] = _share_texts([row[key] for row in rows])
    return found


def _share_texts(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The different texts, and for each row which of them it has."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return {"texts": list(places), "at": [places[text] for text in texts]}


def _shared_starts(texts: Sequence[str], before: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Of each text how many characters it shares with the start of the one before it, and the rest of it.

    `before` are other texts to hold each against. Characters are counted as JavaScript does, in UTF-16.
    """
    against = ["", *texts][: len(texts)] if before is None else before
    shared = [_common_start(text, other) for text, other in zip(texts, against, strict=True)]
    return {
        "starts": [len(one.encode("utf-16-le", "surrogatepass")) // 2 for one in shared],
        "rests": [text[len(one) :] for text, one in zip(texts, shared, strict=True)],
    }


def _common_start(one: str, other: str) -> str:
    for place, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            return one[:place]
    return one[: len(other)]
