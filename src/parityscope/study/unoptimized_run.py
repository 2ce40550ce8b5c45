"""The first sample on the model as it stands, where both sides may share an optimizer: agreement of two such sides says little.

It costs one session and one inference, with the optimizer off. Sides that cannot share one are not asked: another
runtime that agrees is a second reference itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend_named, optimizes_as_onnxruntime
from parityscope.backends.opening import open_target
from parityscope.study.neighbour_targets import unoptimized_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.examination import Examination
    from parityscope.records import Target

    Arrays = Mapping[str, np.ndarray]

__all__ = ["second_run"]


def second_run(examination: Examination) -> Callable[[], tuple[Arrays, Arrays]] | None:
    """What gives the outputs of the reference (if they were not kept, by a run) and of the unoptimized model on the first sample.

    None where the sides cannot share an optimizer, or where other rounding is what users want of one: in half-precision models,
    whose operators ONNX Runtime computes in FP32 on a CPU, and in quantized ones, which it computes in integers.
    """
    model, inputs, reference = examination.case.model, examination.case.inputs, examination.reference
    if not _may_share(reference, examination.candidate) or model.formats:
        return None

    def run() -> tuple[Arrays, Arrays]:
        sample = inputs.sample(inputs.indices[0])
        ours = examination.run.kept.get(sample.index) if examination.run is not None else None
        if ours is None:
            with open_target(model, reference, Capture()) as session:
                ours = session.run(sample)
        with open_target(model, unoptimized_target(reference), Capture()) as session:
            return ours, session.run(sample)

    return run


def _may_share(reference: Target, candidate: Target) -> bool:
    """Whether both may run what one optimizer made; a reference on another device rounds in ways of its own."""
    return (
        optimizes_as_onnxruntime(reference)
        and not reference.precision
        and not (reference.option("device") or reference.option("provider"))
        and reference.option("optimization") != "disabled"
        and (optimizes_as_onnxruntime(candidate) or backend_named(candidate.backend).onnxruntime == "perhaps")
        and candidate.option("optimization") != "disabled"
    )
