"""Catalogues of plug-ins by their kind -> text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.catalogue import lines_by_family, whole_catalogue
from parityscope.report.forms import plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _list_lines(document: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if len(document) == 1:
        yield from _lines_of(*document.values())
        return
    for place, (name, titles) in enumerate(document.items()):
        if place:
            yield ""
        yield name.capitalize()
        yield from (f"  {line}".rstrip() for line in _lines_of(titles))


def _lines_of(titles: Mapping[str, str]) -> list[str]:
    if set(titles) <= set(known := whole_catalogue()):
        return list(lines_by_family([one for one in known.values() if one.code in titles]))
    return [f"{name:28} {title}" for name, title in sorted(titles.items())]


FORMS = plain_forms("list", _list_lines)
