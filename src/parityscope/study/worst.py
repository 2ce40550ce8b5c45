"""Which samples are worst, and what they have in common: a range, a size, a class, a source, a rare value.

The worst are a twentieth of the samples, if their errors stand out. Beside them some of the others are read, drawn with the
seed, so that this costs the same whatever the size of the data set. What is looked at of a sample are its traits: yes-or-no
statements. One that holds for most of the worst and few of the others is told if chance would make it so in one of a thousand
cases at most (Fisher's exact test, times the number of statements that were tried; R. A. Fisher, The Design of Experiments,
1935).
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import PurePath
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.records import Finding
from parityscope.study.outputs import error_by_sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.case import Sample
    from parityscope.examination import Examination

_FEWEST, _PART, _MOST = 20, 20, 50  # samples at least; the part of them that is worst; and how many at most. Chosen.
_OTHERS = 200  # that are read beside the worst; chosen
_STANDS_OUT = 4.0  # times the median error; chosen
_RARE = 1e-3  # of what chance alone would show, over all statements
_MOST_OF = 0.8  # of the worst, for which a statement has to hold
_VALUES = 4096  # elements of an integer input that are looked at one by one; chosen
_TOLD, _NAMED = 3, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A statement, of how many of the worst and of the others it holds, and how likely chance makes it so."""

    words: str
    worst: int
    others: int
    chance: float


def findings_of_worst(known: Examination) -> tuple[Finding, ...]:
    """What is known of the worst samples, where the verdict is beyond and some stand out."""
    sizes = error_by_sample(known)
    count = min(_MOST, len(sizes) // _PART)
    if known.verdict != "beyond" or len(sizes) < _FEWEST or not any(sizes.values()):
        return ()
    ordered = sorted(sizes, key=lambda index: -sizes[index])
    usual = median(sizes.values())
    standing = [index for index in ordered[: max(3, count)] if sizes[index] > _STANDS_OUT * usual]
    if len(standing) < 3:
        return ()
    rest = [index for index in ordered if index not in set(standing) and sizes[index] <= _STANDS_OUT * usual]
    generator = np.random.default_rng(known.request.seed)
    drawn = sorted(generator.permutation(rest)[:_OTHERS].tolist())
    read = known.case.inputs.read
    names = [read(index).name for index in standing[:_NAMED]]
    shared = common_traits(
        [traits_of(read(index)) for index in sorted(standing)], [traits_of(read(index)) for index in drawn]
    )
    return (_make_finding(known, standing, names, (sizes[standing[0]], usual), shared, len(drawn)),)


def _make_finding(
    known: Examination,
    worst: Sequence[int],
    names: Sequence[str],
    errors: tuple[float, float],
    shared: Sequence[Trait],
    others: int,
) -> Finding:
    told = "; ".join(f"{one.words} ({one.worst} of {len(worst)}, of {others} others {one.others})" for one in shared)
    many = f"{len(worst)} of {len(known.case.inputs)} samples are far worse than the others"
    return Finding(
        code="WORST",
        title="What the worst samples have in common",
        role="information",
        claim=f"{many} (an error of up to {errors[0]:.3g}, where {errors[1]:.3g} is usual), first {', '.join(names)}. "
        + (
            f"They have in common: {told}."
            if shared
            else "Of what was looked at (ranges, sizes, classes, sources, rare values) they have nothing in common."
        ),
        confidence=1 - max((one.chance for one in shared), default=1.0),
        confidence_from="Fisher's exact test, over all that was looked at",
        details={"samples": [int(index) for index in worst], **{one.words: [one.worst, one.others] for one in shared}},
    )


Traits = tuple[dict[str, float], set[str]]  # numbers by name; statements that hold


def traits_of(sample: Sample) -> Traits:
    """What is looked at of a sample."""
    numbers: dict[str, float] = {}
    statements: set[str] = set()
    for name, array in sample.arrays.items():
        statements.add(f"{name!r} is {' x '.join(map(str, array.shape))}")
        numbers |= _numbers_of(name, array)
        if array.dtype.kind in "iub" and array.size <= _VALUES:
            statements |= {f"{name!r} holds {value}" for value in np.unique(array).tolist()}
    for name, array in sample.truths.items():
        if array.ndim:
            numbers[f"the number of {name!r}"] = float(array.shape[0])
        elif array.dtype.kind == "f":
            numbers[f"{name!r}"] = float(array)
        else:
            statements.add(f"{name!r} is {array}")
    label, _, shard = sample.name.rpartition(" of ")
    folder = PurePath(sample.name).parent
    if label or str(folder) != ".":
        statements.add(f"it is from {shard if label else folder}")
    return numbers, statements


def _numbers_of(name: str, array: np.ndarray) -> dict[str, float]:
    if array.dtype.kind not in "fiu" or not array.size:
        return {}
    values = array.astype(np.float64, copy=False)
    found = {
        f"the smallest of {name!r}": float(values.min()),
        f"the largest of {name!r}": float(values.max()),
        f"the mean of {name!r}": float(values.mean()),
        f"the spread of {name!r}": float(values.std()),
        f"the share of zeros in {name!r}": float(np.mean(values == 0)),
        f"the number of elements of {name!r}": float(values.size),
    }
    return {key: value for key, value in found.items() if math.isfinite(value)}


def common_traits(worst: Sequence[Traits], others: Sequence[Traits]) -> list[Trait]:
    """The statements that tell the worst from the others, the surest first; of those that say the same, one."""
    statements = [*_statements_shared(worst, others), *_ranges_shared(worst, others)]
    tried = max(1, len(statements))
    found: list[Trait] = []
    seen: set[tuple[int, int]] = set()
    for words, inside, outside in sorted(
        statements, key=lambda one: fisher_chance(one[1], len(worst), one[2], len(others))
    ):
        chance = tried * fisher_chance(inside, len(worst), outside, len(others))
        if chance <= _RARE and inside >= _MOST_OF * len(worst) and (inside, outside) not in seen:
            seen.add((inside, outside))
            found.append(Trait(words=words, worst=inside, others=outside, chance=min(1.0, chance)))
    return found[:_TOLD]


def _statements_shared(worst: Sequence[Traits], others: Sequence[Traits]) -> Iterator[tuple[str, int, int]]:
    """Each statement that holds for any of the worst, of how many of them and of the others."""
    inside, outside = (Counter(one for _, held in side for one in held) for side in (worst, others))
    for words, count in inside.items():
        yield words, count, outside[words]


def _ranges_shared(worst: Sequence[Traits], others: Sequence[Traits]) -> Iterator[tuple[str, int, int]]:
    """Of each number: above and below what most of the worst reach, of how many it holds."""
    names = set.intersection(*({*numbers} for numbers, _ in (*worst, *others))) if others else set()
    for name in sorted(names):
        inside, outside = (np.sort([numbers[name] for numbers, _ in side]) for side in (worst, others))
        cut = int((1 - _MOST_OF) * len(inside))
        low, high = float(inside[cut]), float(inside[-1 - cut])
        yield f"{name} is at least {low:.4g}", int(np.sum(inside >= low)), int(np.sum(outside >= low))
        yield f"{name} is at most {high:.4g}", int(np.sum(inside <= high)), int(np.sum(outside <= high))


def fisher_chance(inside: int, worst: int, outside: int, others: int) -> float:
    """How likely at least `inside` of the worst would have what `inside` + `outside` of all have, if it were dealt out."""
    held, whole = inside + outside, worst + others
    ways = sum(
        math.comb(held, one) * math.comb(whole - held, worst - one) for one in range(inside, min(held, worst) + 1)
    )
    return ways / math.comb(whole, worst)
