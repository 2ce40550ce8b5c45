"""What a target gives for each sample of a case, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.api.asking import PYTHON, Caller
from parityscope.backends.opening import model_of
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.errors import ParityError
from parityscope.memory import allow_memory
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.case import Sample
    from parityscope.study import Examination


def record_samples(
    asked: Examination, *, all_tensors: bool = False, caller: Caller = PYTHON
) -> Iterator[tuple[Sample, Mapping[str, np.ndarray]]]:
    """Each sample with what the candidate gives for it: its outputs, with `all_tensors` every tensor that it shows.

    Arrays may be mapped from files that are gone when the next sample is asked for.

    Raises:
        ParityError: the candidate cannot run, or gives nothing.
    """
    case, target, memory = asked.case, asked.candidate, asked.request.memory
    allow_memory(memory)
    tensors = tuple(observable_tensors(model_of(case.model, target))) if all_tensors else ()
    for sample in case.inputs:
        with scratch_folder("tensors") as folder:
            wanted = RecordingRequest(samples=(sample.index,), tensors=tensors, folder=Path(folder), memory=memory)
            trace = record_trace(case.model, case.inputs, target, wanted, caller.progress)
            if not trace.names:
                given = f"{asked.request.candidate} gave nothing back for sample {sample.name}"
                raise ParityError(given, fix="parityscope doctor")
            yield sample, {name: trace.get(sample.index, name) for name in trace.names}
