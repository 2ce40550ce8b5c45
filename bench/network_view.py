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

import onnx_ir as ir

from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends.tensorrt_views import NetworkView, find_package, network_view
from parityscope.case.model import read_graph
from parityscope.testing.engine_fusion import agreement
from parityscope.testing.models import CATALOGUE, model_path

VAD = {"input": (1, 576), "sr": (), "state": (2, 1, 128)}
BERT = (2, 9)
OCR = {"det": {"x": (1, 3, 384, 768)}, "rec": {"x": (1, 3, 48, 539)}, "cls": {"x": (1, 3, 48, 192)}}
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    **{f"ocr-{kind}": shapes for kind, shapes in OCR.items()},
    **{f"ocr-npm-{kind}": shapes for kind, shapes in OCR.items()},
    **dict.fromkeys(("vad", "vad-15", "vad-18"), VAD),
    "vad-seq": {"input": (31, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    "magika": {"bytes": (1, 2048)},
    "minilm-i8": {"input_ids": BERT, "attention_mask": BERT, "token_type_ids": BERT},
    "layout": {"image": (1, 3, 800, 608)},
    "pitch": {"serving_default_input_2:0": (1, 43844, 1)},
    "dnsmos": {"input_1": (1, 144160)},
}


def main() -> None:
    known = [identity for identity, item in CATALOGUE.items() if item.kind == "model"]
    found = {}
    for identity in sys.argv[1:] or known:
        found[identity] = {"f32": looked_at(identity, "f32"), "f16": looked_at(identity, "f16")}
        print(identity, found[identity], file=sys.stderr)
    print(json.dumps(found, indent=1))


def looked_at(identity: str, kind: str) -> dict[str, Any]:
    path, shapes = model_path(identity), SHAPES.get(identity, {})
    model = read_graph(path)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "f16":
            written = Path(folder, "typed.onnx")
            ir.save(typed_model(model.clone(), "f16", {}).model, written)
            view = network_view(written, find_package("rtx"), shapes=shapes)
        else:
            view = network_view(path, find_package("rtx"), shapes=shapes)
    said = summary(view)
    fusion = profile_named("tensorrt").predict(model, "f16")
    if kind == "f16" and not view.problem and fusion is not None:
        agreed = agreement(model, fusion, view.engine_layers)
        said["profile_agrees"] = round(agreed.share, 3)
        said["edges"] = agreed.both_fused + agreed.both_apart + agreed.only_profile + agreed.only_engine
    return said


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
