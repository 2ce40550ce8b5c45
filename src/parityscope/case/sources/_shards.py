"""Several files of rows as one sequence: each is read from front to back, from where it is asked for, one open at a time."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from parityscope.case.formats import Streamed, UnreadableError
from parityscope.case.sources import Indexed
from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from pathlib import Path


_forks = [0]  # that lie between this process and the first one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(_forks.pop() + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A file of `count` samples: `rows(start)` gives those from `start` on, `label(row)` is what a reader knows one by.

    `short` says why less is read than should be there ("": nothing is missing).
    """

    count: int
    rows: Callable[[int], Iterator[Streamed]]
    label: Callable[[int], str]
    short: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Labels(Sequence[str]):
    """The labels of shards, made when they are asked for: nothing is kept of a sample that is not read."""

    shards: Sequence[Shard]
    starts: Sequence[int]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - a sequence's two signatures
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        place = bisect.bisect_right(self.starts, index) - 1
        return self.shards[place].label(index - self.starts[place])


def index_shards(
    paths: Sequence[Path], open_shard: Callable[[Path], Shard], origin: str, *, prepared: bool = False
) -> Indexed:
    """The samples of all files in order; a file that cannot be opened is lost, and so is what is missing at the end of one.

    Raises:
        UnreadableError: no file can be opened.
    """
    shards: list[Shard] = []
    lost: list[Skip] = []
    for path in paths:
        try:
            shard = open_shard(path)
        except UnreadableError as error:
            if len(paths) == 1:
                raise
            lost.append(_skip_shard(path, error.problem))
            continue
        shards.append(shard)
        if shard.short:
            lost.append(_skip_shard(path, shard.short))
    starts = [0]
    for shard in shards:
        starts.append(starts[-1] + shard.count)
    return Indexed(
        origin=origin,
        labels=Labels(shards, starts),
        read=_make_reader(shards, starts),
        prepared=prepared,
        shards=len(paths),
        lost=tuple(lost),
    )


def _skip_shard(path: Path, reason: str) -> Skip:
    return Skip(what=f"shard {path.name}", reason=reason, fix="write it again, or leave it out", asked=True)


def _make_reader(shards: Sequence[Shard], starts: Sequence[int]) -> Callable[[int], Streamed]:
    """Reads forward in the shard that is open; a jump opens one anew.

    So does another process: a place in a file that was opened before it was forked is its parent's, too.
    """
    rows: Iterator[Streamed] = iter(())
    following = -1
    opened_by = _forks[0]

    def read(index: int) -> Streamed:
        nonlocal rows, following, opened_by
        place = bisect.bisect_right(starts, index) - 1
        if index != following or index == starts[place] or opened_by != _forks[0]:
            opened_by = _forks[0]
            rows = shards[place].rows(index - starts[place])
        following = -1  # behind an error nothing is known of where the file is
        found = next(rows)
        following = index + 1
        return found

    return read
