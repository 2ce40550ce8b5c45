"""The baseline: of each pair the small part of its study that later ones are held against, one JSON file kept in the repository.

An entry has the keys of a study, so that it is compared as one: outputs with their errors, and the facts that say since when
something is otherwise. Numbers are cut to a few digits, so that a file that is written again changes only where something did.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from parityscope.environment import MATTERS
from parityscope.errors import ParityError
from parityscope.plain_documents import read_json_file
from parityscope.study._folder import as_written
from parityscope.study.changes.comparing import compare_studies
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from parityscope.study.checking.running import PairOutcome

BASELINE_SCHEMA = "parityscope-baseline/1"
_LARGEST = 16 << 20  # bytes; chosen: an entry takes some 2 KB
_DIGITS = 4  # of an error: a change that counts is one of a quarter at least
_MOST_SAMPLES = 64  # whose errors are kept, chosen: enough to see that all of them moved one way
_SIDE = ("target", "backend", "version", "executed", "declared", "nbytes", "spread")


def baseline_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a study."""
    files = (document.get("question") or {}).get("files") or {}
    return {
        "tool": document["tool"],
        "verdict": document["verdict"],
        "model": {key: document["model"][key] for key in ("name", "sha256")},
        "inputs": {key: document["inputs"][key] for key in ("origin", "samples", "sha256")},
        "policy": {"budgets": document["policy"]["budgets"]},
        "question": {"files": files},
        "environment": _facts_that_matter(document["environment"]),
        **{side: _side_kept(document[side]) for side in ("reference", "candidate")},
        "outputs": [_output_kept(one) for one in document["outputs"]],
    }


def read_baseline(path: Path) -> dict[str, dict[str, Any]]:
    """The entries by the name of their pair; none where there is no such file yet.

    Raises:
        ParityError: the file is no baseline of this version.
    """
    if not path.exists():
        return {}
    held = read_json_file(path, "the baseline", limit=_LARGEST)
    pairs = held.get("pairs") if isinstance(held, dict) and held.get("schema") == BASELINE_SCHEMA else None
    if not isinstance(pairs, dict) or not all(isinstance(one, dict) for one in pairs.values()):
        raise ParityError(
            f"this is no baseline of schema {BASELINE_SCHEMA}",
            where=str(path),
            fix=f"write it again: rm {path}, then parityscope check --update",
        )
    for name, entry in pairs.items():
        _check_entry(name, entry, path)
    return pairs


def _check_entry(name: str, entry: Mapping[str, Any], path: Path) -> None:
    """Refuses an entry that cannot be read as a study is: one that was merged or edited by hand."""
    if entry.get("outputs", []) == []:  # there is nothing to read, and --update writes it again
        return
    try:
        with as_written():
            compare_studies(entry, entry)
    except ParityError as error:
        raise ParityError(
            f"the entry of {name!r} is not as it was written",
            where=str(path),
            fix=f"write it again: rm {path}, then parityscope check --update",
        ) from error


def update_baseline(
    path: Path,
    names: Collection[str],
    outcomes: Iterable[PairOutcome],
    entry_of: Callable[[Mapping[str, Any]], dict[str, Any]] = baseline_entry,
) -> None:
    """Writes the entries of what was examined; those of other pairs that the file still names stay as they are now."""
    kept = {name: entry for name, entry in read_baseline(path).items() if name in names}
    kept |= {one.pair.name: entry_of(one.study) for one in outcomes if one.study is not None}
    write_baseline(path, kept)


def write_baseline(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the entries, whole or not at all, in the order of their names; a link to the file stays one."""
    held = {"schema": BASELINE_SCHEMA, "pairs": dict(entries)}
    write_whole(path.resolve(), json.dumps(held, indent=1, sort_keys=True, allow_nan=False) + "\n")


def _facts_that_matter(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in MATTERS if facts.get(name) not in {None, "", "not set"}}


def _side_kept(side: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: side[key] for key in _SIDE if side.get(key) not in {None, ""}}
    return {**kept, "environment": _facts_that_matter(side.get("environment") or {})}


def _output_kept(output: Mapping[str, Any]) -> dict[str, Any]:
    samples = output.get("per_sample") or []
    expected = (output.get("expected") or {}).get("f32")
    return {
        "name": output["name"],
        "verdict": output["verdict"],
        "rel_l2": _shorten_number(output["rel_l2"]),
        "nonfinite": {"candidate": (output.get("nonfinite") or {}).get("candidate", 0)},
        "expected": {} if expected is None else {"f32": _shorten_number(expected)},
        "per_sample": [_shorten_number(one) for one in samples] if len(samples) <= _MOST_SAMPLES else [],
    }


def _shorten_number(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
