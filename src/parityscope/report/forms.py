"""The forms that a document of one command has: text for a terminal, strict JSON, and a page.

A study has more, which are plug-ins (`parityscope.report.known_renderers`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FORMATS", "Forms"]

FORMATS = ("text", "json", "html")


class _AsText(Protocol):
    def __call__(self, document: Mapping[str, Any], /, *, width: int, color: bool) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """How documents of one kind are written; `title` is what an error calls them."""

    title: str
    as_text: _AsText
    as_html: Callable[[Mapping[str, Any]], str]

    def check(self, name: str) -> None:
        """Checks that there is such a format.

        Raises:
            ParityError: there is none.
        """
        if name not in FORMATS:
            raise ParityError(f"{self.title} has no format {name!r}", fix=f"use one of: {', '.join(FORMATS)}")

    def render(self, document: Mapping[str, Any], name: str, *, width: int = 100, color: bool = False) -> str:
        """The document in one of `FORMATS`; width and colour are for text.

        Raises:
            ParityError: there is no such format.
        """
        self.check(name)
        if name == "text":
            return self.as_text(document, width=width, color=color)
        if name == "html":
            return self.as_html(document)
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
