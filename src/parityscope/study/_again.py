"""A copy in which causes are put right -> what the examination of it shows: outputs, layers, experiments."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parityscope.diagnosis import Tested, examine_scene
from parityscope.study._bench import open_bench
from parityscope.study._copy import with_layers
from parityscope.study._layers import examine_layers, explain_layers
from parityscope.study._looking import expectation_of, judged_outputs, overall, tensor_pairs
from parityscope.study._outputs import run_outputs, worst_of
from parityscope.study._scene import scene_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.expectation import Expectation
    from parityscope.records import Pair
    from parityscope.study._copy import Copy
    from parityscope.study._found import Known

__all__ = ["Search", "examined_again", "look"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What stays the same in all rounds; `end` is when the time is spent, on `time.monotonic`'s clock.

    With `only` just the experiments of these identities are run.
    """

    memory: int
    end: float
    executed: str
    computes: str
    progress: Progress
    only: Collection[str] | None = None


def look(first: Known, copy: Copy, search: Search) -> Known:
    """The copy's outputs, judged."""
    case = copy.case
    names = {value.name: value.name for value in case.model.outputs}
    run = run_outputs(case, copy.reference, copy.candidate, names, search.progress)
    outputs: tuple[Pair, ...] = ()
    if first.expectation is not None:
        # What an arithmetic makes of a network hardly changes with one cause put right: who is within by that is so.
        outputs = judged_outputs(case, run, _of_copy(first.expectation, copy), names, {}, search.progress)
    if not outputs or any(pair.verdict != "within" for pair in outputs):
        expectation = expectation_of(case, run, copy.reference, search.progress)
        outputs = judged_outputs(case, run, expectation, names, {}, search.progress)
    run = replace(run, candidate_environment=first.run.candidate_environment, executed=first.run.executed)
    return replace(
        first,
        case=case,
        reference=copy.reference,
        candidate=copy.candidate,
        run=run,
        outputs=outputs,
        tensors={},
        layers=None,
        names=names,
        # A difference that was there from the start is no matter of this copy.
        verdict=overall(outputs, replace(run, skipped=())),
        real=None,
        growth=None,
    )


def _of_copy(expectation: Expectation, copy: Copy) -> Expectation:
    """The same with the places that samples have in the copy."""
    positions = {place: position for position, place in enumerate(copy.places)}
    parts = {
        name: {(positions[place], site): part for (place, site), part in found.items() if place in positions}
        for name, found in expectation.parts.items()
    }
    return replace(expectation, parts=parts)


def examined_again(first: Known, copy: Copy, known: Known, search: Search, number: int) -> Tested:
    """What the experiments show in the copy."""
    case = copy.case
    explanations = {}
    if first.layers is not None:
        names: Mapping[str, str] = {name: name for name in first.layers.statistics} | dict(known.names)
        folder: Path = copy.folder / f"round-{number}"
        copy = with_layers(copy, number)
        known = replace(known, candidate=copy.candidate, names=names)
        layers = examine_layers(
            case,
            copy.reference,
            copy.candidate,
            names,
            case.inputs.indices,
            folder=folder,
            memory=search.memory,
            inject=True,
            thorough=first.thorough,
            progress=search.progress,
        )
        tensors = tensor_pairs(case, layers, known.outputs, names, {}, search.progress, thorough=first.thorough)
        known = replace(known, layers=layers, tensors=tensors)
        if layers is not None:
            explanations = explain_layers(case, layers, search.computes)
    scene = scene_of(known, explanations, search.executed, search.computes)
    with open_bench(
        case,
        copy.reference,
        copy.candidate,
        known.names,
        worst_of(known.run, case.inputs.indices),
        end=search.end,
        deployed=first.candidate,
    ) as bench:
        scene = replace(scene, bench=bench)
        left = search.end - time.monotonic()
        return examine_scene(
            scene,
            seconds=left,
            progress=search.progress,
            number=number,
            only=search.only,
            thorough=first.thorough,
        )
