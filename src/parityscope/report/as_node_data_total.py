"""The total error of each tensor, as an overlay for Google's Model Explorer (see `_node_data.py`).

Beside the overlay of introduced error it shows how far the error travels: the nodes that only inherit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report._node_data import make_overlay

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_node_data_total(document: Mapping[str, Any]) -> str:
    """The overlay as JSON text."""
    return make_overlay(document, "rel_l2", "total error (relative L2)")


RENDERER = Renderer(name="node-data-total", suffix=".node-data-total.json", render=render_node_data_total)
