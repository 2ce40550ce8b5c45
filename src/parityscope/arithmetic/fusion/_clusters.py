"""Layers that a compiler may run as one generated kernel, grown as far as no cycle comes of it (see `fusion/tensorrt.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Clusters:
    """Groups of the layers 0, 1, ... of a graph, each of which reads earlier ones only.

    `reads` gives for each layer those that it reads. Groups are joined as long as no layer outside of the joined group would
    have to run between two of its members.
    """

    def __init__(self, reads: list[tuple[int, ...]]) -> None:
        self._group = list(range(len(reads)))
        self.members = {place: [place] for place in range(len(reads))}
        self._readers: dict[int, set[int]] = {place: set() for place in range(len(reads))}
        for place, each in enumerate(reads):
            for read in each:
                self._readers[read].add(place)

    def of(self, place: int) -> int:
        """The group of a layer, by the number of its first member."""
        return self._group[place]

    def join(self, first: int, second: int) -> bool:
        """Joins the groups of two layers; whether they are one now."""
        one, other = sorted((self.of(first), self.of(second)))
        if one == other:
            return True
        if self._leads_outside(one, other) or self._leads_outside(other, one):
            return False
        for place in self.members[other]:
            self._group[place] = one
        self.members[one] = sorted((*self.members[one], *self.members.pop(other)))
        return True

    def _leads_outside(self, source: int, target: int) -> bool:
        """Whether a path leads from one group to another through a third."""
        last = self.members[target][-1]
        seen = {source, target}
        stack = [group for group in self._groups_behind(source) if group != target]
        while stack:
            group = stack.pop()
            if group == target:
                return True
            if group in seen or self.members[group][0] > last:
                continue
            seen.add(group)
            behind = self._groups_behind(group)
            if target in behind:
                return True
            stack.extend(behind)
        return False

    def _groups_behind(self, group: int) -> set[int]:
        return {self.of(reader) for place in self.members[group] for reader in self._readers[place]} - {group}

    def each(self) -> Iterable[list[int]]:
        """The members of each group, in the order of their first ones."""
        return self.members.values()
