"""The networks that faults are drawn in, with four samples of each and all tensors of the first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from proving.faults.networks import NETWORKS
from proving.models.fetching import fetch
from proving.models.notes import melody
from proving.models.samples import library_files, page_crops, sample_of, text_lines, token_sentences

SMALL = ("small-conv", "small-encoder", "small-rows", "small-two", "small-norm", "small-map")
LARGE = ("ocr-cls", "magika", "pitch", "dnsmos", "vad-seq", "ocr-rec", "minilm-i8", "ocr-det")
_SAMPLES = 4
Sample = dict[str, Any]


def _inputs_of(name: str) -> list[Sample]:
    draw = np.random.default_rng(7)
    many: dict[str, Callable[[np.random.Generator], Iterator[Any]]] = {
        "ocr-det": page_crops,
        "ocr-rec": text_lines,
        "magika": library_files,
        "minilm-i8": token_sentences,
    }
    if name in many:
        return list(islice(many[name](draw), _SAMPLES))
    if name == "ocr-cls":
        lines = islice(text_lines(draw), _SAMPLES)
        return [
            {"x": np.ascontiguousarray(one["x"][..., :192][..., :: -1 if k % 2 else 1])} for k, one in enumerate(lines)
        ]
    if name == "pitch":
        return [dict(melody(seed)[0]) for seed in range(_SAMPLES)]
    known: Sample = dict(sample_of(name))
    first = next(iter(known))
    return [known | {first: np.roll(known[first], 7919 * k) * np.float32(1 - 0.15 * k)} for k in range(_SAMPLES)]


class Network:
    """A network with what it gives, and its tensors on the first sample: what a fault can be about."""

    def __init__(self, name: str) -> None:
        if name in NETWORKS:
            with tempfile.TemporaryDirectory() as folder:
                path, samples = NETWORKS[name].make(Path(folder), np.random.default_rng(11))
                self.model, self.inputs = onnx.load(path), [dict(one) for one in samples]
        else:
            self.model, self.inputs = onnx.load(fetch(name)), _inputs_of(name)
        self.name = name
        shown = onnx.ModelProto()
        shown.CopyFrom(self.model)
        had = {value.name for value in shown.graph.output}
        names = [one for node in shown.graph.node for one in node.output if one and one not in had]
        shown.graph.output.extend(onnx.ValueInfoProto(name=one) for one in names)
        self.values = run(shown, self.inputs[:1])[0] | self.inputs[0]
        graph = self.model.graph
        self.constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.constants |= {
            node.output[0]: numpy_helper.to_array(node.attribute[0].t)
            for node in graph.node
            if node.op_type == "Constant"
        }
        self.nodes = [node for node in graph.node if node.op_type != "Constant" and self.is_real(node.output[0])]
        self.order = {one: place for place, node in enumerate(graph.node) for one in node.output}
        self.reference = run(self.model, self.inputs)

    def is_real(self, name: str) -> bool:
        """Whether a tensor holds many float32 numbers."""
        array = self.values.get(name)
        return isinstance(array, np.ndarray) and array.dtype == np.float32 and array.size > 1

    def alike(self, name: str, before: str) -> list[str]:
        """Tensors of the same shape that are known when `before` is computed, near ones first."""
        shape, at = np.shape(self.values[name]), self.order[before]
        known = [
            one for one in self.values if one != name and self.is_real(one) and np.shape(self.values[one]) == shape
        ]
        return sorted((one for one in known if self.order.get(one, -1) < at), key=lambda one: -self.order.get(one, -1))

    def weights(self, least: int = 64) -> list[tuple[Any, int]]:
        """Nodes with the place of a constant of so many numbers that they read."""
        return [
            (node, place)
            for node in self.nodes
            for place, one in enumerate(node.input)
            if one in self.constants and self.constants[one].dtype == np.float32 and self.constants[one].size >= least
        ]


@cache
def network(name: str) -> Network:
    """One of `SMALL` and `LARGE`, opened once."""
    return Network(name)


def run(model: onnx.ModelProto, samples: list[Sample]) -> list[Sample]:
    """What plain ONNX Runtime gives, without optimizations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, sample), strict=True)) for sample in samples]
