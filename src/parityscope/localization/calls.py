"""How an error grows when outputs are fed back as the next call's inputs: recurrent networks, denoising loops, decoders.

With f the reference's call, g the candidate's, r and c their own states, each call k is taken apart exactly, as layers are:

    c[k+1] - r[k+1]  =  (g(c[k]) - f(c[k]))  +  (f(c[k]) - f(r[k]))
                          introduced             inherited

gain = inherited over the error before the call, both relative: above one the loop amplifies. A call is in the linear regime
where half the error inherits half: |f(c) - 2 f((r + c) / 2) + f(r)| <= 0.1 |f(c) - f(r)|. States that are no floats
(tokens) have no half: the first call after which they differ is the one that leaves it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.distance import largest_distance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Arrays = Mapping[str, np.ndarray]
    # Inputs by name -> outputs by name.
    Call = Callable[[Arrays], Arrays]

__all__ = ["CURVED", "HONEST", "CallStep", "Growth", "first_beyond", "growth_of"]

# A loop carries the rounding of its first calls on; two honest evaluations part as their roundings happen to fall. Chosen:
# four times what one of them does at the same call, and never less than four roundings to float32 a call.
HONEST = 4.0
_LEAST = HONEST * 2.0**-24

# The part of what is inherited that may be curved in the linear regime. Chosen: a tenth is visible in no plot.
CURVED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call: relative L2 errors of the state behind it, worst of all states; `curved` is 0 in a linear call.

    `expected` is the error that an honest deployment of the declared arithmetic has at this call (NaN: not known).
    """

    call: int
    error: float
    introduced: float
    inherited: float
    gain: float
    curved: float
    expected: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The calls in their order, and what was fed back (input -> the output that becomes it)."""

    steps: tuple[CallStep, ...]
    states: Mapping[str, str]

    @property
    def leaves(self) -> int | None:
        """The first call that is no longer in the linear regime; None if all are."""
        return next((step.call for step in self.steps if step.curved > CURVED), None)

    @property
    def factor(self) -> float:
        """By how much a linear call amplifies the error on average (geometric mean of the gains); NaN if none can be told."""
        last = self.leaves or len(self.steps) + 1
        gains = [step.gain for step in self.steps if step.call < last and step.gain > 0 and math.isfinite(step.gain)]
        return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else math.nan


def growth_of(
    reference: Call,
    candidate: Call,
    inputs: Sequence[Arrays],
    states: Mapping[str, str],
    *,
    honest: Call | None = None,
) -> Growth:
    """Calls both sides len(inputs) times, each with its own state.

    Args:
        reference: f; called three times a call.
        candidate: g; called once.
        inputs: The inputs of each call; the states in the first are where both begin, in the others they are not read.
        states: Input name -> the output that becomes it.
        honest: A deployment that errs as the declared arithmetic must, called on its own states; gives `expected`.

    Raises:
        ValueError: a state's output has not the shape of its input.
    """
    ours = theirs = other = {name: inputs[0][name] for name in states}
    steps: list[CallStep] = []
    before = 0.0
    for call, arrays in enumerate(inputs, start=1):
        right = _next_states(reference({**arrays, **ours}), states, ours)
        found = _next_states(candidate({**arrays, **theirs}), states, theirs)
        severed = _next_states(reference({**arrays, **theirs}), states, theirs)
        error, inherited = largest_distance(right, found), largest_distance(right, severed)
        # |g(c) - f(c)| over |f(r)|, so that both parts have one denominator.
        introduced = max(_scaled_distance(found[name], severed[name], right[name]) for name in states)
        curved = _curvature_of_call(reference, arrays, (ours, theirs), (right, severed), states)
        expected = math.nan
        if honest is not None:
            other = _next_states(honest({**arrays, **other}), states, other)
            expected = largest_distance(right, other)
        gain = inherited / before if before > 0 else math.nan
        steps.append(
            CallStep(
                call=call,
                error=error,
                introduced=introduced,
                inherited=inherited,
                gain=gain,
                curved=curved,
                expected=expected,
            )
        )
        ours, theirs, before = right, found, error
    return Growth(steps=tuple(steps), states=dict(states))


def first_beyond(growth: Growth) -> CallStep | None:
    """The first call whose error is beyond what honest arithmetic does there; None if there is none."""
    for step in growth.steps:
        honest = 0.0 if math.isnan(step.expected) else step.expected
        if not step.error <= HONEST * max(honest, _LEAST * step.call):
            return step
    return None


def _next_states(outputs: Arrays, states: Mapping[str, str], held: Arrays) -> dict[str, np.ndarray]:
    """The next states; their shapes may grow (a cache) but not their rank."""
    found = {}
    for name, output in states.items():
        if output not in outputs:
            raise ValueError(f"output {output!r} was not given back, and the state {name!r} needs it")
        array = outputs[output]
        if array.ndim != held[name].ndim:
            raise ValueError(
                f"output {output!r} of shape {list(array.shape)} cannot be fed back as {name!r} of shape "
                f"{list(held[name].shape)}"
            )
        found[name] = array.astype(held[name].dtype, copy=False)
    return found


def _scaled_distance(first: np.ndarray, second: np.ndarray, unit: np.ndarray) -> float:
    """|first - second| / |unit| in L2; the share of unequal elements for what is no float."""
    if first.shape != second.shape:
        return math.inf
    if first.dtype.kind != "f":
        return float((first != second).mean()) if first.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = float(np.linalg.norm(first.astype(np.float64) - second.astype(np.float64)))
        size = float(np.linalg.norm(unit.astype(np.float64)))
    if apart == 0.0:
        return 0.0
    return apart / size if size > 0 and math.isfinite(apart) else math.inf


def _curvature_of_call(
    reference: Call,
    arrays: Arrays,
    before: tuple[Arrays, Arrays],
    behind: tuple[Arrays, Arrays],
    states: Mapping[str, str],
) -> float:
    """|f(c) - 2 f((r + c) / 2) + f(r)| / |f(c) - f(r)|, the worst state's; 0 where both begin alike."""
    (ours, theirs), (right, severed) = before, behind
    if all(np.array_equal(ours[name], theirs[name]) for name in states):
        return 0.0
    if any(ours[name].dtype.kind != "f" or ours[name].shape != theirs[name].shape for name in states):
        return math.inf
    middle = {
        name: ((ours[name].astype(np.float64) + theirs[name].astype(np.float64)) / 2).astype(ours[name].dtype)
        for name in states
    }
    halfway = _next_states(reference({**arrays, **middle}), states, middle)
    worst = 0.0
    for name in states:
        r, c, m = (each[name].astype(np.float64) for each in (right, severed, halfway))
        if not (r.shape == c.shape == m.shape):
            return math.inf
        with np.errstate(invalid="ignore", over="ignore"):
            moved = float(np.linalg.norm(c - r))
            bent = float(np.linalg.norm(c - 2.0 * m + r))
        # Half of an error of a few roundings is no half: what is bent by rounding alone is not curved.
        noise = 8.0 * float(np.linalg.norm(r)) * 2.0**-24
        if moved > 0 and bent > noise:
            worst = max(worst, bent / moved)
    return worst
