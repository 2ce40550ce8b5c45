"""What a format costs outputs, drawn several times: of few numbers the error of one run says little about the next.

Each draw moves parameters and inputs by less than the format resolves (`arithmetic.drawing`), and simulates what comes out
beside its own reference. The error of one number is a draw of a normal distribution at best: two such draws differ by more
than a factor of two in 59 of 100 cases (their ratio is Cauchy's, 1 - 2/π (atan 2 - atan 1/2)).
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.drawing import Moved, is_moved, moved_inputs
from parityscope.arithmetic.formats import format_named
from parityscope.backends.recording import Progress, silent
from parityscope.backends.sim import prepare
from parityscope.comparison import measure_pair
from parityscope.comparison.rows import Align, as_given
from parityscope.evaluation.evaluating import run_worlds
from parityscope.evaluation.program import wide_program
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import Then, World
from parityscope.expectation import distance
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.arithmetic import Format
    from parityscope.case import Inputs, Model
    from parityscope.comparison import Statistics

__all__ = ["drawn_errors", "drawn_outputs"]

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
    align: Align = as_given,
    progress: Progress = silent,
) -> dict[str, list[float]]:
    """The error of each output called in `names` in each of `draws`, over `samples` together (relative L2).

    `bounded` and `profile` are those of `arrange`; `align` puts what was found beside what was expected. An output that a
    draw gives in another shape has none.

    Raises:
        ParityError: the model cannot be simulated so, or the runtime refuses the graph.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    totals: dict[tuple[int, str], Statistics] = {}
    drawn = drawn_outputs(
        model, inputs, samples, precision, draws, bounded=bounded, profile=profile, align=align, progress=progress
    )
    for draw, _, expected, given in drawn:
        for name in names:
            if name in given and given[name].shape == expected[name].shape:
                part = measure_pair(expected[name], given[name], channel_axis=None)
                totals[draw, name] = totals[draw, name].merge(part) if (draw, name) in totals else part
    for (_, name), total in sorted(totals.items()):
        found[name].append(distance(total))
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
    align: Align = as_given,
    progress: Progress = silent,
) -> Iterator[tuple[int, int, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
    """Draw, sample, and the outputs there: of the moved network, and of its simulation. Arguments as of `drawn_errors`."""
    number_format = format_named(precision)
    wanted = [value.name for value in model.outputs]
    plain = World(name="reference", program=wide_program(model)[1])
    options = {"profile": profile} if bounded else {"profile": profile, "range": "unbounded"}
    low, _ = prepare(model, Target(backend="sim", precision=precision, options=tuple(sorted(options.items()))), ())
    low = replace(low, name="low")
    sessions = Sessions()
    for draw in range(draws):
        progress("drawing rounding anew", draw, draws)
        generator = np.random.default_rng((_SEED, draw))
        worlds = [_drawn(world, number_format, draw) for world in (plain, low)]
        sessions.forget_weights()  # those of the draw before
        for index in samples:
            arrays = moved_inputs(inputs.sample(index).arrays, number_format, generator)
            expected, simulated = run_worlds(worlds, arrays, wanted, sessions)
            yield draw, index, expected, align(expected, simulated)
    progress("drawing rounding anew", draws, draws)


def _drawn(world: World, number_format: Format, draw: int) -> World:
    """The world with its parameters moved before they are stored."""
    stored = dict(world.stored)
    for site, array in world.program.constants.items():
        if is_moved(array):
            moved = Moved(number_format.unit_roundoff, (_SEED, draw, zlib.crc32(site.encode())))
            stored[site] = Then(moved, stored[site]) if site in stored else moved
    return replace(world, stored=stored)
