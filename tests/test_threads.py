"""One thread of linear algebra in our commands, the user's own choice in the user's programs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from parityscope.threads import environment_of_others

_TOLD = """import atexit, os
atexit.register(lambda: print(os.environ.get("OPENBLAS_NUM_THREADS")))
from parityscope.cli import main
main(["--version"])"""


@pytest.mark.parametrize(("chosen", "told"), [(None, "1"), ("3", "3")])
def test_a_command_takes_one_thread_unless_the_user_chose(chosen: str | None, told: str) -> None:
    environment = environment_of_others()
    environment.pop("OPENBLAS_NUM_THREADS", None)
    environment |= {"OPENBLAS_NUM_THREADS": chosen} if chosen else {}
    done = subprocess.run([sys.executable, "-c", _TOLD], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1] == told


def test_a_program_of_the_users_gets_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.delenv("PARITYSCOPE_SET_THREADS", raising=False)
    assert environment_of_others()["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("PARITYSCOPE_SET_THREADS", "1")
    assert "OPENBLAS_NUM_THREADS" not in environment_of_others()
    assert "OPENBLAS_NUM_THREADS" not in environment_of_others({**os.environ, "A": "b"})
