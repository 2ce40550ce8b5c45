"""The compiled loops with room to work in, or what does the same in numpy: numba is loaded where that pays (`loading`).

Compiled, they hold no lock while they run.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison import _plain_kernel
from parityscope.comparison._bins import BLOCK
from parityscope.loading import pays_to_load

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN_S = 5e-8  # of an element, in numpy: measured, as what follows
_PLAIN_CALL_S = 1e-4

_WORKING = threading.local()


def plain_seconds(numbers: int) -> float:
    """What numpy needs longer than the compiled loops for a block of so many numbers."""
    return _PLAIN_CALL_S + _PLAIN_S * numbers


def measure_block(data: Sequence[np.ndarray], mask: int, at: tuple[int, int], tables: Sequence[np.ndarray]) -> None:
    """`_kernel.measure_block` of `data` (its first four arguments); `at` is (first, inner), `tables` are what it adds to."""
    if not pays_to_load(plain_seconds(data[0].size)):
        _plain_kernel.measure_block(data, mask, at, _check_tables(tables))
        return
    from parityscope.comparison._kernel import measure_block as measure

    held = map(np.ascontiguousarray, data)
    arguments: tuple[Any, ...] = (*held, mask, *at, *_check_tables(tables), *_room_for_block())
    measure(*arguments)


def replay_block(data: Sequence[np.ndarray], at: tuple[int, int], tables: Sequence[np.ndarray]) -> None:
    """`_replay_kernel.replay_block` of `data` (its first three arguments), as `measure_block` here."""
    if not pays_to_load(plain_seconds(data[0].size)):
        _plain_kernel.replay_block(data, at, _check_tables(tables))
        return
    from parityscope.comparison._replay_kernel import replay_block as replay

    held = map(np.ascontiguousarray, data)
    arguments: tuple[Any, ...] = (*held, *at, *_check_tables(tables), *_room_for_block()[:2])
    replay(*arguments)


def _room_for_block() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """This thread's room for a block: float64 and int64, (3, BLOCK); uint32, (BLOCK,)."""
    if not hasattr(_WORKING, "arrays"):
        _WORKING.arrays = np.empty((3, BLOCK)), np.empty((3, BLOCK), np.int64), np.empty(BLOCK, np.uint32)
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = _WORKING.arrays
    return found


def _check_tables(tables: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if not all(table.flags.c_contiguous for table in tables):
        raise ValueError("a kernel's table must be contiguous")
    return tables
