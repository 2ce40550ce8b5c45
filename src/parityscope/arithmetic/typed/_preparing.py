"""A copy of a model in the form that can be typed: functions inlined, types known, an opset that has the formats.

bfloat16 exists from opset 13 on, and for convolutions, pooling and recurrent operators from opset 22 on; float8 from
opset 19 on. A model is converted up to what its own operators need, and no further; IR version and opset stay what they
are otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx_ir.passes import common

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import prepare_copy
from parityscope.arithmetic.standard import opset_of, schema_of
from parityscope.arithmetic.typed.eighths import OPSET
from parityscope.errors import ParityError
from parityscope.operators import QUANTIZERS
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

_BF16_OPSETS = (13, 22)  # the first with a Cast to bfloat16, and the first in which most operators take it
_FREE_INITIALIZERS = 4  # the first IR version whose initializers need not be inputs


def typable_copy(model: ir.Model, formats: Collection[str]) -> tuple[ir.Model, list[Skip]]:
    """The copy, its types inferred, and what had to be changed about it.

    Raises:
        ParityError: the opset is too old for a format and cannot be converted up.
    """
    model.graph.sort()
    opset = opset_of(model)
    wanted = _opset_needed(model, opset) if "bf16" in formats else opset
    wanted = max(wanted, OPSET) if "f8e4m3" in formats else wanted
    notes = []
    if wanted > opset:
        copy, note = _convert_copy(model, opset, wanted, needed=OPSET if "f8e4m3" in formats else _BF16_OPSETS[0])
        notes.append(note)
    else:
        copy = model.clone()
    if copy.functions:
        copy = common.InlinePass()(copy).model
        notes.append(Skip(what="the model's functions", reason="inlined: their nodes may be of different formats"))
    version = copy.ir_version or 0
    if version < _FREE_INITIALIZERS:
        copy = common.RemoveInitializersFromInputsPass()(copy).model
        copy.ir_version = _FREE_INITIALIZERS
        reason = f"raised from {version} to {_FREE_INITIALIZERS}: before, every initializer had to be an input too"
        notes.append(Skip(what="the IR version", reason=reason))
    copy.graph.sort()
    infer_types(copy)
    return copy, notes


def _opset_needed(model: ir.Model, opset: int) -> int:
    """The first opset that has bfloat16 for all operators of a model that some opset has it for."""
    first, most = _BF16_OPSETS
    if opset < most and any(
        not _has_bfloat16(node, max(opset, first)) and _has_bfloat16(node, most) for node in model.graph.all_nodes()
    ):
        return most
    return max(opset, first)


def _has_bfloat16(node: ir.Node, opset: int) -> bool:
    schema = schema_of(node, {"": opset})
    # Up to opset 22 their data has the type of their scale, which stays exact; ONNX Runtime 1.31 reads it so at 23 as well.
    kinds = [] if schema is None or node.op_type in QUANTIZERS else schema.type_constraints
    return any("tensor(bfloat16)" in each.allowed_type_strs for each in kinds)


def _convert_copy(model: ir.Model, opset: int, wanted: int, needed: int) -> tuple[ir.Model, Skip]:
    version = model.ir_version or 0
    what = f"opset {opset}"
    try:
        copy = prepare_copy(model, wanted)
    except ParityError as refusal:
        if opset < needed:
            raise
        return model.clone(), Skip(what=what, reason=f"some of its operators have no bfloat16, and {refusal.problem}")
    least = onnx.helper.OP_SET_ID_VERSION_MAP[("ai.onnx", wanted)]
    copy.ir_version = max(version, least)
    formats = "bfloat16 for the model's operators" if needed != OPSET else "float8"
    return copy, Skip(what=what, reason=f"converted up to {wanted}, the first with {formats}")
