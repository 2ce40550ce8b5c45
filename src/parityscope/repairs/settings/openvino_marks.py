"""OpenVINO: marks that keep operations in FP32 under `INFERENCE_PRECISION_HINT`, as a Python script.

OpenVINO's own passes mark what must not be converted with the runtime attribute "precise" (transformations/rt_info/
disable_fp16_compression.hpp: "inferred precisely in the original precision"). It is part of OpenVINO's IR, so the script
writes the model as IR with FP32 weights and puts `<rt_info><attribute name="precise" version="0"/></rt_info>` into the
layers of the kept nodes. `get_rt_info()` of Python cannot set it: what Python stores there is a string, which OpenVINO
does not look at. With OpenVINO 2026.4 on a CPU the marked layers execute in f32 under f16 and bf16 (tested).

A layer is found by the ONNX tensors that it gives. A node that became several layers (LayerNormalization) has only
the last one named; the ones before it are reached backwards, up to the next named tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.records import Skip
from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes, refuse_other_formats

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

_SCRIPT = '''"""Writes a model as OpenVINO IR whose marked layers stay in FP32: python {filename} MODEL.onnx MARKED.xml

core.compile_model("MARKED.xml", "CPU", {{"INFERENCE_PRECISION_HINT": "{hint}"}})
"""

import sys
import xml.etree.ElementTree as ElementTree

import openvino

KEPT = {{
{kept}
}}  # tensors that kept nodes give


def mark(model, marked):
    """Writes `marked` (.xml, and .bin beside it) and gives the names of KEPT that no layer gives."""
    openvino.save_model(openvino.Core().read_model(model), marked, compress_to_fp16=False)
    tree = ElementTree.parse(marked)
    layers = {{layer.get("id"): layer for layer in tree.iter("layer")}}
    sources = {{}}
    for edge in tree.iter("edge"):
        sources.setdefault(edge.get("to-layer"), []).append(edge.get("from-layer"))
    found = set()
    for number, layer in layers.items():
        given = names_of(layer) & KEPT
        if given:
            found |= given
            mark_backwards(number, layers, sources)
    tree.write(marked)
    return sorted(KEPT - found)


def mark_backwards(number, layers, sources):
    """Marks a layer, and those before it that belong to the same node: what they give has no name."""
    layer = layers[number]
    if layer.get("type") not in {{"Const", "Parameter"}} and layer.find("rt_info/attribute[@name='precise']") is None:
        info = layer.find("rt_info")
        if info is None:
            info = ElementTree.Element("rt_info")
            data = layer.find("data")
            layer.insert(0 if data is None else list(layer).index(data) + 1, info)
        ElementTree.SubElement(info, "attribute", name="precise", version="0")
    for before in sources.get(number, []):
        if not names_of(layers[before]) and layers[before].get("type") != "Const":
            mark_backwards(before, layers, sources)


def names_of(layer):
    """The ONNX tensors that a layer gives; a comma inside a name is written with a backslash before it."""
    joined = [port.get("names", "") for port in layer.iterfind("output/port")]
    parts = [part for names in joined for part in names.replace("\\\\,", "\\0").split(",")]
    return {{part.replace("\\0", ",") for part in parts if part}}


if __name__ == "__main__":
    for name in mark(*sys.argv[1:3]):
        print(f"no layer gives {{name}}: OpenVINO replaced or folded it", file=sys.stderr)
'''


def _write_openvino_marks(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    nodes = locate_nodes(kept, model)
    refuse_other_formats(nodes, "OpenVINO")
    tensors = [name for placed in nodes for name in placed.outputs]
    filename = "mark_for_openvino.py"
    text = _SCRIPT.format(filename=filename, hint=low, kept="\n".join(f"    {name!r}," for name in tensors))
    notes = [
        Skip(what=f"node {placed.key}", reason="it gives no floats: nothing of it could be kept")
        for placed in nodes
        if not placed.outputs
    ]
    brief = (
        f"# in the .xml, into each layer that gives one of {tensors}:\n"
        '<rt_info><attribute name="precise" version="0"/></rt_info>'
    )
    return Text(kind="openvino", filename=filename, text=text, brief=brief, notes=tuple(notes))


EXPORTER = Exporter(name="openvino", title="OpenVINO, marks that keep precision", write=_write_openvino_marks)
