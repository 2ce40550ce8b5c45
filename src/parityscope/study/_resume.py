"""The scratch folder of a study: claimed by one process, kept when the run is interrupted, resumed by the same run.

A scratch folder that holds recorded tensors of *another* run is an error and not a fresh start: recording can have
taken hours, and only its owner knows whether they are still wanted. One without recorded tensors holds nothing of value
and is used afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import parityscope
from parityscope.backends import backend, probed
from parityscope.backends.resuming import FACTS, NOTES
from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case import Case
    from parityscope.records import Target

__all__ = ["claimed", "has_recordings", "run_facts", "start_or_resume", "tidy"]

_SCHEMA = "parityscope-resume/1"
_LOCK = "lock"
_BLOCK = 1 << 20


def run_facts(case: Case, reference: Target, candidate: Target) -> dict[str, Any]:
    """All that the recorded tensors of a run depend on, as plain data."""
    return {
        "schema": _SCHEMA,
        "parityscope": parityscope.__version__,
        "machine": platform.machine(),
        "model": case.model.sha256,
        "inputs": case.inputs.sha256,
        "samples": list(case.inputs.indices),
        "reference": _side(reference),
        "candidate": _side(candidate),
    }


@contextlib.contextmanager
def claimed(scratch: Path, folder: Path) -> Iterator[None]:
    """Holds `scratch` for this process alone; the system gives it free when the process ends, however it ends.

    Raises:
        ParityError: it cannot be made, or another process holds it.
    """
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        lock = (scratch / _LOCK).open("w")
    except OSError as error:
        raise ParityError(
            f"the study cannot be written: {error.strerror}", where=str(folder), fix="choose another --study folder"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ParityError(
                f"another process is writing {folder}",
                where=str(scratch),
                fix="wait until it ends, or choose another --study",
            ) from error
        yield


def start_or_resume(scratch: Path, facts: Mapping[str, Any] | None) -> None:
    """Makes `scratch` ready for the run of `facts` (None: a run that cannot be resumed).

    Raises:
        ParityError: it holds what another run recorded.
    """
    before = _facts_in(scratch)
    if has_recordings(scratch) and (facts is None or before != facts):
        changed = sorted(name for name in {*(before or {}), *(facts or {})} if _of(before, name) != _of(facts, name))
        raise ParityError(
            f"an interrupted run of another case left its recorded tensors here (changed: {', '.join(changed)})",
            where=str(scratch),
            fix=f"choose another --study, or give that run up: rm -r {scratch}",
        )
    if before != facts or not has_recordings(scratch):
        _empty(scratch)
    for unfinished in scratch.rglob("*.part"):
        unfinished.unlink()
    if facts is not None:
        write_whole(scratch / FACTS, json.dumps(facts, indent=1, sort_keys=True))


def has_recordings(scratch: Path) -> bool:
    """Whether at least one chunk of tensors was recorded whole."""
    return any(True for _ in (scratch / "tensors").rglob(NOTES))


def tidy(scratch: Path) -> None:
    """Takes away what only an unfinished study needs."""
    for note in (*(scratch / "tensors").rglob(NOTES), *scratch.rglob("*.part")):
        note.unlink()
    for name in (FACTS, _LOCK):
        (scratch / name).unlink(missing_ok=True)


def _facts_in(scratch: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((scratch / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _of(facts: Mapping[str, Any] | None, name: str) -> Any:
    return (facts or {}).get(name)


def _empty(scratch: Path) -> None:
    for path in scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)


def _side(target: Target) -> dict[str, Any]:
    """A target, the digests of the files and folders that its options name, and the version of its runtime."""
    probe = probed(backend(target.backend))
    return {
        "target": format_target(target),
        "files": {key: _digest(Path(value)) for key, value in target.options if _is_there(value)},
        "runtime": probe.version,
        "facts": dict(probe.facts),
    }


def _is_there(value: str) -> bool:
    try:
        return Path(value).exists()
    except OSError:  # too long for a name
        return False


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(str(file.relative_to(path)).encode() + b"\0")
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
