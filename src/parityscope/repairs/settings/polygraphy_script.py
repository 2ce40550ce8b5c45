"""Polygraphy with TensorRT 8 to 10: a script for `--trt-network-postprocess-script`.

Polygraphy calls `postprocess(network=...)` with the network that the ONNX parser made, before it builds the engine, and
honours what is set there with `--precision-constraints obey`. On TensorRT 11 Polygraphy itself refuses that option.

Source: Polygraphy 0.53.6, polygraphy/tools/args/backend/trt/loader.py and backend/trt/loader.py (PostprocessNetwork).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes
from parityscope.repairs.settings._tensorrt import NUMPY, REMOVED, precision_function

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

_SCRIPT = '''"""Precisions of layers, for Polygraphy:

polygraphy run MODEL.onnx --trt {flag} --precision-constraints obey --trt-network-postprocess-script {filename}

{removed}
"""

import re
import sys


{function}

def postprocess(network):
    """What Polygraphy calls with the parsed network."""
    for name in set_precisions(network):
        print(f"no layer was found for {{name}}", file=sys.stderr)
'''


def _write_polygraphy(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    filename = "precisions.py"
    flag = {"f16": "--fp16", "bf16": "--bf16"}[low]
    nodes = locate_nodes(kept, model)
    text = _SCRIPT.format(filename=filename, removed=REMOVED, flag=flag, function=precision_function(nodes))
    words = ["polygraphy", "convert", "MODEL.onnx", flag, "--precision-constraints", "obey", "--layer-precisions"]
    words += [f"{placed.layer}:{NUMPY[placed.format_name]}" for placed in nodes]
    return Text(kind="polygraphy", filename=filename, text=text, brief=shlex.join([*words, "-o", "ENGINE.plan"]))


EXPORTER = Exporter(name="polygraphy", title="Polygraphy, network postprocessing script", write=_write_polygraphy)
