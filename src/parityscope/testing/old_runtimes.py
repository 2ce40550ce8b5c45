"""Released versions of a runtime in environments of their own, so that their real bugs can be test subjects.

`interpreter(requirements)` makes a virtual environment from a file of pinned and hashed requirements, once, beside the models in
the cache, and gives its Python. The versions that the project itself uses are untouched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from parityscope.testing.models import Unavailable, cache_folder

__all__ = ["interpreter", "require_interpreter"]

_TIMEOUT_S = 300.0  # chosen, as for models: 33 MB over a line of 1 Mbit/s take 264 s
_TAIL_LINES = 3  # chosen: what of a client's message is shown


def interpreter(requirements: Path) -> Path:
    """The Python of the environment that `requirements` describes, made at the first call.

    Raises:
        Unavailable: pip is missing, or the packages cannot be had for this Python and machine.
    """
    facts = f"{sys.version} {platform.platform()}\n{requirements.read_text(encoding='utf-8')}"
    place = cache_folder() / "environments" / hashlib.sha256(facts.encode()).hexdigest()[:16]
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=place.parent) as scratch:
            made = _made(requirements, Path(scratch, "environment"))
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():  # else another process was faster
                    raise
    return place / "bin" / "python"


def require_interpreter(requirements: Path) -> Path:
    """`interpreter` for a test: skips the test with the reason if it cannot be had, but never in CI.

    Raises:
        Unavailable: it cannot be had, and the environment variable CI is "true" or "1".
    """
    import pytest

    try:
        return interpreter(requirements)
    except Unavailable as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"{requirements.name}: {error}")


def _made(requirements: Path, folder: Path) -> Path:
    """A virtual environment in `folder` with the packages in it and nothing else."""
    if importlib.util.find_spec("pip") is None:
        raise Unavailable("pip is needed, and this Python has none", fix=f"{sys.executable} -m ensurepip")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", *options, "-r", str(requirements)])
    return folder


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"{command[2]} did not end in {_TIMEOUT_S:.0f} s", fix="try again with a faster line to the package index"
        ) from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = " | ".join([line for line in lines if "ERROR" in line][-_TAIL_LINES:] or lines[-1:])
        raise Unavailable(f"{command[2]} failed: {said}", fix=f"make this command work: {shlex.join(command)}")
