"""Overlays for Google's Model Explorer: colours and values on the nodes of the reference model.

The format is `GraphNodeData` of model_explorer's `node_data_builder.py`: `{"name", "results": {node id: {"value"}},
"thresholds": [{"value", "bgColor"}]}`. A file without a graph id around it is applied to the graph that is shown,
whatever its name, and one file is one overlay; so the total and the introduced error are two renderers.

Node ids are those of the ONNX adapter (`model-explorer-onnx`): a node is known by its ONNX name, a graph output by
"[value] <name>". The adapter gives unnamed nodes names of its own, which cannot be known here: such nodes stay grey.
The viewer matches tensor names only where an adapter writes `tensor_name`, which this one does not.
Sources: github.com/google-ai-edge/model-explorer, `node_data_builder.py` and `node_data_provider_extension_service.ts`;
github.com/justinchuby/model-explorer-onnx, `main.py`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from parityscope.report.words import as_number, clean

if TYPE_CHECKING:
    from collections.abc import Mapping

# An upper bound and a colour: whole decades of relative L2 error. The viewer's gradients are linear between the least
# and the greatest value, which shows nothing of errors that span ten decades. Colours: ColorBrewer's YlOrRd, which
# stays in order for readers with any colour blindness and in grey.
_THRESHOLDS = (
    (0.0, "#f7f7f7"),
    (1e-6, "#ffffcc"),
    (1e-5, "#ffeda0"),
    (1e-4, "#fed976"),
    (1e-3, "#feb24c"),
    (1e-2, "#fd8d3c"),
    (1e-1, "#fc4e2a"),
    (1.0, "#e31a1c"),
    (1e300, "#b10026"),
)
_NONFINITE_COLOR = "#4d004b"


def make_overlay(document: Mapping[str, Any], quantity: str, name: str) -> str:
    """The overlay of `quantity` ("introduced" or "rel_l2") as JSON text; the worst of a node's outputs counts."""
    worst: dict[str, float] = {}
    for row in document.get("tensors", ()):
        value = as_number(row.get(quantity))
        if value is None:
            continue
        for identity in _node_identities(row):
            worst[identity] = _worse_of(worst.get(identity, 0.0), value)
    data = {
        "name": f"Parityscope: {name} of {clean(document.get('candidate', {}).get('target', 'the candidate'))}",
        "results": {identity: _result_of_node(worst[identity]) for identity in sorted(worst)},
        "thresholds": [{"value": value, "bgColor": color} for value, color in _THRESHOLDS],
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _node_identities(row: Mapping[str, Any]) -> list[str]:
    node = [str(row["node"])] if row.get("node") else []
    return [*node, f"[value] {row['name']}"] if row.get("is_output") else node


def _worse_of(one: float, other: float) -> float:
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _result_of_node(value: float) -> dict[str, Any]:
    """A non-finite value is written as a word: the viewer's JSON has no number for it, and colours only numbers."""
    if math.isfinite(value):
        return {"value": value}
    return {"value": "NaN" if math.isnan(value) else "Infinity", "bgColor": _NONFINITE_COLOR, "textColor": "#ffffff"}
