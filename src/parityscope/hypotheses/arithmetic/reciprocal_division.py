"""Division by the reciprocal: x / d was computed as x times the rounded 1 / d.

Compilers do this under fast-math options and kernels do it for constant divisors. In FP32 the product is off by at most
1.5 units in the last place, which mostly stays within the noise floor of a division; where 1 / d itself is rounded to FP16
or BF16 every quotient has the same relative error, up to one unit roundoff of the format.

Sources: NVIDIA PTX ISA, div.approx (a times the reciprocal of b, 2 ulp); J.-M. Muller et al., "Handbook of
Floating-Point Arithmetic", 2nd edition, section 4.7 (division by a constant).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.rounding import round_to
from parityscope.case.graph import constant_input, input_at
from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import output_rounding, rounding_to
from parityscope.hypotheses.arithmetic.edits import insert_before, substitute_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Rewrite

_STORED = ("f16", "bf16")


def _applies_to(_node: ir.Node, graph: ir.Graph) -> bool:
    return any(_is_float_division(node) for node in graph)


def _is_float_division(node: ir.Node) -> bool:
    array = constant_input(node, 1)
    return node.op_type == "Div" and not node.domain and (array is None or array.dtype == np.float32)


def _multiply_by_reciprocal(name: str) -> Rewrite:
    """Every division as a product with the reciprocal; of a computed divisor in FP32, of a constant one in `name`."""

    def rewrite(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
        for node in [each for each in model.graph if _is_float_division(each)]:
            divisor = input_at(node, 1)
            array = constant_input(node, 1)
            if array is None:
                factor = insert_before(node, "Reciprocal", [divisor])
            else:
                with np.errstate(divide="ignore"):
                    inverse = (1.0 / round_to(array, FORMATS[name])).astype(np.float32)
                factor = add_constant(
                    model.graph, round_to(inverse, FORMATS[name]), f"{node.outputs[0].name}::reciprocal"
                )
            substitute_result(node, insert_before(node, "Mul", [node.inputs[0], factor]))
            model.graph.remove(node, safe=True)

    return rewrite


def _list_variants(_node: ir.Node, context: RegionContext) -> Iterator[Variant]:
    divisions = [each for each in context.model.graph if _is_float_division(each)]
    if any(context.value(each.outputs[0]).dtype.name != "float32" for each in divisions):
        return
    yield Variant(words="multiplied by the reciprocal instead of divided", rewrite=_multiply_by_reciprocal("f32"))
    for name in _STORED:
        yield Variant(
            words=f"multiplied by the reciprocal in {FORMATS[name].title} instead of divided",
            rewrite=_multiply_by_reciprocal(name),
            stored=rounding_to(name),
            output=output_rounding(name),
        )


HYPOTHESIS = Hypothesis(
    name="reciprocal_division",
    title="Division by the reciprocal",
    applies=_applies_to,
    variants=_list_variants,
)
