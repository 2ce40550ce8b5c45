"""The command line: one file per subcommand; the only place that prints or exits.

stdout carries the result, stderr progress (on a terminal only) and one summary line. Exit codes are in `errors.Exit`.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import traceback
from typing import TYPE_CHECKING

from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

# New objects between two looks for cycles, of which there are few: at 700, Python's own, they take a twentieth of a command.
_GARBAGE = 50_000
_COMPILING = "compiling loops, once after an installation: up to 20 s (parityscope doctor --prepare does it beforehand)"


def main(arguments: list[str] | None = None) -> None:
    """Runs `parityscope`, turning every way it can end into an exit code."""
    from parityscope.cli.shell.streams import standard_streams
    from parityscope.cli.shell.supervise import supervise_work
    from parityscope.threads import use_one_thread

    use_one_thread()
    words = sys.argv[1:] if arguments is None else arguments
    if not os.environ.get("SOURCE_DATE_EPOCH", "0").lstrip("-").isdecimal():
        del os.environ["SOURCE_DATE_EPOCH"]  # numpy and scipy end with an error of their own when they are imported
    with standard_streams():
        status = supervise_work(lambda: run_command(words))
    sys.exit(status)


def run_command(words: list[str]) -> int:
    """Runs a command of these words in this process; gives its exit code, whatever way it ends."""
    from parityscope.cli._language import known_language, take_language
    from parityscope.languages import speak_language

    words, asked = take_language(words)
    try:
        code = known_language(asked)
    except ParityError as error:
        return _tell_error(error)
    with speak_language(code):
        return _run_words(words)


def _run_words(words: list[str]) -> int:
    from parityscope.cli.shell.prepared import prepared_answer

    if answer := prepared_answer(words):
        return _print_answer(answer)

    def work() -> object:
        from parityscope.cli.shell.app import command
        from parityscope.cli.shell.streams import show_progress
        from parityscope.languages import say_in_language
        from parityscope.late_imports import import_late
        from parityscope.loading import when_compiling

        sys.stdout.flush()  # nothing is begun whose result could not be told
        _refuse_empty(words)
        import_late(
            "sympy", "yaml", "onnx_ir._symbolic_shapes", "google.protobuf.json_format", "google.protobuf.text_format"
        )
        gc.set_threshold(_GARBAGE)
        meant = _take_model(words)
        if sys.stderr.isatty() and not {"--quiet", "--help", "--version"} & {*words} and words:
            show_progress(f"parityscope {meant[0]}: starting", last=False)
            when_compiling(lambda: show_progress(say_in_language(_COMPILING), last=True))
        try:
            return command(meant)(args=meant, prog_name="parityscope", standalone_mode=False)
        except Exception as error:
            if refusal := _refuse_second_word(error, meant):
                raise refusal from error
            raise

    from parityscope.cli.shell.output import release_claims
    from parityscope.memory import with_room_for_calls

    try:
        return guard_exit_code(with_room_for_calls(work))
    finally:
        release_claims()


def _print_answer(text: str) -> int:
    """Prints what nothing has to be imported for."""
    from parityscope.cli.shell.streams import ReaderGoneError

    try:
        print(text)
        sys.stdout.flush()
    except ReaderGoneError:
        return Exit.INTERRUPTED
    except ParityError as error:
        return _tell_error(error)
    return Exit.WITHIN


def _take_model(words: list[str]) -> list[str]:
    """A model alone is looked at: nobody needs to know a verb to begin."""
    return ["look", *words] if words and words[0].lower().endswith(".onnx") else words


def _refuse_empty(words: list[str]) -> None:
    """Refuses what was typed and is empty (`--inputs "$DATA"`, of which nothing is set): it is not what was left out."""
    for before, word in zip(["", *words], words, strict=False):
        option, equals, value = word.partition("=")
        if word and (value or not equals or not option.startswith("--")):
            continue
        given = option or before
        what = f"{given} is given an empty value" if given.startswith("-") else "an argument is empty"
        raise ParityError(what, fix="give a value, or leave it out; a variable of the shell may be unset")


def guard_exit_code(work: Callable[[], object]) -> int:
    """The exit code of `work`, whatever way it ends; what a user must know is said on stderr."""
    from parityscope.cli.shell.memory import lacks_memory, told_memory

    try:
        return _guard_work(work)
    except Exception as error:  # noqa: BLE001 - the outer edge: what is left is a lack of memory or our bug
        return told_memory(error) if lacks_memory(error) else _tell_bug()


def _guard_work(work: Callable[[], object]) -> int:
    import typer

    from parityscope.cli.shell.memory import lacks_memory, told_memory
    from parityscope.cli.shell.streams import ReaderGoneError
    from parityscope.cli.shell.supervise import without_verdict

    try:
        status = _done_or_interrupted(work)
        sys.stdout.flush()
    except ParityError as error:
        if lacks_memory(error):
            return told_memory(error)
        return _tell_error(error)
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt) as interrupt:
        return _tell_interrupted(interrupt.__cause__)
    except ReaderGoneError:  # the verdict that was not told must not pass for "within"
        return Exit.INTERRUPTED
    except SystemExit as error:  # a runtime's or a plug-in's, and no verdict of ours
        return without_verdict(f"something called exit({error.code if error.code is not None else ''})")
    except OSError as error:
        if lacks_memory(error):
            return told_memory(error)
        where = str(error.filename or "")
        return _tell_error(
            ParityError(error.strerror or str(error), where=where, fix="check free disk space and permissions")
        )
    except Exception as error:
        if usage := _tell_usage(error):
            return usage
        raise
    if status == Exit.INTERRUPTED:  # newer versions of typer make this of an interrupt that nobody caught
        return _tell_interrupted(None)
    if not isinstance(status, int):
        return without_verdict(f"a command gave {status!r} for an exit code")
    return status


def _done_or_interrupted(work: Callable[[], object]) -> object:
    """What `work` gives; native code (a library that is being imported) makes another error of an interruption."""
    import typer

    from parityscope.cli.shell.supervise import stop_if_interrupted

    try:
        return work()
    except typer.Abort:  # an interruption that knows what is left
        raise
    except Exception:
        stop_if_interrupted()
        raise


def _tell_error(error: ParityError) -> int:
    from parityscope.cli._language import spoken_error
    from parityscope.cli._suggesting import add_suggestion

    print(f"parityscope: {spoken_error(add_suggestion(error))}", file=sys.stderr)
    return Exit.INCOMPLETE if error.incomparable else Exit.UNUSABLE


def _tell_interrupted(cause: BaseException | None) -> int:
    """Says what is left, if the cause knows."""
    print(f"parityscope: {str(cause or '') or 'interrupted; no study was written'}", file=sys.stderr)
    return Exit.INTERRUPTED


def _tell_usage(error: Exception) -> int:
    """Says what is wrong with the command line itself, and which help lists what is right; 0 when it is something else.

    typer carries a copy of click, whose exceptions have no public name but know their message and their command.
    """
    from parityscope.cli._suggesting import suggest_option

    said = getattr(error, "format_message", None)
    if said is None:
        return 0
    message = " ".join(said().split())
    command = getattr(getattr(error, "ctx", None), "command_path", None) or "parityscope"
    option = suggest_option(message)
    meant = f"did you mean {option}? {command} --help lists what there is" if option else _command_meant(message)
    fix = meant or f"{command} --help lists what there is"
    print(f"parityscope: {message}\n  fix:   {fix}", file=sys.stderr)
    return Exit.UNUSABLE


def _refuse_second_word(error: Exception, words: list[str]) -> ParityError | None:
    """What to tell somebody who put the candidate behind the model; None where it is another error."""
    from parityscope.cli._suggesting import suggest_candidate

    said = getattr(error, "format_message", None)
    if said is None:
        return None
    message = " ".join(said().split())
    meant = suggest_candidate(message, words)
    return ParityError(message, fix=f"did you mean --candidate {shlex.quote(meant)}?") if meant else None


def _command_meant(message: str) -> str:
    """The command that a mistyped one was meant to be; "" if none is near."""
    from difflib import get_close_matches

    from parityscope.cli.shell.app import COMMANDS

    typed = message.removeprefix("No such command '").partition("'")[0]
    if typed == message.partition("'")[0]:
        return ""
    near = get_close_matches(typed.lower(), COMMANDS, n=2)
    return f"parityscope {' or parityscope '.join(near)}" if near else ""


def _tell_bug() -> int:
    traceback.print_exc()
    print("parityscope: this is a bug of Parityscope; please report it with the lines above", file=sys.stderr)
    return Exit.BUG
