"""How an error grows when outputs are fed back as the next call's inputs: recurrent networks, denoising loops, decoders.

With f the reference's call, g the candidate's, r and c their own states, each call k is taken apart exactly, as layers are:

    c[k+1] - r[k+1]  =  (g(c[k]) - f(c[k]))  +  (f(c[k]) - f(r[k]))
                          introduced             inherited

gain = inherited over the error before the call, both relative: above one the loop amplifies. A call is in the linear regime
where half the error inherits half: |f(c) - 2 f((r + c) / 2) + f(r)| <= 0.1 |f(c) - f(r)|. States that are no floats
(tokens) have no half: the first call after which they differ is the one that leaves it.

Running free, each side goes on from its own results. *Teacher-forced* the candidate is given what the reference had,
call by call: g(r[k]) - f(r[k]) is the error of that call alone, and is comparable for ever, where two paths that have
parted are not.

Where tokens are fed back (`feeding`), the paths part at the first call after which the tokens differ. The margin there
is what the reference's token has over the candidate's in the reference's logits: a margin that an honest deployment's
error can cross is a tie.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.distance import distance_between, largest_distance
from parityscope.light_dataclasses import dataclass, replace
from parityscope.localization.next_inputs import Feed, feed_inputs, has_ended, start_inputs, token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Arrays = Mapping[str, np.ndarray]
    # Inputs by name -> outputs by name; for `_curvature_of_call` states -> the next states.
    Call = Callable[[Arrays], Arrays]
    # The number of a call, its inputs and its outputs -> the next states.
    Drive = Callable[[int, Arrays, Arrays], Arrays]

# A loop carries the rounding of its first calls on; two honest evaluations part as their roundings happen to fall. Chosen:
# four times what one of them does at the same call, and never less than four roundings to float32 a call.
HONEST = 4.0
_LEAST = HONEST * 2.0**-24

# The part of what is inherited that may be curved in the linear regime. Chosen: a tenth is visible in no plot.
CURVED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """One call: relative L2 errors of the state behind it, worst of all states; `curved` is 0 in a linear call.

    `expected` is the error that an honest deployment of the declared arithmetic has at this call (NaN: not known). `forced` and
    `forced_expected` are the same two of the outputs on what the reference had, teacher-forced, the worst output's (`tensor`);
    `token` is what the reference gave, `free_token` and `forced_token` the candidate, in the first row (None: no tokens are fed).
    """

    call: int
    error: float
    introduced: float
    inherited: float
    gain: float
    curved: float
    expected: float = math.nan
    forced: float = math.nan
    forced_expected: float = math.nan
    tensor: str = ""
    token: int | None = None
    free_token: int | None = None
    forced_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenParting:
    """The call after which tokens differ, in a `row`: the reference's `token`, the candidate's `other`, of the logits `tensor`.

    `margin` is what `token` has over `other` in the reference's logits, `moved` by how much the candidate changed that,
    and `honest` by how much an honest deployment does on the same inputs (NaN: not known). `forced` says that the
    candidate takes another token than the reference on the reference's own path too: then that call does it, and not
    what was carried there.
    """

    call: int
    row: int
    tensor: str
    token: int
    other: int
    margin: float
    moved: float
    honest: float
    forced: bool

    @property
    def is_tie(self) -> bool:
        """Whether an honest deployment's error can cross the margin."""
        return self.margin <= HONEST * self.honest


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The calls in their order, what was fed back (input -> the line that says what it becomes), and where tokens part.

    `fed` are the outputs that something is fed from.
    """

    steps: tuple[CallStep, ...]
    states: Mapping[str, str]
    parting: TokenParting | None = None
    fed: tuple[str, ...] = ()

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
    feeds: Mapping[str, Feed] | None = None,
    drive: Drive | None = None,
    forced: bool = False,
) -> Growth:
    """Calls both sides len(inputs) times, each with its own state, or until the reference's token ends it.

    Args:
        reference: f; called three times a call.
        candidate: g; called once, or twice where it is `forced` too.
        inputs: The inputs of each call; the states in the first are where both begin, in the others they are not read.
        states: Input name -> the output that becomes it, or what `feeds` says in words.
        honest: A deployment that errs as the declared arithmetic must, called on its own states; gives `expected`.
        feeds: How each state becomes the next; None where all are outputs as they are.
        drive: In place of `feeds`, a function of the call's number, its inputs and its outputs that gives the next states.
        forced: Whether each call is made on the reference's states as well.

    Raises:
        ValueError: a state's output has not the shape of its input.
    """
    feeds = {name: Feed(tensor=output) for name, output in states.items()} if feeds is None else feeds
    ours = theirs = other = start_inputs(feeds, inputs[0]) if drive is None else dict(inputs[0])
    steps: list[CallStep] = []
    parting: TokenParting | None = None
    before = 0.0

    def advance(call: int, arrays: Arrays, held: Arrays, outputs: Arrays) -> dict[str, np.ndarray]:
        if drive is None:
            return feed_inputs(feeds, held, outputs)
        return {name: np.asarray(value) for name, value in drive(call, {**arrays, **held}, outputs).items()}

    for call, arrays in enumerate(inputs, start=1):
        gave, its = reference({**arrays, **ours}), candidate({**arrays, **theirs})
        right, found = advance(call, arrays, ours, gave), advance(call, arrays, theirs, its)
        severed = advance(call, arrays, theirs, reference({**arrays, **theirs}))
        error, inherited = largest_distance(right, found), largest_distance(right, severed)
        # |g(c) - f(c)| over |f(r)|, so that both parts have one denominator.
        introduced = max(_scaled_distance(found[name], severed[name], right[name]) for name in right)

        def go_on(held: Arrays, call: int = call, arrays: Arrays = arrays) -> dict[str, np.ndarray]:
            return advance(call, arrays, held, reference({**arrays, **held}))

        bent = _curvature_of_call(go_on, (ours, theirs), (right, severed))
        step = CallStep(
            call=call,
            error=error,
            introduced=introduced,
            inherited=inherited,
            gain=inherited / before if before > 0 else math.nan,
            curved=bent,
        )
        alone: Arrays = {}
        taught: Arrays = {}
        if forced:
            alone = candidate({**arrays, **ours})
            taught = honest({**arrays, **ours}) if honest is not None else {}
            step = _with_forced(step, gave, alone, taught)
        step = _with_tokens(step, feeds, gave, its, alone)
        if parting is None:
            parting = _parting_of(call, feeds, gave, its, alone, taught)
        if honest is not None:
            other = advance(call, arrays, other, honest({**arrays, **other}))
            step = replace(step, expected=largest_distance(right, other))
        steps.append(step)
        ours, theirs, before = right, found, error
        if has_ended(feeds, gave):
            break
    outputs = (feed.tensor or feed.token for feed in feeds.values())
    fed = tuple(dict.fromkeys(name for name in outputs if name)) or tuple(gave)[:1]
    return Growth(steps=tuple(steps), states=dict(states), parting=parting, fed=fed)


def first_beyond(growth: Growth) -> CallStep | None:
    """The first call whose error is beyond what honest arithmetic does there; None if there is none.

    Where the paths part at a tie, what comes behind says nothing: there the calls are judged teacher-forced alone.
    """
    parting = growth.parting
    tie = parting.call if parting is not None and parting.is_tie else None
    for step in growth.steps:
        if has_other_arithmetic(step) or (
            (tie is None or step.call < tie) and _is_beyond(step.error, step.expected, step.call)
        ):
            return step
    return None


def has_other_arithmetic(step: CallStep) -> bool:
    """Whether a call alone, on what the reference had, is beyond what honest arithmetic does to it."""
    return not math.isnan(step.forced) and _is_beyond(step.forced, step.forced_expected, 1)


def _is_beyond(error: float, expected: float, calls: int) -> bool:
    honest = 0.0 if math.isnan(expected) else expected
    return not error <= HONEST * max(honest, _LEAST * calls)


def _with_forced(step: CallStep, gave: Arrays, alone: Arrays, taught: Arrays) -> CallStep:
    """With the error of the call on what the reference had, and an honest one's, of the output that is furthest beyond."""
    worst, furthest = step, -1.0
    for name, array in gave.items():
        forced = distance_between(array, alone.get(name))
        expected = distance_between(array, taught.get(name)) if taught else math.nan
        # Tokens and other whole numbers among the outputs are told by their margin.
        ratio = forced / max(0.0 if math.isnan(expected) else expected, _LEAST) if array.dtype.kind == "f" else -1.0
        if ratio > furthest or math.isnan(ratio):
            worst, furthest = replace(step, forced=forced, forced_expected=expected, tensor=name), ratio
    return worst


