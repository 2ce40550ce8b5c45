"""Text without control characters: what a terminal would obey is shown as JSON would write it.

Names of tensors, of files and of options come from anywhere. A lone surrogate (of a file name that is not UTF-8) and the
signs that reorder a line go the same way. The escapes are those of JSON, so that JSON stays JSON; line ends and tabs stay.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

# C0 but for tab and line feed, DEL and C1, separators of lines, overrides of direction (Unicode TR 36, 3.8), surrogates.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ESCAPED = "parityscope-escaped"  # what the codecs call our way with characters that they lack


def make_visible(text: str) -> str:
    """`text` with everything escaped that a terminal would obey, or that is no character."""
    return _OBEYED.sub(lambda found: _escape_as_json(found.group()), text)


def visible_data(value: Any) -> Any:
    """Plain data whose texts are all as `make_visible` gives them, keys included."""
    if isinstance(value, str):
        return make_visible(value)
    if hasattr(value, "items"):
        return {visible_data(key): visible_data(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(visible_data, value))
    return value


def make_encodable(text: str, encoding: str) -> str:
    """`text` with everything escaped that `encoding` lacks."""
    return text.encode(encoding, _ESCAPED).decode(encoding)


def _escape_as_json(text: str) -> str:
    """As JSON writes it: in units of UTF-16."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escape_lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _escape_as_json(error.object[error.start : error.end]), error.end


codecs.register_error(_ESCAPED, _escape_lacking)
