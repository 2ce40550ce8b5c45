"""The page of a code that a finding can have, or the table of all -> text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.catalogue import lines_by_family, tell_page, whole_catalogue
from parityscope.languages import say_in_language
from parityscope.report.forms import plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    if "page" in document:
        yield from tell_page(document["page"]).split("\n")
        return
    yield from lines_by_family(list(whole_catalogue().values()))
    yield ""
    yield say_in_language("What else a report can say")
    yield from (f"  {word:<6}  {say_in_language(page.partition('.')[0])}" for word, page in document["words"].items())


FORMS = plain_forms("explain", _list_lines, say=str)
