"""Engines that were built here, kept on disk, so that every session of one examination runs the same engine.

Exists because TensorRT chooses kernels by timing them: two builds of one model may differ, and a build takes minutes. An engine
is found again by everything that went into it (model, options, versions, GPU, marked tensors), and if its profile covers the
shapes that are needed. It lies in the user's cache folder; the oldest go when all take more than `_MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.profiles import ShapeRange
from parityscope.caches import user_cache
from parityscope.light_dataclasses import asdict, dataclass
from parityscope.private_folders import is_private
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MOST_BYTES = 4 << 30  # chosen: a dozen engines of usual size


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEngine:
    """An engine, the shapes that it covers by input (dynamic ones), and plain facts about its build."""

    plan: bytes
    ranges: Mapping[str, ShapeRange]
    facts: Mapping[str, Any]


def cache_folder() -> Path:
    """Where engines are kept."""
    return user_cache() / "parityscope" / "engines"


def key_of(facts: Mapping[str, Any]) -> str:
    """The name that everything which goes into an engine gives it."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def find_engine(folder: Path, key: str, shapes: Sequence[Mapping[str, Sequence[int]]]) -> KeptEngine | None:
    """A kept engine of this key that covers all of `shapes`, each by input; None if there is none."""
    # An engine is code: one that somebody else may have put there is none.
    for path in sorted(folder.glob(f"{key}-*.json")) if is_private(folder) else ():
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            ranges = {
                name: ShapeRange(**{part: tuple(size) for part, size in each.items()})
                for name, each in held["ranges"].items()
            }
            plan = path.with_suffix(".plan").read_bytes()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # half written, or gone since it was listed
        if hashlib.sha256(plan).hexdigest() != held.get("sha256"):
            continue
        if all(name in each and ranges[name].covers(each[name]) for each in shapes for name in ranges):
            return KeptEngine(plan=plan, ranges=ranges, facts=held["facts"])
    return None


def keep_engine(folder: Path, key: str, kept: KeptEngine) -> None:
    """Keeps an engine; one that cannot be written is not kept, and nothing else happens."""
    number = hashlib.sha256(repr(sorted(kept.ranges.items())).encode()).hexdigest()[:8]
    told = {
        "ranges": {name: asdict(one) for name, one in kept.ranges.items()},
        "facts": dict(kept.facts),
        "sha256": hashlib.sha256(kept.plan).hexdigest(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(folder):
            return
        write_whole(folder / f"{key}-{number}.plan", kept.plan)
        write_whole(folder / f"{key}-{number}.json", json.dumps(told))
        _drop_oldest(folder)
    except OSError:
        return


def _drop_oldest(folder: Path) -> None:
    plans = sorted(folder.glob("*.plan"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in plans:
        total += path.stat().st_size
        if total > _MOST_BYTES and path != plans[0]:
            path.unlink(missing_ok=True)
            path.with_suffix(".json").unlink(missing_ok=True)
