"""The one switch of the language, `--lang CODE`, which every command takes anywhere, or the variable PARITYSCOPE_LANG.

The machine's own locale changes nothing: what scripts read stays as it is until somebody asks for another language.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.languages import LANGUAGES, OWN, say_in_language

if TYPE_CHECKING:
    from collections.abc import Sequence

LANGUAGE_VARIABLE = "PARITYSCOPE_LANG"
_OPTION = "--lang"
_LABELS = ("  where: ", "  fix:   ")


def take_language(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without `--lang CODE`, and the code: as typed, else of the environment, else English."""
    rest: list[str] = []
    code = os.environ.get(LANGUAGE_VARIABLE, "")
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word == _OPTION:
            code = next(left, "")
        elif word.startswith(f"{_OPTION}="):
            code = word.removeprefix(f"{_OPTION}=")
        else:
            rest.append(word)
    return rest, code or OWN


def known_language(code: str) -> str:
    """The language meant by a code, as systems write it too ("zh_CN.UTF-8").

    Raises:
        ParityError: there is no catalogue of it.
    """
    found = code.replace("-", "_").partition("_")[0].partition(".")[0].lower()
    if found not in LANGUAGES:
        raise ParityError(f"there is no language {code!r}", fix=f"use one of: {', '.join(LANGUAGES)}")
    return found


def spoken_error(error: ParityError) -> str:
    """What the error says, in the language that is spoken: its problem, where, and the fix."""
    return "\n".join(map(_spoken_line, str(error).split("\n")))


def _spoken_line(line: str) -> str:
    label = next((one for one in _LABELS if line.startswith(one)), "")
    return f"{say_in_language(label)}{say_in_language(line.removeprefix(label))}"
