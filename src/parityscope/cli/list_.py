"""`parityscope list`: catalogues of plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from parityscope.cli.shell.answering import Answer

__all__ = ["CATALOGUES", "NAME", "command"]

NAME = "list"


def command(
    kind: Annotated[
        str | None,
        typer.Argument(help="backends, checks, rules, metrics, repairs or formats; all, if none.", show_default=False),
    ] = None,
    *,
    told: Answer,
) -> int:
    """Lists what there is of a kind of plug-in, or of every kind."""
    from parityscope.report.forms import plain_forms

    if kind is not None and kind not in CATALOGUES:
        raise ParityError(f"there is no catalogue {kind!r}", fix=f"use one of: {', '.join(CATALOGUES)}")
    forms = plain_forms("list", _list_lines)
    told.claim(forms)
    told.hand_over(forms, {name: CATALOGUES[name]() for name in ([kind] if kind else CATALOGUES)})
    return Exit.WITHIN


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
    from parityscope.catalogue import lines_by_family, whole_catalogue

    if set(titles) <= set(known := whole_catalogue()):
        return list(lines_by_family([one for one in known.values() if one.code in titles]))
    return [f"{name:28} {title}" for name, title in sorted(titles.items())]


def _list_backends() -> dict[str, str]:
    from parityscope.backends import known_backends

    return {name: found.title for name, found in known_backends().items()}


def _list_checks() -> dict[str, str]:
    from parityscope.checks import known_checks

    return {code: found.title for code, found in known_checks().items()}


def _list_rules() -> dict[str, str]:
    from parityscope.linting import known_rules

    return {code: found.title for code, found in known_rules().items()}


def _list_metrics() -> dict[str, str]:
    from parityscope.comparison import all_metrics

    return {found.name: f"{found.unit}; {found.better} is better" for found in all_metrics()}


def _list_repairs() -> dict[str, str]:
    from parityscope.repairs import known_repairs

    return {name: f"{found.title} (risk: {found.risk})" for name, found in known_repairs().items()}


def _list_formats() -> dict[str, str]:
    from parityscope.report import known_renderers

    return {name: f"*{found.suffix}" for name, found in known_renderers().items()}


CATALOGUES: Mapping[str, Callable[[], dict[str, str]]] = {
    "backends": _list_backends,
    "checks": _list_checks,
    "rules": _list_rules,
    "metrics": _list_metrics,
    "repairs": _list_repairs,
    "formats": _list_formats,
}
