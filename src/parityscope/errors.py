"""The one kind of error that Parityscope raises on purpose, and the exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXIT_OF", "Exit", "ParityError"]


class Exit(IntEnum):
    """Exit codes of `parityscope` (0, 1 and 2 as in ruff; 101 as a Rust panic)."""

    WITHIN = 0
    BEYOND = 1
    UNUSABLE = 2
    INCOMPLETE = 3
    BUG = 101
    INTERRUPTED = 130


# What a verdict ends the command with.
EXIT_OF: Mapping[str, Exit] = MappingProxyType(
    {"within": Exit.WITHIN, "beyond": Exit.BEYOND, "incomplete": Exit.INCOMPLETE}
)


class ParityError(Exception):
    """Something the reader can mend: bad input, a missing runtime, a candidate that failed.

    Args:
        problem: What is wrong, in one sentence that names the thing.
        where: The file, sample, tensor or node it was found at; empty when there is none.
        fix: A command or an edit that mends it; empty only when nobody knows one.
    """

    def __init__(self, problem: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.problem]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        return "\n".join(lines)
