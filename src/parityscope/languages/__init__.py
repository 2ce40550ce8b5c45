"""In which language people are told something: English as it is written in the code, or a language that has a catalogue.

Documents are always English, so that a study can be read in any language later: what is drawn for a person goes through
`say_in_language` at the very end. `speak_language("zh")` is the one switch (`--lang zh`); without it every text stays as it is.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "en"  # what the code is written in
LANGUAGES = {OWN: "English", "zh": "中文"}
_WIDE = "\u2e80"  # signs from here on take two columns of a terminal
_spoken: ContextVar[str] = ContextVar("language", default=OWN)


def current_language() -> str:
    """The code of the language that is spoken now."""
    return _spoken.get()


@contextlib.contextmanager
def speak_language(code: str) -> Iterator[None]:
    """What is drawn inside is told in the language of that code.

    Raises:
        ValueError: there is no catalogue of it.
    """
    if code not in LANGUAGES:
        raise ValueError(f"{code!r} is none of {', '.join(LANGUAGES)}")
    before = _spoken.set(code)
    try:
        yield
    finally:
        _spoken.reset(before)


def say_in_language(text: str) -> str:
    """`text` in the language that is spoken now; as it is where that language lacks it."""
    return translate_text(text, current_language())


def translate_text(text: str, code: str) -> str:
    """`text` in the language of that code; as it is where its catalogue lacks it."""
    if code == OWN or not text:
        return text
    from parityscope.languages.translating import translate

    return translate(text, code)


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if sign >= _WIDE else 1 for sign in text)
