"""`parityscope evaluate`: the faithful error of anybody's FP16, BF16, mixed or quantized model, on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._delivery import finish_study
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.request import Data

if TYPE_CHECKING:
    from parityscope.cli._delivery import Delivery

NAME = "evaluate"

_OriginalOption = Annotated[Path | None, typer.Option("--reference", help="The FP32 original (.onnx).")]


def command(
    model: Annotated[Path, typer.Argument(help="The model to evaluate (.onnx).", show_default=False)],
    *,
    data: Data,
    delivery: Delivery,
    original: _OriginalOption = None,
    declared: o.DeclaredOption = "",
    budget: o.BudgetOption = None,
    policy: o.PolicyOption = None,
    workers: o.WorkersOption = "",
) -> int:
    """Rounds what a typed model stores in low formats, compares it with its original, and tells what a CPU hides."""
    from parityscope.study import run_facts
    from parityscope.study.typed_model import examine_typed, open_typed

    opened = open_typed(
        model,
        original,
        data,
        declared=declared,
        budgets=o.budgets_of(budget),
        policy=policy,
        workers=o.workers_of(workers),
        depth="tensors" if delivery.ladder or delivery.keep_tensors else "outputs",
    )
    with opened as (asked, sides):
        known = replace(asked, command=command_line(), progress=progress_for(quiet=delivery.quiet))

        def work(folder: Path, _keep: object) -> dict[str, Any]:
            return examine_typed(replace(known, folder=folder), sides)

        return finish_study(model, delivery, work, run_facts(asked) if workers else None)
