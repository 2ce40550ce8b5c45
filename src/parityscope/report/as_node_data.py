"""The error that each node introduces, as an overlay for Google's Model Explorer (see `_node_data.py`).

`model-explorer --extensions=model_explorer_onnx MODEL`, then drop the file on the graph. Where nothing was localized
the overlay shows the total error instead, and its name says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report._node_data import make_overlay

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_node_data(document: Mapping[str, Any]) -> str:
    """The overlay as JSON text."""
    if any(row.get("introduced") is not None for row in document.get("tensors", ())):
        return make_overlay(document, "introduced", "introduced error (relative L2)")
    return make_overlay(document, "rel_l2", "total error (relative L2; nothing was localized)")


RENDERER = Renderer(name="node-data", suffix=".node-data.json", render=render_node_data)
