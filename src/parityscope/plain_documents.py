"""JSON and TOML that were named by somebody, parsed within bounds of time and memory."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.regular_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Memory that a value in JSON is taken to need: in lists of small objects it is 96 bytes, in one object of a million keys 172
# (measured), while it may take two in the file.
_VALUE_NBYTES = 120
_JSON_NBYTES = 1 << 30  # chosen: a document that needs more is not one of ours

_TOML_NBYTES = 4 << 20  # chosen: what people write is a thousand times smaller, and the parser takes a second for 1 MiB
# A dotted name costs the parser the square of its parts. What is left without text and comments shows their dots side by side.
_MOST_PARTS = 64
_NO_DOTS = re.compile(r"""#[^\n]*|"[^"\n]*"|'[^'\n]*'|[\w \t-]+""")
_LARGEST_INTEGER = 1 << 63  # what TOML asks for
_MOST_DIGITS = (
    20  # of an integer in JSON, with its sign: what 64 bits hold; larger ones are no float and are not even printed
)


def read_json_file(path: str | Path, what: str, *, limit: int) -> Any:
    """What a JSON file of at most `limit` bytes holds.

    Raises:
        ParityError: as `read_text_file`, or it is no JSON, or holds more values than there should be memory for.
    """
    return parse_json(read_text_file(path, what, limit=limit), what, path)


def parse_json(
    text: str,
    what: str,
    path: str | Path,
    *,
    strict: bool = True,
    each: int = _VALUE_NBYTES,
    fix: str = "check that this file is whole",
) -> Any:
    """What the JSON text in the file `path` says; with `strict` off, text may hold control characters.

    `each` are the bytes that a value is taken to need in memory, `fix` is what is told where it is no JSON.

    Raises:
        ParityError: it is no JSON, says something twice, or holds more values than there should be memory for.
    """
    values = sum(map(text.count, ",[{"))
    if values * each > _JSON_NBYTES:
        raise ParityError(
            f"{what} holds some {values} values, more than fit into {_JSON_NBYTES >> 20} MiB",
            where=str(path),
            fix="check that this is the file that was meant",
        )
    try:
        return json.loads(text, strict=strict, object_pairs_hook=_object_without_repeats, parse_int=_plain_integer)
    except RecursionError:
        said = "it is nested too deep"
    except ValueError as error:
        said = _shorten_message(str(error))
    raise ParityError(f"{what} is no whole JSON: {said}", where=str(path), fix=fix)


def read_toml_file(path: str | Path, what: str) -> dict[str, Any]:
    """What a TOML file says.

    Raises:
        ParityError: as `read_text_file`, or it is no TOML, or no TOML that a person would write.
    """
    text = read_text_file(path, what, limit=_TOML_NBYTES)
    said, fix = "", "mend that line; TOML is KEY = VALUE lines and [tables]"
    if "." * _MOST_PARTS in _NO_DOTS.sub("", text):
        said = f"a name has more than {_MOST_PARTS} parts"
    try:
        held = {} if said else tomllib.loads(text)
    except RecursionError:
        said = "it is nested too deep"
    except ValueError as error:
        said = _shorten_message(str(error))
    if not said and (large := _large_integer(held)):
        said = f"an integer has {large} bits"
    if said:
        raise ParityError(f"{what} is no TOML: {said}", where=str(path), fix=fix)
    return held


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return held


def _plain_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits")
    return int(text)


def _large_integer(held: Any) -> int:
    """The bits of an integer that TOML does not have, which would not even be printed; 0 if there is none."""
    left = [held]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, int) and not -_LARGEST_INTEGER <= one < _LARGEST_INTEGER:
            return one.bit_length()
    return 0


def _shorten_message(said: str) -> str:
    return said if len(said) <= 300 else f"{said[:300]} ..."


def kind_of(document: Mapping[str, Any]) -> str:
    """What one of our documents is: "" for a study, else its `kind`, or what its schema is called."""
    name = str(document.get("schema") or "").partition("/")[0]
    return str(document.get("kind") or name.removeprefix("parityscope").removeprefix("-"))
