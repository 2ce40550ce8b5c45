"""Progress on stderr: one line that stays in place on a terminal, and elsewhere a line a minute, so that a log shows life.

`step 3 · replaying 12/40 · 0:14 · about 0:32 left`: which stage it is, what it does, how long the command has run, and what this
stage will still take if it goes on as it did. What is known already (the verdict, the place, a cause) keeps its line.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from parityscope.cli.shell.streams import show_progress
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.api.asking import Caller
    from parityscope.backends.recording import Progress

PROGRESS_VARIABLE = "PARITYSCOPE_PROGRESS"  # "lines": every step in a line of its own, for a program that reads them
PROGRESS_LINE = "progress: "  # what such a line begins with

_HEARTBEAT = 60.0  # seconds between two lines where there is no terminal
_SOON = 5.0  # seconds of a stage below which nothing is said of what is left: it is over before it is read; chosen


@dataclass(slots=True)
class _Watch:
    """What was seen so far; `stage_began` and `told` are times of the clock."""

    began: float
    stage_began: float
    told: float
    stages: list[str] = field(default_factory=list)


def name_caller(*, quiet: bool) -> Caller:
    """This run's command as the one that asks, with progress on stderr but where it is `quiet`."""
    from parityscope.api.asking import Caller
    from parityscope.cli.shell.output import command_line

    return Caller(command=command_line(), progress=progress_for(quiet=quiet))


def progress_for(*, quiet: bool, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Progress on stderr, but where it is `quiet`, and in the note of the study that is made; `clock` gives seconds."""
    from parityscope.running_note import note_running_step

    now = clock()
    watch = _Watch(began=now, stage_began=now, told=now)
    terminal = sys.stderr.isatty() and not quiet
    every = os.environ.get(PROGRESS_VARIABLE) == "lines" and not quiet

    def show(what: str, step: int, steps: int) -> None:
        now = clock()
        if not steps:
            note_running_step(what, lasting=True)
            if terminal:
                show_progress(what, last=True)
            return
        if not watch.stages or watch.stages[-1] != what:
            watch.stages.append(what)
            watch.stage_began = now
        line = describe_step(
            f"step {len(watch.stages)} · {what}", step, steps, elapsed=now - watch.began, stage=now - watch.stage_began
        )
        note_running_step(line)
        if every:
            print(f"{PROGRESS_LINE}{line}", file=sys.stderr, flush=True)
        elif terminal:
            show_progress(line[: shutil.get_terminal_size().columns - 1] if step < steps else "", last=False)
        elif now - watch.told >= _HEARTBEAT and not quiet:
            watch.told = now
            print(f"parityscope: {line}", file=sys.stderr, flush=True)

    return show


def describe_step(what: str, step: int, steps: int, *, elapsed: float, stage: float) -> str:
    """The line; `elapsed` seconds of the command and `stage` seconds of what is done now."""
    line = f"{what} {step}/{steps} · {_format_clock(elapsed)}"
    if not 0 < step < steps or stage < _SOON:
        return line
    return f"{line} · about {_format_clock(stage / step * (steps - step))} left"


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
