"""What a command hands over: its document on stdout, the same as a file whose suffix says the format, its command line."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.report.forms import Forms

__all__ = ["check_model_file", "check_report_file", "command_line", "hand_over", "terminal"]

_FORMATS_OF_SUFFIXES = {".html": "html", ".json": "json", ".txt": "text"}
_WIDEST = 140  # columns; longer lines are hard to read (chosen)


def command_line() -> str:
    """This run's command, as one would type it."""
    return shlex.join(["parityscope", *sys.argv[1:]])


def terminal() -> tuple[int, bool]:
    """The columns to write, and whether in colour: on a terminal, unless NO_COLOR is set."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return min(shutil.get_terminal_size((100, 40)).columns, _WIDEST), color


def check_model_file(path: Path) -> None:
    """Refuses early what is no model, so that a builder's own words about it need not be understood.

    Raises:
        ParityError: there is no such file, or it is no ONNX.
    """
    from parityscope.case.declaring import read_message

    if not path.is_file():
        raise ParityError(f"there is no model at {path}", fix="give the path of an .onnx file")
    read_message(path)


def check_report_file(path: Path | None, option: str) -> None:
    """Checks, before the work is done, that a report can be written to the file that `option` gives, if it gives one.

    Raises:
        ParityError: its suffix says no format, or it exists already.
    """
    if path is None:
        return
    if path.suffix not in _FORMATS_OF_SUFFIXES:
        raise ParityError(f"{option} {path} has no suffix that says how to write it", fix="use .html, .json or .txt")
    if path.exists():
        raise ParityError(f"{path} exists already", where=str(path), fix=f"choose another {option}, or remove it")


def hand_over(forms: Forms, document: Mapping[str, Any], format_name: str, report: Path | None = None) -> None:
    """Prints a document in one of its formats, and writes it to `report` as well if that is given."""
    if report is not None:
        write_whole(report, forms.render(document, _FORMATS_OF_SUFFIXES[report.suffix]))
    width, color = terminal()
    print(forms.render(document, format_name, width=width, color=color), end="")
