"""A verification -> text | json | html: what `parityscope verify` shows.

`document` makes the strict-JSON mapping that everything else is drawn from (schema "parityscope/1", kind
"verification"); `view` words it. All of it is pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.report.verification.document import KIND, document
from parityscope.report.verification.page import as_html
from parityscope.report.verification.text import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMATS", "KIND", "as_html", "as_text", "document", "render"]

FORMATS = ("text", "json", "html")


def render(held: Mapping[str, Any], name: str, *, width: int = 100, color: bool = False) -> str:
    """The document in one of `FORMATS`; width and colour are for text.

    Raises:
        ParityError: there is no such format.
    """
    if name == "text":
        return as_text(held, width=width, color=color)
    if name == "html":
        return as_html(held)
    if name == "json":
        return json.dumps(held, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    raise ParityError(f"a verification has no format {name!r}", fix=f"use one of: {', '.join(FORMATS)}")
