"""The outcome of a repair -> text | json | html.

`document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.report.repair.document import document
from parityscope.report.repair.page import as_html
from parityscope.report.repair.text import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMATS", "as_html", "as_text", "document", "render"]

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
    raise ParityError(f"a repair has no format {name!r}", fix=f"use one of: {', '.join(FORMATS)}")
