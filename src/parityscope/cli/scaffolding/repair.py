"""Square by multiplication.

What it changes: Pow(x, 2) becomes Mul(x, x).

Why it repairs: runtimes compute Pow by logarithms, which lose digits, or in a lower precision than Mul.

Risk: none to the function; the result of Mul is the correctly rounded square.

How to undo: keep the original file; the repair only ever writes a copy.

Source: the definitions of Pow and Mul in the ONNX operator specification.

Fill in: what your repair changes, why that helps, and what may go wrong; then `_apply_repair`. It edits a fresh graph
in place for one finding and says what it did, or gives None where it cannot be applied, and then nothing may be
changed. A check offers it by its name: `OfferedRepair(repair="scaffold_name", ...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import constant_value, node_name
from parityscope.repairs import Repair

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    wanted = finding.details.get("node")
    computing = [node for node in model.graph if node.op_type != "Constant"]
    for index, node in enumerate(computing):
        if node.op_type == "Pow" and node_name(node, index) == wanted and _is_two(node):
            node.op_type = "Mul"
            node.replace_input_with(1, node.inputs[0])
            return f"{wanted} multiplies its input by itself"
    return None


def _is_two(node: ir.Node) -> bool:
    exponent = constant_value(node.inputs[1])
    # An exponent of another rank than the base could change the shape of the result.
    return exponent is not None and not exponent.shape.dims and bool(np.all(exponent.numpy() == 2))


REPAIR = Repair(
    name="scaffold_name",
    title="Square by multiplication",
    risk="none: the same function",
    apply=_apply_repair,
)
