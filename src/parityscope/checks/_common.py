"""What several checks need: constants of a region, explained shares, words for numbers."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import constant_value, node_name
from parityscope.light_dataclasses import dataclass
from parityscope.operators import role_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    import onnx_ir as ir

    from parityscope.examination import Examination
    from parityscope.records import Suspect

# A hypothesis that leaves less than a tenth of the introduced error (in squares) is taken to explain it: the bound of
# the residual regression for outputs that are rounded once more after the operator.
EXPLAINED = 0.9
# Of the confidence in a change that leaves more than rounding: it may stand in for another (chosen); and how that is told.
STANDS_IN = 0.5
# Changes that are named beside one that is the same function: so many, of so many characters. Chosen.
_EQUAL, _SHORT = 2, 60
_TINY_NUMBER = re.compile(r"\b\d+(?:\.\d+)?e-(?:0[5-9]|[1-9]\d)\b")
HALVED = ", halved: what it leaves is more than rounding leaves"
# What stands beside an operator that makes a number of NaN: the NaN is born in front of it, on both sides.
GUARD_NAN = (
    "guard_nan",
    "guard what gives NaN (a root or logarithm of a negative number, 0/0): no activation removes it everywhere",
)
# What stands beside every repair of a loss of range.
WIDER_RANGE = ("wider_range", "run the engine in BF16, whose range is FP32's")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConstant:
    """A parameter that a node of a region reads: its name, its values (float64, any shape) and its reader."""

    name: str
    values: np.ndarray
    dtype: np.dtype[np.generic]
    node: str
    op_type: str
    role: str


# Runs d apart and e from the reference have d^2 / (2 e^2) of the squared error changing: 1/8 where d = e / 2. Below that, what
# stays the same from run to run is nearly the whole error.
_CHANGES = 0.125


def leading_suspects(known: Examination) -> list[Suspect]:
    """The suspects worth an experiment, worst first."""
    from parityscope.localization import leading_suspects  # comparing outputs needs no library of graphs

    return leading_suspects(known.localization)


def constants_of(known: Examination, nodes: Container[str], *, most: float = math.inf) -> Iterator[RegionConstant]:
    """The float constants of at most so many elements that the nodes of these names read."""
    index = -1
    for node in known.graph.graph:
        if node.op_type == "Constant":
            continue
        index += 1  # as in case.graph: Constant nodes do not count
        if node_name(node, index) not in nodes:
            continue
        for position, value in enumerate(node.inputs):
            array = _float_constant(value, most)
            if value is not None and array is not None:
                yield RegionConstant(
                    name=str(value.name),
                    values=array.astype(np.float64),
                    dtype=array.dtype,
                    node=node_name(node, index),
                    op_type=node.op_type,
                    role=role_of(node.op_type, position),
                )


def is_mostly_variation(known: Examination) -> bool:
    """Whether the candidate's own spread is enough to be the cause of its error."""
    return known.compared.changing >= _CHANGES


def _without_tiny_numbers(words: str) -> str:
    return _TINY_NUMBER.sub("0", words)


def say_equal(others: Sequence[str], words: str = "") -> str:
    """What stands behind a change's `words` where others, in these words, are the same function here.

    Those that differ from others in numbers alone, which are nearly zero where those are zero, say nothing more.
    """
    said = {_without_tiny_numbers(words)}
    told = []
    for one in others:
        if len(one) <= _SHORT and (plain := _without_tiny_numbers(one)) not in said:
            said.add(plain)
            told.append(one)
    told = told[:_EQUAL]
    return f" (the same here: {'; '.join(told)})" if told else ""


def format_percent(share: float) -> str:
    """A share as a percentage; what is not finite is said to be that."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else "NaN or infinity"


def _float_constant(value: ir.Value | None, most: float) -> np.ndarray | None:
    tensor = constant_value(value)
    if tensor is None or not tensor.dtype.is_floating_point() or tensor.size > most:
        return None
    return np.asarray(tensor.numpy())
