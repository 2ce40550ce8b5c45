"""Why the sides disagree: explanations of the leading suspects, an honest peer, experiments, repairs tried on copies."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.diagnosis import SPENT, TimeSpentError, examine_scene, identity_of
from parityscope.errors import ParityError
from parityscope.records import Skip
from parityscope.study._again import Search
from parityscope.study._bench import open_bench
from parityscope.study._copy import first_copy
from parityscope.study._found import Causes, Known
from parityscope.study._layers import explain_layers
from parityscope.study._merging import merged
from parityscope.study._outputs import worst_of
from parityscope.study._rounds import further
from parityscope.study._scene import scene_of
from parityscope.study._second import second_run
from parityscope.study._simulated import with_simulated
from parityscope.study._trials import try_repairs
from parityscope.study._triangle import measure_triangle, peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.checks import Bench
    from parityscope.diagnosis import Tested
    from parityscope.explanation import Explanation
    from parityscope.records import Diagnosis, Target
    from parityscope.study._found import Sequence
    from parityscope.study._triangle import Triangle

__all__ = ["find_causes"]

# The time that the search for further causes may take where no --time says otherwise. Chosen: several looks at a network of some
# hundred MFLOP on two cores.
_FURTHER_S = 120.0
_PEER_SAMPLES = 4  # chosen: what a format costs varies less between samples than the margins of the grades


def find_causes(
    known: Known,
    *,
    folder: Path,
    peer: Target | None,
    memory: int,
    seconds: float,
    progress: Progress,
    lap: Callable[[str], None],
    only: Collection[str] | None = None,
) -> Causes:
    """Tests every suspect and tries the repairs that the findings name; `lap` is told when a stage ends.

    `peer` is the target that the candidate is held against, None for the simulation of its precision. With `only` just the
    experiments of these identities are run, and no repair is tried.
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
    scene = scene_of(known, explanations, executed, computes)
    if known.verdict != "beyond":
        first = known.run.kept.get(case.inputs.indices[0])
        twice = second_run(case.model, case.inputs, known.reference, candidate, first)
        scene = replace(scene, twice=twice)
    end = time.monotonic() + seconds
    opened = open_bench(
        case,
        known.reference,
        candidate,
        known.names,
        worst_of(known.run, case.inputs.indices),
        end=end,
        folder=folder,
        answers=known.answers,
    )
    with opened as bench:
        scene = replace(scene, bench=bench if known.verdict == "beyond" else None)
        tested = examine_scene(scene, seconds=seconds, progress=progress, only=only, thorough=known.thorough)
        lap("causes")
        diagnosis, sequence = tested.diagnosis, None
        # One experiment alone needs no other round than the first, unless the study says so.
        if known.verdict == "beyond" and (only is None or len(only) > 1):
            further_end = end if math.isfinite(end) else time.monotonic() + _FURTHER_S
            search = Search(
                memory=memory, end=further_end, executed=executed, computes=computes, progress=progress, only=only
            )
            diagnosis, sequence = _with_others(known, tested, bench, search, folder / "copies")
            lap("further causes")
    if only is None:
        diagnosis = with_simulated(known, diagnosis, folder=folder, memory=memory, progress=progress)
        lap("simulated")
    if known.verdict != "within" and only is None:
        diagnosis = try_repairs(case, known.reference, candidate, diagnosis, known.outputs, folder, progress, end=end)
        lap("repairs")
    return Causes(
        diagnosis=diagnosis, explanations=explanations, triangles=triangles, absent=tuple(absent), sequence=sequence
    )


def _with_others(
    known: Known, tested: Tested, bench: Bench, search: Search, folder: Path
) -> tuple[Diagnosis, Sequence | None]:
    """The diagnosis with the causes that show once others are put right; where all is proved, only what proves it is."""
    if known.proof is not None:
        causes = {identity_of(one) for one in tested.diagnosis.findings if one.role == "cause"}
        proved = {name: one for name, one in tested.corrections.items() if name in causes and not one.declared}
        tested = replace(tested, corrections=proved, nearest=())
    if not tested.corrections and not tested.nearest:
        return tested.diagnosis, None
    try:
        found = further(known, first_copy(known, bench, folder), tested, search)
    except (ParityError, TimeSpentError) as error:
        reason = error.problem if isinstance(error, ParityError) else SPENT
        skip = Skip(what="causes beside the first", reason=reason, fix="raise --time" if reason == SPENT else "")
        return replace(tested.diagnosis, skipped=(*tested.diagnosis.skipped, skip)), None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        return tested.diagnosis, None
    return merged(tested.diagnosis, found), found.sequence
