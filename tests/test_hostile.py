"""A sample of the hostile corpus over all its families: each case ends in one clear error or a right answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(1800)
def test_hostile_cases_of_all_families_end_as_promised() -> None:
    # In processes of their own, because each forks for its cases and takes over whatever a case leaves running.
    command = [sys.executable, "-m", "proving.hostile", "--quick"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    told = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=surroundings, check=False, timeout=1700
    )
    count = re.search(r"^(\d+) of \1 cases ended as promised", told.stdout, re.MULTILINE)
    assert count, told.stdout[-8000:]
    assert int(count[1]) >= 100
    assert told.returncode == 0
