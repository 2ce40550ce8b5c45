"""Study -> text | json | html | node-data: one renderer per file, all of them pure.

A renderer takes the study's document, the plain strict-JSON mapping that `study.json` holds, and returns a string; it
reads no file, clock or environment. `view.view` turns the document into a view model (plain data with every number
already worded), which the page and the terminal lay out. Outside packages add renderers through entry points of the
group "parityscope.report".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins, find_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """A way to write a study: `name` is what `--format` takes, `suffix` ends the file it is written to."""

    name: str
    suffix: str
    render: Callable[[Mapping[str, Any]], str]


def known_renderers() -> dict[str, Renderer]:
    """Every renderer there is, by name."""
    return {found.name: found for found, _ in discover_plugins("parityscope.report", "RENDERER", Renderer).values()}


def renderer_for(name: str) -> Renderer:
    """The renderer of a file of that name, by its ending: whole suffixes first, then the last part of one (".xml").

    Raises:
        ParityError: there is none that ends so.
    """
    known = sorted(known_renderers().values(), key=lambda one: (len(one.suffix), one.name))
    whole = [one for one in known if name.endswith(one.suffix)]
    part = [one for one in known if name.endswith(f".{one.suffix.rpartition('.')[2]}")]
    if found := [*whole[-1:], *part[:1]]:
        return found[0]
    endings = sorted({f".{one.suffix.rpartition('.')[2]}" for one in known})
    raise ParityError(f"{name} has no ending that says how to write it", fix=f"use one of: {', '.join(endings)}")


def renderer_named(name: str) -> Renderer:
    """The renderer called `name`.

    Raises:
        ParityError: there is none of that name.
    """
    found = find_plugin("parityscope.report", "RENDERER", Renderer, name)
    if found is None:
        raise ParityError(
            f"there is no report format {name!r}", fix=f"use one of: {', '.join(sorted(known_renderers()))}"
        )
    return found
