"""A sample of the hostile corpus over all its families: each case ends in one clear error or a right answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(1800)
def test_two_hundred_hostile_cases_end_as_promised() -> None:
    # In processes of their own, because each forks for its cases and takes over whatever a case leaves running.
    command = [sys.executable, "-m", "proving.hostile", "--quick"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    told = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=surroundings, check=False, timeout=1700
    )
    assert "200 of 200 cases ended as promised" in told.stdout, told.stdout[-8000:]
    assert told.returncode == 0
