"""The forms that a document of one command has: text for a terminal, strict JSON, and a page.

A study has more, which are plug-ins (`parityscope.report.known_renderers`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
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
    """How documents of one kind are written; `title` is what an error calls them, `others` are further formats by name."""

    title: str
    as_text: _AsText
    as_html: Callable[[Mapping[str, Any]], str]
    others: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def names(self) -> tuple[str, ...]:
        """Every format there is."""
        return (*FORMATS, *self.others)

    def check(self, name: str) -> None:
        """Checks that there is such a format.

        Raises:
            ParityError: there is none.
        """
        if name not in self.names:
            raise ParityError(f"{self.title} has no format {name!r}", fix=f"use one of: {', '.join(self.names)}")

    def render(self, document: Mapping[str, Any], name: str, *, width: int = 100, color: bool = False) -> str:
        """The document in one of its formats; width and colour are for text.

        Raises:
            ParityError: there is no such format.
        """
        self.check(name)
        if name == "text":
            return self.as_text(document, width=width, color=color)
        if name == "html":
            return self.as_html(document)
        if name in self.others:
            return self.others[name](document)
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
