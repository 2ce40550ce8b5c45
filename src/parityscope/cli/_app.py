"""The subcommands in one application, with help texts from their docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
import typer.main

from parityscope.cli import compare, diagnose, doctor, explain, list_, localize, report, run
from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["command"]

_COMMANDS = (diagnose, compare, localize, run, report, explain, list_, doctor)


def command() -> Callable[..., object]:
    """What `parityscope` runs: call it with args, prog_name and standalone_mode."""
    app = typer.Typer(
        help="Tells why a deployed neural network disagrees with the original, where it starts, and how to repair it.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module in _COMMANDS:
        app.command(module.NAME)(module.command)
    app.callback(invoke_without_command=True)(_version_only)
    return typer.main.get_command(app)


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
