"""Which recording belongs to which sample: by name where both sides have names, else by position.

In: the names of a recording's files, and one sample at a time. Out: the position of the recording that belongs to it.

* A sample that was read from a file of its own is called like it, and so is its recording: `cat.jpg` and `cat.npz`.
  Suffixes do not count, and numbers are compared as numbers (`7.npz` and `0000000007.json`).
* Where the recorded files are numbered and the sample has no number (`cat.jpg`, row 3 of an array, what a loader
  yields), the number is the sample's place in the data, counted from 0 as the recorder and `command` count.
* Where one side has no names (one file that holds many samples), recording i belongs to sample i.
* Where `pair=rows` says so the outputs of all samples, one after the other, are the rows of one recording.

So a file that is missing on one side is an error that names it, and shifts nothing behind it.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.case import Sample
    from parityscope.case.formats import Stored

# How samples are called that have no file of their own (the labels that `case.formats` and `case.generated` give).
ROWS = "rows"  # of `pair`: what one recording holds along its first axis
_IN_WORDS = re.compile(r"(?:(?:row|sample|iteration) \d+ of .*|generated \d+)", re.DOTALL)


def match_recordings(stored: Stored, files: Sequence[str], pair: str) -> Callable[[Sample], int]:
    """The function from a sample to the position of its recording; it raises ParityError where there is none.

    Args:
        stored: The recording.
        files: The name of each recording's own file; none where one file holds them all.
        pair: "name" (where there are names), "order", or "rows": all samples are rows of one recording.

    Raises:
        ParityError: `pair` is none of them, or rows are asked of several recordings.
    """
    if pair not in {"name", "order", ROWS}:
        raise ParityError(f"pair={pair!r} is not known", fix="use pair=name|order|rows")
    if pair == ROWS:
        if len(stored.labels) != 1:
            problem = f"pair=rows reads samples from the rows of one recording, and there are {len(stored.labels)}"
            raise ParityError(problem, where=stored.origin, fix="leave it out, or give the file that holds the rows")
        return lambda _sample: 0
    return _match_by_name(stored, files) if files and pair == "name" else _match_by_position(stored)


def _match_by_position(stored: Stored) -> Callable[[Sample], int]:

    def match(sample: Sample) -> int:
        if not 0 <= sample.index < len(stored.labels):
            raise _missing_recording_error(sample, stored, "")
        return sample.index

    return match


def _match_by_name(stored: Stored, files: Sequence[str]) -> Callable[[Sample], int]:
    stems = {PurePath(file).stem: position for position, file in enumerate(files)}
    numbers = {int(stem): position for stem, position in stems.items() if _is_number(stem)}
    numbered = len(numbers) == len(files)  # no other names, and no two that are one number
    by_position = _match_by_position(stored)
    taken: dict[int, Sample] = {}

    def match(sample: Sample) -> int:
        stem = "" if _IN_WORDS.fullmatch(sample.name) else PurePath(sample.name).stem
        if stem in stems:
            position: int | None = stems[stem]
        elif numbered:
            wanted = int(stem) if _is_number(stem) else sample.index
            position = numbers.get(wanted)
            width = max(len(PurePath(file).stem) for file in files)
            stem = f"{wanted:0{width}d}"
        elif stem:
            position = None
        else:
            return by_position(sample)
        if position is None:
            raise _missing_recording_error(sample, stored, stem)
        first = taken.setdefault(position, sample)
        if first.index != sample.index:
            raise ParityError(
                f"samples {first.name} and {sample.name} both belong to the recording {files[position]}",
                where=stored.origin,
                fix="give every sample a name of its own",
            )
        return position

    return match


def _missing_recording_error(sample: Sample, stored: Stored, name: str) -> ParityError:
    count = len(stored.labels)
    ways = ["record it"]
    if count == 1:
        ways.append("if its arrays hold a row for each sample, in their order, add &pair=rows")
    if sample.index > 0:
        ways.append(f"judge only the samples before it: --samples {sample.index}")
    if name:
        ways.append("or, if recordings and samples do stand in the same order, add &pair=order")
    called = f", and none of its files is called {name!r}" if name else ""
    return ParityError(
        f"sample {sample.name} was not recorded: the recording holds {count}{called}",
        where=stored.origin,
        fix="; ".join(ways),
    )


def _is_number(stem: str) -> bool:
    return stem.isascii() and stem.isdigit()
