"""TensorRT 8 to 10: the precision of layers, as a Python script that builds the engine.

Sets `precision` and the output types of every layer that a kept node became, and OBEY_PRECISION_CONSTRAINTS, without
which TensorRT may ignore both. Layers that the builder fuses with others into one kernel (Myelin) may still compute in
another type: look at the engine inspector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes
from parityscope.repairs.settings._tensorrt import NUMPY, REMOVED, precision_function

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

_SCRIPT = '''"""Builds a TensorRT engine in which some layers keep their precision: python {filename} MODEL.onnx ENGINE.plan

{removed}
"""

import re
import sys


{function}

def build(model, engine):
    """Builds `engine` from `model`. Set an optimization profile here if inputs have dynamic shapes."""
    import tensorrt as trt

    if int(trt.__version__.split(".")[0]) >= 11:
        sys.exit("TensorRT 11 has no precision of layers: build a strongly typed model instead")
    logger = trt.Logger(trt.Logger.INFO)
    builder = trt.Builder(logger)
    explicit = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    network = builder.create_network(explicit)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        sys.exit("\\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    for name in set_precisions(network):
        print(f"no layer was found for {{name}}", file=sys.stderr)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.{flag})
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        sys.exit("TensorRT could not build the engine: see its log")
    with open(engine, "wb") as file:
        file.write(plan)


if __name__ == "__main__":
    build(*sys.argv[1:3])
'''


def _write_tensorrt_layers(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    filename = "build_with_precisions.py"
    nodes = locate_nodes(kept, model)
    flag = {"f16": "FP16", "bf16": "BF16"}[low]
    wanted = {placed.layer: NUMPY[placed.format_name] for placed in nodes}
    brief = (
        f"config.set_flag(trt.BuilderFlag.{flag}); config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)\n"
        "for layer in map(network.get_layer, range(network.num_layers)):\n"
        f"    if kept := {wanted}.get(layer.name):\n"
        "        layer.precision = getattr(trt, kept); layer.set_output_type(0, getattr(trt, kept))"
    )
    text = _SCRIPT.format(
        filename=filename,
        removed=REMOVED,
        function=precision_function(nodes),
        flag=flag,
    )
    return Text(kind="tensorrt", filename=filename, text=text, brief=brief)


EXPORTER = Exporter(name="tensorrt", title="TensorRT 8-10, layer precisions in Python", write=_write_tensorrt_layers)
