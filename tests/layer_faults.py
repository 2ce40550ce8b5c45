"""Faults of one layer's result, planted in what ONNX Runtime gives, and what a diagnosis says of them.

The candidate is a recording of all tensors: as the model says before the layer, changed there, and computed on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

import parityscope
from parityscope.case.formats.npz import write_npz

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray]
    Fault = Callable[[list[np.ndarray]], Sequence[np.ndarray]]  # what the layer gave, by sample -> what it gives


def run_layers(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """Every tensor of a model, by name."""
    import onnxruntime as ort

    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    held = {value.name for value in shown.graph.output}
    names = [name for node in shown.graph.node for name in node.output if name and name not in held]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {value.name: feeds[value.name] for value in session.get_inputs()}
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, taken), strict=True))


def record_fault(model: onnx.ModelProto, samples: Sequence[Arrays], tensor: str, fault: Fault, folder: Path) -> str:
    """A recording whose `tensor` is changed on every sample, and all that is computed from it; as a target."""
    known = [run_layers(model, sample) for sample in samples]
    behind = _model_behind(model, tensor)
    changed = fault([one[tensor].copy() for one in known])
    for number, (one, sample, array) in enumerate(zip(known, samples, changed, strict=True)):
        given = {**one, tensor: np.asarray(array, one[tensor].dtype)}
        if behind.graph.node:
            given |= run_layers(behind, {**sample, **given})
        write_npz(folder / "recorded" / f"{number:06d}.npz", given)
    return f"saved?path={folder / 'recorded'}"


def record_outputs(model: onnx.ModelProto, samples: Sequence[Arrays], tensor: str, fault: Fault, folder: Path) -> str:
    """As `record_fault`, of the outputs alone."""
    record_fault(model, samples, tensor, fault, folder)
    outputs = {value.name for value in model.graph.output}
    for path in sorted((folder / "recorded").glob("*.npz")):
        with np.load(path) as held:
            given = {name: held[name] for name in held if name in outputs}
        write_npz(path, given)
    return f"saved?path={folder / 'recorded'}"


def causes_of(
    model: onnx.ModelProto, samples: Sequence[Arrays], tensor: str, fault: Fault, folder: Path
) -> list[dict[str, Any]]:
    """The findings that are causes, the first first."""
    candidate = record_fault(model, samples, tensor, fault, folder)
    found = parityscope.diagnose(model, candidate=candidate, inputs=[dict(one) for one in samples]).document
    return [one for one in found["findings"] if one["role"] == "cause"]


def _model_behind(model: onnx.ModelProto, tensor: str) -> onnx.ModelProto:
    """What is computed from a tensor, as a model that reads it and all else that it needs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    names, nodes = {tensor}, []
    for node in model.graph.node:
        if set(node.input) & names:
            names |= set(node.output)
            nodes.append(node)
    held = {value.name for value in (*model.graph.initializer, *model.graph.input)}
    given = {name for node in nodes for name in node.output}
    needed = dict.fromkeys(name for node in nodes for name in node.input if name and name not in held | given)
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    made.graph.node.extend(nodes)
    made.graph.input.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in needed)
    made.graph.output.extend(value for value in model.graph.output if value.name in given)
    return made
