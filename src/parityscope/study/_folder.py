"""A study's folder: written whole or not at all, never over another one."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_documents import kind_of, read_json_file
from parityscope.records import SCHEMA
from parityscope.running_note import keep_running_note
from parityscope.study._scratch_folder import (
    claim_scratch,
    has_recordings,
    has_work,
    mark_failed,
    start_or_resume,
    tidy_scratch,
)
from parityscope.study.schema import problem_of, upgrade_document
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_SCRATCH = ".part"
_CANDIDATE = "candidate"  # what the chunks of its tensors are called by: where it never got so far, little is lost
_LARGEST = 256 << 20  # bytes of a document; chosen: one of 100,000 tensors has some 150 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What an examination found: `document` as `study.json` holds it, and the folder (None when nothing was written)."""

    document: Mapping[str, Any]
    folder: Path | None = None

    @property
    def verdict(self) -> str:
        """One of "within", "beyond" and "incomplete"."""
        return str(self.document["verdict"])


@contextlib.contextmanager
def prepare_folder(folder: Path, facts: Mapping[str, Any] | None = None, *, numbered: bool = False) -> Iterator[Path]:
    """A scratch folder that becomes `folder` when the block ends well, and else disappears.

    With `numbered` the name is only a wish: where it is taken, by a study or by a process that writes one, it becomes
    "name-2", "name-3" and so on (`folder_of` says which).

    With `facts` (`run_facts`) it stays when the block is interrupted or the process killed after tensors were recorded, or
    fails after some of the candidate were, and the next block with the same facts gets it back.

    Raises:
        ParityError: `folder` already holds a study, cannot be written to, is being written by another process, or
            its scratch folder holds what another run recorded.
        KeyboardInterrupt: the block was interrupted; its text says what is left.
    """
    if numbered:
        folder = _reserve_folder(folder)
    else:
        refuse_taken(folder)
    scratch = _scratch_of(folder)
    with claim_scratch(scratch, folder):
        start_or_resume(scratch, facts)
        try:
            with keep_running_note(scratch):
                yield scratch
            tidy_scratch(scratch)
            scratch.rename(folder)
        except KeyboardInterrupt:
            if facts is not None and has_work(scratch):
                raise KeyboardInterrupt(_words_of_rest(scratch, folder)) from None
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        except BaseException as error:
            if facts is None or not has_recordings(scratch, _CANDIDATE):
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            mark_failed(scratch)
            if not isinstance(error, ParityError):
                raise
            kept = f"what was recorded is kept, and the same command with --study {folder} goes on from there"
            fix = f"{error.fix}; {kept}" if error.fix else kept
            raise ParityError(error.problem, where=error.where, fix=fix) from error


def refuse_taken(folder: Path) -> None:
    """Refuses a folder that is there already.

    Raises:
        ParityError: it is.
    """
    if folder.exists():
        raise ParityError(
            f"{folder} exists already, and a study is never overwritten",
            where=str(folder),
            fix=f"choose another --study, or remove it: rm -r {folder}",
        )


def folder_of(scratch: Path) -> Path:
    """What the scratch folder that `prepare_folder` gave becomes."""
    return scratch.parent / scratch.name[1 : -len(_SCRATCH)]


def load_study(folder: Path, *, kinds: tuple[str, ...] = ("",)) -> Study:
    """Reads a study again; with `kinds` (as `kind_of` has them) also what other commands write as one ("verification").

    Raises:
        ParityError: there is none, or it was written by another version of the schema.
    """
    path = folder / "study.json" if folder.is_dir() else folder
    if not path.exists():
        raise ParityError(f"there is no study at {folder}", fix="give the folder that `diagnose` wrote")
    try:
        document = read_json_file(path, "the study", limit=_LARGEST)
    except ParityError as error:
        fix = f"run `diagnose` again, or give the folder that it wrote instead of {path.name}"
        raise ParityError(f"{path} cannot be read as a study: {error.problem}", where=str(path), fix=fix) from error
    _refuse_other(document, path, kinds)
    if kind_of(document):
        return Study(document=document, folder=path.parent)
    document = upgrade_document(document)
    if problem := problem_of(document):
        raise ParityError(
            f"{path} is no study as it was written: {problem}",
            where=str(path),
            fix="copy the study again, or run `diagnose` again",
        )
    return Study(document=document, folder=path.parent)


