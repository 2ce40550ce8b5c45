"""Raise an epsilon that vanishes to the smallest normal number of the format.

What it changes: the constant that is added to, or bounds, a value before a division, a logarithm or a root: log(p + 1e-10)
becomes log(p + 6.1e-5) for FP16. The function changes, so this is applied only when the reader agrees.

Why it repairs: in FP16 what is at most 3e-8 becomes zero and guards nothing, and what is below 6.1e-5 loses digits.

Risk: the function changes wherever the guarded value is not large beside the new epsilon; a task metric has to show that
it does not matter.

Cost: none.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site), "parameter" (the name of the constant; else every small constant of
the node), "format" (default f16), and "consents" with "raise_epsilon" in it.

Source: IEEE 754-2019, section 7.5 (underflow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import set_input
from parityscope.operators import with_trait
from parityscope.repairs import Repair
from parityscope.repairs._editing import array_of, has_consent, nodes_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding

_NAME = "raise_epsilon"
_GUARDS = with_trait("guards")


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    if not has_consent(finding, _NAME):
        return None
    smallest = format_named(str(finding.details.get("format", "f16"))).smallest_normal
    notes = []
    for node in nodes_of(model, finding):
        for position, value in enumerate(node.inputs if node.op_type in _GUARDS else ()):
            array = array_of(value)
            if value is None or array is None or finding.details.get("parameter", value.name) != value.name:
                continue
            raised = _raise_array(array, smallest)
            if raised is not None:
                set_input(model, node, position, raised, f"{value.name}::raised")
                notes.append(f"{value.name} is raised from {float(array.min()):.3g} to {smallest:.3g}")
    return "; ".join(notes) or None


def _raise_array(array: np.ndarray, smallest: float) -> np.ndarray | None:
    """The array with every element below `smallest` raised to it; None for what is no epsilon."""
    if array.dtype.kind not in "fV" or array.size == 0:
        return None
    wide = array.astype(np.float64)
    if not (wide > 0).all() or wide.min() >= smallest:
        return None
    return np.maximum(wide, smallest).astype(array.dtype)


REPAIR = Repair(
    name=_NAME,
    title="Raise an epsilon that vanishes to the smallest normal number of the format",
    risk="the function changes where the guarded value is small: measure the task metric",
    consent="the model's function changes where the guarded value is not large beside the new epsilon",
    apply=_apply_repair,
)
