"""NNCF: the nodes that a quantization leaves in floating point, as its ignored scope.

`nncf.quantize` of an ONNX model leaves the nodes of `ignored_scope` alone; it quantizes to INT8, and what it leaves stays in the
type that the model has, whatever the format of the other nodes is called here.

Source: NNCF 2.19, nncf/scopes.py (IgnoredScope) and docs/usage/post_training_compression/post_training_quantization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes, refuse_other_formats, split_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

_SCRIPT = '''"""Quantizes a model but for some nodes: give `dataset`, an nncf.Dataset of samples."""

import nncf
import onnx

KEPT = [
{kept}
]


def quantize(model, dataset, quantized):
    """Writes `quantized`."""
    onnx.save(nncf.quantize(onnx.load(model), dataset, ignored_scope=nncf.IgnoredScope(names=KEPT)), quantized)
'''


def _write_nncf(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:  # noqa: ARG001 - it has one low format
    nodes, notes = split_named(locate_nodes(kept, model))
    refuse_other_formats(nodes, "NNCF")
    names = [placed.own for placed in nodes]
    return Text(
        kind="nncf",
        filename="quantize_with_nncf.py",
        text=_SCRIPT.format(kept="\n".join(f"    {name!r}," for name in names)),
        brief=f"nncf.quantize(model, dataset, ignored_scope=nncf.IgnoredScope(names={names}))",
        notes=tuple(notes),
    )


EXPORTER = Exporter(name="nncf", title="NNCF, ignored scope of a quantization", write=_write_nncf, formats=("int8",))