def _with_tokens(step: CallStep, feeds: Mapping[str, Feed], gave: Arrays, its: Arrays, alone: Arrays) -> CallStep:
    name = next((feed.token for feed in feeds.values() if feed.token), "")
    if not name:
        return step
    ours, free = (int(token_of(each[name], name)[0]) for each in (gave, its))
    return replace(
        step,
        token=ours,
        free_token=free,
        forced_token=int(token_of(alone[name], name)[0]) if name in alone else None,
    )


def _parting_of(
    call: int, feeds: Mapping[str, Feed], gave: Arrays, its: Arrays, alone: Arrays, taught: Arrays
) -> TokenParting | None:
    """Where the tokens of the two sides differ behind this call, in the row that does so first."""
    for name in dict.fromkeys(feed.token for feed in feeds.values() if feed.token):
        ours, other = token_of(gave[name], name), token_of(its[name], name)
        if np.array_equal(ours, other):
            continue
        row = int(np.flatnonzero(ours != other)[0])
        one, two = int(ours[row]), int(other[row])

        def lead(outputs: Arrays, name: str = name, row: int = row, one: int = one, two: int = two) -> float:
            if name not in outputs:
                return math.nan
            logits = outputs[name][row].astype(np.float64)
            last = logits[-1] if logits.ndim == 2 else logits
            return float(last[one] - last[two])

        margin = lead(gave)
        return TokenParting(
            call=call,
            row=row,
            tensor=name,
            token=one,
            other=two,
            margin=margin,
            moved=abs(margin - lead(its)),
            honest=abs(margin - lead(taught)),
            forced=name in alone and int(token_of(alone[name], name)[row]) != one,
        )
    return None


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


def _curvature_of_call(step: Call, before: tuple[Arrays, Arrays], behind: tuple[Arrays, Arrays]) -> float:
    """|f(c) - 2 f((r + c) / 2) + f(r)| / |f(c) - f(r)|, the worst state's; 0 where both begin alike."""
    (ours, theirs), (right, severed) = before, behind
    states = list(right)
    if all(np.array_equal(ours[name], theirs[name]) for name in states):
        return 0.0
    if any(ours[name].dtype.kind != "f" or ours[name].shape != theirs[name].shape for name in states):
        return math.inf
    middle = {
        name: ((ours[name].astype(np.float64) + theirs[name].astype(np.float64)) / 2).astype(ours[name].dtype)
        for name in states
    }
    halfway = step(middle)
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
