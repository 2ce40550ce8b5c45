"""What a format costs outputs, drawn several times: of few numbers the error of one run says little about the next.

Each draw moves parameters and inputs by less than the format resolves (`arithmetic.drawing`), and simulates what comes out
beside its own reference. The error of one number is a draw of a normal distribution at best: two such draws differ by more
than a factor of two in 59 of 100 cases (their ratio is Cauchy's, 1 - 2/π (atan 2 - atan 1/2)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.drawing import moved_inputs, moved_parameters
from parityscope.arithmetic.formats import format_named
from parityscope.arithmetic.simulation import simulate
from parityscope.backends._onnxruntime import open_session
from parityscope.backends._operators import library
from parityscope.backends.recording import Progress, silent
from parityscope.comparison import measure_pair
from parityscope.comparison.rows import Align, as_given
from parityscope.prediction import distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.case import Inputs, Model
    from parityscope.comparison import Statistics

__all__ = ["drawn_errors"]

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

    `bounded` and `profile` are those of `simulate`; `align` puts what was found beside what was expected. An output that a
    draw gives in another shape has none.

    Raises:
        ParityError: the model cannot be simulated so, or the runtime refuses the graph.
    """
    number_format = format_named(precision)
    folder = model.path.parent
    wanted = [value.name for value in model.outputs]
    found: dict[str, list[float]] = {name: [] for name in names}
    for draw in range(draws):
        progress("drawing rounding anew", draw, draws)
        generator = np.random.default_rng((_SEED, draw))
        graph = moved_parameters(model.graph(), number_format, generator)
        simulation = simulate(graph, precision, bounded=bounded, profile=profile, compiled=bool(library()))
        low = open_session(simulation.model, outputs=wanted, folder=folder)
        right = open_session(graph, outputs=wanted, folder=folder)
        totals: dict[str, Statistics] = {}
        for index in samples:
            arrays = moved_inputs(inputs.sample(index).arrays, number_format, generator)
            expected = right(arrays)
            given = align(expected, low(arrays))
            for name in names:
                if name in given and given[name].shape == expected[name].shape:
                    part = measure_pair(expected[name], given[name], channel_axis=None)
                    totals[name] = totals[name].merge(part) if name in totals else part
        for name, total in totals.items():
            found[name].append(distance(total))
    progress("drawing rounding anew", draws, draws)
    return {name: errors for name, errors in found.items() if len(errors) == draws}
