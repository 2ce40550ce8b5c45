"""Who asks: what a command and the function of its name hand down to the work that they share."""

from __future__ import annotations

from parityscope.backends.recording import Progress, ignore_progress
from parityscope.light_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The command that asks the same again ("" in Python), and who is told how far the work is."""

    command: str = ""
    progress: Progress = ignore_progress


PYTHON = Caller()
