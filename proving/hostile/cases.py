"""What a case is: files in a folder, a command line, and the endings that are right.

A family is a list of rules. A rule is a function that writes files into a folder and says what is typed there; it draws what may
vary from the number of its turn and from a seed, so that a case is the same on every machine and can be repeated alone.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

REFUSED = frozenset({2})  # one clear error with a fix
COMPARED = frozenset({0, 1})  # a verdict
ANSWERED = frozenset({0, 1, 3})  # a verdict, or less than was asked for
ANY = frozenset({0, 1, 2, 3})  # nobody can know, but it must end in order


@dataclass(frozen=True)
class Ending:
    """How a command ended: what it printed, what it cost and what it left."""

    code: int  # below zero: the signal
    out: bytes
    err: bytes
    cpu_s: float
    wall_s: float
    waited_s: float  # of that, what its processes were ready and the machine had no core for them
    memory: int  # bytes above what the warmed process has
    stopped: str = ""  # why it was stopped from outside
    left: tuple[str, ...] = ()  # processes that outlived it
    events: tuple[str, ...] = ()  # what it did that it must not
    written: tuple[str, ...] = ()  # paths of the case that are new, gone or changed


@dataclass(frozen=True)
class Ask:
    """What is typed, how it is surrounded, and what is right."""

    words: tuple[str, ...]
    right: frozenset[int] = REFUSED
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: not set
    fresh: bool = False  # in a new interpreter, because it reads these things when it starts
    stdin: str = "null"  # or closed, zero
    stdout: str = "file"  # or closed, full, gone, terminal
    stderr: str = "file"  # or closed, full, gone
    writes: tuple[str, ...] = ()  # names of the case that may appear or change
    runs: bool = False  # code or a program is part of what was typed
    ignores: tuple[int, ...] = ()  # signals that whoever started it has left ignored
    address_space: int = 0  # bytes that it may have of it, as `ulimit -v` says; 0: no limit
    unprivileged: bool = False  # without the right of root to read and write everything
    nameless: bool = False  # as a user whom no passwd entry knows
    after: Callable[[Path, Ending], str] | None = None  # what is wrong with what it left, or nothing


@dataclass
class Draw:
    """What varies: `turn` goes through what is listed and through its combinations, the rest is drawn from the seed."""

    name: str
    number: int
    seed: int
    _calls: int = 0
    _left: int = 0

    def __post_init__(self) -> None:
        self._left = self.number
        self.random = random.Random(f"{self.seed} {self.name} {self.number}")

    def turn(self, options: Sequence[T]) -> T:
        """Each of the options in turn; several calls go through the combinations, as a Latin square does."""
        offset = random.Random(f"{self.seed} {self.name} {self._calls}").randrange(len(options))
        place = self._left + offset + (self.number if self._calls else 0)
        self._left //= len(options)
        self._calls += 1
        return options[place % len(options)]

    def pick(self, options: Sequence[T]) -> T:
        """One of the options by chance."""
        return self.random.choice(options)

    def integer(self, least: int, most: int) -> int:
        """A whole number between two, both included."""
        return self.random.randint(least, most)

    def noise(self, count: int) -> bytes:
        """Bytes by chance."""
        return self.random.randbytes(count)


@dataclass(frozen=True)
class Family:
    """Rules about one kind of thing that a user or an attacker gives."""

    name: str
    rules: Sequence[Callable[[Path, Draw], Ask]]


@dataclass(frozen=True)
class Case:
    """One turn of one rule."""

    family: str
    rule: Callable[[Path, Draw], Ask]
    number: int
    seed: int

    @property
    def name(self) -> str:
        """What repeats it: family, rule and turn."""
        return f"{self.family}/{self.rule.__name__}/{self.number}"

    def build(self, folder: Path) -> Ask:
        """Writes its files into a folder and says what is typed there."""
        return self.rule(folder, Draw(f"{self.family}/{self.rule.__name__}", self.number, self.seed))


def cases_of(family: Family, count: int, seed: int) -> list[Case]:
    """The first `count` cases of a family: its rules in turn, those that are listed twice twice as often."""
    turns: Counter[str] = Counter()
    cases = []
    for place in range(count):
        rule = family.rules[place % len(family.rules)]
        cases.append(Case(family.name, rule, turns[rule.__name__], seed))
        turns[rule.__name__] += 1
    return cases
