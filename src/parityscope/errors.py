"""The one kind of error that Parityscope raises on purpose, and the exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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


_SHOWN = 500  # characters of each end of a text that is too long to be read; chosen


class ParityError(Exception):
    """Something the reader can mend: bad input, a missing runtime, a candidate that failed.

    Args:
        problem: What is wrong, in one sentence that names the thing.
        where: The file, sample, tensor or node it was found at; empty when there is none.
        fix: A command or an edit that mends it; empty only when nobody knows one.
        failing: A candidate failed with it while it ran a sample, as by a crash: others may run. It is no bad input.
        over: The process of a candidate ended with it: no further sample can be run.
        incomparable: Nothing is wrong with what was given, but nothing in it can be compared.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str = "",
        fix: str = "",
        failing: bool = False,
        over: bool = False,
        incomparable: bool = False,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.fix = fix
        self.failing = failing or over
        self.over = over
        self.incomparable = incomparable

    def __str__(self) -> str:
        lines = [_shorten_text(self.problem)]
        if self.where:
            lines.append(f"  where: {_shorten_text(self.where)}")
        if self.fix:
            lines.append(f"  fix:   {_shorten_text(self.fix)}")
        return "\n".join(lines)


def _shorten_text(text: str) -> str:
    """What is too long to be read, because names of somebody's are quoted in it, without its middle.

    Further lines are set in, so that no name begins a line as if it were ours.
    """
    left_out = len(text) - 2 * _SHOWN
    shown = text if left_out <= 0 else f"{text[:_SHOWN]} [... {left_out} characters ...] {text[-_SHOWN:]}"
    return shown.replace("\n", "\n         ")
