"""Examination -> experiments inside the network, on the worst sample whose layers were looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.bench import Lab
from parityscope.evaluation.evaluating import evaluate_worlds, run_world
from parityscope.evaluation.program import program_of
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import Replaced, World
from parityscope.localization import Sides
from parityscope.localization.replay import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.examination import Examination


def open_lab(known: Examination) -> Lab | None:
    """Experiments on the worst localized sample; None where no layers were looked at."""
    case, layers = known.case, known.layers
    if layers is None:
        return None
    sample = layers.reference.samples[0]
    feeds = case.inputs.sample(sample).arrays
    sessions = Sessions()

    def replay(tensor: str, constants: Mapping[str, np.ndarray]) -> np.ndarray:
        pairing = {name: layers.pairing[name] for name in layers.statistics}
        sides = Sides(
            model=case.model,
            inputs=case.inputs,
            reference=layers.reference,
            candidate=layers.candidate,
            pairing=pairing,
        )
        given = Given(sides, pairing, sample, tensor)
        world = World(
            name="replayed", program=program_of(case.model), stored=_replace_constants(constants), given=given
        )
        found: dict[str, np.ndarray] = {}
        for moment in evaluate_worlds([world], feeds, [tensor], sessions):
            found.update((site, moment.computed("replayed", site)) for site in moment.sites)
        return np.asarray(found[tensor])

    def forward(tensor: str, constants: Mapping[str, np.ndarray]) -> np.ndarray:
        world = World(name="forward", program=program_of(case.model), stored=_replace_constants(constants))
        return run_world(world, feeds, [tensor], sessions)[tensor]

    return Lab(
        reference=lambda name: layers.reference.get(sample, name),
        candidate=lambda name: layers.candidate.get(sample, layers.pairing[name]),
        replay=replay,
        forward=forward,
    )


def _replace_constants(constants: Mapping[str, np.ndarray]) -> dict[str, Replaced]:
    return {name: Replaced(array) for name, array in constants.items()}
