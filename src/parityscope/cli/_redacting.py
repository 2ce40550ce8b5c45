"""A study to give away: what the document's schema allows, and sentences without the paths of this machine.

A text of the document is left only where `study.schema.json` says how. In sentences, whatever names a file or folder of this
machine, or its host, is replaced: what the study itself names as a path, and every word that begins at a folder
that is there.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LEFT = "REDACTED"
_PATH = re.compile(r"""(?<![\w.\-/])(?:file:/+)?/[^\s'"`,;:()\[\]{}<>]+""")
_SHORTEST = 3  # characters: what is shorter stands in other words as well; chosen


def redact_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without paths, host, command line, environment and what was asked; digests, names and numbers stay."""
    from parityscope.study.schema import share_document

    places = sorted(_places_named(document), key=len, reverse=True)
    return share_document(
        document,
        {
            "kept": str,
            "sentence": lambda text: _without_paths(text, places),
            "target": lambda text: text.partition("?")[0],
            "model": lambda _: "model",
        },
    )


def _places_named(document: Mapping[str, Any]) -> set[str]:
    """What this study names that is of this machine, and its host."""
    from parityscope.backends.targets import parse_target

    question = document.get("question", {})
    asked = question.get("asked", {})
    named = [
        str(document["model"]["path"]),
        str(question.get("folder", "")),
        platform.node(),
        str(Path.home()),
    ]
    named += [str(asked.get(name) or "") for name in ("model", "inputs", "images", "real", "preprocess")]
    for side in ("reference", "candidate"):
        named += [
            value for _, value in parse_target(document[side]["target"]).options if os.sep in value or "." in value
        ]
    parents = [str(Path(one).parent) for one in named if os.sep in one]
    files = [part for one in named if Path(one).suffix for part in (Path(one).name, Path(one).stem)]
    return {form for one in (*named, *parents, *files) if len(one) > _SHORTEST for form in (one, quote(one, safe=""))}


def _without_paths(text: str, places: list[str]) -> str:
    for place in places:
        text = text.replace(place, _LEFT)
    return "".join(_pieces_left(text))


def _pieces_left(text: str) -> Iterator[str]:
    """The text, its absolute paths left out: names of tensors begin with a slash too, but with no folder that is there."""
    end = 0
    for found in _PATH.finditer(text):
        first = "/" + found[0].removeprefix("file:").lstrip("/").partition("/")[0]
        if not Path(first).exists():
            continue
        yield text[end : found.start()]
        yield _LEFT
        end = found.end()
    yield text[end:]
