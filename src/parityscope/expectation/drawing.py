"""What a format costs outputs, drawn several times: of few numbers the error of one run says little about the next.

Each draw is the same function but for a move too small to matter, in which all roundings fall otherwise; what comes out is
simulated beside its own reference. The error of one number is a draw of a normal distribution at best: two such draws differ by
more than a factor of two in 59 of 100 cases (their ratio is Cauchy's, 1 - 2/π (atan 2 - atan 1/2)).

Which way a number is rounded is as good as random, and where few numbers decide (a
box of a detector, a Softmax) the errors do not average out (docs/numerics.md, grades). Inputs moved alone draw too little of it:
half of the error is in the parameters, whose roundings are the same for all inputs, and other ones in an engine that
folds scales into weights. So both are moved,

    x (1 + u z / 2),   z normal, u the unit roundoff of the format,

as far as a rounding moves a number on average (0.42 u), so that most fall otherwise, and the function is moved by no more than
the format moves it. At 2 u the PP-OCRv4 recogniser in BF16 became another function in one draw of six (an error of 0.18
among others of 0.02 to 0.05). Zeros stay zeros. Parameters of up to 64 elements stay: numbers that say how to compute
(an epsilon, a factor of 0.5) are exact for a reason.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import format_named
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.backends.sim import prepare_world
from parityscope.comparison import measure_replay
from parityscope.comparison.rows import Align, align_as_given
from parityscope.evaluation.evaluating import run_worlds
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import Then, World
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.arithmetic import Format
    from parityscope.case import Inputs, Model
    from parityscope.comparison import ReplayStatistics

__all__ = ["Moved", "drawn_errors", "drawn_outputs", "is_moved", "moved_inputs"]

_SIZE = 0.5  # of a unit roundoff
_SMALL = 64  # elements; the same bound as for tensors whose relative error says something. Chosen.
_SEED = 20261121  # any would do, a fixed one can be repeated


def drawn_errors(
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
) -> dict[str, list[float]]:
    """The error of each output called in `names` in each of `draws`, over `samples` together (relative L2).

    `bounded` and `profile` are those of `arrange`; `align` puts what was found beside what was expected. An output that a
    draw gives in another shape has none.

    Raises:
        ParityError: the model cannot be simulated so, or the runtime refuses the graph.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    totals: dict[tuple[int, str], ReplayStatistics] = {}
    drawn = drawn_outputs(
        model, inputs, samples, precision, draws, bounded=bounded, profile=profile, align=align, progress=progress
    )
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
    draws: int,
    *,
    bounded: bool,
    profile: str = "none",
    align: Align = align_as_given,
    progress: Progress = ignore_progress,
) -> Iterator[tuple[int, int, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
    """Draw, sample, and the outputs there: of the moved network, and of its simulation. Arguments as of `drawn_errors`."""
    number_format = format_named(precision)
    wanted = [value.name for value in model.outputs]
    plain = World(name="reference", program=wide_program(model)[1])
    options = {"profile": profile} if bounded else {"profile": profile, "range": "unbounded"}
    low, _ = prepare_world(
        model, Target(backend="sim", precision=precision, options=tuple(sorted(options.items()))), ()
    )
    low = replace(low, name="low")
    sessions = Sessions()
    for draw in range(draws):
        progress("drawing rounding anew", draw, draws)
        generator = np.random.default_rng((_SEED, draw))
        worlds = [_world_of_draw(world, number_format, draw) for world in (plain, low)]
        sessions.forget_weights()  # those of the draw before
        for index in samples:
            arrays = moved_inputs(inputs.sample(index).arrays, number_format, generator)
            expected, simulated = run_worlds(worlds, arrays, wanted, sessions)
            yield draw, index, expected, align(expected, simulated)
    progress("drawing rounding anew", draws, draws)


def _world_of_draw(world: World, number_format: Format, draw: int) -> World:
    """The world with its parameters moved before they are stored."""
    stored = dict(world.stored)
    for site, array in world.program.constants.items():
        if is_moved(array):
            moved = Moved(number_format.unit_roundoff, (_SEED, draw, zlib.crc32(site.encode())))
            stored[site] = Then(moved, stored[site]) if site in stored else moved
    return replace(world, stored=stored)


@dataclass(frozen=True, slots=True)
class Moved:
    """Moves the elements of a float32 array by half a unit roundoff at random; equal records move equally."""

    unit_roundoff: float
    seed: tuple[int, ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A moved copy, of the dtype and shape of `array`."""
        return _move_parameters(array, self.unit_roundoff, np.random.default_rng(self.seed))


def is_moved(parameter: np.ndarray) -> bool:
    """Whether a parameter is of those that are moved."""
    return parameter.dtype == np.float32 and parameter.size > _SMALL


def moved_inputs(
    arrays: Mapping[str, np.ndarray], number_format: Format, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """The inputs, those of floating point moved, in their own dtypes."""
    return {
        name: _move_parameters(array, number_format.unit_roundoff, generator) if array.dtype.kind == "f" else array
        for name, array in arrays.items()
    }


def _move_parameters(array: np.ndarray, unit_roundoff: float, generator: np.random.Generator) -> np.ndarray:
    size = _SIZE * unit_roundoff
    return np.asarray(array * (1.0 + size * generator.standard_normal(array.shape, np.float32)), array.dtype)
