"""Which regions of TensorRT-RTX's engines are foretold exactly: every development model as a strongly typed FP16 file.

    python bench/regions.py [MODEL ...]

Prints the rows of the table in docs/tensorrt.md. What TensorRT-RTX refuses as it is, is settled first (`network --settle`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from network_view import SETTLED, SHAPES

from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends.tensorrt.network import network_view
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.packages import find_package
from parityscope.backends.tensorrt.profiles import ranges_of_samples
from parityscope.case.model import read_graph
from proving.engine_fusion import agreement, foretold
from proving.models.fetching import CATALOGUE, model_path


def main() -> None:
    known = [identity for identity, item in CATALOGUE.items() if item.kind == "model"]
    rows = []
    for identity in sys.argv[1:] or known:
        shapes = SHAPES.get(identity)
        if shapes is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = told(identity, Path(folder), shapes)
        rows.append(row)
        print(row["line"], flush=True)
    regions, exact = (sum(row[key] for row in rows) for key in ("regions", "exact"))
    print(f"all: {exact} of {regions} regions exact, {exact / max(regions, 1):.3f}")


def told(identity: str, folder: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    path, title = model_path(identity), identity
    package = find_package("rtx")
    if identity in SETTLED:
        values = {name: np.array(value, np.int64) for name, value in SETTLED[identity].items()}
        options = TensorrtOptions(shapes=ranges_of_samples([shapes]), values=values, settle=True)
        view = network_view(path, package, options)
        path, title = folder / "settled.onnx", f"{identity}, settled"
        onnx.save(view.settled, path)
        shapes = {name: shape for name, shape in shapes.items() if name not in values}
    model = read_graph(path)
    typed = folder / "typed.onnx"
    ir.save(typed_model(model.clone(), "f16", {}).model, typed)
    view = network_view(typed, package, TensorrtOptions(shapes=ranges_of_samples([shapes])))
    fusion = profile_named("tensorrt").predict(model, "f16")
    if view.problem or fusion is None:
        return {"line": f"| {title} | not built | | | | |", "regions": 0, "exact": 0}
    found = foretold(model, fusion, view.engine_layers)
    agreed = agreement(model, fusion, view.engine_layers)
    asked = [layer for layer in view.executed.layers if layer.asked]
    met = sum(layer.stored == layer.asked for layer in asked)
    share = f"{found.exact / found.regions:.2f}" if found.regions else "-"
    cells = [
        title,
        found.regions,
        found.predicted,
        f"{found.exact} ({share})",
        f"{agreed.share:.3f}",
        f"{met} of {len(asked)}",
    ]
    line = f"| {' | '.join(map(str, cells))} |"
    return {"line": line, "regions": found.regions, "exact": found.exact}


if __name__ == "__main__":
    main()
