"""What the operator `Chain` is to do: pointwise nodes of both sides, computed and measured block by block in the cache.

A program is int64: `HEADER` numbers, then `OPERAND` for each operand and `STEP` for each step. A step takes its inputs from
earlier steps (their place) or from operands (`outside` of their place), on the reference's side, on the simulation's, and
on a third that computes f(c_in).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

__all__ = ["HEADER", "INPUTS", "OPERAND", "SLOTS", "STEP", "STEPS", "Code", "Operand", "Step", "outside", "program"]

STEPS, SLOTS = 24, 6  # chosen: the longest chain, and how many results it holds in the cache at once
INPUTS = 9 * STEPS  # at most: each step reads three on three sides
HEADER, OPERAND, STEP = 4, 4, 16  # numbers: of the program; of an operand; of a step
_NO = -1
_MESSAGE = np.frombuffer(b"a tensor has another shape than on the first sample\0", np.uint8)


class Code(IntEnum):
    """What a step computes of its inputs a, b and d; `TAKE` takes a tensor of each side as it is."""

    TAKE = 0
    ADD = 1
    SUB = 2
    FROM = 3  # b - a
    MUL = 4
    DIV = 5
    UNDER = 6  # b / a
    MAX = 7
    MIN = 8
    CLIP = 9  # between b and d
    SCALE = 10  # a b + d, the product rounded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """An input of the operator (`at`), or a constant: float32 numbers that change along one axis at most.

    `trailing` is how many dimensions lie behind that axis; of an input, 1 if it must be as large as the results, else 0.
    """

    at: int = _NO
    constant: np.ndarray | None = None
    trailing: int = 0


@dataclass(slots=True, kw_only=True)
class Step:
    """One tensor. `kept` and `passed` are the outputs of the operator that hold it (-1: none), `slot` its place else.

    `asked` is what f(c_in) is, as `_watching.ASKED` gives it; `row` the address of its accumulators.
    """

    code: Code
    reference: tuple[int, ...]
    candidate: tuple[int, ...]
    replayed: tuple[int, ...] = ()
    rounds: bool
    asked: int
    row: int
    slot: int = _NO
    kept: int = _NO
    passed: int = _NO


def outside(operand: int) -> int:
    """How a step names an operand."""
    return _NO - 1 - operand


def program(operands: list[Operand], steps: list[Step]) -> np.ndarray:
    """The numbers: int64, (n,). The constants must live as long as they are used."""
    numbers = [len(operands), len(steps), 1 + max(max(step.kept, step.passed) for step in steps), _MESSAGE.ctypes.data]
    for each in operands:
        held = each.constant
        numbers += [each.at, 0 if held is None else held.ctypes.data, 0 if held is None else held.size, each.trailing]
    for step in steps:
        numbers += [step.code]
        for side in (step.reference, step.candidate, step.replayed):
            numbers += [*side, *[_NO] * (3 - len(side))]
        numbers += [int(step.rounds), step.asked, step.row, step.slot, step.kept, step.passed]
    return np.array(numbers, np.int64)
