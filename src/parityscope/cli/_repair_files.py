"""The files that `parityscope repair` writes beside the repaired model: the plan, and the settings of runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.records import Skip
    from parityscope.repairs.search import RepairOutcome, RepairTask

__all__ = ["check_settings", "plan_path", "write_plan_file", "write_settings"]

_PLACEHOLDER = "MODEL.onnx"  # what the exporters call the model


def plan_path(output: Path | None, given: Path | None) -> Path | None:
    """Where the plan goes: what is given, else beside `output`; None for nowhere."""
    return given or (None if output is None else output.with_suffix(".plan.toml"))


def write_plan_file(path: Path, outcome: RepairOutcome, task: RepairTask) -> None:
    """Writes the plan that `--plan` takes."""
    from parityscope.repairs.plan import plan_text

    write_whole(path, plan_text(task.model, task.budgets, outcome, task.inputs.sha256))


def check_settings(kinds: list[str], output: Path | None) -> None:
    """Refuses kinds of settings that there are not, before anything is searched.

    Raises:
        ParityError: there is no such kind, or no -o to write them beside.
    """
    from parityscope.repairs.settings import known_exporters

    if kinds and output is None:
        raise ParityError("--settings are written beside -o, and there is none", fix="add -o FIXED.onnx")
    known = sorted(known_exporters()) if kinds else []
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise ParityError(f"there are no settings of kind {unknown[0]!r}", fix=f"use one of: {', '.join(known)}")


def write_settings(kinds: list[str], outcome: RepairOutcome, output: Path) -> tuple[Skip, ...]:
    """What runtimes take that are told by settings which nodes to keep, beside the model; its FP32 form names the nodes.

    Gives what the settings cannot say.

    Raises:
        ParityError: there is no such kind, or a file exists already.
    """
    from parityscope.case.model import read_graph
    from parityscope.repairs.settings import settings_for

    kept = {one.node: "f32" for one in outcome.kept}
    notes: list[Skip] = []
    for kind in kinds:
        written = settings_for(kind, kept, read_graph(output), low=outcome.low)
        path = output.with_name(f"{output.stem}.{written.filename}")
        if path.exists():
            raise ParityError(f"{path} exists already", where=str(path), fix="remove it, or choose another -o")
        text = written.text.replace(written.filename, path.name).replace(_PLACEHOLDER, output.name)
        write_whole(path, text)
        notes.extend(written.notes)
    return tuple(notes)
