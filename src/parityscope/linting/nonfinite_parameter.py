"""A parameter is NaN or infinite in the file.

What goes wrong: training diverged, a conversion overflowed, or a file was damaged: a weight is NaN, and everything that
it reaches is NaN in every format. Infinity is used on purpose as a bound or in a mask (RNG104); anywhere else it is
damage, or the trace of an earlier conversion to FP16.

How it shows: the FP32 reference itself gives NaN or Inf.

How we test for it: every float constant is read. NaN in one that a node computes with is a cause. Infinity contributes
unless it stands for a bound.

What it is confused with: overflow in the deployment; here the reference is broken already.

How to repair: export again from a sound checkpoint.

Sources: IEEE 754-2019, section 6.2 (NaN propagates).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._masks import is_mask
from parityscope.linting._telling import make_finding, offer_by_hand
from parityscope.linting._walk import CHOOSE_ELEMENTS, HOST, computing_readers, stands_for_a_bound
from parityscope.operators import role_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import FileConstant, Sheet
    from parityscope.records import Finding, Role

# Operators that may take one on purpose: they choose, fill or compare.
_CHOOSES = CHOOSE_ELEMENTS | {"IsInf", "IsNaN"}


def _look(sheet: Sheet) -> Iterator[Finding]:
    for constant in sheet.constants:
        if not (constant.numbers.nan or constant.numbers.infinite):
            continue
        held = [(node, at) for node, at in computing_readers(constant.value) if not _is_on_purpose(constant, node, at)]
        if held:
            yield _show_finding(sheet, constant, held)


def _is_on_purpose(constant: FileConstant, node: ir.Node, position: int) -> bool:
    if node.op_type in _CHOOSES:
        return True
    if constant.numbers.nan:
        return False
    bounded = (node.op_type, position) in HOST or stands_for_a_bound(node, position)
    return bounded or is_mask(constant, node, position)


def _show_finding(sheet: Sheet, constant: FileConstant, held: list[tuple[ir.Node, int]]) -> Finding:
    node, position = held[0]
    first = sheet.place(node)
    role: Role = "cause" if constant.numbers.nan else "contributing"
    counted = [(constant.numbers.nan, "NaN"), (constant.numbers.infinite, "infinite")]
    what = " and ".join(f"{count:,} {word}" for count, word in counted if count)
    return make_finding(
        role,
        f"{node.op_type} {first.name} reads {role_of(node.op_type, position)} {constant.name!r}, which holds {what} of "
        f"{constant.size:,} elements",
        because=f"{constant.name} was read",
        places=list(dict.fromkeys(sheet.place(each) for each, _ in held)),
        details={
            "parameter": constant.name,
            "inside": constant.inside,
            "nan": constant.numbers.nan,
            "infinite": constant.numbers.infinite,
            "elements": constant.size,
        },
        repairs=(
            offer_by_hand("export_again", "export the model again from a checkpoint whose parameters are finite"),
        ),
    )


_MATMUL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, w) }"""
_BOUND = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2] x) => (float[1,2] y) { y = Max(x, w) }"""


def _weight_with(value: float) -> dict[str, np.ndarray]:
    return {"w": np.array([[1, value], [0, 1]], np.float32)}


RULE = Rule(
    code="RNG108",
    title="A parameter is NaN or infinite",
    look=_look,
    holds=(
        RuleExample(model=_MATMUL, constants=_weight_with(np.nan), role="cause", node="MatMul#0"),
        RuleExample(model=_MATMUL, constants=_weight_with(np.inf), role="contributing"),
    ),
    holds_not=(
        RuleExample(model=_MATMUL, constants=_weight_with(70000.0)),
        RuleExample(model=_BOUND, constants={"w": np.array(-np.inf, np.float32)}),
    ),
)
