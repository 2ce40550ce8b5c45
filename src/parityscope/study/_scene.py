"""Examination -> the scene that checks look at: plain facts, and experiments on the layers of the worst sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import FORMATS
from parityscope.backends import is_recording
from parityscope.backends._environment import machine_facts
from parityscope.checks import Lab, Scene
from parityscope.evaluation.evaluating import evaluate_worlds, run_world
from parityscope.evaluation.program import program_of
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import Replaced, World
from parityscope.localization import Sides
from parityscope.localization.replay import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case
    from parityscope.examination import Examination, Layers
    from parityscope.records import Target

__all__ = ["scene_of"]


def scene_of(known: Examination) -> Scene:
    """What checks get to see of an examination."""
    case, run, layers = known.case, known.compared, known.layers
    return Scene(
        model=case.model,
        graph=case.model.shared_graph(),
        places=case.model.sites,
        inputs=case.inputs,
        candidate=known.candidate,
        declared=case.policy.declared,
        executed=known.executed,
        storage=FORMATS.get(known.computes, FORMATS["f32"]),
        verdict=known.verdict,
        outputs=known.outputs,
        tensors=known.tensors,
        localization=layers.localization if layers else None,
        explanations=known.explanations,
        executed_graph=run.executed,
        spread=run.spread,
        changing=run.changing,
        disturbance=layers.localization.disturbance if layers else 0.0,
        lab=_open_lab(case, layers) if layers else None,
        policy=case.policy,
        own=case.own,
        environments=(
            _facts_of(known.reference, run.reference_environment),
            _facts_of(known.candidate, run.candidate_environment),
        ),
        real=known.real,
        sequence=known.growth,
        proved="" if known.proof is None else known.proof.reason,
    )


def _facts_of(target: Target, told: Mapping[str, str]) -> dict[str, str]:
    """What a side tells of itself, with the facts of this machine unless it is a recording."""
    if is_recording(target):
        return dict(told)
    here = machine_facts()
    # A runtime may call the same processor by another name.
    return {**here, **told, "cpu": here["cpu"]}


def _open_lab(case: Case, layers: Layers) -> Lab:
    """Experiments on the worst localized sample."""
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
