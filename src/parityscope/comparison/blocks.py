"""The compiled loops with room to work in; numba and what it compiled are loaded where that pays (`loading`)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from parityscope.comparison import _plain_kernel
from parityscope.comparison._bins import BLOCK
from parityscope.loading import pays_to_load

__all__ = ["measure_block", "replay_block"]

_PLAIN_S = 5e-8  # of an element, in numpy: measured, as what follows
_PLAIN_CALL_S = 1e-4

_WORKING = threading.local()


def measure_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    reference_keys: np.ndarray,
    candidate_keys: np.ndarray,
    mask: int,
    first: int,
    inner: int,
    *tables: np.ndarray,
) -> None:
    """`_kernel.measure_block`, which says what the arguments are; compiled, it holds no lock while it runs."""
    if not pays_to_load(_PLAIN_CALL_S + _PLAIN_S * reference.size):
        _plain_kernel.measure_block(
            reference, candidate, reference_keys, candidate_keys, mask, first, inner, *_check_tables(tables)
        )
        return
    from parityscope.comparison._kernel import measure_block as measure

    data = map(np.ascontiguousarray, (reference, candidate, reference_keys, candidate_keys))
    arguments: tuple[Any, ...] = (*data, mask, first, inner, *_check_tables(tables), *_room_for_block())
    measure(*arguments)


def replay_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    first: int,
    inner: int,
    *tables: np.ndarray,
) -> None:
    """`_replay_kernel.replay_block`, which says what the arguments are; it holds no lock while it runs."""
    if not pays_to_load(_PLAIN_CALL_S + _PLAIN_S * reference.size):
        _plain_kernel.replay_block(reference, candidate, replayed, first, inner, *_check_tables(tables))
        return
    from parityscope.comparison._replay_kernel import replay_block as replay

    data = map(np.ascontiguousarray, (reference, candidate, replayed))
    arguments: tuple[Any, ...] = (*data, first, inner, *_check_tables(tables), *_room_for_block()[:2])
    replay(*arguments)


def _room_for_block() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """This thread's room for a block: float64 and int64, (3, BLOCK); uint32, (BLOCK,)."""
    if not hasattr(_WORKING, "arrays"):
        _WORKING.arrays = np.empty((3, BLOCK)), np.empty((3, BLOCK), np.int64), np.empty(BLOCK, np.uint32)
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = _WORKING.arrays
    return found


def _check_tables(tables: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    if not all(table.flags.c_contiguous for table in tables):
        raise ValueError("a kernel's table must be contiguous")
    return tables
