"""Every code that a finding can have, in one catalogue: what checks, lint rules and logs say, by family."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Entry", "families", "lines_by_family", "whole_catalogue"]

# The letters that a code begins with, in the order of the questions; the words are for readers.
_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "DAT": "The data and the reference",
        "PRE": "Preprocessing",
        "BND": "Inputs and outputs",
        "RNG": "Range of the number format",
        "ACC": "Accuracy of the arithmetic",
        "CST": "Precision that was asked for",
        "QNT": "Quantization",
        "FUS": "Layers and fusions",
        "SHP": "Shapes, batches and padding",
        "SEQ": "Repeated calls",
        "EXP": "Export and conversion",
        "ENV": "Environment and settings",
        "RUN": "The run itself",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A code, who says it ("check", "lint" or "log"), its title, how to get its page, and how many examples hold it."""

    code: str
    said_by: str
    title: str
    page: Callable[[], str]
    examples: int = 0


def whole_catalogue() -> dict[str, Entry]:
    """Every entry by its code, in order of families and numbers."""
    from parityscope.checks import check_page, known_checks
    from parityscope.lint import known_rules, rule_page
    from parityscope.logs.pages import log_codes, log_page

    found = [
        *(_entry_of(code, "check", one.title, check_page, len(one.holds)) for code, one in known_checks().items()),
        *(_entry_of(code, "lint", one.title, rule_page, len(one.holds)) for code, one in known_rules().items()),
        *(_entry_of(code, "log", _heading_of(log_page(code)), log_page) for code in log_codes()),
    ]
    return {one.code: one for one in sorted(found, key=_place_of)}


def families(entries: Iterable[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """The words of each family, and its entries."""
    for family, found in groupby(entries, key=lambda one: one.code[:3]):
        yield _FAMILIES.get(family, family), list(found)


def lines_by_family(entries: Iterable[Entry]) -> Iterator[str]:
    """A table: a heading a family, then code, who says it, and title."""
    for number, (heading, found) in enumerate(families(entries)):
        if number:
            yield ""
        yield heading
        for one in found:
            yield f"  {one.code}  {one.said_by:<5}  {one.title}"


def _entry_of(code: str, said_by: str, title: str, page: Callable[[str], str], examples: int = 0) -> Entry:
    return Entry(code=code, said_by=said_by, title=title, page=lambda: page(code), examples=examples)


def _place_of(entry: Entry) -> tuple[int, str]:
    families = list(_FAMILIES)
    family = entry.code[:3]
    return (families.index(family) if family in families else len(families)), entry.code


def _heading_of(page: str) -> str:
    """What a page's first line is about: up to its colon, if it has one."""
    first = page.strip().splitlines()[0].partition(":")[0].removesuffix(".")
    return first[:1].upper() + first[1:]
