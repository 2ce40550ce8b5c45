"""Which operators stand in front of a step: what a fusion's rule is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from parityscope.evaluation.program import Program, ProgramStep

__all__ = ["operators_in_front"]

# Operators that hand on what they read, so that what stands before them is what is fused.
_HANDED_ON = operators_that_move("in order", "permuted") | {"BatchNormalization"}
_IN_FRONT = 4  # steps: a product, a bias and a normalization, or a movement; chosen


def operators_in_front(program: Program, step: ProgramStep) -> str:
    """As words behind an operator: " behind Conv", " behind MatMul, Add", or "" where it reads an input."""
    seen: list[str] = []
    current = step
    for _ in range(_IN_FRONT):
        above = program.steps_of.get(current.inputs[0]) if current.inputs else None
        if above is None:
            break
        current = above
        if current.op_type not in _HANDED_ON:
            seen.insert(0, current.op_type)
        if current.op_type not in {"Add", *_HANDED_ON}:
            break
    return f" behind {', '.join(seen)}" if seen else ""
