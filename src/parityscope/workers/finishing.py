"""All tasks in the order of their numbers, each done once: what is finished is written whole under its number.

The folder is what a driver that died leaves: the next one does what is missing. A file that a power cut left in part is not
whole, and its task is done again. Without a folder all is held in memory until its turn comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.whole_files import write_whole
from parityscope.workers.packing import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

TASKS = "tasks-"  # what folders of finished tasks are called by


def finish_tasks(
    run: Callable[[Sequence[int]], Iterator[tuple[int, bytes | ParityError]]],
    count: int,
    folder: Path | None,
    tell: Callable[[int], None],
) -> Generator[bytes]:
    """What the tasks from 0 to `count` give, in this order; `tell` is called with how many are done, whenever it is one more.

    `run` does the tasks of the numbers that it is given, and gives what each gave, or why it has none, as they end.

    Raises:
        ParityError: a task gave an error, and all before it were handed on; or what was done cannot be written.
    """
    done = finished_tasks(folder)
    left = [number for number in range(count) if number not in done]
    known: dict[int, bytes | ParityError] = {}
    ended = 0
    tell(count - len(left))
    answers = run(left) if left else iter(())
    turn = 0
    try:
        while turn < count:
            while turn not in known and turn not in done:
                number, answer = next(answers)
                ended += 1
                tell(count - len(left) + ended)
                if folder is None or isinstance(answer, ParityError):
                    known[number] = answer
                elif number not in done:
                    _write_task(folder, number, answer)
                    done.add(number)
            answer = known.pop(turn) if turn in known else _task_path(folder, turn).read_bytes()
            if isinstance(answer, ParityError):
                raise answer
            yield answer
            turn += 1
    finally:
        if hasattr(answers, "close"):
            answers.close()


def finished_tasks(folder: Path | None) -> set[int]:
    """The numbers of the tasks that are whole in a folder, which is made if it is not there."""
    if folder is None:
        return set()
    folder.mkdir(parents=True, exist_ok=True)
    found = set()
    for path in folder.iterdir():
        if path.name.isdecimal():
            if is_whole(path.read_bytes()):
                found.add(int(path.name))
            else:
                path.unlink()
    return found


def _task_path(folder: Path | None, number: int) -> Path:
    assert folder is not None  # noqa: S101 - what is done and not in memory was written
    return folder / f"{number:09d}"


def _write_task(folder: Path, number: int, answer: bytes) -> None:
    try:
        write_whole(_task_path(folder, number), answer)
    except OSError as error:
        raise ParityError(
            f"what a worker found cannot be written: {error.strerror}",
            where=str(folder),
            fix="free some space; the same command with the same --study goes on with what was written",
        ) from error
