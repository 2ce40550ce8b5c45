"""What a format costs outputs, drawn several times: of few numbers the error of one run says little about the next.

In each draw the roundings fall otherwise. The error of one number is a draw of a normal distribution at best: two such draws
differ by more than a factor of two in 59 of 100 cases (their ratio is Cauchy's, 1 - 2/π (atan 2 - atan 1/2)).

Which way a number is rounded is as good as random, and where few numbers decide (a
box of a detector, a Softmax) the errors do not average out (docs/numerics.md, grades). Parameters and inputs are rounded to
another grid in each draw, the format's own stretched by a factor g of their tensor between 2^-1/2 and 2^1/2,

    round(g x) / g,

as an engine does that folds scales into weights; everything behind them is rounded as it is, and falls otherwise because of
them. FP32 is drawn so too, with g alone: x comes back a rounding away. Inputs alone draw too little of it: half of the error
is in the parameters. The function is not moved, so one reference
holds for all draws. Parameters of up to 64 elements stay: numbers that say how to compute (an epsilon, a factor of 0.5) are
exact for a reason.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.sites import PRODUCTS
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.backends.sim import prepare_world
from parityscope.comparison import measure_replay
from parityscope.comparison.rows import Align, align_as_given
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.operators import STANDARD, of_kind
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.case import Inputs, Model
    from parityscope.comparison import ReplayStatistics
    from parityscope.evaluation.program import Program, ProgramStep
    from parityscope.evaluation.worlds import Change

    # Draw, sample, expected outputs, those of the draw.
    Drawn = Iterator[tuple[int, int, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]

_RECURRENT = of_kind("recurrent")
_EXACT = "f32"
_SMALL = 64  # elements; the same bound as for tensors whose relative error says something. Chosen.
_SEED = 20261121  # any would do, a fixed one can be repeated


def drawn_errors(drawn: Drawn, names: Sequence[str], draws: int) -> dict[str, list[float]]:
    """The error of each output called in `names` in each of `draws`, over all samples together (relative L2).

    `drawn` is what `drawn_outputs` gives. An output that a draw gives in another shape has none.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    totals: dict[tuple[int, str], ReplayStatistics] = {}
    for draw, _, expected, given in drawn:
        for name in names:
            if name in given and given[name].shape == expected[name].shape:
                part = measure_replay(expected[name], given[name], expected[name], channel_axis=None)
                totals[draw, name] = totals[draw, name].merge(part) if (draw, name) in totals else part
    for (_, name), total in sorted(totals.items()):
        found[name].append(total.total)
    return {name: errors for name, errors in found.items() if len(errors) == draws}


def drawn_outputs(
    model: Model,
    inputs: Inputs,
    samples: Sequence[int],
    precision: str,
    names: Sequence[str],
    draws: int,
    *,
    bounded: bool,
    profile: str = "none",
    align: Align = align_as_given,
    progress: Progress = ignore_progress,
    known: SharedDraws | None = None,
) -> Drawn:
    """Draw, sample, and the outputs `names` there: of the network, and of its simulation.

    `bounded` and `profile` are those of `arrange`; `align` puts what was found beside what was expected. `known` is what draws in
    another format left: its sessions and the network's own outputs serve this one.

    Raises:
        ParityError: the model cannot be simulated so, or the runtime refuses the graph.
    """
    plain = World(name="reference", program=wide_program(model)[1])
    options = {} if profile == "none" else {"profile": profile}
    options |= {} if bounded else {"range": "unbounded"}
    low, _ = prepare_world(
        model,
        Target(
            backend="sim",
            precision="tf32" if precision == _EXACT else precision,
            options=tuple(sorted(options.items())),
        ),
        (),
    )
    rounded = precision if bounded or precision != "f16" else "tf32"  # which is FP16 without its range
    low, draw = _redrawn(low, rounded)
    known = known or SharedDraws()
    sessions, expected = known.sessions, known.expected
    for number in range(draws):
        progress("drawing rounding anew", number, draws)
        draw.number = number
        sessions.forget_weights()  # those of the draw before
        for index in samples:
            arrays = inputs.sample(index).arrays
            if not set(names) <= expected.get(index, {}).keys():
                expected[index] = run_world(plain, arrays, names, sessions)
            yield number, index, *align(expected[index], run_world(low, arrays, names, sessions))
    progress("drawing rounding anew", draws, draws)


@dataclass(slots=True, eq=False)
class SharedDraws:
    """What the draws of one network share, whatever their format: sessions, and by sample the outputs that it gives itself."""

    sessions: Sessions = field(default_factory=Sessions)
    expected: dict[int, Mapping[str, np.ndarray]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Draw:
    """Which draw it is, for all changes of a world: a world of its own for each could share no session."""

    number: int = 0


def _redrawn(world: World, precision: str) -> tuple[World, _Draw]:
    """The world with the grids of its parameters and inputs stretched, in each draw otherwise."""
    draw = _Draw()
    program = world.program

    def stretched(site: str, change: Change) -> Change:
        change = FloatRounding(_EXACT) if precision == _EXACT else change
        small = program.constants[site].size <= _SMALL if site in program.constants else site not in program.inputs
        return change if small else _Stretched(change, draw, site)

    read_at = {(step.key, index): (step, name) for step in _steps(program) for index, name in enumerate(step.inputs)}
    taken = {
        place: stretched(read_at[place][1] if place in read_at else "", change) for place, change in world.taken.items()
    }
    constants = dict(world.constants)
    for place, folded in world.constants.items():
        # Weights that the engine rounds with the scale behind them: what is drawn is that scale.
        step, name = read_at[place]
        if folded.size > _SMALL and _is_multiplied(step, place[1]) and name in program.constants:
            taken[place] = _Stretched(FloatRounding(precision), draw, str(place), folded)
            del constants[place]
    stored = {site: stretched(site, change) for site, change in world.stored.items()}
    return replace(world, stored=stored, taken=taken, constants=constants), draw


def _steps(program: Program) -> Iterator[ProgramStep]:
    for step in program.steps:
        yield step
        for body in step.bodies.values():
            yield from _steps(body)


def _is_multiplied(step: ProgramStep, index: int) -> bool:
    """Whether an input of a step is one of a product's, and not what is added."""
    if step.op_type in _RECURRENT:
        return index in (STANDARD[step.op_type].multiplies or ())
    return step.op_type in PRODUCTS and index in (PRODUCTS[step.op_type] or (index,))


@dataclass(frozen=True, slots=True, eq=False)
class _Stretched:
    """Rounds to a grid that is stretched by a factor of the tensor's own, which is drawn anew in each draw.

    `otherwise` is what stands where the stretched grid does not reach; None for what `rounding` gives.
    """

    rounding: Change
    draw: _Draw
    site: str
    otherwise: np.ndarray | None = None

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A rounded copy, of the dtype and shape of `array`."""
        if array.dtype != np.float32:
            return self.rounding(array)
        generator = np.random.default_rng((_SEED, self.draw.number, zlib.crc32(self.site.encode())))
        factor = np.float32(2.0 ** generator.uniform(-0.5, 0.5))
        with np.errstate(over="ignore"):
            found = self.rounding(array * factor)
        found /= factor
        if np.isfinite(found).all():
            return found
        # The format's range is not to be stretched.
        return self.rounding(array) if self.otherwise is None else self.otherwise
