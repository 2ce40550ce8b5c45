"""What a search has measured, in a file that survives it: an interrupted search goes on where it ended.

A JSON line for every run of the switchable graph: the assignment (hexadecimal bits, one a node), the sample, its error in
units of the budget and, where it was needed, the squared error (both as hexadecimal floats, exact). One for every run of an
assignment with a third label (a byte a node), and one for every estimate by backward passes: what it was asked for, and the
squared error of each node, or null where there was none to be had. The search itself is deterministic, so that a second one
that is given the same numbers takes the same steps and makes the same choice.

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

__all__ = ["Journal", "Measured"]

_SCHEMA = "parityscope-search/1"
# (excess, squared error or None), one assignment on one sample.
Measured = tuple[float, float | None]


class Journal:
    """Measurements by assignment and sample, read from `path` and added to it.

    Args:
        path: The file; it is made with the first measurement.
        search: What tells this search from all others: the digest of everything that the numbers depend on.

    Raises:
        ParityError: the file is there and is no such journal, or cannot be read.
    """

    def __init__(self, path: Path, search: str) -> None:
        self.path = path
        self._search = search
        self._file: TextIO | None = None
        self._held: dict[tuple[bytes, int], Measured] = {}
        self._labelled: dict[tuple[bytes, int], float] = {}
        self._estimates: dict[str, dict[str, float] | None] = {}
        self._torn = False
        if path.exists():
            self._read_lines()

    def __len__(self) -> int:
        return len(self._held) + len(self._labelled) + len(self._estimates)

    def get(self, low: bytes, sample: int) -> Measured | None:
        """What was measured; None if nothing was."""
        return self._held.get((low, sample))

    def add(self, low: bytes, sample: int, measured: Measured) -> None:
        """Writes a measurement down at once."""
        self._held[low, sample] = measured
        excess, squared = measured
        written = None if squared is None else squared.hex()
        self._write_line({"low": low.hex(), "sample": sample, "excess": excess.hex(), "squared": written})

    def labelled(self, labels: bytes, sample: int) -> float | None:
        """The error of an assignment of more than two labels; None if it was not measured."""
        return self._labelled.get((labels, sample))

    def add_labelled(self, labels: bytes, sample: int, excess: float) -> None:
        """Writes the error of an assignment of more than two labels down at once."""
        self._labelled[labels, sample] = excess
        self._write_line({"labels": labels.hex(), "sample": sample, "excess": excess.hex()})

    def has_estimate(self, asked: Mapping[str, Any]) -> bool:
        """Whether backward passes have answered this (plain numbers, strings and lists)."""
        return _question_key(asked) in self._estimates

    def estimate(self, asked: Mapping[str, Any]) -> dict[str, float] | None:
        """What they answered: squared errors by node; None where there were none to be had.

        Raises:
            KeyError: they have not.
        """
        return self._estimates[_question_key(asked)]

    def add_estimate(self, asked: Mapping[str, Any], squared: Mapping[str, float] | None) -> None:
        """Writes an answer of backward passes down at once."""
        self._estimates[_question_key(asked)] = None if squared is None else dict(squared)
        written = None if squared is None else {name: value.hex() for name, value in squared.items()}
        self._write_line({"asked": dict(asked), "estimate": written})

    def close(self) -> None:
        """Ends it; the file stays for whoever goes on from here."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Ends it, and the file: nobody is going to go on from here."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _write_line(self, line: dict[str, Any]) -> None:
        if self._file is None:
            try:
                self._file = self.path.open("a", encoding="utf-8")
            except OSError as error:
                fix = "choose an -o in a folder that may be written to"
                raise ParityError(f"the search cannot be recorded: {error}", where=str(self.path), fix=fix) from error
            self._file.write(
                ("\n" if self._torn else "") + json.dumps({"schema": _SCHEMA, "search": self._search}) + "\n"
            )
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _read_lines(self) -> None:
        fix = "remove it, or choose another -o"
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ParityError("the record of a search cannot be read", where=str(self.path), fix=fix) from error
        self._torn = bool(text) and not text.endswith("\n")
        ours = False
        for number, raw in enumerate(text.splitlines()):
            line = _parse_line(raw)
            if number == 0 and line.get("schema") != _SCHEMA:
                raise ParityError("this is no record of a search", where=str(self.path), fix=fix)
            if "schema" in line:
                ours = line.get("search") == self._search
            elif ours and line:
                self._take_line(line)

    def _take_line(self, line: dict[str, Any]) -> None:
        try:
            if "estimate" in line:
                held = line["estimate"]
                numbers = None if held is None else {str(name): float.fromhex(value) for name, value in held.items()}
                self._estimates[_question_key(line["asked"])] = numbers
                return
            place, excess = int(line["sample"]), float.fromhex(line["excess"])
            if "labels" in line:
                self._labelled[bytes.fromhex(line["labels"]), place] = excess
                return
            squared = line["squared"]
            self._held[bytes.fromhex(line["low"]), place] = excess, None if squared is None else float.fromhex(squared)
        except (AttributeError, KeyError, TypeError, ValueError):
            return  # measured again


def _question_key(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, sort_keys=True)


def _parse_line(raw: str) -> dict[str, Any]:
    try:
        line = json.loads(raw)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}
