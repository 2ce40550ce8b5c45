"""Why the sides disagree: explanations of the leading suspects, an honest peer, experiments, repairs tried on copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic import FORMATS
from parityscope.backends._environment import machine_facts
from parityscope.backends._onnxruntime import open_session
from parityscope.case.graph import SEVERED_SUFFIX, constant_value, sever, subgraph
from parityscope.checks import Lab, Scene
from parityscope.diagnosis import diagnose_scene
from parityscope.study._bench import open_bench
from parityscope.study._found import Causes, Known
from parityscope.study._layers import explain_layers
from parityscope.study._outputs import error_by_sample
from parityscope.study._trials import try_repairs
from parityscope.study._triangle import measure_triangle, peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    import numpy as np

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.explanation import Explanation
    from parityscope.records import Skip, Target
    from parityscope.study._layers import Layers
    from parityscope.study._triangle import Triangle

__all__ = ["find_causes"]

_PEER_SAMPLES = 4  # chosen: what a format costs varies less between samples than the margins of the grades


def find_causes(
    known: Known, *, folder: Path, peer: Target | None, seconds: float, progress: Progress, lap: Callable[[str], None]
) -> Causes:
    """Tests every suspect and tries the repairs that the findings name; `lap` is told when a stage ends.

    `peer` is the target that the candidate is held against, None for the simulation of its precision.
    """
    case, candidate, layers = known.case, known.candidate, known.layers
    executed = known.run.executed.executed if known.run.executed else ""
    computes = executed or candidate.precision or case.policy.declared
    explanations: dict[str, Explanation] = {}
    if layers is not None:
        explanations = explain_layers(case, layers, computes)
        lap("explaining")
    triangles: dict[str, Triangle] = {}
    absent: list[Skip] = []
    peer = peer or peer_of(candidate, computes)
    if peer is not None and any(pair.grade != "f32" for pair in known.outputs):
        chosen = case.inputs.indices[:_PEER_SAMPLES]
        triangles, absent = measure_triangle(case, known.reference, candidate, peer, known.names, chosen, progress)
        lap("peer")
    scene = _scene(known, explanations, executed, computes)
    with open_bench(case, known.reference, candidate, known.names, _worst(known)) as bench:
        scene = replace(scene, bench=bench if known.verdict == "beyond" else None)
        diagnosis = diagnose_scene(scene, seconds=seconds, progress=progress)
    lap("causes")
    if known.verdict != "within":
        diagnosis = try_repairs(case, known.reference, candidate, diagnosis, known.outputs, folder, progress)
        lap("repairs")
    return Causes(diagnosis=diagnosis, explanations=explanations, triangles=triangles, absent=tuple(absent))


def _worst(known: Known) -> int | None:
    """The sample of the largest output error, None if every sample is as good as the others."""
    sizes = error_by_sample(known.run, known.case.inputs.indices)
    return max(sizes, key=lambda index: sizes[index]) if any(sizes.values()) else None


def _scene(known: Known, explanations: Mapping[str, Explanation], executed: str, computes: str) -> Scene:
    case, run, layers = known.case, known.run, known.layers
    return Scene(
        model=case.model,
        graph=case.model.graph(),
        places=case.model.sites,
        inputs=case.inputs,
        candidate=known.candidate,
        declared=case.policy.declared,
        executed=executed,
        storage=FORMATS.get(computes, FORMATS["f32"]),
        verdict=known.verdict,
        outputs=known.outputs,
        tensors=known.tensors,
        localization=layers.localization if layers else None,
        explanations=explanations,
        executed_graph=run.executed,
        spread=run.spread,
        disturbance=layers.localization.disturbance if layers else 0.0,
        lab=_lab(case, layers) if layers else None,
        policy=case.policy,
        own=case.own,
        environments=(
            _facts(known.reference, run.reference_environment),
            _facts(known.candidate, run.candidate_environment),
        ),
        real=known.real,
        sequence=known.growth,
    )


def _facts(target: Target, told: Mapping[str, str]) -> dict[str, str]:
    """What a side tells of itself, with the facts of this machine unless it is a recording."""
    if target.backend == "saved":
        return dict(told)
    here = machine_facts()
    # A runtime may call the same processor by another name.
    return {**here, **told, "cpu": here["cpu"]}


def _lab(case: Case, layers: Layers) -> Lab:
    """Experiments on the worst localized sample."""
    sample = layers.reference.samples[0]
    observed = {
        name: (layers.reference.info(sample, name)[0], len(layers.reference.info(sample, name)[1]))
        for name in layers.statistics
    }

    def replay(tensor: str, constants: Mapping[str, np.ndarray]) -> np.ndarray:
        severed = sever(case.model.graph(), observed)
        _replace_constants(severed.model, constants)
        run = open_session(subgraph(severed.model, [tensor]), folder=case.model.path.parent)
        feeds: dict[str, np.ndarray] = dict(case.inputs.sample(sample).arrays)
        for name in severed.reads[tensor]:
            value = layers.candidate.get(sample, layers.pairing[name])
            feeds[name + SEVERED_SUFFIX] = value.astype(layers.reference.info(sample, name)[0], copy=False)
        return run(feeds)[tensor]

    def forward(tensor: str, constants: Mapping[str, np.ndarray]) -> np.ndarray:
        graph = case.model.graph()
        _replace_constants(graph, constants)
        run = open_session(graph, outputs=[tensor], folder=case.model.path.parent)
        return run(case.inputs.sample(sample).arrays)[tensor]

    return Lab(
        reference=lambda name: layers.reference.get(sample, name),
        candidate=lambda name: layers.candidate.get(sample, layers.pairing[name]),
        replay=replay,
        forward=forward,
    )


def _replace_constants(model: Any, constants: Mapping[str, np.ndarray]) -> None:
    import onnx_ir as ir

    for value in [*model.graph.initializers.values(), *(one for node in model.graph for one in node.outputs)]:
        if value.name in constants and constant_value(value) is not None:
            tensor = ir.tensor(constants[value.name], name=value.name)
            made = ir.Value(
                name=f"{value.name}::changed",
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(constants[value.name].shape),
                const_value=tensor,
            )
            model.graph.register_initializer(made)
            for user, index in list(value.uses()):
                user.replace_input_with(index, made)
