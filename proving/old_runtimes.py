"""Released versions of a runtime in environments of their own, so that their real bugs can be test subjects.

`interpreter(requirements)` makes a virtual environment from a file of pinned and hashed requirements, once, beside the models in
the cache, and gives its Python. The versions that the project itself uses are untouched.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from pathlib import Path

from proving.models.packages import cache_folder, had_or_skipped, need_pip, run_client


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
    return had_or_skipped(lambda: interpreter(requirements), requirements.name)


def _made(requirements: Path, folder: Path) -> Path:
    """A virtual environment in `folder` with the packages in it and nothing else."""
    need_pip("install packages")
    run_client([sys.executable, "-m", "venv", "--without-pip", str(folder)], "venv cannot make an environment")
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, "-r", str(requirements)]
    run_client(command, f"pip cannot install {requirements.name}")
    return folder
