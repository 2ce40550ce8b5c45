"""What a search has measured, in a file that survives it: an interrupted search goes on where it ended.

A JSON line for every answer: what was asked (an assignment, as hexadecimal bits or bytes of its nodes, on a sample; or an
estimate by backward passes), and what was told, in numbers that JSON reads again exactly. The search itself is
deterministic, so that a second one that is given the same numbers takes the same steps and makes the same choice.

Lines count for the search whose description stands before them; those of other searches are left where they are. A line
that was cut off when the process ended is passed over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEMA = "parityscope-search/2"


class Journal:
    """Answers by what was asked (plain numbers, strings and lists), read from `path` and added to it.

    Args:
        path: The file; it is made with the first answer. With None nothing is kept.
        search: What tells this search from all others: the digest of everything that the numbers depend on.

    Raises:
        ParityError: the file is there and is no such journal, or cannot be read.
    """

    def __init__(self, path: Path | None, search: str = "") -> None:
        self._path = path
        self._search = search
        self._file: TextIO | None = None
        self._told: dict[str, dict[str, Any]] = {}
        self._torn = False
        if path is not None and path.exists():
            self._read_lines(path)

    def get(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was told; None if this was not asked."""
        return self._told.get(_question_key(asked))

    def add(self, asked: Mapping[str, Any], told: dict[str, Any]) -> None:
        """Writes an answer down at once."""
        if self._path is None:
            return
        self._told[_question_key(asked)] = told
        if self._file is None:
            try:
                self._file = self._path.open("a", encoding="utf-8")
            except OSError as error:
                fix = "choose an -o in a folder that may be written to"
                raise ParityError(f"the search cannot be recorded: {error}", where=str(self._path), fix=fix) from error
            head = json.dumps({"schema": _SCHEMA, "search": self._search})
            self._file.write(("\n" if self._torn else "") + head + "\n")
        self._file.write(json.dumps({"asked": dict(asked), "told": told}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Ends it; the file stays for whoever goes on from here."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Ends it, and the file: nobody is going to go on from here."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read_lines(self, path: Path) -> None:
        fix = "remove it, or choose another -o"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ParityError("the record of a search cannot be read", where=str(path), fix=fix) from error
        self._torn = bool(text) and not text.endswith("\n")
        ours = False
        for number, raw in enumerate(text.splitlines()):
            line = _parse_line(raw)
            if number == 0 and line.get("schema") != _SCHEMA:
                raise ParityError("this is no record of a search", where=str(path), fix=fix)
            if "schema" in line:
                ours = line.get("search") == self._search
            elif ours and isinstance(line.get("asked"), dict) and isinstance(line.get("told"), dict):
                self._told[_question_key(line["asked"])] = line["told"]


def _question_key(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, sort_keys=True)


def _parse_line(raw: str) -> dict[str, Any]:
    try:
        line = json.loads(raw)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}
