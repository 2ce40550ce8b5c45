"""What is asked most and needs no import: the version, and the help of `parityscope` itself as it was printed when it was made.

`help.txt` is that help at the width that wider terminals get too; `UPDATE_GOLDEN=1 pytest tests/test_help.py` writes it.
"""

from __future__ import annotations

import shutil
from importlib.resources import files
from typing import TYPE_CHECKING

from parityscope.languages import OWN, current_language
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP_FILE = "help.txt"
HELP_WIDTH = 80  # typer writes no wider help


def prepared_answer(words: Sequence[str]) -> str:
    """What these words ask for, "" where it has to be made."""
    match list(words):
        case ["--version"]:
            return tell_version()
        case ["--help"] if current_language() == OWN and shutil.get_terminal_size().columns >= HELP_WIDTH:
            return (files(__package__) / HELP_FILE).read_text("utf-8").rstrip("\n")
    return ""


def tell_version() -> str:
    """The line that `--version` prints."""
    return f"parityscope {__version__}"
