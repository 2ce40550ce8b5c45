"""The body of a recurrent operator's time step under construction, and what its attributes say about activations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import STANDARD, of_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic.graphs import Names

# Gates in the order in which weights are stacked, by operator.
GATES = {name: len(STANDARD[name].gates) for name in of_kind("recurrent")}
_DEFAULTS = {name: STANDARD[name].activations for name in GATES}
# Activation (in small letters) -> the defaults of the alpha and beta that it takes. NaN: ONNX states none (Affine,
# ScaledTanh), or ONNX Runtime has another (ThresholdedRelu).
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "affine": (math.nan, math.nan),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "relu": (None, None),
    "scaledtanh": (math.nan, math.nan),
    "sigmoid": (None, None),
    "softplus": (None, None),
    "softsign": (None, None),
    "tanh": (None, None),
    "thresholdedrelu": (math.nan, None),
}
_OPERATORS = {
    "relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign", "tanh": "Tanh",
    "elu": "Elu", "hardsigmoid": "HardSigmoid", "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One activation, its name in small letters."""

    name: str
    alpha: float | None
    beta: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWeights:
    """One direction's weights as values that a step reads.

    `inputs` is (inputs, gates * hidden), transposed, `input_bias` (gates * hidden). `state` and `state_bias` are the same
    for what the state is multiplied with; where `apart` says so, in two: all gates but the last, and the last.
    `peephole`, (hidden) each, are those of the input, output and forget gates.
    """

    inputs: ir.Value
    input_bias: ir.Value | None
    state: tuple[ir.Value, ...]
    state_bias: tuple[ir.Value | None, ...]
    peephole: tuple[ir.Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The body of a step under construction.

    `sums`, `products`, `gates` and `states` are its values by what they are; `nodes` all nodes, in order. Where `terms` is
    not 0, products with constant weights are added up so many terms at a time, and each sum so far is one of `sums`.
    """

    node: ir.Node
    hidden: int
    dtype: ir.DataType
    names: Names
    opset: int
    terms: int = 0
    nodes: list[ir.Node] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)
    sums: list[ir.Value] = field(default_factory=list)
    products: list[ir.Value] = field(default_factory=list)
    gates: list[ir.Value] = field(default_factory=list)
    states: list[ir.Value] = field(default_factory=list)

    def add(self, op_type: str, *inputs: ir.Value | None, attributes: Sequence[ir.Attr] = ()) -> ir.Value:
        """A node; gives its output, of the cell's type."""
        made = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        value = made.outputs[0]
        value.name = made.name = self.names.fresh(self.node.name or self.node.op_type, op_type.lower())
        value.type = ir.TensorType(self.dtype)
        self.nodes.append(made)
        return value

    def constant(self, array: np.ndarray, title: str) -> ir.Value:
        """A constant of the body."""
        name = self.names.fresh(self.node.name or self.node.op_type, title)
        tensor = ir.tensor(np.array(array, order="C"), name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        self.constants.append(value)
        return value

    def number(self, number: float) -> ir.Value:
        """A constant of no dimensions in the cell's type."""
        return self.constant(np.array(number, self.dtype.numpy()), "number")

    def split(self, value: ir.Value, parts: int, axis: int = -1, size: int = 0) -> tuple[ir.Value, ...]:
        """An axis in equal parts, of the state's size where no other is given."""
        attributes: list[ir.Attr] = [ir.AttrInt64("axis", axis)]
        size = size or self.hidden
        sizes = None
        if self.opset < 13:  # sizes became an input there
            attributes.append(ir.AttrInt64s("split", [size] * parts))
        else:
            sizes = self.constant(np.full(parts, size, np.int64), "sizes")
        made = ir.Node("", "Split", [value] if sizes is None else [value, sizes], attributes, num_outputs=parts)
        made.name = self.names.fresh(self.node.name or self.node.op_type, "split")
        for output in made.outputs:
            output.name = self.names.fresh(self.node.name or self.node.op_type, "part")
            output.type = ir.TensorType(self.dtype)
        self.nodes.append(made)
        return tuple(made.outputs)

    def activated(self, activation: Activation, value: ir.Value) -> ir.Value:
        """An activation without a bound."""
        alpha, beta = activation.alpha, activation.beta
        if activation.name == "affine":
            return self.add("Add", self.add("Mul", value, self.number(alpha or 0.0)), self.number(beta or 0.0))
        if activation.name == "scaledtanh":
            inner = self.add("Tanh", self.add("Mul", value, self.number(beta or 0.0)))
            return self.add("Mul", inner, self.number(alpha or 0.0))
        attributes = [
            ir.AttrFloat32(name, number) for name, number in (("alpha", alpha), ("beta", beta)) if number is not None
        ]
        return self.add(_OPERATORS[activation.name], value, attributes=attributes)

    def bounded(self, value: ir.Value) -> ir.Value:
        """A value within the operator's `clip`, if it has one."""
        limit = self.node.attributes.get_float("clip", 0.0)
        if limit <= 0.0:
            return value
        return self.add("Min", self.add("Max", value, self.number(-limit)), self.number(limit))

    def gate(self, activation: Activation, value: ir.Value) -> ir.Value:
        """What an activation makes of a sum: a gate."""
        made = self.activated(activation, self.bounded(value))
        self.gates.append(made)
        return made

    def product(self, value: ir.Value, weights: ir.Value, bias: ir.Value | None) -> ir.Value:
        """A matrix product, and its bias added to it."""
        made = self._summed(value, weights) if self.terms and weights.const_value is not None else None
        made = made or self.add("MatMul", value, weights)
        made = made if bias is None else self.add("Add", made, bias)
        self.products.append(made)
        return made

    def _summed(self, value: ir.Value, weights: ir.Value) -> ir.Value | None:
        """The product (1, batch, outputs) in blocks of terms, of equal length; None where there is only one."""
        array = weights.const_value.numpy() if weights.const_value is not None else np.zeros((1, 1))
        length, width = array.shape
        terms = next(size for size in range(min(self.terms, length), 0, -1) if length % size == 0)
        count = length // terms
        if count == 1:
            return None
        self.constants.remove(weights)
        blocks = self.constant(array.reshape(count, terms, width), str(weights.name))
        shape = self.constant(np.array([-1, count, terms]), "shape")
        rows = self.add("Reshape", value, shape)
        rows = self.add("Transpose", rows, attributes=[ir.AttrInt64s("perm", [1, 0, 2])])
        parts = self.split(self.add("MatMul", rows, blocks), count, axis=0, size=1)
        total = parts[0]
        self.sums.append(total)
        for part in parts[1:]:
            total = self.add("Add", total, part)
            self.sums.append(total)
        return total


def activations_of(node: ir.Node, directions: int) -> list[Activation] | None:
    """The activations of each direction, one after another.

    None where one is not of the standard set, or lacks a number that has no default.
    """
    per_direction = len(_DEFAULTS[node.op_type])
    names = list(_DEFAULTS[node.op_type]) * directions
    if "activations" in node.attributes:
        names = list(node.attributes["activations"].as_strings())
    if len(names) != per_direction * directions or any(name.lower() not in ACTIVATIONS for name in names):
        return None
    given = {
        title: list(node.attributes[f"activation_{title}"].as_floats())
        if f"activation_{title}" in node.attributes
        else []
        for title in ("alpha", "beta")
    }
    found = []
    for name in names:
        alpha, beta = ACTIVATIONS[name.lower()]
        # Numbers are listed for those activations alone that take one.
        alpha = given["alpha"].pop(0) if alpha is not None and given["alpha"] else alpha
        beta = given["beta"].pop(0) if beta is not None and given["beta"] else beta
        found.append(Activation(name=name.lower(), alpha=alpha, beta=beta))
    lacking = (
        each for each in found for number in (each.alpha, each.beta) if number is not None and math.isnan(number)
    )
    return None if any(lacking) else found
