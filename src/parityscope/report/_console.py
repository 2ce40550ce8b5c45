"""What every report for a terminal is made of: headings, wrapped paragraphs and tables, written by rich into a string.

The caller passes the width and whether colour is wanted; nothing of the environment decides what is written. Without
colour the text holds no escape codes, and no line ends in spaces.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.languages import columns_of, say_in_language
from parityscope.visible import visible_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

VERDICT_STYLES = {"within": "bold green", "beyond": "bold red", "incomplete": "bold yellow"}
INDENT = "  "
# Narrower than this, names are cut rather than tables squeezed further (chosen: the narrowest usual terminal split).
_NARROWEST = 40
_KEPT = "\ue000"  # a blank that nothing is wrapped at: rich breaks lines at every sign that Unicode calls a space


def write_to_console(
    draw: Callable[[Console, Mapping[str, Any]], None], model: Mapping[str, Any], *, width: int, color: bool
) -> str:
    """What `draw` writes of a view model to a console of `width` columns, with ANSI colours if `color`."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=max(width, _NARROWEST),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # nothing of the caller's environment decides what a report says
    )
    with console.capture() as captured:
        draw(console, visible_data(model))
    return "\n".join(line.rstrip() for line in captured.get().replace(_KEPT, " ").splitlines()) + "\n"


def keep_units(text: str) -> str:
    """`text` in which no line is broken between a number and its percent sign."""
    return text.replace(" %", f"{_KEPT}%")


def print_head(console: Console, model: Mapping[str, Any], about: Sequence[str]) -> None:
    """What every report begins with: the verdict's line, its headline, what stands `about` it, and findings beside it."""
    print_paragraph(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    if not model.get("causes"):  # which say it themselves, with what to do
        print_paragraph(console, model["headline"], "bold")
    for told in model.get("because", ()):
        print_paragraph(console, told)
    for told in about:
        print_paragraph(console, told, "dim")
    for told in model["findings"] if "causes" not in model else ():
        print_paragraph(console, told, "yellow")


def print_heading(console: Console, title: str) -> None:
    """The title of a part, apart from what stands above it."""
    console.print()
    print_paragraph(console, title, "bold underline")


def print_paragraph(console: Console, text: str, style: str = "", *, indent: int = 0) -> None:
    """`text` in the language that is spoken as a paragraph, wrapped at the width and indented as a whole."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(
        Padding(Text(keep_units(say_in_language(text)), style=style, overflow="fold"), (0, 0, 0, len(INDENT) * indent))
    )


def command_line(console: Console, line: str, *, indent: int = 2) -> None:
    """A line of a command or of code, never wrapped: it is there to be copied."""
    console.print(f"{INDENT * indent}{line}", style="cyan", soft_wrap=True)


def print_labelled(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Rows of a label and what it is about, both in the language that is spoken, set in."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    labels = [say_in_language(label) for label, _ in rows]
    grid.add_column(width=max(map(columns_of, labels), default=0), no_wrap=True)
    grid.add_column(overflow="fold")
    for label, (_, text) in zip(labels, rows, strict=True):
        grid.add_row(Text(label, style="bold"), Text(say_in_language(text)))
    if rows:
        console.print(Padding(grid, (0, 0, 0, len(INDENT))))


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    apart: bool = False,
) -> None:
    """Rows of words under dim titles, the columns `right` set to the right; `apart` leaves a line free above."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        drawn.add_column(say_in_language(column), justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(say_in_language(cell)) for cell in row))
    if apart:
        console.print()
    console.print(drawn)


def print_rows_left(console: Console, count: int, where: str = "") -> None:
    """Says how many rows a table leaves out, if it does."""
    if count > 0:
        print_paragraph(console, f"and {count:,} more{where}", "dim")


def print_not_examined(console: Console, skipped: Sequence[Mapping[str, Any]]) -> None:
    """What was skipped, with its reason."""
    if skipped:
        print_heading(console, "What was not examined")
    for item in skipped:
        print_paragraph(console, f"- {item['what']}: {item['reason']}")
