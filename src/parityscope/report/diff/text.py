"""What changed for a terminal: one line of answer, then what, since what, and where, in labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_labelled, print_paragraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def print_changes(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what changed."""
    from rich.text import Text

    told = f"{model['symbol']} {model['model']}: {say_in_language(model['title'])}"
    console.print(Text(told, style=VERDICT_STYLES[model["css"]]))
    print_paragraph(console, model["basis"], "dim", indent=1)
    print_labelled(console, [(row["label"], row["text"]) for row in model["rows"]])
