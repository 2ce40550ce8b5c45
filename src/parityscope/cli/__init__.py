"""The command line: one file per subcommand; the only place that prints or exits.

stdout carries the result, stderr progress (on a terminal only) and one summary line. Exit codes are in `errors.Exit`.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["guarded", "main"]


def main(arguments: list[str] | None = None) -> None:
    """Runs `parityscope`, turning every way it can end into an exit code."""
    from parityscope.cli._supervise import supervised

    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(supervised(lambda: _run(words)))


def _run(words: list[str]) -> int:
    from parityscope.cli._app import command

    return guarded(lambda: command()(args=words, prog_name="parityscope", standalone_mode=False))


def guarded(work: Callable[[], object]) -> int:
    """The exit code of `work`, whatever way it ends; what a user must know is said on stderr."""
    import typer

    try:
        status = work()
    except ParityError as error:
        print(f"parityscope: {error}", file=sys.stderr)
        return Exit.UNUSABLE
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt) as interrupt:
        return _interrupted(interrupt.__cause__)
    except BrokenPipeError:  # whoever read has gone; the verdict that was not told must not pass for "within"
        return Exit.INTERRUPTED
    except OSError as error:
        print(f"parityscope: {error.strerror or error}\n  where: {error.filename or ''}", file=sys.stderr)
        print("  fix:   check free disk space and permissions", file=sys.stderr)
        return Exit.UNUSABLE
    except Exception as error:  # noqa: BLE001 - the outer edge: what is left is a usage error or our bug
        return _usage(error) or _bug()
    if status == Exit.INTERRUPTED:  # newer versions of typer make this of an interrupt that nobody caught
        return _interrupted(None)
    return status if isinstance(status, int) else Exit.WITHIN


def _interrupted(cause: BaseException | None) -> int:
    """Says what is left, if the cause knows."""
    print(f"parityscope: {str(cause or '') or 'interrupted; no study was written'}", file=sys.stderr)
    return Exit.INTERRUPTED


def _usage(error: Exception) -> int:
    """Says what is wrong with the command line itself, and which help lists what is right; 0 when it is something else.

    typer carries a copy of click, whose exceptions have no public name but know their message and their command.
    """
    said = getattr(error, "format_message", None)
    if said is None:
        return 0
    command = getattr(getattr(error, "ctx", None), "command_path", None) or "parityscope"
    print(f"parityscope: {' '.join(said().split())}\n  fix:   {command} --help lists what there is", file=sys.stderr)
    return Exit.UNUSABLE


def _bug() -> int:
    traceback.print_exc()
    print("parityscope: this is a bug of Parityscope; please report it with the lines above", file=sys.stderr)
    return Exit.BUG
