"""ONNX Runtime's executed graph, from the optimized model that it saves.

ONNX Runtime writes the graph that it runs when it is asked to (`SessionOptions.optimized_model_filepath`). A node that
stands for several of the original keeps the name of the last value among them, so that the nodes between its inputs and
its output in the original are what was fused. Nodes that give back no value of the original (a Reorder, a Transpose that
moved) name no nodes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends._onnxruntime import OPTIMIZATION_LEVELS
from parityscope.case.graph import region, sites
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from parityscope.case import Model

__all__ = ["executed_by_onnxruntime", "executed_from"]

_PRECISIONS = {"FLOAT": "f32", "FLOAT16": "f16", "BFLOAT16": "bf16", "DOUBLE": "f64"}
_SILENT = 3  # ONNX Runtime's logging severity "error"; it warns that a saved model fits this machine alone


def executed_by_onnxruntime(
    model: Model,
    *,
    optimization: str = "all",
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    custom_ops: str = "",
) -> ExecutedGraph:
    """What ONNX Runtime makes of `model`. It costs one more session, which is thrown away.

    Raises:
        ParityError: the runtime refuses the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, OPTIMIZATION_LEVELS[optimization])
    options.log_severity_level = _SILENT
    if custom_ops:
        options.register_custom_ops_library(custom_ops)
    with tempfile.TemporaryDirectory(prefix="parityscope-") as folder:
        path = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        # Weights of any size go beside the graph, which alone is read here.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        try:
            ort.InferenceSession(str(model.path), options, providers=list(providers))
            optimized = read_graph(path)
        except Exception as error:
            if isinstance(error, MemoryError | ParityError):
                raise
            raise ParityError(
                f"ONNX Runtime cannot save the graph that it runs: {' '.join(str(error).split())[:400]}",
                where=str(model.path),
                fix="check that plain ONNX Runtime runs this model",
            ) from error
        return executed_from(model.graph(), optimized)


def executed_from(original: ir.Model, optimized: ir.Model) -> ExecutedGraph:
    """The executed graph of `original`, of which `optimized` is what ONNX Runtime saved (its types are inferred)."""
    infer_types(optimized)
    places = sites(original)
    computed = {str(value.name) for node in optimized.graph for value in node.outputs if value.name}
    layers = []
    weight: dict[str, int] = {}
    for node in optimized.graph:
        if node.op_type == "Constant":
            continue
        known = [str(value.name) for value in node.outputs if value.name in places]
        members = {
            _named(each, places): None
            for name in known
            for each in region(
                original, name, (computed - set(known)) | {str(v.name) for v in node.inputs if v is not None}
            )
        }
        precision = _precision(node)
        layers.append(
            ExecutedLayer(
                name=node.name or (known[0] if known else node.op_type),
                layer_type=node.op_type,
                nodes=tuple(members),
                precision=precision,
                kernel=f"{node.domain or 'ai.onnx'}.{node.op_type}",
            )
        )
        weight[precision] = weight.get(precision, 0) + 1
    executed = next((name for name in ("f16", "bf16", "f32") if weight.get(name)), "")
    return ExecutedGraph(layers=tuple(layers), executed=executed)


def _named(node: ir.Node, places: dict[str, Any]) -> str:
    value = next((value for value in node.outputs if value.name in places), None)
    return (node.name or "") if value is None else str(places[str(value.name)].node)


def _precision(node: ir.Node) -> str:
    for value in (*node.outputs, *node.inputs):
        name = "" if value is None or value.dtype is None else value.dtype.name
        if name in _PRECISIONS:
            return _PRECISIONS[name]
    dtype = node.outputs[0].dtype if node.outputs else None
    return "" if dtype is None else dtype.name.lower()
