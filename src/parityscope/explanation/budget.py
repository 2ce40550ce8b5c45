"""What may be spent on one region: seconds that are estimated from its size and not measured.

A clock would make the verdict depend on how busy the machine is. Instead every evaluation of a region is charged what it
takes on one core of a slow server (constants measured on one, rounded up), so the same search is made everywhere.
What could not be paid for is counted, and becomes a `Skip`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.arithmetic.sites import PRODUCTS
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import onnx_ir as ir

__all__ = ["RegionPrice", "TimeBudget", "price_region"]

_CALL = 1e-4  # seconds: one node's session
_ELEMENT = 1e-8  # one element that a node reads, or that is rounded
_PRODUCT = 3e-10  # one multiplication and addition in FP32
_WEIGHED = 8e-8  # one element of the output: regression, floor, ties
_ADDED = 4e-8  # one term of a sum that is rounded after every 1, 4, 8 or 16 terms, in numpy, on average
_DRAWS = 11  # evaluations that a floor of its own takes


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPrice:
    """Estimated seconds: of computing a region once, of holding a result against the candidate, of adding up term by term."""

    evaluation: float
    weighing: float
    accumulation: float

    @property
    def settling(self) -> float:
        """Of a floor of its own for a claim, and holding the claim against it."""
        return _DRAWS * self.evaluation + self.weighing


@dataclass(slots=True, kw_only=True)
class TimeBudget:
    """Seconds left, and what was not tried for want of them (by title)."""

    left: float
    refused: Counter[str] = field(default_factory=Counter)

    def pay(self, seconds: float, title: str) -> bool:
        """Takes the price of trying something called `title`; False, and nothing taken, where it is too much."""
        if seconds > self.left:
            self.refused[title] += 1
            return False
        self.left -= seconds
        return True

    def skips(self) -> list[Skip]:
        """What was refused."""
        reason = "the budget of this region is spent (Options.seconds)"
        return [
            Skip(what=f"{title}: {count} variant{'' if count == 1 else 's'}", reason=reason)
            for title, count in self.refused.items()
        ]


def price_region(model: ir.Model, known: Mapping[str, np.ndarray]) -> RegionPrice:
    """The prices of a region, all of whose values are `known`: arrays by name, of which the sizes alone count."""
    once = terms = 0.0
    for node in model.graph:
        read = [known[str(value.name)] for value in node.inputs if value is not None and str(value.name) in known]
        made = sum(known[str(value.name)].size for value in node.outputs if str(value.name) in known)
        once += _CALL + _ELEMENT * (made + sum(each.size for each in read))
        if node.op_type in PRODUCTS and len(read) > 1:
            terms += made * _sum_length(node, read)
    out = known[str(model.graph.outputs[0].name)].size
    return RegionPrice(evaluation=once + _PRODUCT * terms, weighing=_WEIGHED * out, accumulation=_ADDED * terms)


def _sum_length(node: ir.Node, read: list[np.ndarray]) -> float:
    """Terms of one sum; at least so many where the operator is not one of the usual ones."""
    if "Conv" in node.op_type:
        return float(read[1].size / max(1, read[1].shape[0]))
    return float(read[0].shape[-1]) if read[0].ndim else 1.0
