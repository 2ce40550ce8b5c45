"""The scratch folder of a study: claimed by one process, kept when the run is interrupted, resumed by the same run.

A scratch folder that holds recorded tensors of *another* run is an error and not a fresh start: recording can have
taken hours, and only its owner knows whether they are still wanted. One without recorded tensors holds nothing of value
and is used afresh; so is one whose run failed, once what it depended on has been changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends import backend_named, probe_backend
from parityscope.backends.resuming import FACTS, NOTES
from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.private_folders import MARKER, open_marker
from parityscope.running_note import RUNNING_NOTE
from parityscope.study._file_marks import digest_of_files
from parityscope.study._question import marks_of_target
from parityscope.study.search_log import TRIED
from parityscope.version import __version__
from parityscope.whole_files import write_whole
from parityscope.workers.finishing import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.examination import Examination
    from parityscope.records import Target

_SCHEMA = "parityscope-resume/1"
_FAILED = "failed"


def run_facts(examination: Examination) -> dict[str, Any]:
    """All that the recorded tensors of a run depend on, as plain data."""
    case = examination.case
    return {
        "schema": _SCHEMA,
        "parityscope": __version__,
        "machine": platform.machine(),
        "model": case.model.sha256,
        "inputs": case.inputs.sha256,
        "samples": list(case.inputs.indices),
        "reference": _side_facts(examination.reference),
        "candidate": _side_facts(examination.candidate),
    }


@contextlib.contextmanager
def claim_scratch(scratch: Path, folder: Path) -> Iterator[None]:
    """Holds `scratch` for this process alone; the system gives it free when the process ends, however it ends.

    Raises:
        ParityError: it cannot be made, or another process holds it.
    """
    lock = _locked_file(scratch, folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise ParityError(
            f"another process is writing {folder}",
            where=str(scratch),
            fix="wait until it ends, or choose another --study",
        ) from error
    try:
        yield
    finally:
        os.close(lock)


def _locked_file(scratch: Path, folder: Path) -> int:
    """The descriptor of the marker in `scratch`, which is made if it is not there.

    Raises:
        ParityError: it cannot be made, is a link or somebody else's, or holds what no scratch folder of ours would.
    """
    try:
        if scratch.parent.exists() and not scratch.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        scratch.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            scratch.mkdir()
        found = scratch.lstat()
        foreign = not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid()
        if foreign or (not (scratch / MARKER).exists() and any(scratch.iterdir())):
            raise ParityError(
                f"{scratch} is needed for the study, and is no scratch folder of yours",
                where=str(scratch),
                fix="move it away, or choose another --study folder",
            )
        return open_marker(scratch)
    except OSError as error:
        raise ParityError(
            f"the study cannot be written: {error.strerror}", where=str(folder), fix="choose another --study folder"
        ) from error


def start_or_resume(scratch: Path, facts: Mapping[str, Any] | None) -> None:
    """Makes `scratch` ready for the run of `facts` (None: a run that cannot be resumed).

    Raises:
        ParityError: it holds what another run recorded.
    """
    before = _facts_in(scratch)
    failed = (scratch / _FAILED).exists()
    if has_recordings(scratch) and (facts is None or before != facts) and not failed:
        changed = sorted(
            name for name in {*(before or {}), *(facts or {})} if _fact_of(before, name) != _fact_of(facts, name)
        )
        raise ParityError(
            f"an interrupted run of another case left its recorded tensors here (changed: {', '.join(changed)})",
            where=str(scratch),
            fix=f"choose another --study, or give that run up: rm -r {scratch}",
        )
    if facts is None or before != facts or not has_work(scratch):
        _empty_folder(scratch)
    (scratch / _FAILED).unlink(missing_ok=True)
    for unfinished in scratch.rglob("*.part"):
        unfinished.unlink()
    if facts is not None:
        write_whole(scratch / FACTS, json.dumps(facts, indent=1, sort_keys=True))


def has_recordings(scratch: Path, label: str = "") -> bool:
    """Whether at least one chunk of tensors was recorded whole; with `label`, of that side."""
    return any(note.name.startswith(label) for note in (scratch / "tensors").rglob(NOTES))


def has_work(scratch: Path) -> bool:
    """Whether what was recorded or tried there saves the same run from doing it again."""
    tensors = scratch / "tensors"
    return has_recordings(scratch) or any(tensors.rglob(TRIED)) or any(tensors.glob(f"{TASKS}*/*"))


def mark_failed(scratch: Path) -> None:
    """Notes that the run failed: when what it depends on has been mended, nobody wants what is here."""
    with contextlib.suppress(OSError):
        (scratch / _FAILED).touch()


def tidy_scratch(scratch: Path) -> None:
    """Takes away what only an unfinished study needs."""
    for note in (*(scratch / "tensors").rglob(NOTES), *(scratch / "tensors").rglob(TRIED), *scratch.rglob("*.part")):
        note.unlink()
    for finished in (scratch / "tensors").glob(f"{TASKS}*"):
        shutil.rmtree(finished, ignore_errors=True)
    for name in (FACTS, MARKER, RUNNING_NOTE):
        (scratch / name).unlink(missing_ok=True)


def _facts_in(scratch: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((scratch / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _fact_of(facts: Mapping[str, Any] | None, name: str) -> Any:
    return (facts or {}).get(name)


def _empty_folder(scratch: Path) -> None:
    for path in scratch.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARKER:
            path.unlink(missing_ok=True)


def _side_facts(target: Target) -> dict[str, Any]:
    """A target, the digests of the files, folders and code that its options name, and the version of its runtime."""
    probe = probe_backend(backend_named(target.backend))
    return {
        "target": format_target(target),
        "files": {key: _digest_of(Path(value)) for key, value in target.options if _is_there(value)},
        "code": marks_of_target("code", target),  # as of deploy.py in call=deploy.py:infer
        "runtime": probe.version,
        "facts": dict(probe.facts),
    }


def _is_there(value: str) -> bool:
    try:
        return Path(value).exists()
    except OSError:  # too long for a name
        return False


def _digest_of(path: Path) -> str:
    folder = path.is_dir()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if folder else [path]
    return digest_of_files(files, path if folder else None)