def _refuse_other(document: Any, path: Path, kinds: tuple[str, ...]) -> None:
    """Says what a document is that is no study of this version, and what reads it."""
    held = document if isinstance(document, dict) else {}
    schema = str(held.get("schema") or "")
    name, _, number = schema.partition("/")
    ours, _, known = SCHEMA.partition("/")
    tool = held.get("tool")
    version = str(tool.get("version") or "") if isinstance(tool, dict) else ""
    if name == ours and number.isdecimal() and int(number) > int(known):
        raise ParityError(
            f"{path} was written by a newer Parityscope{f' ({version[:40]})' if version else ''}: its schema is"
            f" {schema[:40]}, and this version reads {SCHEMA}",
            where=str(path),
            fix="read it with the version that wrote it, or update: pip install -U parityscope",
        )
    if kind_of(held) not in kinds or (name in {"", ours} and schema != SCHEMA):
        other = schema if schema and schema != SCHEMA else held.get("kind", "") if schema else ""
        reads = f", or read it with Parityscope {version[:40]}, which wrote it" if version else ""
        raise ParityError(
            f"{path} is not a study of schema {SCHEMA}" + (f" but of {other!r}" if other else ""),
            where=str(path),
            fix=f"run `diagnose` again with this version{reads}",
        )


def write_study(folder: Path, document: Mapping[str, Any], as_html: Callable[[Mapping[str, Any]], str]) -> None:
    """Writes the two files that every study has, into the scratch folder that `prepare_folder` gave.

    Raises:
        AssertionError: the document has not the form that is promised, which is a bug of ours; the files are there.
    """
    write_known(folder, document)
    write_whole(folder / "report.html", as_html(name_files_from_here(document, folder_of(folder))))
    if not kind_of(document) and (problem := problem_of(document)):
        raise AssertionError(f"the study that was written is not of its own form: {problem}")


def write_known(folder: Path, document: Mapping[str, Any]) -> None:
    """Writes the document that every study has, of all that is known so far."""
    write_whole(folder / "study.json", json.dumps(document, indent=1, sort_keys=True, allow_nan=False))


def name_files_from_here(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The document of the study in `folder` for a reader elsewhere: the study's files by paths that open from here."""

    def name_copy(repair: Mapping[str, Any]) -> Mapping[str, Any]:
        trial = repair.get("trial") or {}
        return {**repair, "trial": {**trial, "file": str(folder / trial["file"])}} if trial.get("file") else repair

    findings = [
        {**finding, "repairs": list(map(name_copy, finding.get("repairs", ())))}
        for finding in document.get("findings", ())
    ]
    return {**document, "findings": findings} if findings else dict(document)


@contextlib.contextmanager
def as_written(where: Path | None = None) -> Iterator[None]:
    """While a document from outside is read: what fails in it is no bug of the reader.

    Raises:
        ParityError: the document is not of the form that `diagnose` writes.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ParityError(
            f"the study is not as it was written: {said:.200}",
            where=str(where or ""),
            fix="copy it again, or run `diagnose` again",
        ) from error


def to_strict_data(value: Any) -> Any:
    """`value` as strict JSON data: non-finite numbers become strings, tuples lists, numpy scalars numbers."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): to_strict_data(held) for key, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_strict_data(held) for held in value]
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "item"):
        return to_strict_data(value.item())
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return value
    return str(value)


def _scratch_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}{_SCRATCH}"


def _reserve_folder(wanted: Path) -> Path:
    """The first of `wanted`, "wanted-2", ... that is free; its scratch folder is made, which no two processes can do.

    Raises:
        ParityError: nothing can be written there.
    """
    folder, number = wanted, 1
    while True:
        scratch = _scratch_of(folder)
        try:
            scratch.mkdir(parents=True)
        except FileExistsError:
            pass  # another process writes it, or did until it was killed
        except OSError as error:
            raise ParityError(
                f"the study cannot be written: {error.strerror}", where=str(folder), fix="choose another --study folder"
            ) from error
        else:
            # Whoever finished in between renamed its scratch folder before this one could be made, so its study shows here.
            if not folder.exists():
                return folder
            scratch.rmdir()
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")


def _words_of_rest(scratch: Path, folder: Path) -> str:
    return (
        f"interrupted; no study was written\n  where: the tensors recorded so far are kept in {scratch}\n"
        f"  fix:   the same command with --study {folder} goes on from there; rm -r {scratch} gives them up"
    )
