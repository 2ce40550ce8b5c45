"""Writes a transformer encoder that FP16 breaks, and samples for it: the subject of the last section of docs/repair.md.

    python bench/encoder.py FOLDER
    parityscope repair FOLDER/encoder.onnx --low f16 --inputs FOLDER/samples --budget rel_l2=5e-3 -o FOLDER/fixed.onnx

Three layers with random weights (fixed seed). LayerNormalization is decomposed into ReduceMean, Sub, Pow, ReduceMean, Add,
Sqrt, Div, Mul and Add, as exporters for opsets below 17 do, and the residual stream reaches a few hundred, so that Pow
overflows in FP16 though every activation fits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, LAYERS, INNER, TOKENS, SAMPLES, SEED = 384, 6, 3, 1536, 256, 72, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Nodes and weights, collected in order."""

    draw: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        """A weight of normally distributed numbers."""
        return self.constant(name, (self.draw.normal(size=shape) * scale).astype(np.float32))

    def constant(self, name: str, array: np.ndarray) -> str:
        """A constant of the graph."""
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: object) -> str:
        """A node with one output of its own name."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def norm(self, x: str, name: str) -> str:
        """LayerNormalization, decomposed."""
        centered = self.node("Sub", [x, self.node("ReduceMean", [x], f"{name}_mean", axes=[-1])], f"{name}_centered")
        squares = self.node("Pow", [centered, "two"], f"{name}_pow")
        variance = self.node("ReduceMean", [squares], f"{name}_variance", axes=[-1])
        deviation = self.node("Sqrt", [self.node("Add", [variance, "epsilon"], f"{name}_guarded")], f"{name}_deviation")
        scaled = self.node(
            "Mul",
            [self.node("Div", [centered, deviation], f"{name}_norm"), self.weight(f"{name}_g", (WIDTH,), 0.1)],
            f"{name}_scaled",
        )
        return self.node("Add", [scaled, self.weight(f"{name}_b", (WIDTH,), 0.1)], f"{name}_out")

    def attention(self, x: str, name: str) -> str:
        """Multi-head self-attention with its output projection."""
        parts = {}
        for part in "qkv":
            product = self.node(
                "MatMul", [x, self.weight(f"{name}_w{part}", (WIDTH, WIDTH), WIDTH**-0.5)], f"{name}_{part}"
            )
            split = self.node("Reshape", [product, "split"], f"{name}_{part}_split")
            order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            parts[part] = self.node("Transpose", [split], f"{name}_{part}_heads", perm=order)
        scores = self.node("MatMul", [parts["q"], parts["k"]], f"{name}_scores")
        chances = self.node("Softmax", [self.node("Mul", [scores, "scale"], f"{name}_scaled")], f"{name}_p", axis=-1)
        mixed = self.node("MatMul", [chances, parts["v"]], f"{name}_mixed")
        merged = self.node(
            "Reshape", [self.node("Transpose", [mixed], f"{name}_back", perm=[0, 2, 1, 3]), "merge"], f"{name}_merged"
        )
        return self.node("MatMul", [merged, self.weight(f"{name}_wo", (WIDTH, WIDTH), 250 * WIDTH**-0.5)], f"{name}_o")

    def feed_forward(self, x: str, name: str) -> str:
        """Two products with GELU between, decomposed."""
        inner = self.node("MatMul", [x, self.weight(f"{name}_w1", (WIDTH, INNER), WIDTH**-0.5)], f"{name}_inner")
        erf = self.node("Erf", [self.node("Div", [inner, "root"], f"{name}_div")], f"{name}_erf")
        gate = self.node("Mul", [inner, self.node("Add", [erf, "one"], f"{name}_add")], f"{name}_gate")
        gelu = self.node("Mul", [gate, "half"], f"{name}_gelu")
        return self.node("MatMul", [gelu, self.weight(f"{name}_w2", (INNER, WIDTH), 1500 * INNER**-0.5)], f"{name}_f")


def model(draw: np.random.Generator) -> onnx.ModelProto:
    """The encoder: x, float32 [1, 256, 384] to y of the same shape."""
    build = Builder(draw=draw)
    numbers = {"two": 2.0, "epsilon": 1e-5, "root": 2**0.5, "half": 0.5, "one": 1.0, "scale": (WIDTH // HEADS) ** -0.5}
    for name, number in numbers.items():
        build.constant(name, np.asarray(number, np.float32))
    build.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS]))
    build.constant("merge", np.array([0, 0, WIDTH]))
    x = "x"
    for layer in range(LAYERS):
        name = f"layer{layer}"
        mixed = build.attention(build.norm(x, f"{name}_norm1"), f"{name}_attention")
        x = build.node("Add", [x, mixed], f"{name}_residual1")
        fed = build.feed_forward(build.norm(x, f"{name}_norm2"), f"{name}_mlp")
        x = build.node("Add", [x, fed], f"{name}_residual2")
    build.node("Identity", [build.norm(x, "final")], "y")
    shape = [1, TOKENS, WIDTH]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y"))
    graph = helper.make_graph(build.nodes, "encoder", [x], [y], build.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_encoder(folder: Path, samples: int = SAMPLES) -> None:
    """Writes the model and as many samples into a folder that is there or not."""
    draw = np.random.default_rng(SEED)
    (folder / "samples").mkdir(parents=True)
    made = model(draw)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, folder / "encoder.onnx")
    for number in range(samples):
        x = draw.normal(size=(1, TOKENS, WIDTH)) * np.exp(0.3 * draw.normal())
        np.savez(folder / "samples" / f"{number:06d}.npz", x=x.astype(np.float32))


if __name__ == "__main__":
    write_encoder(Path(sys.argv[1]))
