"""`parityscope compare`: outputs side by side, or every tensor with --all-tensors; no causes."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._finish import finish

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NAME", "command"]

NAME = "compare"


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
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Compare every tensor, not only outputs.")] = False,
    keep_tensors: o.KeepOption = False,
    redact: o.RedactOption = False,
    quiet: o.QuietOption = False,
) -> int:
    """Compares the outputs of two targets (or what was saved of them) on the same samples."""
    from parityscope.backends.targets import parse_target
    from parityscope.study import Settings, examine

    ours, theirs = parse_target(reference), parse_target(candidate)
    budgets = o.budgets_of(budget)
    settings = Settings(
        memory=o.size_of(memory),
        layers=all_tensors,
        localize=False,
        causes=False,
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
