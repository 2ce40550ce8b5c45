"""What is known of operators: one record each, one file per family, and the questions that others ask of them.

`STANDARD` are those of the ONNX standard, its preview and classical domains with them; `CONTRIBUTED` those that ONNX Runtime
adds. `OPERATORS` are both by name, the standard's where both have one. What an engine makes of an operator stands in the
engine's own profile; what something here computes for one stands where it is computed.
"""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.operators import (
    classical,
    elementwise,
    microsoft,
    movement,
    products,
    quantization,
    reductions,
    signals,
    structure,
)
from parityscope.operators._records import Operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.operators._records import Exactness, Kind, Moves, Trait

__all__ = [
    "CONTRACTIONS",
    "CONTRIBUTED",
    "MOVING",
    "OPERATORS",
    "QUANTIZERS",
    "STANDARD",
    "Operator",
    "base_of",
    "does_multiply",
    "is_quantized",
    "of_exactness",
    "of_kind",
    "operators_that_move",
    "role_of",
    "with_trait",
]

_FAMILIES = (elementwise, movement, products, reductions, quantization, structure, signals, classical)
STANDARD: Mapping[str, Operator] = MappingProxyType({one.name: one for each in _FAMILIES for one in each.OPERATORS})
CONTRIBUTED: Mapping[str, Operator] = MappingProxyType({one.name: one for one in microsoft.OPERATORS})
OPERATORS: Mapping[str, Operator] = MappingProxyType({**CONTRIBUTED, **STANDARD})
# The standard's products of two tensors of floats, one of which is a weight as a rule.
CONTRACTIONS = frozenset(one.name for one in STANDARD.values() if one.kind == "product" and one.multiplies == (0, 1))
# Those that give elements of their first input, wherever they put them; conversions as far as the type holds them.
MOVING = frozenset(one.name for one in STANDARD.values() if one.moves or one.kind == "conversion")


# What goes from numbers to integers with a scale, and back; not the one that finds its scale itself.
QUANTIZERS = frozenset(one.name for one in STANDARD.values() if one.kind == "quantization" and one.inputs)


@functools.cache
def of_kind(*kinds: Kind) -> frozenset[str]:
    """The standard's operators that are functions of these kinds."""
    return frozenset(one.name for one in STANDARD.values() if one.kind in kinds)


@functools.cache
def with_trait(trait: Trait) -> frozenset[str]:
    """All operators with this trait, by name."""
    return frozenset(one.name for one in OPERATORS.values() if trait in one.traits)


@functools.cache
def of_exactness(exactness: Exactness) -> frozenset[str]:
    """The standard's operators that round so in FP32."""
    return frozenset(one.name for one in STANDARD.values() if one.exactness == exactness)


@functools.cache
def operators_that_move(*moves: Moves) -> frozenset[str]:
    """The standard's operators that place the elements of their first input so."""
    return frozenset(one.name for one in STANDARD.values() if one.moves in moves)


def base_of(op_type: str) -> str:
    """The operator that one computes in another form ("FusedConv" is a "Conv"); itself where it is none of those."""
    return (OPERATORS[op_type].base if op_type in OPERATORS else "") or op_type


def is_quantized(op_type: str) -> bool:
    """Whether an operator computes in integers with a scale, goes to them or back, by its name: of any runtime's (QGemm)."""
    return "uantize" in op_type or "Integer" in op_type or (op_type[:1] == "Q" and op_type[1:2].isupper())


def does_multiply(op_type: str, position: int) -> bool:
    """Whether an operator multiplies with, or divides by, its input `position`."""
    positions = OPERATORS[op_type].multiplies if op_type in OPERATORS else ()
    return positions is None or position in positions


def role_of(op_type: str, position: int) -> str:
    """What input `position` of an operator is called: "running variance", "weight", else "constant"."""
    inputs = OPERATORS[op_type].inputs if op_type in OPERATORS else ()
    return inputs[position] if position < len(inputs) else "constant"
