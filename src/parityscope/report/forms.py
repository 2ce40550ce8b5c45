"""The forms that a document of one command has: text for a terminal, strict JSON, a page and Markdown.

A study has more, which are plug-ins (`parityscope.report.known_renderers`).
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.languages import say_in_language
from parityscope.light_dataclasses import dataclass, field
from parityscope.report._console import write_to_console
from parityscope.report._markup import fence_lines
from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of, trusted_markup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rich.console import Console

_FORMATS = ("text", "json", "html", "markdown")
# Of a file's name, and the format that it says.
ENDINGS: Mapping[str, str] = MappingProxyType(
    {".html": "html", ".json": "json", ".md": "markdown", ".sarif": "sarif", ".txt": "text", ".xml": "junit"}
)
SHARED_STYLE = TEMPLATES / "style.css"


def _draw_nothing(document: Mapping[str, Any]) -> dict[str, Any]:
    del document
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One self-contained HTML file: no network; it works offline, in dark and light, and printed.

    `template` gets the view, and what `draw` gives of the document: drawings (or lists of them) by name, as SVG. `styles` are
    style sheets behind the one that all pages share.
    """

    template: Path
    styles: tuple[Path, ...] = ()
    draw: Callable[[Mapping[str, Any]], Mapping[str, str | list[str]]] = _draw_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """How documents of one kind are written; `title` is what an error calls them, `others` are further formats by name.

    `view` words a document; `show` writes the view to a terminal, `page` is the one that it is drawn on.
    """

    title: str
    view: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    show: Callable[[Console, Mapping[str, Any]], None]
    page: Page
    others: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def names(self) -> tuple[str, ...]:
        """Every format there is."""
        return tuple(dict.fromkeys((*_FORMATS, *self.others)))

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files that such a document can be written to."""
        return tuple(ending for ending, name in ENDINGS.items() if name in self.names)

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
        if name == "markdown":
            return "\n".join(fence_lines(self.as_text(document).splitlines())) + "\n"
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def as_text(self, document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
        """The document as text of at most `width` columns (commands are never wrapped), with ANSI colours if `color`."""
        return write_to_console(self.show, self.view(document), width=width, color=color)

    def as_html(self, document: Mapping[str, Any]) -> str:
        """The document as a page."""
        drawn = {
            name: trusted_markup(found) if isinstance(found, str) else [trusted_markup(one) for one in found]
            for name, found in self.page.draw(document).items()
        }
        style = text_of(SHARED_STYLE, *self.page.styles)
        view = {"title": self.title, "text": self.as_text(document)} if self.page is PLAIN else self.view(document)
        values = {"view": view, **drawn, "style": style, "data": embedded_json(document)}
        return laid_out(self.page.template, values)


def format_of_file(path: Path | None) -> str:
    """The format that a file's ending says; "" where it says none."""
    return "" if path is None else ENDINGS.get(path.suffix, "")


PLAIN = Page(template=TEMPLATES / "plain.html.j2")  # shows what is printed


def plain_forms(
    title: str, list_lines: Callable[[Mapping[str, Any]], Iterable[str]], *, say: Callable[[str], str] = say_in_language
) -> Forms:
    """The forms of a document that is read as lines of plain text, wherever; each is said in the language that is spoken.

    Lines that are said as they are made take `str` for `say`.
    """

    def show(console: Console, document: Mapping[str, Any]) -> None:
        for line in list_lines(document):
            console.print(say(line), soft_wrap=True)

    return Forms(title=title, view=dict, show=show, page=PLAIN)
