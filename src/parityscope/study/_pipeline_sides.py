"""The two chains of a pipeline: what every stage got and gave, and how outputs become the next stage's inputs.

For one sample of the pipeline a stage may have several calls (a recogniser, once for every line). All is kept on disk.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample
from parityscope.case.formats.loader import as_arrays, call_user_code, find_function
from parityscope.case.formats.npz import open_npz, write_npz
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.study._pipeline_file import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.case.formats.loader import UserFunction
    from parityscope.study._pipeline_file import Pipeline, Stage

    Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSide:
    """One chain: for each sample of the pipeline, what each stage got and gave; a stage may have several calls a sample."""

    folder: Path

    def put(self, stage: str, sample: int, call_: int, arrays: Arrays) -> None:
        write_npz(self._path(stage, sample, call_), arrays)

    def get(self, stage: str, sample: int) -> list[dict[str, np.ndarray]]:
        """The arrays of every call that the stage had for this sample."""
        paths = sorted((self.folder / stage).glob(f"{sample:06d}-*.npz"))
        stored = open_npz(paths, str(self.folder))
        return [stored.read(index, stored.names(index)) for index in range(len(paths))]

    def _path(self, stage: str, sample: int, call_: int) -> Path:
        return self.folder / stage / f"{sample:06d}-{call_:04d}.npz"


def feed_stage(
    pipeline: Pipeline,
    number: int,
    model: Model,
    given: Mapping[int, Arrays],
    reference: PipelineSide,
    candidate: PipelineSide,
) -> float | None:
    """Writes the inputs of stage `number` on both sides; how far the two glues are apart, None where there is but one."""
    stage = pipeline.stages[number]
    before = [one.name for one in pipeline.stages[:number]]
    plain = find_function(stage.glue) if stage.glue else None
    deployed = find_function(stage.candidate_glue) if stage.candidate_glue else None
    apart = None if deployed is None else 0.0
    for sample, arrays in given.items():
        for side in (reference, candidate):
            outputs = {name: side.get(name, sample) for name in before}
            made = _inputs_of(stage, model, plain, outputs, arrays, sample)
            if side is candidate and deployed is not None and apart is not None:
                own = _inputs_of(stage, model, deployed, outputs, arrays, sample)
                apart = max(apart, _apart_all(made, own))
                made = own
            for call_, each in enumerate(made):
                side.put(f"{stage.name}.inputs", sample, call_, each)
    return apart


@contextlib.contextmanager
def run_target(model: Model, text: str) -> Iterator[Callable[[Arrays], dict[str, np.ndarray]]]:
    """A target as a function of arrays; calls are counted, because a recording answers by place."""
    outputs = [value.name for value in model.outputs]
    calls = 0
    with open_target(model, parse_target(text), Capture()) as session:

        def run(arrays: Arrays) -> dict[str, np.ndarray]:
            nonlocal calls
            found = session.run(Sample(index=calls, name=f"{calls:06d}", arrays=arrays))
            calls += 1
            return {name: np.array(found[name]) for name in outputs if name in found}

        yield run


def _inputs_of(
    stage: Stage,
    model: Model,
    glue: UserFunction | None,
    outputs: Mapping[str, Sequence[Arrays]],
    given: Arrays,
    sample: int,
) -> list[dict[str, np.ndarray]]:
    """What the stage is given for one sample of the pipeline: one dict of arrays a call."""
    names = [value.name for value in model.inputs]
    if glue is None:
        return [_feed_inputs(stage, names, outputs, given)]
    shown = {
        name: dict(calls[0]) if len(calls) == 1 else [dict(one) for one in calls] for name, calls in outputs.items()
    }
    made = call_user_code(
        glue, glue.function, shown, dict(given), doing=f"making the inputs of stage {stage.name}, sample {sample}"
    )
    calls = list(made) if isinstance(made, list | tuple) else [made]
    found = [as_arrays(one, glue, f"stage {stage.name}") for one in calls]
    for one in found:
        _check_names(stage, names, list(one), stage.glue)
    return found


def _feed_inputs(
    stage: Stage, names: Sequence[str], outputs: Mapping[str, Sequence[Arrays]], given: Arrays
) -> dict[str, np.ndarray]:
    found = {}
    last = list(outputs.values())[-1] if outputs else []
    for name in names:
        origin, tensor = stage.feeds.get(name, ("", name))
        if origin == DATA or (not origin and not (last and name in last[0])):
            places: Sequence[Arrays] = [given]
        else:
            places = outputs[origin] if origin else last
        if len(places) != 1:
            raise ParityError(
                f"stage {stage.name} cannot be fed: what comes before it has {len(places)} calls a sample",
                fix="write glue that says which of them goes in",
            )
        if tensor not in places[0]:
            raise ParityError(
                f"stage {stage.name} gets no {name!r}: {origin or 'the stage before and the data'} has "
                f"{', '.join(places[0]) or 'nothing'}",
                fix='say where it comes from: feeds = { name = "stage.tensor" }, or write glue',
            )
        found[name] = places[0][tensor]
    return found


def _check_names(stage: Stage, names: Sequence[str], given: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in given]
    if missing or set(given) - set(names):
        raise ParityError(
            f"the inputs of stage {stage.name} are {', '.join(names)}, and the glue gave {', '.join(given) or 'none'}",
            where=where,
            fix="let it give exactly the model's inputs, by name",
        )


def _apart_all(first: Sequence[Arrays], second: Sequence[Arrays]) -> float:
    if len(first) != len(second):
        return math.inf
    pairs = ((mine[name], its.get(name)) for mine, its in zip(first, second, strict=True) for name in mine)
    return max((distance_between(mine, its) for mine, its in pairs), default=0.0)
