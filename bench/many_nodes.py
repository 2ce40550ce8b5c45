"""A network of many small nodes: what whole commands cost, `python bench/many_nodes.py [--nodes 20000] [--folder DIR]`.

Layers of five nodes (a product with 16 x 16 weights, a bias, a function, a scale, and what came in) one after another, which
is what a large network costs apart from its arithmetic: names, pairing, sessions, the report. Compared are the reference
and itself without the optimizer; diagnosed is a copy in which a tenth was added to the weights of the middle product.

Prints for each command its exit code, seconds by the clock and of processors, peak memory and the size of the page.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from whole import run, with_a_fault

from parityscope.case.formats.npz import write_npz

WIDTH, ROWS, LAYER = 16, 4, 5
STEP = 0.02  # what a layer adds: so small that 4,000 of them neither grow without end nor forget what came in


def main() -> None:
    """Measures each command once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20000)
    parser.add_argument("--folder", help="where the network and the studies are left; a folder of its own otherwise")
    parser.add_argument("--what", action="append", help="only this command; repeatable")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, asked.nodes, asked.what)


def measure(folder: Path, nodes: int, chosen: list[str] | None) -> None:
    """Prints a line for each command."""
    model, broken, inputs = folder / "network.onnx", folder / "broken.onnx", folder / "x.npz"
    onnx.save(network(nodes), model)
    onnx.save(with_a_fault(network(nodes)), broken)
    write_npz(inputs, {"x": np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)})
    rest = ["--inputs", str(inputs), "--quiet"]
    within, faulty = "ort?optimization=disabled", f"ort?model={broken}"
    lines = {
        "compare": ["compare", str(model), "--candidate", within],
        "compare, broken": ["compare", str(model), "--candidate", faulty],
        "compare --all-tensors": ["compare", str(model), "--candidate", within, "--all-tensors"],
        "diagnose, broken": ["diagnose", str(model), "--candidate", faulty],
    }
    for what, words in lines.items():
        if chosen and what not in chosen:
            continue
        study = folder / what.replace(" ", "_").replace(",", "")
        shutil.rmtree(study, ignore_errors=True)
        status, wall, cpu, peak = run([sys.executable, "-m", "parityscope", *words, *rest, "--study", str(study)])
        pages = [page.stat().st_size for page in study.rglob("*.html")]
        size = f"{max(pages) / 1e6:.1f} MB" if pages else "-"
        print(f"{what:22} exit {status} {wall:7.1f} s {cpu:7.1f} s cpu {peak:6.0f} MiB, page {size}", flush=True)


def network(nodes: int) -> onnx.ModelProto:
    """The network, of as many nodes or a few less."""
    generator = np.random.default_rng(0)
    made, weights, before = [], [], "x"
    for at in range(nodes // LAYER):
        weights += [
            numpy_helper.from_array(generator.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4, f"w{at}"),
            numpy_helper.from_array(generator.standard_normal(WIDTH).astype(np.float32) / 4, f"b{at}"),
            numpy_helper.from_array(np.full(WIDTH, STEP, np.float32), f"s{at}"),
        ]
        steps = [
            ("MatMul", [before, f"w{at}"], f"product{at}"),
            ("Add", [f"product{at}", f"b{at}"], f"sum{at}"),
            ("Tanh", [f"sum{at}"], f"gate{at}"),
            ("Mul", [f"gate{at}", f"s{at}"], f"scaled{at}"),
            ("Add", [f"scaled{at}", before], f"layer{at}"),
        ]
        made += [helper.make_node(kind, inputs, [output], name=f"/{output}") for kind, inputs, output in steps]
        before = f"layer{at}"
    shape = [ROWS, WIDTH]
    graph = helper.make_graph(
        made,
        "many",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(before, onnx.TensorProto.FLOAT, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    main()
