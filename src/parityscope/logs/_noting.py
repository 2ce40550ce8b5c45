"""Counts the lines that have a meaning, and keeps the different facts in them (names of layers, inputs, versions)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.logs.meanings import explain_line
from parityscope.logs.records import Meaning, Noted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MOST_FACTS", "Notes"]

MOST_FACTS = 10_000  # different facts of one meaning that are kept (chosen); the rest is counted
_LONGEST = 400  # characters of a line that are shown (chosen)


@dataclass(slots=True)
class _Note:
    meaning: Meaning
    line: int
    text: str
    count: int = 0
    facts: dict[str, None] = field(default_factory=dict)
    left_out: int = 0


@dataclass(slots=True)
class Notes:
    """What was noted so far, by the name of the meaning."""

    held: dict[str, _Note] = field(default_factory=dict)

    def add(self, text: str, number: int) -> bool:
        """Notes a line without its prefix; False if no meaning is known for it."""
        explained = explain_line(text)
        if explained is None:
            return False
        meaning, fact = explained
        note = self.held.setdefault(meaning.name, _Note(meaning=meaning, line=number, text=text[:_LONGEST]))
        note.count += 1
        for name in fact.split(", ") if fact else ():
            if len(note.facts) < MOST_FACTS:
                note.facts[name] = None
            elif name not in note.facts:
                note.left_out += 1
        return True

    def noted(self) -> Iterator[Noted]:
        """What was noted, in the order of its first lines."""
        for note in sorted(self.held.values(), key=lambda each: each.line):
            yield Noted(
                meaning=note.meaning,
                count=note.count,
                line=note.line,
                text=note.text,
                facts=tuple(note.facts),
                facts_left_out=note.left_out,
            )
