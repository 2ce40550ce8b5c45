"""A policy file with `[[check]]` tables -> what is to be examined: models, targets, data and budgets.

    declared = "f16"                       # what is said here holds for every table
    baseline = "parity-baseline.json"      # optional; this is its name unless another is given

    [[check]]
    model = "models/detector.onnx"         # paths are relative to the file
    candidate = ["ort?device=cuda", "trt:f16"]   # one target, or several: a pair each
    inputs = "samples/detector/"

    [[check.budget]]                       # takes the place of what the file says about the same
    metric = "rel_l2"
    limit = 0.01
    reason = "boxes move by less than a pixel"

All of the file is read, and every model and data that it names is looked for, before anything runs.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named
from parityscope.backends.targets import check_target, parse_target
from parityscope.case.formats.loader import is_function
from parityscope.case.policy import merge_policies
from parityscope.case.policy_file import POLICY_KEYS, check_keys, policy_of_table, read_policy, read_text
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_documents import read_toml_file
from parityscope.request import Request
from parityscope.study._budgets import known_metrics
from parityscope.study._pipeline_file import locate_path, locate_target, read_flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from parityscope.case.policy_file import PolicyFile

KEYS_FOR_ALL = ("reference", "inputs", "preprocess", "stacked", "seed")  # that say the same of any model and candidate
_KEYS = ("name", "model", "candidate", *KEYS_FOR_ALL)
_BASELINE = "parity-baseline.json"
_EXAMPLE = "docs/teams.md has an example"
_NO_NAME = re.compile(r"[^\w.-]+")
_LONGEST = 160  # bytes of a name; chosen: file systems end at 255, and a folder in the making is called longer


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPair:
    """A reference and a candidate that are held against each other; `name` is its own in the file, and a folder's."""

    name: str
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """What a policy file says is to be examined, and where the baseline lies, which need not be there yet."""

    path: Path
    baseline: Path
    pairs: tuple[CheckedPair, ...]


def read_check_file(path: Path, memory: int) -> CheckFile:
    """Reads a policy file with `[[check]]` tables; `memory` in bytes is what each pair may take.

    Raises:
        ParityError: it cannot be read, names nothing to check or files that are not there, or says what has no meaning.
    """
    general = read_policy(path, known_metrics())
    held = read_toml_file(path, "the policy")
    tables = held.get("check", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise ParityError("it names nothing to check", where=str(path), fix=f"write a [[check]] table; {_EXAMPLE}")
    pairs = [
        pair
        for place, table in enumerate(tables, 1)
        for pair in pairs_of_table(table, path, f"{path}, check {table.get('name') or place}", general, memory)
    ]
    if (name := find_repeated(one.name for one in pairs)) is not None:
        raise ParityError(f"two checks are called {name!r}", where=str(path), fix='give each a name = "..."')
    named = read_text(held, "baseline", str(path), fix=f'write baseline = "{_BASELINE}"')
    return CheckFile(path=path, baseline=path.parent / (named or _BASELINE), pairs=tuple(pairs))


def choose_pairs(pairs: Sequence[CheckedPair], names: Sequence[str], path: Path) -> tuple[CheckedPair, ...]:
    """The pairs of these names, all where none is given.

    Raises:
        ParityError: there is none of a name.
    """
    known = [one.name for one in pairs]
    for name in names:
        if name not in known:
            raise ParityError(f"there is no check {name!r}", where=str(path), fix=f"use one of: {', '.join(known)}")
    return tuple(one for one in pairs if not names or one.name in names)


def pairs_of_table(
    table: Mapping[str, Any], path: Path, where: str, general: PolicyFile, memory: int
) -> Iterator[CheckedPair]:
    """The pairs of one table of `path`; `where` is what errors call it, `general` what the file says for all.

    Raises:
        ParityError: it names what is not there, or says what has no meaning.
    """
    check_keys(table, (*_KEYS, *POLICY_KEYS), where)
    own = policy_of_table(table, known_metrics(), path, where)
    said = {key: read_text(table, key, where, fix=f'write {key} = "..."; {_EXAMPLE}') for key in _KEYS[:2] + _KEYS[3:6]}
    model = Path(locate_path(said["model"], path))
    if not said["model"] or not model.is_file():
        problem = f"there is no model {said['model']!r}" if said["model"] else "it names no model"
        raise ParityError(problem, where=where, fix='write model = "model.onnx", a path relative to this file')
    inputs = locate_path(said["inputs"], path)
    if said["inputs"] and not is_function(said["inputs"]) and not Path(inputs).exists():
        fix = 'write inputs = "samples/", a path relative to this file (docs/inputs.md)'
        raise ParityError(f"there is no data {said['inputs']!r}", where=where, fix=fix)
    targets = _read_targets(table, where)
    for text in (*targets, said["reference"] or "ort"):
        parsed = parse_target(text)
        check_target(parsed, backend_named(parsed.backend))
    for target in targets:
        name = said["name"] or model.stem
        if len(targets) > 1 or not said["name"]:
            name = f"{name}-{target}"
        name = _NO_NAME.sub("-", name).strip("-.")
        if not name:
            problem = f"name = {said['name']!r} has no letter and no digit"
            raise ParityError(problem, where=where, fix='write name = "detector"')
        yield CheckedPair(
            name=_shorten_name(name),
            request=Request(
                model=model,
                candidate=locate_target(target, path),
                reference=locate_target(said["reference"] or "ort", path),
                inputs=inputs,
                preprocess=locate_path(said["preprocess"], path),
                stacked=read_flag(table, "stacked", where),
                seed=_read_seed(table, where),
                samples=own.samples or general.samples,
                policy=merge_policies(general.policy, own.policy),
                memory=memory,
                depth="outputs",
            ),
        )


def _shorten_name(name: str) -> str:
    """A name that a folder can have: a long one ends with a digest of all of it."""
    if len(name.encode()) <= _LONGEST:
        return name
    return f"{name.encode()[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _read_targets(table: Mapping[str, Any], where: str) -> list[str]:
    said = table.get("candidate")
    found = [said] if isinstance(said, str) else said
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        fix = 'write candidate = "openvino:f16", or a list of targets (docs/targets.md)'
        raise ParityError("it names no candidate", where=where, fix=fix)
    return found


def _read_seed(table: Mapping[str, Any], where: str) -> int:
    value = table.get("seed", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParityError(f"seed = {value!r} is no whole number from 0 on", where=where, fix="write seed = 0")
    return value


def find_repeated(names: Iterable[str]) -> str | None:
    """The first name that stands twice."""
    counted = Counter(names)  # in the order in which they came
    return next((name for name, count in counted.items() if count > 1), None)
