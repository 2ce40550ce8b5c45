"""ModelOpt AutoCast: the nodes to leave in FP32, as its command line.

AutoCast takes a node for excluded if a pattern of `--nodes_to_exclude` matches at the beginning of its name
(`re.match`): names are escaped and ended with "$". Its own rules by range stay in force beside that unless their limits
are lifted, as they are here; what it decides by operator and depth of reduction is off by default.

Source: modelopt.onnx.autocast 0.47, __main__.py and nodeclassifier.py.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes, refuse_other_formats, split_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir


def _write_modelopt(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    nodes, notes = split_named(locate_nodes(kept, model))
    refuse_other_formats(nodes, "ModelOpt AutoCast")
    words = ["python", "-m", "modelopt.onnx.autocast", "--onnx_path", "MODEL.onnx", "--output_path", "TYPED.onnx"]
    words += ["--low_precision_type", {"f16": "fp16", "bf16": "bf16"}[low], "--keep_io_types"]
    words += ["--data_max", "inf", "--init_max", "inf"]
    if nodes:
        words += ["--nodes_to_exclude", *(f"{re.escape(placed.own)}$" for placed in nodes)]
    line = shlex.join(words)
    return Text(kind="modelopt", filename="autocast.sh", text=f"{line}\n", brief=line, notes=tuple(notes))


EXPORTER = Exporter(name="modelopt", title="ModelOpt AutoCast, nodes to exclude", write=_write_modelopt)
