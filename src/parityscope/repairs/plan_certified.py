"""A plan applied again: written without a search, and certified where there is data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.case.model import load_model
from parityscope.repairs.plan import applied_plan
from parityscope.repairs.search.judging import make_yardstick
from parityscope.repairs.search.labels import labels_of
from parityscope.repairs.search.preparing import drop_repeated_samples, reference_of
from parityscope.repairs.search.proving import certify_written, draws_of
from parityscope.repairs.search.records import RepairOutcome
from parityscope.repairs.search.writing import check_output, move_model

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.repairs.plan import RepairPlan
    from parityscope.repairs.search.records import RepairTask


def certified_plan(
    plan: RepairPlan, task: RepairTask, folder: Path, output: Path | None, progress: Progress
) -> RepairOutcome:
    """Writes the plan's model to `output` and certifies it on the samples of `task` that the search has not used.

    Which those are the plan says of the data that it was found on; of other data nobody knows.

    Raises:
        ParityError: the plan does not fit the model, or the output exists.
    """
    check_output(output, task.model.path)
    written = applied_plan(plan, task.model, folder, folder / "planned.onnx")
    reference = reference_of(task)
    known = set(plan.searched) if plan.data == task.inputs.sha256 else set()
    searched, fresh = (
        replace(task.inputs, indices=tuple(index for index in task.inputs.indices if (index in known) == used))
        for used in (True, False)
    )
    searched, fresh, repeated = drop_repeated_samples(searched, fresh)
    samples = list(fresh)[: task.held_out or None]
    first = [reference(one.arrays) for one in [*searched, *samples][:4]]
    held = make_yardstick(task.policy, task.functions, first, task.floor)
    keep = None if plan.typed else (labels_of(plan.low).storage, tuple(one.node for one in plan.kept))
    proof = certify_written(
        draws_of(load_model(written.path), task.threads, keep, labels_of(plan.low).full),
        lambda sample: reference(sample.arrays),
        samples,
        held,
        attempts=1,
        seed=task.seed,
        progress=progress,
    )
    if output is not None:
        move_model(written.path, output)
    return RepairOutcome(
        verdict="certified" if proof.certified else "unproved",
        statement=f"The plan keeps {len(plan.kept)} nodes in FP32. {proof.statement}",
        low=plan.low,
        margin=1.0,
        typed=plan.typed,
        nodes=task.model.nodes,
        edits=plan.edits,
        kept=plan.kept,
        certificate=proof,
        search_samples=searched.indices,
        held_out=tuple(sample.index for sample in samples),
        casts_written=written.casts,
        skipped=(*repeated, *written.notes),
    )
