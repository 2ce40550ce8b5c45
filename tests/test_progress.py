"""Progress: one line in place on a terminal, a line a minute in a log, and nothing of it left in front of the result."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from parityscope.cli.shell.progress import describe_step, progress_for
from parityscope.cli.shell.streams import standard_streams

if TYPE_CHECKING:
    from collections.abc import Callable

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ticking(times: list[float]) -> Callable[[], float]:
    left = iter(times)
    return lambda: next(left)


@pytest.mark.parametrize(
    ("step", "elapsed", "stage", "told"),
    [
        (12, 14.0, 10.0, "replaying 12/40 · 0:14 · about 0:23 left"),
        (0, 14.0, 10.0, "replaying 0/40 · 0:14"),
        (12, 3.0, 1.0, "replaying 12/40 · 0:03"),
        (10, 4000.0, 3700.0, "replaying 10/40 · 1:06:40 · about 3:05:00 left"),
    ],
)
def test_a_line_says_what_how_long_and_what_is_left(step: int, elapsed: float, stage: float, told: str) -> None:
    assert describe_step("replaying", step, 40, elapsed=elapsed, stage=stage) == told


def test_on_a_terminal_the_line_stays_in_place_and_goes_before_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    with standard_streams():
        show = progress_for(quiet=False, clock=ticking([0.0, 0.0, 8.0, 9.0, 10.0, 11.0]))
        show("comparing outputs", 0, 4)
        show("comparing outputs", 2, 4)
        show("outputs: within", 0, 0)
        show("predicting", 1, 2)
        print("the result")  # noqa: T201 - what a command does with its result
    assert screen.getvalue().split(CLEAR) == [
        "",
        "step 1 · comparing outputs 0/4 · 0:00",
        "step 1 · comparing outputs 2/4 · 0:08 · about 0:08 left",
        "outputs: within\n",
        "step 2 · predicting 1/2 · 0:10",
        "the result\n",
    ]


def test_a_log_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    show = progress_for(quiet=False, clock=ticking([0.0, 1.0, 59.0, 61.0, 90.0, 125.0]))
    for step in range(5):
        show("replaying", step, 10)
    assert capsys.readouterr().err.splitlines() == [
        "parityscope: step 1 · replaying 2/10 · 1:01 · about 4:00 left",
        "parityscope: step 1 · replaying 4/10 · 2:05 · about 3:06 left",
    ]


def test_a_verb_alone_says_at_once_that_it_starts() -> None:
    own, given = pty.openpty()
    command = [sys.executable, "-m", "parityscope", "doctor"]
    with subprocess.Popen(command, stdin=given, stdout=given, stderr=given) as process:
        os.close(given)
        first = b""
        while b"\n" not in first and process.poll() is None:
            first += os.read(own, 4096)
            if b": starting" in first:
                break
        process.kill()
    os.close(own)
    assert b"parityscope doctor: starting" in first
