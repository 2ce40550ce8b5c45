"""The documents that a folder may hold beside a study, by what they say they are: who writes each again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parityscope.plain_documents import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.report.forms import Forms

# Each is called as the module whose FORMS write it.
KINDS = (
    "diff",
    "forecast",
    "lint",
    "log",
    "network",
    "pipeline",
    "preprocessing",
    "reduction",
    "repair",
    "verification",
)


def forms_of(document: Mapping[str, Any]) -> Forms | None:
    """The forms of a document of one of `KINDS`; None for a study."""
    name = kind_of(document)
    if name not in KINDS:
        return None
    home = "model_alone" if name == "forecast" and "lint" in document else name
    found: Forms = importlib.import_module(f"parityscope.report.{home}").FORMS
    return found
