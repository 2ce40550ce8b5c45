"""The subcommands in one application, with help texts from their docstrings.

A subcommand is a file of this folder that has a `NAME` and a `command`; nothing else has to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import typer
import typer.main

from parityscope import cli
from parityscope.cli._shared import spread
from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = ["command"]

# The main road comes first in the help; the others follow by name.
_FIRST = (
    "diagnose",
    "compare",
    "localize",
    "predict",
    "lint",
    "log",
    "network",
    "pipeline",
    "repair",
    "verify",
    "evaluate",
    "run",
    "report",
    "explain",
    "list",
    "doctor",
)


def command() -> Callable[..., object]:
    """What `parityscope` runs: call it with args, prog_name and standalone_mode."""
    app = typer.Typer(
        help="Tells why a deployed neural network disagrees with the original, where it starts, and how to repair it.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module in sorted(_modules(), key=_place):
        app.command(module.NAME)(spread(module.command))
    app.callback(invoke_without_command=True)(_version_only)
    return typer.main.get_command(app)


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(cli.__path__):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"{cli.__name__}.{info.name}")


def _place(module: ModuleType) -> tuple[int, str]:
    return (_FIRST.index(module.NAME) if module.NAME in _FIRST else len(_FIRST)), module.NAME


def _version_only(
    context: typer.Context,
    *,
    version: bool = typer.Option(default=False, help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        import parityscope

        typer.echo(f"parityscope {parityscope.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Exit.UNUSABLE)
