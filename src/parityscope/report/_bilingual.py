"""A page in two languages with one switch: its own text, and beside it what the other language says for each piece of text.

The page is laid out in English. Each run of text between two tags, and each attribute that is read out, is looked up; the pairs
lie in the page as JSON for its script (`templates/language.js`), which changes them in place and keeps an eye on what other
scripts add. Names are not translated: what stands in `code` or `pre`, in a script or a style, or under `translate="no"`.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from parityscope.languages import OWN, current_language, translate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

OTHER = "zh"
_PIECE = re.compile(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->|<(?:[^<>\"]|\"[^\"]*\")*>|[^<]+")
_WORDS = re.compile("[A-Za-z]{2}")
_TAG = re.compile(r"</?([a-zA-Z][\w-]*)")
_SPOKEN = re.compile(r'(?<=\s)(aria-label|placeholder|title)="([^"]*)"')
_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
_NAMES = {"code", "pre"}
# What a script says: `words("...")`, with {0} for what is filled in.
_SCRIPTED = re.compile(r'\bwords\("((?:[^"\\]|\\.)*)"')


def pairs_of(page: str, told: Mapping[str, str], drawn: Iterable[str]) -> dict[str, str]:
    """What the other language says for each text of an English page, where it says something else.

    `told` are pairs that are known already: of texts that were cut, which cannot be looked up any more. `drawn` are texts that
    the page's script draws from its data.
    """
    found: dict[str, str] = {}

    def look(text: str) -> str:
        said = translate_text(told.get(text, text), OTHER)
        if said != text:
            found[text] = said
        return text

    _change_texts(page, look)
    for text in (*_SCRIPTED.findall(page), *drawn):
        look(text)
    return found


def in_language(page: str, pairs: Mapping[str, str]) -> str:
    """The page with every text of `pairs` replaced, where that language is spoken; else as it is."""
    if current_language() == OWN:
        return page
    told = _change_texts(page, lambda text: pairs.get(text, text))
    return told.replace(f'<html lang="{OWN}">', f'<html lang="{current_language()}">', 1)


def paired_texts(own: object, said: object) -> Iterable[tuple[str, str]]:
    """Pairs of the texts at the same places of two pieces of plain data."""
    if isinstance(own, str):
        if isinstance(said, str):
            yield own, said
    elif isinstance(own, dict) and isinstance(said, dict):
        for key in own:
            yield from paired_texts(own[key], said.get(key))
    elif isinstance(own, list) and isinstance(said, list):
        for each, other in zip(own, said, strict=False):
            yield from paired_texts(each, other)


def _change_texts(page: str, change: Callable[[str], str]) -> str:
    """The page with `change` applied to each run of text and each spoken attribute that is no name."""
    silent: list[str] = []  # elements that are open within one whose text is no language's
    written: list[str] = []
    for match in _PIECE.finditer(page):
        piece = match.group()
        if not piece.startswith("<"):
            written.append(piece if silent else _change_text(piece, change))
            continue
        written.append(piece if silent else _SPOKEN.sub(lambda found: _change_attribute(found, change), piece))
        if tag := _TAG.match(piece):
            _enter_element(silent, tag.group(1).lower(), piece)
    return "".join(written)


def _enter_element(silent: list[str], name: str, piece: str) -> None:
    if piece.startswith("</"):
        if silent and silent[-1] == name:
            silent.pop()
    elif not (piece.endswith("/>") or name in _VOID) and (silent or name in _NAMES or 'translate="no"' in piece):
        silent.append(name)


def _change_text(piece: str, change: Callable[[str], str]) -> str:
    if not _WORDS.search(piece):
        return piece
    text = html.unescape(piece)
    inner = " ".join(text.split())
    said = change(inner) if inner else inner
    if said == inner:
        return piece
    lead, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return html.escape(f"{lead}{said}{tail}", quote=False)


def _change_attribute(found: re.Match[str], change: Callable[[str], str]) -> str:
    text = html.unescape(found.group(2))
    said = change(text)
    return found.group() if said == text else f'{found.group(1)}="{html.escape(said)}"'
