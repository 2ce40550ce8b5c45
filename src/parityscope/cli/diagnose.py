"""`parityscope diagnose`: the whole chain up to the report."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from parityscope.cli import _options as o
from parityscope.cli._finish import finish

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NAME", "command"]

NAME = "diagnose"


def command(
    model: o.ModelArgument,
    *,
    candidate: o.CandidateOption,
    inputs: o.InputsOption = "",
    reference: o.ReferenceOption = "ort",
    preprocess: o.PreprocessOption = "",
    stacked: o.StackedOption = False,
    shapes: o.ShapesOption = None,
    samples: o.SamplesOption = None,
    seed: o.SeedOption = 0,
    study: o.StudyOption = None,
    format_name: o.FormatOption = "text",
    declared: o.DeclaredOption = "",
    budget: o.BudgetOption = None,
    mapping: o.MapOption = None,
    memory: o.MemoryOption = "512MiB",
    time: o.TimeOption = "",
    keep_tensors: o.KeepOption = False,
    redact: o.RedactOption = False,
    quiet: o.QuietOption = False,
) -> int:
    """Says whether the candidate differs, where that begins, why, and what would repair it."""
    from parityscope.backends.targets import parse_target
    from parityscope.study import Settings, examine

    ours, theirs = parse_target(reference), parse_target(candidate)
    budgets = o.budgets_of(budget)
    settings = Settings(
        memory=o.size_of(memory),
        seconds=o.seconds_of(time),
        mapping=o.mapping_of(mapping),
        command=shlex.join(["parityscope", *sys.argv[1:]]),
    )
    with o.spool() as scratch:
        case = o.case_of(
            model,
            inputs,
            theirs,
            scratch,
            declared=declared,
            budgets=budgets,
            preprocess=preprocess,
            stacked=stacked,
            shapes=shapes,
            samples=samples,
            seed=seed,
        )

        def work(folder: Path) -> dict[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            return examine(case, ours, theirs, folder=folder, settings=settings, progress=o.progress_for(quiet=quiet))

        return finish(
            o.folder_for(model, study), format_name, work, keep_tensors=keep_tensors, redact=redact, quiet=quiet
        )
