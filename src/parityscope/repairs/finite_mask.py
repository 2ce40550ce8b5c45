"""Clamp a constant that stands for infinity to a number that the format holds.

What it changes: -1e9, -3.4e38 or -infinity in an attention mask becomes -10,000, which FP16, BF16 and FP32 hold (a mask
for a smaller format: half of its largest number). Scalars, tables, the value of a ConstantOfShape and a factor that
(1 - mask) is multiplied by are all covered, and so is every constant that the mask is chosen or added from.

Why it changes nothing: Softmax gives exp(score - maximum). With a masked element that is at least 104 below the maximum
exp is 0 in FP32 (its smallest number is 2^-149 = exp(-103.3)), for -10,000 as for -1e9, unless scores are themselves
thousands apart. Only rows that are masked as a whole differ: there -infinity gives NaN, and a finite mask gives
weights.

Why it repairs: -1e9 becomes -infinity in FP16, and then 0 * -infinity (a mask made by multiplication) and
-infinity - -infinity (a row that is masked as a whole) are NaN.

Risk: none as long as scores stay within +-5,000; a mask of -infinity that is meant to give NaN no longer does.

Cost: none.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" or "nodes" (or its site): the readers or makers of the constant; "parameter" (its
name; else every constant of these nodes that stands for infinity), "format" (default f16).

Sources: Vaswani et al., "Attention Is All You Need", 2017, section 3.2.3; IEEE 754-2019, sections 7.2 and 7.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import set_input
from parityscope.operators import MOVING, of_kind, with_trait
from parityscope.repairs import Repair
from parityscope.repairs._editing import array_of, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding

_MASK = 1e4  # BERT's; exp(-1e4) is 0 in every format, and every 16-bit format holds the number
_REACH = 16  # nodes on the way to a Softmax: an exported mask takes up to ten. Chosen, as in the rule that finds masks
_MAKE = MOVING | {"ConstantOfShape", "Trilu"}
_INTO = (
    _MAKE
    | with_trait("affine")
    | (with_trait("chooses elements") - {"OneHot"})
    | {"Sum", "Neg"}
    | {"Max", "Min"}
    | {"Dropout"}
)
_IGNORE = (of_kind("softmax") - {"Hardmax"}) | {"Attention"} | {"ArgMax", "ReduceMax"}


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    number_format = format_named(str(finding.details.get("format", "f16")))
    limit = min(_MASK, number_format.largest / 2)
    notes = []
    for node in _nodes_with_makers(nodes_of(model, finding)):
        if not _leads_to_softmax(node):
            continue
        for position, name, array in _float_constants(node, finding):
            clamped = _clamp_mask(array, number_format, limit)
            if clamped is None:
                continue
            if position < 0:
                _set_value(node, clamped)
            else:
                set_input(model, node, position, clamped, f"{name}::finite")
            notes.append(f"{name} = {float(array.min()):.3g} became {float(clamped.min()):.6g}")
    return "; ".join(notes) or None


def _nodes_with_makers(nodes: list[ir.Node]) -> list[ir.Node]:
    """The nodes, and those before them that only move elements of a mask, or fill it."""
    found = dict.fromkeys(nodes)
    waiting = list(nodes)
    while waiting:
        sources = [value.producer() for value in waiting.pop().inputs if value is not None]
        fresh = [node for node in sources if node is not None and node.op_type in _MAKE and node not in found]
        found.update(dict.fromkeys(fresh))
        waiting.extend(fresh)
    return list(found)


def _float_constants(node: ir.Node, finding: Finding) -> Iterator[tuple[int, str, np.ndarray]]:
    """The float constants of a node: (position of the input, or -1 for the value it fills with; name; elements)."""
    wanted = finding.details.get("parameter")
    if node.op_type == "ConstantOfShape" and "value" in node.attributes:
        filling = np.asarray(node.attributes["value"].as_tensor().numpy())
        if filling.dtype.kind in "fV":
            yield -1, str(node.outputs[0].name), filling
        return
    for position, value in enumerate(node.inputs):
        array = array_of(value)
        if value is not None and array is not None and array.dtype.kind in "fV" and wanted in {None, value.name}:
            yield position, str(value.name), array


def _clamp_mask(array: np.ndarray, number_format: Format, limit: float) -> np.ndarray | None:
    """The array with its huge negative numbers replaced by -limit; None where it is no mask or fits already.

    A mask holds huge numbers of one sign, and beside them only 0 and 1.
    """
    wide = array.astype(np.float64)
    huge = ~(np.abs(wide) <= number_format.largest)
    if not huge.any() or np.isnan(wide).any() or not np.isin(np.unique(wide[~huge]), (0.0, 1.0)).all():
        return None
    if len(np.unique(np.sign(wide[huge]))) != 1:
        return None
    return np.where(huge, np.sign(wide) * limit, wide).astype(array.dtype).reshape(array.shape)


def _leads_to_softmax(node: ir.Node) -> bool:
    """Whether what the node makes ends, past what only moves, adds or chooses elements, where small ones are ignored."""
    if node.op_type not in _INTO or node.domain:
        return False
    frontier, seen = list(node.outputs), set(node.outputs)
    for _ in range(_REACH):
        users = [user for value in frontier for user, _ in value.uses()]
        if any(user.op_type in _IGNORE for user in users):
            return True
        frontier = [value for user in users if user.op_type in _INTO for value in user.outputs if value not in seen]
        seen.update(frontier)
    return False


def _set_value(node: ir.Node, array: np.ndarray) -> None:
    import onnx_ir as ir

    node.attributes["value"] = ir.AttrTensor("value", ir.tensor(array))


REPAIR = Repair(
    name="finite_mask",
    title="Clamp a constant that stands for infinity to a number that the format holds",
    risk="none while attention scores stay within +-5,000; rows that are masked as a whole give weights, not NaN",
    apply=_apply_repair,
)
