"""Weights that a format cannot hold, in both forms in which TensorRT tells them.

* 8.5 and newer: `- 77 weights are affected by this issue: Detected subnormal FP16 values.`, and in verbose logs after it
  `List of affected weights: a, b, ...`;
* 8.2 to 8.4: `Weights [name=X] had the following issues when converted to FP16:` and then ` - Subnormal FP16 values
  detected.`, once for each weight and often many times for the same one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import dataclass, field
from parityscope.logs.records import MOST, WeightIssue

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTED = re.compile(r"\s*- (\d{1,12}) weights are affected by this issue: (.*)")
_LISTED = re.compile(r"\s*List of affected weights: ?(.*)")
_NAMED = re.compile(r"Weights \[name=(.*)\] had the following issues when converted to (\w+)")
_FORMAT = re.compile(r"\b(FP16|BF16|FP8|INT8)\b")


@dataclass(slots=True)
class _Issue:
    line: int
    count: int = 0
    names: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class WeightLines:
    """What was read so far, by kind and format; `add` takes one line, and says whether it was about weights."""

    found: dict[tuple[str, str], _Issue] = field(default_factory=dict)
    open_key: tuple[str, str] | None = None
    open_name: tuple[str, str] | None = None
    lists_next: bool = False
    left_out: bool = False

    def add(self, text: str, number: int) -> bool:
        """Takes one line without its prefix."""
        if self.lists_next and not text.startswith((" -", "- ", "List", "Weights [")) and ", " in text:
            self._names(text)
            return True
        self.lists_next = False
        if counted := _COUNTED.match(text):
            self.open_key = (kind_of(counted[2]), _format_in(counted[2]))
            self._issue_of_line(number).count += int(counted[1])
            return True
        if listed := _LISTED.match(text):
            self._names(listed[1])
            self.lists_next = not listed[1].strip()  # some logs break the line there
            return True
        if named := _NAMED.match(text):
            self.open_name = (named[1], named[2])
            return True
        if self.open_name is not None and text.lstrip().startswith("- "):
            name, form = self.open_name
            self.open_key = (kind_of(text), form)
            issue = self._issue_of_line(number)
            self._name(issue, name)
            issue.count = len(issue.names)
            return True
        self.open_name = None
        return False

    def issues(self) -> Iterator[WeightIssue]:
        """What was found, worst first."""
        order: tuple[Literal["overflow", "underflow", "subnormal"], ...] = ("overflow", "underflow", "subnormal")
        for kind in order:
            for (held, form), issue in self.found.items():
                if held == kind:
                    yield WeightIssue(
                        kind=kind, format=form, count=issue.count, names=tuple(issue.names), line=issue.line
                    )

    def _issue_of_line(self, number: int) -> _Issue:
        if self.open_key is None:
            self.open_key = ("subnormal", "FP16")
        return self.found.setdefault(self.open_key, _Issue(line=number))

    def _names(self, text: str) -> None:
        issue = self._issue_of_line(0)
        for name in filter(None, (each.strip() for each in text.split(", "))):
            self._name(issue, name)

    def _name(self, issue: _Issue, name: str) -> None:
        if len(issue.names) < MOST or name in issue.names:
            issue.names[name] = None
        else:
            self.left_out = True


def kind_of(text: str) -> str:
    """Which of overflow, underflow and subnormal a line's words mean."""
    low = text.lower()
    if "overflow" in low or "exceed" in low or "closest finite" in low:
        return "overflow"
    if "less than smallest" in low:
        return "underflow"
    return "subnormal"


def _format_in(text: str) -> str:
    found = _FORMAT.search(text)
    return found[1] if found else "FP16"
