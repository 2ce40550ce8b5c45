"""Which tensors each part of a long recording holds.

In: the tensors to record in topological order, what each is computed from among them, sizes, and a limit. Out: one part at
a time: its own tensors (`members`), and `inputs`, which earlier parts gave and which this one gives again because its
members are computed from them. So c and c_in of every region are of one run, also on engines that give other numbers in
every session.

Parts are made one after another because only a run tells which tensors an engine gives back: a member is computed from
the nearest tensors above it that were given. Outputs of the model are members too, behind the last tensor that they are
computed from; every run gives them, so that they take no room here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np

    from parityscope.records import Skip
    from parityscope.trace import StoredTensor, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsPlan:
    """What parts are made of.

    Args:
        reads: What a tensor is computed from among the tensors that were asked for and the outputs.
        sizes: Bytes of each tensor that was asked for; 0 for all others.
        limit: Bytes of a part. A tensor that takes more with its inputs is a part of its own.
    """

    reads: Mapping[str, Sequence[str]]
    sizes: Mapping[str, int]
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The tensors of one session: `members` are recorded for the first time, `inputs` again."""

    members: tuple[str, ...]
    inputs: tuple[str, ...] = ()


def order_with_outputs(names: Sequence[str], outputs: Sequence[str], reads: Mapping[str, Sequence[str]]) -> list[str]:
    """`names` with each of `outputs` behind the last of `names` that it is computed from, at the end if there is none."""
    places = {name: place for place, name in enumerate(names)}
    behind: dict[int, list[str]] = {}
    for output in outputs:
        if output not in places:
            last = max((places[read] for read in reads.get(output, ()) if read in places), default=len(names) - 1)
            behind.setdefault(last, []).append(output)
    return [one for place, name in enumerate(names) for one in (name, *behind.get(place, ()))]


def next_part(left: Sequence[str], absent: Collection[str], plan: PartsPlan, *, most: int = 0) -> Part:
    """The next part of what is `left`, which is not empty; `absent` are the tensors that were not given so far.

    It has at most `most` members (0: any number).
    """
    members: dict[str, None] = {}
    inputs: dict[str, None] = {}
    filled = 0
    for name in left:
        new = [read for read in _nearest_given_above(name, absent, plan) if read not in members and read not in inputs]
        cost = sum(plan.sizes.get(one, 0) for one in (name, *new))
        if members and (filled + cost > plan.limit or len(members) == most):
            break
        members[name] = None
        inputs.update(dict.fromkeys(new))
        filled += cost
    return Part(members=tuple(members), inputs=tuple(inputs))


def size_of(names: Sequence[str], plan: PartsPlan) -> int:
    """The bytes of all parts together, were every tensor given."""
    left = list(names)
    total = 0
    while left:
        part = next_part(left, (), plan)
        total += sum(plan.sizes.get(name, 0) for name in (*part.members, *part.inputs))
        left = left[len(part.members) :]
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptParts:
    """What the parts gave so far: by (sample, name), copies by (part, sample, name), absent tensors by name."""

    tensors: dict[tuple[int, str], np.ndarray | StoredTensor]
    absent: dict[str, Skip] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    copies: dict[tuple[int, int, str], np.ndarray | StoredTensor] = field(default_factory=dict)

    def add(self, given: Trace, part: Part, number: int) -> None:
        """Adds what part `number` gave; what nobody asked it for is dropped."""
        members, inputs = set(part.members), set(part.inputs)
        for (sample, name), array in given.tensors.items():
            if name in members:
                self.tensors[sample, name] = array
                self.parts[name] = number
            elif name in inputs:
                self.copies[number, sample, name] = array
        for skip in given.absent:
            name = skip.what.removeprefix("tensor ")
            # An input that is not given again stays what the part before gave.
            if name not in inputs:
                self.absent[name] = skip


def _nearest_given_above(name: str, absent: Collection[str], plan: PartsPlan) -> list[str]:
    """The nearest tensors above `name` that were given, or may be."""
    found: dict[str, None] = {}
    seen = {name}
    stack = list(plan.reads.get(name, ()))
    while stack:
        read = stack.pop()
        if read in seen:
            continue
        seen.add(read)
        if read in absent:
            stack.extend(plan.reads.get(read, ()))
        else:
            found[read] = None
    return sorted(found)
