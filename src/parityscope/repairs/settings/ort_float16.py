"""ONNX Runtime's float16 converter: a script with the nodes to leave in FP32.

`onnxruntime.transformers.float16.convert_float_to_float16` leaves the nodes of `node_block_list` alone. Its list of
blocked operators is emptied but for those that have no float16 form, and its clamp of weights to ±65504 and to at
least 5.96e-8 stays: it has no option against that. Nodes of BF16 are not offered: the converter has one type for all.

Source: onnxruntime 1.31, transformers/float16.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._nodes import locate_nodes, refuse_other_formats, split_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

_SCRIPT = '''"""Converts a model to float16 but for some nodes: python {filename} MODEL.onnx TYPED.onnx"""

import sys

import onnx
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

KEPT = [
{kept}
]
HAVE_FLOAT16 = {{"Max", "Min", "TopK", "Upsample"}}  # blocked by default although ONNX defines them


def convert(model, typed):
    """Writes `typed`, with inputs and outputs as they were."""
    blocked = sorted(set(DEFAULT_OP_BLOCK_LIST) - HAVE_FLOAT16)
    converted = convert_float_to_float16(
        onnx.load(model), keep_io_types=True, op_block_list=blocked, node_block_list=KEPT
    )
    onnx.save(converted, typed)


if __name__ == "__main__":
    convert(*sys.argv[1:3])
'''


def _write_ort_float16(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    if low != "f16":
        raise ParityError("ONNX Runtime's converter writes float16 only", fix="write a strongly typed model")
    nodes, notes = split_named(locate_nodes(kept, model))
    refuse_other_formats(nodes, "ONNX Runtime's converter")
    names = "\n".join(f"    {placed.own!r}," for placed in nodes)
    filename = "to_float16.py"
    text = _SCRIPT.format(filename=filename, kept=names)
    kept_names = [placed.own for placed in nodes]
    brief = f"convert_float_to_float16(model, keep_io_types=True, node_block_list={kept_names})"
    return Text(kind="ort-float16", filename=filename, text=text, brief=brief, notes=tuple(notes))


EXPORTER = Exporter(
    name="ort-float16", title="ONNX Runtime's float16 converter, block list", write=_write_ort_float16, formats=("f16",)
)
