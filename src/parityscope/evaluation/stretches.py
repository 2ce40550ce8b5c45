"""The way through a program in stretches: runs of steps that nobody watches and that all worlds compute as ONNX can say it.

A call from Python to the runtime costs 30 to 50 microseconds, a small node inside of a session one. A stretch that runs again
and again is opened as one session of its own, with the roundings of its world written into it (`writing`, `joining`). Where its
tensors are large (the compiled loop rounds them faster), its steps run one by one.

A node that the runtime cannot run alone is put into the smallest stretch around it that it can run (`Course.joined`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.evaluation.program import RANDOM
from parityscope.evaluation.writing import is_written
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.sessions import NotAloneError
    from parityscope.evaluation.worlds import World

# Of a session with n nodes ONNX Runtime 1.31 opens each in 40 microseconds up to n = 64, in 90 at 128, in 600 at 1024.
_LONGEST = 32
# How many producers and readers a node is joined with that cannot run alone, one try after the other. Chosen.
_WIDER = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepStretch:
    """Steps that may run as one: what they read from outside and what others read of theirs, as sites in order.

    `sites` are all names that a world could change something at. `fixed` ones never run step by step.
    """

    parts: tuple[ProgramStep, ...]
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    sites: frozenset[str]
    fixed: bool = False

    @property
    def index(self) -> int:
        """The place of its last step in the program."""
        return self.parts[-1].index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """All needed steps of a program, in order.

    `starting` finds a stretch of several by the index of its first step, `alone` one of a step with bodies by its key.
    """

    stretches: tuple[StepStretch, ...]
    starting: Mapping[int, StepStretch] = field(repr=False)
    alone: Mapping[str, StepStretch] = field(repr=False)


def alone_in(program: Program, seen: Collection[str] | None, worlds: Sequence[World]) -> frozenset[str]:
    """The keys of the steps of `program` that run one by one in worlds that run it side by side."""
    if seen is None or any(world.follows for world in worlds):
        return frozenset(step.key for step in program.steps)
    opset = program.opsets.get("", program.opsets.get("ai.onnx", 1))
    special = {site for world in worlds for site in (*world.given, *_keys_not_written(world, program, opset))}
    own = (
        step.key
        for step in program.steps
        if step.bodies
        or step.captured
        or step.op_type in RANDOM
        or step.key in special
        or any(site in seen or site in special for site in step.outputs)
    )
    return frozenset(own)


def course_of(
    program: Program,
    needed: Collection[str],
    seen: Collection[str] | None,
    alone: Collection[str],
    together: Iterable[range] = (),
) -> Course:
    """The course of `program`.

    Args:
        program: Whose steps.
        needed: Keys of the steps to run.
        seen: Sites that somebody looks at; None for all of them.
        alone: Keys of steps that run one by one (`alone_in`).
        together: Indices of steps that the runtime runs together or not at all.
    """
    fixed = {index: one for one in together for index in one}
    groups: list[list[ProgramStep]] = []
    for step in program.steps:
        if step.key not in needed and step.index not in fixed:
            continue
        if groups and _goes_on(groups[-1], step, alone, fixed):
            groups[-1].append(step)
        else:
            groups.append([step])
    readers = _last_readers(program, needed)
    stretches = tuple(_make_stretch(group, readers, seen, fixed) for group in groups)
    return Course(
        stretches=stretches,
        starting={each.parts[0].index: each for each in stretches if len(each.parts) > 1},
        alone={each.parts[0].key: each for each in stretches if len(each.parts) == 1 and each.parts[0].bodies},
    )


def ranges_of(program: Program, tried: Mapping[int, int]) -> tuple[range, ...]:
    """The steps that run together or not at all, by the index of the one that cannot run alone and how often it was tried."""
    found: list[range] = []
    for one in sorted(
        (_steps_around(program, index, *_WIDER[count]) for index, count in tried.items()), key=lambda one: one.start
    ):
        if found and one.start < found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return tuple(found)


def widen_stretch(tried: dict[int, int], refused: NotAloneError) -> None:
    """Notes that a step, or the stretch around one, was refused; the next larger stretch is to be tried.

    Raises:
        ParityError: the largest was.
    """
    inside = range(refused.first, refused.last + 1)
    index = next((index for index in tried if index in inside), refused.first)
    tried[index] = tried.get(index, -1) + 1
    if tried[index] == len(_WIDER):
        tried.pop(index)
        raise ParityError(refused.problem, where=refused.where, fix=refused.fix) from refused


def _steps_around(program: Program, index: int, before: int, behind: int) -> range:
    """From the nearest producers of what a step reads, so many, to the nearest readers of what it gives."""
    first = last = index
    for _ in range(before):
        made = (program.steps_of.get(name) for name in program.steps[first].reads)
        first = max((step.index for step in made if step is not None), default=first)
    for _ in range(behind):
        given = {name for name in program.steps[last].outputs if name}
        later = (step.index for step in program.steps[last + 1 :] if not given.isdisjoint(step.reads))
        last = next(later, last)
    return range(first, last + 1)


def _goes_on(
    group: Sequence[ProgramStep], step: ProgramStep, alone: Collection[str], fixed: Mapping[int, range]
) -> bool:
    """Whether a step belongs to the stretch of those before it."""
    last = group[-1]
    if step.index in fixed or last.index in fixed:
        return last.index in fixed.get(step.index, ())
    return len(group) < _LONGEST and last.key not in alone and step.key not in alone


def _make_stretch(
    group: Sequence[ProgramStep], readers: Mapping[str, int], seen: Collection[str] | None, fixed: Mapping[int, range]
) -> StepStretch:
    made = [site for step in group for site in step.outputs if site]
    own = set(made)
    reads = dict.fromkeys(name for step in group for name in step.reads if name not in own)
    last = group[-1].index
    outputs = tuple(
        site for site in made if len(group) == 1 or readers.get(site, -1) > last or seen is None or site in seen
    )
    sites = frozenset(made).union(*((step.key, *step.inner) for step in group))
    return StepStretch(
        parts=tuple(group), reads=tuple(reads), outputs=outputs, sites=sites, fixed=group[0].index in fixed
    )


def _last_readers(program: Program, needed: Collection[str]) -> dict[str, int]:
    found = {name: step.index for step in program.steps if step.key in needed for name in step.reads}
    found.update(dict.fromkeys(program.outputs, len(program.steps)))
    return found


def _keys_not_written(world: World, program: Program, opset: int) -> Iterator[str]:
    """Keys of steps, and sites, at which a world changes what cannot be written."""
    yield from world.instead
    types = program.types
    for site, change in world.stored.items():
        if site in program.steps_of and not is_written(change, types.get(site), opset):
            yield site
    for (key, index), change in world.taken.items():
        step = program.steps_of.get(key)
        name = step.inputs[index] if step is not None and index < len(step.inputs) else ""
        if name and name not in program.constants and not is_written(change, types.get(name), opset):
            yield key
