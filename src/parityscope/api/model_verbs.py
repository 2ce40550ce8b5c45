"""The verbs that work on a model and hold nothing beside it: what a target gives, and the smallest change that repairs it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.api.given import candidate_target, data_source, model_file
from parityscope.api.verbs import MEMORY, input_names, stated_budgets

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.api.given import Candidate, Data, Network
    from parityscope.repairs.search import RepairOutcome

__all__ = ["repair", "run"]


def run(
    model: Network,
    *,
    target: Candidate = "ort",
    inputs: Data = None,
    all_tensors: bool = False,
    memory: int = MEMORY,
) -> list[dict[str, np.ndarray]]:
    """What a target gives, a sample each: arrays by the names of outputs, with `all_tensors` of every tensor it shows.

    `target` is what is a `candidate` of `diagnose`, and the others are those of `diagnose`. Arrays are copies.

    Raises:
        ParityError: bad input, a missing runtime, or a target that cannot run.
    """
    import numpy as np

    from parityscope.backends.opening import model_of
    from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
    from parityscope.private_folders import scratch_folder
    from parityscope.study import Request, open_request

    with model_file(model) as path, candidate_target(target) as named, scratch_folder("run") as scratch:
        data = data_source(inputs, input_names(path))
        request = Request(model=path, candidate=named, inputs=data, memory=memory)
        with open_request(request) as asked:
            case, chosen = asked.case, asked.candidate
            tensors = tuple(observable_tensors(model_of(case.model, chosen))) if all_tensors else ()
            given = []
            for index in case.inputs.indices:
                wanted = RecordingRequest(
                    samples=(index,), tensors=tensors, folder=Path(scratch, f"{index}"), memory=memory
                )
                trace = record_trace(case.model, case.inputs, chosen, wanted)
                given.append({name: np.array(trace.get(index, name)) for name in trace.names})
            return given


def repair(
    model: Network,
    *,
    inputs: Data = None,
    low: str = "f16",
    output: str | Path | None = None,
    budgets: Mapping[str, float] | None = None,
    typed: bool = True,
    seconds: float = math.inf,
    memory: int = MEMORY,
) -> RepairOutcome:
    """Searches the smallest change with which the model keeps its budgets in `low`, and certifies it on samples held out.

    Args:
        model: As of `diagnose`.
        inputs: As of `diagnose`; some are searched on, the others certify.
        low: The format that the model is meant for: "f16", "bf16", "f8e4m3", or several ("f8e4m3,f16").
        output: Where the repaired model is written (.onnx); it is not there where nothing was found.
        budgets: As of `diagnose`; without any, a relative L2 error of 1 % at every output.
        typed: Whether types and Casts are written into the model; else it stays in FP32, for a runtime that converts by itself.
        seconds: The search ends after so long, with the best that it has.
        memory: In bytes.

    Returns:
        `verdict` is "certified", "unproved", "infeasible" or "nothing"; `statement` says it in a sentence, `kept` names the nodes
        that stay in FP32, `edits` the changes of ranges, and `certificate` what was shown on the samples held out.

    Raises:
        ParityError: bad input, a format that cannot be searched, or a file that cannot be written.
    """
    from parityscope.private_folders import scratch_folder
    from parityscope.repairs.search import DEFAULT_BUDGET, RepairTask, search_repair
    from parityscope.repairs.search.writing import check_output
    from parityscope.study import Request, open_request

    file = None if output is None else Path(output)
    with model_file(model) as path, scratch_folder("repair") as scratch:
        check_output(file, path)
        data = data_source(inputs, input_names(path))
        with open_request(Request(model=path, candidate="ort", inputs=data, memory=memory)) as asked:
            task = RepairTask(
                model=asked.case.model,
                inputs=asked.case.inputs,
                low=low,
                typed=typed,
                budgets=stated_budgets(budgets or {}) or (DEFAULT_BUDGET,),
                seconds=seconds,
                memory=memory,
            )
            return search_repair(task, Path(scratch), file)
