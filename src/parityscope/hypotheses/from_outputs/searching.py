"""The whole search: sites, guesses, trials, and the class of what explains as much.

Budgets are estimated seconds (as `explanation.weighed`) and no clock's, so that a slow or busy machine finds what a quick one
does: all that is computed is charged to the reference's meter, and what is left over when `MOST_S` are spent is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.case.model import read_graph
from parityscope.errors import ParityError
from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.from_outputs.alike import list_alike, try_alike
from parityscope.hypotheses.from_outputs.guess import Guess, guesses_unpredicted
from parityscope.hypotheses.from_outputs.looking import STAGES, TRY_S, is_plain
from parityscope.hypotheses.from_outputs.predicting import DIRECTIONS, Predictor
from parityscope.hypotheses.from_outputs.reference import Reference, open_reference, read_first
from parityscope.hypotheses.from_outputs.residual import Residual, residual_of
from parityscope.hypotheses.from_outputs.sites import PLAIN, EditSite, sites_of
from parityscope.hypotheses.from_outputs.trying import Trials, TriedGuess
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.hypotheses.from_outputs.peeling import GuessPair


_NBYTES = 3 << 30  # of the reference's tensors; chosen
_RUNS = 400  # of the whole network in a stage, between two bounds in estimated seconds; chosen
MOST_S = 40.0  # estimated, for all stages together; chosen
_AGAIN = 0.5  # of it for each time that a search was begun before and an edit ended it; chosen
_SWEPT = 3.0  # runs that a direction of a sweep costs; chosen
_SWEEP_S = 4.0  # estimated seconds of the sweeps over all samples; chosen
_NUMBERS = 2048  # samples are predicted together until they have so many; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownOutputs:
    """What is known: a model, and what both sides gave on some samples, by the reference's names.

    `noise` is the relative L2 error that rounding may leave of each output; `scale` multiplies all budgets. `begun` is how
    often it was searched before and an edit ended that. `order` are the samples' numbers among all, where they are not the first.
    """

    model: Path
    feeds: Sequence[Mapping[str, np.ndarray]]
    candidate: Sequence[Mapping[str, np.ndarray]]
    noise: Mapping[str, float]
    scale: float = 1.0
    begun: int = 0
    order: Sequence[int] = ()


@dataclass(slots=True, kw_only=True, eq=False, repr=False)  # whoever writes it down would write all that was tried
class OutputsSearch:
    """What a search found so far: what was tried, what cannot be told from the best (`alike`), or two that hold (`pair`).

    `plain` are edits in few words at all sites, `longer_rules` others at all places of a kind. All ends when the reference's
    meter stands at `until`. `crashed` says of ways of looking why they could not go on.
    """

    outputs: KnownOutputs
    reference: Reference
    residual: Residual
    sites: Sequence[EditSite]
    trials: Trials
    predictor: Predictor
    plain: Sequence[Guess]
    until: float
    guesses: list[Guess] = field(default_factory=list)
    longer_rules: list[Guess] = field(default_factory=list)
    alike: list[TriedGuess] = field(default_factory=list)
    pair: GuessPair | None = None
    crashed: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the best is a cause: it explains everything everywhere, in fewer bits than it saves."""
        return bool(self.alike)

    @property
    def is_answered(self) -> bool:
        """Whether one edit, or two, explain all."""
        return self.trials.explains or self.pair is not None

    def stage_budget(self, bounds: tuple[float, float]) -> float:
        """Estimated seconds of a stage, between two bounds."""
        return _stage_budget(self.reference, bounds, self.outputs.scale)

    def edits_until(self, until: float) -> float:
        """How many edits can be run until the meter stands there, each as dear as one at the middle of the network."""
        costs = sorted(self.reference.cost(step) for step in self.reference.live)
        return (until - self.reference.meter.spent) / costs[len(costs) // 2] if costs else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether the first of these leaves no more than rounding may leave."""
        share = self.alike[0].share if self.alike else None
        return share is not None and share.is_exact(self.residual.noise)


@np.errstate(all="ignore")  # whatever an edit does to numbers; said once, for what is called a million times
def search_outputs(
    outputs: KnownOutputs, trying: Callable[[str], None] = lambda _: None, banned: frozenset[str] = frozenset()
) -> OutputsSearch:
    """Looks for the edit of the reference that gives the candidate's outputs, stage by stage.

    Raises:
        ParityError: the reference cannot be run step by step, or nothing is wrong with outputs of numbers.
    """
    found = _open_search(outputs, trying, banned)
    meter = found.reference.meter
    for stage in STAGES:
        if stage.goes_on or not found.is_answered:
            found.trials.until = meter.share_of(found.until, stage.part)
            _look(found, stage.look)
    found.trials.until = found.until
    _look(found, try_alike)
    found.alike = list_alike(found)
    return found


def _look(found: OutputsSearch, look: Callable[[OutputsSearch], None]) -> None:
    """Looks in one way; where that cannot go on, what was found before counts, and it is told."""
    try:
        look(found)
    except (MemoryError, ParityError):
        raise
    except Exception as error:  # noqa: BLE001 - a strange network trips one way of looking, and the others go on
        found.crashed[look.__name__.strip("_").replace("_", " ")] = f"{type(error).__name__}: {error}"


def _open_search(outputs: KnownOutputs, trying: Callable[[str], None], banned: frozenset[str]) -> OutputsSearch:
    """The reference's tensors, what is to be explained, and every place where an edit can stand."""
    model = prepare_copy(read_graph(outputs.model), OLDEST)
    read_first(model.graph)
    program = compile_program(model)
    reference = open_reference(program, outputs.feeds, _NBYTES)
    reference.order = outputs.order
    names = [name for name in program.outputs if name in reference.values[0] and _is_number(reference.values[0][name])]
    residual = residual_of(reference.values, outputs.candidate, outputs.noise, names)
    if residual.whole <= residual.noise and not residual.is_broken:
        raise ParityError("no output of numbers differs by more than rounding")
    sites = sites_of(reference, residual.still())
    samples = _first_samples(residual, sum(reference.seconds.values()))
    until = reference.meter.spent + MOST_S * outputs.scale * _AGAIN**outputs.begun
    predictor = Predictor(reference=reference, residual=residual, samples=samples, trying=trying, banned=banned)
    trials = Trials(
        reference=reference,
        residual=residual,
        samples=samples,
        seconds=_stage_budget(reference, TRY_S, outputs.scale),
        trying=trying,
        banned=banned,
        sites=sites,
    )
    return OutputsSearch(
        outputs=outputs,
        reference=reference,
        residual=residual,
        sites=sites,
        trials=trials,
        predictor=predictor,
        plain=[one for one in guesses_unpredicted(sites, PLAIN) if is_plain(one)],
        until=until,
    )


def _stage_budget(reference: Reference, bounds: tuple[float, float], scale: float) -> float:
    """Estimated seconds of a stage."""
    once = sum(reference.seconds.values()) * len(reference.values)
    return scale * min(max(_RUNS * once, bounds[0]), bounds[1])


def _is_number(array: np.ndarray) -> bool:
    return array.dtype.kind in "fiu" and array.size > 0


def _first_samples(residual: Residual, once: float) -> tuple[int, ...]:
    """The samples that are predicted and tried first: the worst, and as many more as it takes to have enough numbers.

    `once` are estimated seconds of the whole network; a sweep costs some times that for each direction.
    """
    order = sorted(range(len(residual.samples)), key=lambda sample: -residual.size(sample))
    chosen: list[int] = []
    numbers = 0
    for sample in order:
        directions = 1 + min(DIRECTIONS, residual.numbers(sample))
        if not chosen or (numbers < _NUMBERS and (len(chosen) + 1) * directions * once * _SWEPT < _SWEEP_S):
            chosen.append(sample)
            numbers += residual.numbers(sample)
    return tuple(sorted(chosen))
