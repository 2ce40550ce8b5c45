"""The exact GELU is computed by the approximation with tanh, or the error function is replaced in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = nodes_of(model, draw, "Erf")[0]
    source, result = node.input[0], node.output[0]
    place = list(model.graph.node).index(node)
    # erf(x / sqrt(2)) by tanh(sqrt(2 / pi) (x + 0.044715 x^3)), with u = x / sqrt(2): x = sqrt(2) u.
    names = {key: f"{result}_{key}" for key in ("a", "b", "c", "d", "e", "f", "inner", "cube", "outer")}
    values = {"inner": np.sqrt(2.0), "cube": 0.044715, "outer": np.sqrt(2.0 / np.pi)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(value, np.float32), names[key]) for key, value in values.items()
    )
    lines = (
        ("Mul", [source, names["inner"]], names["a"]),
        ("Mul", [names["a"], names["a"]], names["b"]),
        ("Mul", [names["b"], names["a"]], names["c"]),
        ("Mul", [names["c"], names["cube"]], names["d"]),
        ("Add", [names["a"], names["d"]], names["e"]),
        ("Mul", [names["e"], names["outer"]], names["f"]),
        ("Tanh", [names["f"]], result),
    )
    model.graph.node.remove(node)
    for step, (kind, inputs, output) in enumerate(lines):
        model.graph.node.insert(place + step, onnx.helper.make_node(kind, inputs, [output]))
    return f"the GELU at {result} is computed with tanh", (result, *_behind(model, result))


def _behind(model: onnx.ModelProto, name: str) -> tuple[str, ...]:
    """The rest of the GELU: what is computed of `name` next, and next, and next."""
    found: list[str] = []
    for _ in range(3):
        follower = next((node for node in model.graph.node if name in node.input), None)
        if follower is None:
            break
        name = follower.output[0]
        found.append(name)
    return tuple(found)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Another form of GELU",
    family="fusion",
    expected="FUS002",
    subjects=("small-encoder", "minilm-i8"),
    plant=_plant,
)
