"""The subcommands in one application, with help texts from their docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
import typer.main

from parityscope.cli import compare, diagnose, doctor, explain, list_, localize, report, run

if TYPE_CHECKING:
    import click

__all__ = ["command"]

_COMMANDS = (diagnose, compare, localize, run, report, explain, list_, doctor)


def command() -> click.Command:
    """The click command that `parityscope` runs."""
    app = typer.Typer(
        help="Tells why a deployed neural network disagrees with the original, where it starts, and how to repair it.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module in _COMMANDS:
        app.command(module.NAME)(module.command)
    app.callback()(_version_only)
    return typer.main.get_command(app)


def _version_only(
    *, version: bool = typer.Option(default=False, help="Print the version and exit.", is_eager=True)
) -> None:
    if version:
        import parityscope

        typer.echo(f"parityscope {parityscope.__version__}")
        raise typer.Exit
