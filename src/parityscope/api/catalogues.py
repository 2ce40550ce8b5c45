"""What there is of each kind of plug-in: its names, and what each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
