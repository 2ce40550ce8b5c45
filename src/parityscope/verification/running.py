"""Runs a side on every sample, undisturbed, and keeps its outputs: small ones in memory, large ones on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import model_of, open_target
from parityscope.backends.targets import format_target
from parityscope.comparison.distance import largest_distance
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.trace import StoredTensor, write_safetensors
from parityscope.verification.records import MeasuredSide

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.backends import Session
    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.records import Target

__all__ = ["Recorded", "run_side"]

Clock = Callable[[], float]

_IN_MEMORY = 1 << 16  # bytes of one output; a thousand samples of such are 64 MiB. Chosen.
# Backends that run no model file of ours: its size says nothing about them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A side and its outputs by sample index and name; `names` are the samples' own."""

    side: MeasuredSide
    names: Mapping[int, str]
    tensors: Mapping[int, Mapping[str, np.ndarray | StoredTensor]]

    def get(self, index: int) -> dict[str, np.ndarray]:
        """The outputs of one sample; those on disk are memory-mapped."""
        return {name: self.output(index, name) for name in self.tensors[index]}

    def output(self, index: int, name: str) -> np.ndarray:
        """One output of one sample."""
        one = self.tensors[index][name]
        return one.load() if isinstance(one, StoredTensor) else one


def run_side(
    case: Case, target: Target, folder: Path, label: str, progress: Progress, clock: Clock = time.perf_counter
) -> Recorded:
    """Runs `target` on every sample; `label` names its files in `folder` and the side in errors.

    Raises:
        ParityError: it cannot run, or does not give an output of the model back.
    """
    own = model_of(case.model, target)
    kept: dict[int, Mapping[str, np.ndarray | StoredTensor]] = {}
    names: dict[int, str] = {}
    spent, spread = 0.0, 0.0
    title = f"{label}: {format_target(target)}"
    with open_target(case.model, target, Capture()) as session:
        for position, sample in enumerate(case.inputs):
            progress(title, position, len(case.inputs))
            start = clock()
            found = session.run(sample)
            spent += clock() - start
            arrays = {
                value.name: _output_given(found, value.name, label, target, sample.name) for value in case.model.outputs
            }
            if position == 0:
                spread = largest_distance(arrays, make_aligner(case.policy.matched)(arrays, session.run(sample)))
            names[sample.index] = sample.name
            kept[sample.index] = _keep_outputs(arrays, folder / f"{label}-{sample.index:06d}.safetensors")
        progress(title, len(case.inputs), len(case.inputs))
        ours = backend_named(target.backend).reads_model
        side = MeasuredSide(
            target=target,
            environment=dict(session.environment),
            executed=_executed_precision(session, target),
            nbytes=own.nbytes if ours else None,
            nodes=own.nodes if ours else None,
            spread=spread,
            seconds=spent,
        )
    return Recorded(side=side, names=names, tensors=kept)


def _output_given(found: Mapping[str, np.ndarray], name: str, label: str, target: Target, sample: str) -> np.ndarray:
    if name not in found:
        raise ParityError(
            f"{label} ({format_target(target)}) gives no output {name!r}; it gives: {', '.join(found) or 'nothing'}",
            where=sample,
            fix="give a model with the reference's inputs and outputs, under the same names",
        )
    return np.array(found[name])


def _keep_outputs(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, np.ndarray | StoredTensor]:
    large = {name: one for name, one in arrays.items() if one.nbytes > _IN_MEMORY and one.dtype.kind not in "OUS"}
    kept: dict[str, np.ndarray | StoredTensor] = dict(arrays)
    if large:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept.update(write_safetensors(path, large))
    return kept


def _executed_precision(session: Session, target: Target) -> str:
    return session.executed.executed if session.executed is not None else target.precision
