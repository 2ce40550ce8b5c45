"""A world: the network computed in one way of its own. What it changes, and whose values it reads.

The plain world changes nothing. Everything else that is asked about a network in another arithmetic is one of these:

* **stored**: how a value is kept where it is written (`Rounding`, or any function of an array): what its readers see;
* **taken**: how one input of one step is taken, on top of how it is stored; **registers**: inputs that read what was there
  before it was stored; **constants**: inputs that read another array than the weight they name;
* **instead**: another way to compute a step, from its inputs to its results;
* **given**: values that come from elsewhere (a candidate's trace): their readers see those, and what the step computes from
  its own inputs is still there to be looked at (`Moment.computed`). What only leads to given values is not run;
* **given back**: how a body of control flow (key of the step, name of the body, position) gives back one of its outputs;
* **feeds**: inputs of its own, in place of those that all worlds are fed;
* **follows**: the name of another world whose stored values every step of this one reads. With nothing else it is that
  world's *severed replay*: what each layer gives in plain arithmetic on what the other world handed to it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from parityscope.evaluation.program import Program

    Input = tuple[str, int]
    Change = Callable[[np.ndarray], np.ndarray]
    Instead = Callable[[Sequence[np.ndarray | None]], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Then:
    """A change and another one on what it gives."""

    first: Change
    second: Change

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """`second` of `first` of the array."""
        return self.second(self.first(array))


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Puts `array` in the place of whatever was there (a weight, usually)."""

    array: np.ndarray

    def __call__(self, _array: np.ndarray) -> np.ndarray:
        """The array."""
        return self.array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class World:
    """One way to compute a program.

    Sites name values, and (key of a step, index) its inputs. Changes that are equal (`==`) give equal results and are computed
    once for all worlds whose values agree, so they are records or one function object, not a lambda made for each.
    An array of `given` is asked for when it is read, and dropped behind its last reader.
    """

    name: str
    program: Program
    stored: Mapping[str, Change] = field(default_factory=lambda: MappingProxyType({}))
    taken: Mapping[Input, Change] = field(default_factory=lambda: MappingProxyType({}))
    registers: frozenset[Input] = frozenset()
    constants: Mapping[Input, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    instead: Mapping[str, Instead] = field(default_factory=lambda: MappingProxyType({}))
    given: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    given_back: Mapping[tuple[str, str, int], Change] = field(default_factory=lambda: MappingProxyType({}))
    feeds: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    follows: str = ""

    def changed_sites(self) -> frozenset[str]:
        """The keys of steps, and the sites, at which something is changed."""
        steps = {key for key, _ in (*self.taken, *self.registers, *self.constants)}
        return frozenset({*self.stored, *steps, *self.instead})
