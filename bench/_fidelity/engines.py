"""An engine made ready, and how to observe some of its tensors without changing what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import openvino as ov
from openvino.preprocess import PrePostProcessor

from parityscope.arithmetic.fusion.following import follow_executed, layers_by_end
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.openvino import executed_graph_of as executed_graph
from parityscope.case.graph import computed_values

if TYPE_CHECKING:
    from parityscope.case import Model, Sample
    from parityscope.records import ExecutedGraph, Target

Arrays = Mapping[str, np.ndarray]
Observe = Callable[[Sequence[str]], Arrays]
_OPENVINO_TYPES = {"bf16": ov.Type.bf16, "f16": ov.Type.f16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A candidate made ready: what it executed, in which tensors its layers end, and how to observe some of them."""

    executed: ExecutedGraph | None
    precision: str
    tensors: Mapping[str, str]  # name -> kind of layer
    observe: Observe
    reads: str = ""  # the format that an observed tensor is read in, whatever it is stored in


def prepared(model: Model, sample: Sample, target: Target) -> Engine:
    """The candidate, on one sample."""
    if target.backend == "openvino":
        executed = executed_graph(ov.Core().compile_model(str(model.path), "CPU", settings(target)), target.precision)
        kernels = {
            value: kernel.stored
            for kernel in follow_executed(executed, model.graph()).kernels
            for value in kernel.values
        }
        layers = layers_by_end(executed, model.graph())
        places = {tensor: layer.layer_type for tensor, layer in layers.items()}
        stored = {tensor: kernels.get(tensor, "f32") for tensor in layers}
        return Engine(
            executed=executed,
            precision=executed.executed,
            tensors=places,
            observe=lambda names: openvino_run(model, sample, target, {name: stored[name] for name in names}),
            reads="f16" if executed.executed == "f16" else "",
        )
    with open_target(model, target, Capture()) as session:
        seen = session.executed
    order = [str(value.name) for value in computed_values(model.graph())]
    layers = {} if seen is None else layers_by_end(seen, model.graph())

    def observe_some(names: Sequence[str]) -> Arrays:
        with open_target(model, target, Capture(tensors=tuple(names))) as session:
            return dict(session.run(sample))

    return Engine(
        executed=seen,
        precision=target.precision,
        tensors={tensor: layer.layer_type for tensor, layer in layers.items()} if layers else dict.fromkeys(order, ""),
        observe=observe_some,
    )


def openvino_run(model: Model, sample: Sample, target: Target, stored: Mapping[str, str]) -> Arrays:
    """The outputs, and the tensors of `stored`, each read in the format in which it is stored."""
    core = ov.Core()
    source = core.read_model(str(model.path))
    declared = [value.name for value in model.outputs]
    ports = {name: port for node in source.get_ordered_ops() for port in node.outputs() for name in port.get_names()}
    names = [name for name in stored if name in ports]
    unique: dict[tuple[str, int], int] = {}
    for name in names:
        key = (ports[name].get_node().get_friendly_name(), ports[name].get_index())
        unique.setdefault(key, len(unique))
    source.add_outputs(list(unique))
    places = {
        name: len(declared) + unique[ports[name].get_node().get_friendly_name(), ports[name].get_index()]
        for name in names
    }
    steps = PrePostProcessor(source)
    for name in names:
        if stored[name] in _OPENVINO_TYPES:
            steps.output(places[name]).tensor().set_element_type(_OPENVINO_TYPES[stored[name]])
    request = core.compile_model(steps.build(), "CPU", settings(target)).create_infer_request()
    request.infer({value.name: sample.arrays[value.name] for value in model.inputs})

    def read(index: int) -> np.ndarray:
        tensor = request.get_output_tensor(index)
        brain = tensor.get_element_type() == ov.Type.bf16
        return np.array(tensor.data.view(ml_dtypes.bfloat16) if brain else tensor.data)

    return {
        **{name: read(index) for index, name in enumerate(declared)},
        **{name: read(places[name]) for name in names},
    }


def settings(target: Target) -> dict[str, str]:
    """OpenVINO's settings: those of the backend, and no quantization of activations on the fly.

    By default OpenVINO quantizes the inputs of products with compressed weights to eight bits; that is another
    arithmetic than the one that is predicted here.
    """
    return {
        "INFERENCE_PRECISION_HINT": target.precision,
        "PERFORMANCE_HINT": "LATENCY",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }
