"""The files that `parityscope repair` writes beside the repaired model: the plan, and the settings of runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.repairs.search import Outcome, Task

__all__ = ["plan_path", "write_plan_file", "write_settings"]


def plan_path(output: Path | None, given: Path | None) -> Path | None:
    """Where the plan goes: what is given, else beside `output`; None for nowhere.

    Raises:
        ParityError: the file exists already.
    """
    path = given or (None if output is None else output.with_suffix(".plan.toml"))
    if path is not None and path.exists():
        raise ParityError(f"{path} exists already", where=str(path), fix="choose another --write-plan, or remove it")
    return path


def write_plan_file(path: Path, outcome: Outcome, task: Task) -> None:
    """Writes the plan that `--plan` takes."""
    from parityscope.repairs.plan import plan_text

    path.write_text(plan_text(task.model, task.budgets, outcome), encoding="utf-8")


def write_settings(kinds: list[str], outcome: Outcome, output: Path) -> None:
    """What runtimes take that are told by settings which nodes to keep, beside the model; its FP32 form names the nodes.

    Raises:
        ParityError: there is no such kind, or a file exists already.
    """
    from parityscope.case.model import read_graph
    from parityscope.repairs.settings import settings_for

    kept = {one.node: "f32" for one in outcome.kept}
    for kind in kinds:
        written = settings_for(kind, kept, read_graph(output), low=outcome.low)
        path = output.with_name(f"{output.stem}.{written.filename}")
        if path.exists():
            raise ParityError(f"{path} exists already", where=str(path), fix="remove it, or choose another -o")
        path.write_text(written.text, encoding="utf-8")
