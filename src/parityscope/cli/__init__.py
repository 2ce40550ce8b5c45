"""The command line: one file per subcommand; the only place that prints or exits.

stdout carries the result, stderr progress (on a terminal only) and one summary line. Exit codes are in `errors.Exit`.
"""

from __future__ import annotations

import sys
import traceback

from parityscope.errors import Exit, ParityError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Runs `parityscope`, turning every way it can end into an exit code."""
    from parityscope.cli._supervise import supervised

    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(supervised(lambda: _run(words)))


def _run(words: list[str]) -> int:
    import click

    from parityscope.cli._app import command

    try:
        status = command().main(args=words, prog_name="parityscope", standalone_mode=False)
    except ParityError as error:
        print(f"parityscope: {error}", file=sys.stderr)
        return Exit.UNUSABLE
    except click.ClickException as error:
        error.show()
        return Exit.UNUSABLE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("parityscope: interrupted; no study was written", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.WITHIN
    except OSError as error:
        print(f"parityscope: {error.strerror or error}\n  where: {error.filename or ''}", file=sys.stderr)
        print("  fix:   check free disk space and permissions", file=sys.stderr)
        return Exit.UNUSABLE
    except Exception:  # noqa: BLE001 - the outer edge: whatever is left is our bug and says so
        traceback.print_exc()
        print("parityscope: this is a bug of Parityscope; please report it with the lines above", file=sys.stderr)
        return Exit.BUG
    return status if isinstance(status, int) else Exit.WITHIN
