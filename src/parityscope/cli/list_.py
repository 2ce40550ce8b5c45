"""`parityscope list`: catalogues of plug-ins."""

from __future__ import annotations

from typing import Annotated

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["CATALOGUES", "NAME", "command"]

NAME = "list"


def command(
    kind: Annotated[
        str, typer.Argument(help="backends, checks, rules, metrics, repairs or formats.", show_default=False)
    ],
) -> int:
    """Lists what there is of a kind of plug-in."""
    if kind not in CATALOGUES:
        raise ParityError(f"there is no catalogue {kind!r}", fix=f"use one of: {', '.join(CATALOGUES)}")
    for name, title in CATALOGUES[kind]().items():
        print(f"{name:28} {title}")
    return Exit.WITHIN


def _backends() -> dict[str, str]:
    from parityscope.backends import backends

    return {name: found.title for name, found in backends().items()}


def _checks() -> dict[str, str]:
    from parityscope.checks import checks

    return {code: found.title for code, found in checks().items()}


def _rules() -> dict[str, str]:
    from parityscope.lint import rules

    return {code: found.title for code, found in rules().items()}


def _metrics() -> dict[str, str]:
    # The package above has a folder `metrics`, which takes the place of the function once it is imported.
    from parityscope.comparison._metric import metrics

    return {found.name: f"{found.unit}; {found.better} is better" for found in metrics()}


def _repairs() -> dict[str, str]:
    from parityscope.repairs import repairs

    return {name: f"{found.title} (risk: {found.risk})" for name, found in repairs().items()}


def _formats() -> dict[str, str]:
    from parityscope.report import renderers

    return {name: f"*{found.suffix}" for name, found in renderers().items()}


CATALOGUES = {
    "backends": _backends,
    "checks": _checks,
    "rules": _rules,
    "metrics": _metrics,
    "repairs": _repairs,
    "formats": _formats,
}
