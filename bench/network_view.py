"""What TensorRT-RTX makes of every development model on a CPU: builds each in FP32 and as strongly typed FP16.

    python bench/network_view.py [MODEL ...]

Prints JSON with, for each model: what became of its nodes (each has a fate), layers of network and engine, the time, and for FP16
how far the `tensorrt` fusion profile agrees with the engine, over the edges between nodes that compute. The table in
docs/tensorrt.md is made from it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends.tensorrt.borders import border_values, fits_shape, site_names, with_site_names
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.network import NetworkView, network_view
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.packages import find_package
from parityscope.backends.tensorrt.profiles import ranges_of_samples
from parityscope.case import load_model
from parityscope.case.extending import inferred_shapes
from parityscope.case.model import read_graph
from proving.engine_fusion import agreement
from proving.models.fetching import CATALOGUE, model_path

Shapes = dict[str, dict[str, tuple[int, ...]]]

VAD = {"input": (1, 576), "sr": (), "state": (2, 1, 128)}
BERT = (2, 9)
OCR: Shapes = {"det": {"x": (1, 3, 384, 768)}, "rec": {"x": (1, 3, 48, 539)}, "cls": {"x": (1, 3, 48, 192)}}
SHAPES: Shapes = {
    **{f"ocr-{kind}": shapes for kind, shapes in OCR.items()},
    **{f"ocr-npm-{kind}": shapes for kind, shapes in OCR.items()},
    **dict.fromkeys(("vad", "vad-15", "vad-18"), VAD),
    "vad-seq": {"input": (31, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    "magika": {"bytes": (1, 2048)},
    "minilm-i8": {"input_ids": BERT, "attention_mask": BERT, "token_type_ids": BERT},
    "layout": {"image": (1, 3, 800, 608)},
    "pitch": {"serving_default_input_2:0": (1, 43844, 1)},
    "dnsmos": {"input_1": (1, 144160)},
    "plcmos": {"degraded_audio": (1, 1, 900, 257), "rater_embed": (1, 64)},
}


# Models that TensorRT-RTX refuses as they are: what is fixed when everything that shapes and constants decide is computed first.
SETTLED: dict[str, dict[str, int]] = {"vad": {"sr": 16000}, "vad-15": {"sr": 16000}, "minilm-i8": {}, "plcmos": {}}


def main() -> None:
    known = [identity for identity, item in CATALOGUE.items() if item.kind == "model"]
    found = {}
    for identity in sys.argv[1:] or known:
        path = model_path(identity)
        found[identity] = {kind: looked_at(path, SHAPES.get(identity, {}), kind) for kind in ("f32", "f16")}
        if identity in SETTLED:
            found[identity + ", settled"] = settled(path, SHAPES[identity], SETTLED[identity])
        print(identity, found[identity], file=sys.stderr)
    print(json.dumps(found, indent=1))


def settled(path: Path, shapes: dict[str, tuple[int, ...]], fixed: dict[str, int]) -> dict[str, Any]:
    """The rows of a model whose branches and constants are settled first; FP16 is the settled file, typed."""
    left = {name: shape for name, shape in shapes.items() if name not in fixed}
    values = {name: np.array(value) for name, value in fixed.items()}
    options = TensorrtOptions(shapes=ranges_of_samples([left]), values=values, settle=True)
    view = network_view(path, find_package("rtx"), options)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "settled.onnx")
        onnx.save(view.settled, written)
        return {"f32": summary(view) | borders(view, written, left), "f16": looked_at(written, left, "f16")}


def looked_at(path: Path, shapes: dict[str, tuple[int, ...]], kind: str) -> dict[str, Any]:
    model = read_graph(path)
    options = TensorrtOptions(shapes=ranges_of_samples([shapes]))
    with tempfile.TemporaryDirectory() as folder:
        if kind == "f16":
            written = Path(folder, "typed.onnx")
            ir.save(typed_model(model.clone(), "f16", {}).model, written)
        else:
            written = path
        view = network_view(written, find_package("rtx"), options)
        said = summary(view) | borders(view, written, shapes)
    fusion = profile_named("tensorrt").predict(model, "f16")
    if kind == "f16" and not view.problem and fusion is not None:
        agreed = agreement(model, fusion, view.engine_layers)
        said["profile_agrees"] = round(agreed.share, 3)
        said["edges"] = agreed.both_fused + agreed.both_apart + agreed.only_profile + agreed.only_engine
    return said


def borders(view: NetworkView, path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """How many tensors between kernels are values of the model: matched by name or by where a layer ends, and by their sizes."""
    sites = load_model(path).sites
    layers = with_site_names(view.engine_layers, site_names(name_all_nodes(path, shapes), sites), sites)
    found = border_values(layers, sites)
    known = inferred_shapes(path, shapes)
    held = {tensor.name: tensor.dimensions for layer in layers for tensor in layer.outputs if layer.nodes}
    matched = [
        name for name, value in found.items() if value not in known or fits_shape(sizes(held[name]), known[value])
    ]
    return {"tensors": len(held), "matched": len(matched), "passed_over": len(found) - len(matched)}


def sizes(dimensions: str) -> list[int]:
    return [int(size) for size in dimensions.split(",") if size]


def summary(view: NetworkView) -> dict[str, Any]:
    fates = Counter(node.fate for node in view.nodes)
    named = {name for layer in view.engine_layers if layer.nodes for name in (layer.name,)}
    wordless = {layer.layer for layer in view.wordless}
    return {
        "nodes": len(view.nodes),
        "fates": dict(fates),
        "network_layers": sum(view.layers.values()),
        "network_layers_told": sum(view.layers.values()) - len(view.unmapped),
        "engine_layers": len(view.engine_layers),
        "engine_layers_told": len(named | wordless),
        "problem": view.problem[:200],
        "seconds": round(view.seconds, 1),
    }


if __name__ == "__main__":
    main()
