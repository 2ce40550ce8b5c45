"""The command line: in the test's own process, or in one of its own as a user starts it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from parityscope.cli import main

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_S = 500  # below the limit of a test, so that what hangs is ended with it


def exit_status(*words: str) -> int:
    """What `parityscope` with these words ends with, here."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def read_study(folder: Path) -> dict[str, Any]:
    """The document of the study in `folder`."""
    found: dict[str, Any] = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    return found


def in_this_process(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As `in_a_process`, where the process itself is no matter: a second or two less, which importing takes."""
    said, told = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        code = exit_status(*words)
    return subprocess.CompletedProcess(words, code, said.getvalue(), told.getvalue())


def in_a_process(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`parityscope` with these words in a process of its own that works in `folder`."""
    command = [sys.executable, "-m", "parityscope", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=_PATIENCE_S)
