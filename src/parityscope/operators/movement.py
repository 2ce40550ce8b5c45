"""Operators that move, copy, pick, join or convert elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators._records import Operator

if TYPE_CHECKING:
    from parityscope.operators._records import Moves, Positions, Trait

__all__ = ["OPERATORS"]


def _mover(
    name: str,
    moves: Moves,
    *inputs: str,
    scales_with: Positions = (0,),
    traits: tuple[Trait, ...] = (),
    computes_with: tuple[str, ...] = (),
) -> Operator:
    """An operator that gives elements of its inputs as they are; `moves` says how it places them."""
    return Operator(
        name,
        "movement",
        inputs=inputs,
        moves=moves,
        computes_with=computes_with,
        scales_with=scales_with,
        exactness="exact",
        traits=("keeps elements", *traits),
    )


OPERATORS = (
    _mover("CenterCropPad", "", "input", "shape"),
    _mover("Compress", "picked"),
    _mover("Concat", "", scales_with=None, traits=("chooses elements",)),
    _mover("DepthToSpace", "permuted"),
    _mover("Expand", "repeated", "input", "shape"),
    _mover("Flatten", "in order"),
    _mover("Gather", "picked", "table", "indices"),
    _mover("GatherElements", "picked", "input", "indices"),
    _mover("GatherND", "picked", "input", "indices"),
    _mover("Identity", "in order", traits=("passes on", "computes nothing")),
    _mover(
        "Pad",
        "",
        "input",
        "padding",
        "padding value",
        "axes",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("value",),
    ),
    _mover("Reshape", "in order", "input", "shape"),
    _mover("ReverseSequence", "permuted"),
    Operator("Scatter", "movement", exactness="exact"),
    _mover(
        "ScatterElements",
        "",
        "input",
        "indices",
        "updates",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("reduction",),
    ),
    _mover(
        "ScatterND",
        "",
        "input",
        "indices",
        "updates",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("reduction",),
    ),
    _mover("Slice", "picked", "input", "starts", "ends", "axes", "steps"),
    _mover("SpaceToDepth", "permuted"),
    _mover("Split", "picked", "input", "sizes"),
    _mover("Squeeze", "in order", "input", "axes"),
    Operator("TensorScatter", "movement", exactness="exact"),
    _mover("Tile", "repeated", "input", "repeats"),
    _mover("Transpose", "permuted"),
    _mover("Trilu", "", "input", "diagonal"),
    _mover("Unsqueeze", "in order", "input", "axes"),
    Operator("Cast", "conversion", exactness="exact", traits=("passes on", "computes nothing"), typed_by="to"),
    Operator("CastLike", "conversion", exactness="exact", traits=("passes on", "computes nothing")),
    Operator("BitCast", "other", exactness="exact", typed_by="to"),
)
