"""What a worker says of a task: what it gave, why it refused, or that it broke, as a kind and bytes."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_DEATHS = 5  # of workers in one task; chosen: by chance alone nobody meets that
_DONE, _REFUSED, _BROKEN = range(3)


def answer_task(do: Callable[[], bytes]) -> tuple[int, bytes]:
    """Does a task; gives the kind of the answer and its bytes, and raises nothing."""
    try:
        return _DONE, do()
    except ParityError as error:
        return _REFUSED, _error_as_bytes(error)
    except MemoryError:
        fix = "take fewer --workers, free some memory, or lower --memory"
        return _REFUSED, _error_as_bytes(ParityError("a worker ran out of memory", fix=fix))
    except BaseException:  # noqa: BLE001 - told by the driver
        return _BROKEN, traceback.format_exc().encode()


def read_answer(kind: int, content: bytes) -> bytes | ParityError:
    """What a task gave, or why it refused.

    Raises:
        RuntimeError: it broke, which is a bug; the text is its traceback.
    """
    if kind == _BROKEN:
        raise RuntimeError(f"a worker broke:\n{content.decode(errors='replace')}")
    if kind == _REFUSED:
        problem, held = json.loads(content)
        return ParityError(problem, **held)
    return content


def lost_too_often(task: int, deaths: int) -> ParityError:
    """What is said of a task whose workers end."""
    return ParityError(
        f"{deaths} workers in a row ended without a word in task {task}",
        fix="run the candidate in a process of its own to see why (isolate=on in its target); where memory is short, take "
        "fewer --workers",
        over=True,
    )


def _error_as_bytes(error: ParityError) -> bytes:
    held = {name: getattr(error, name) for name in ("where", "fix", "failing", "over")}
    return json.dumps([error.problem, held]).encode()
