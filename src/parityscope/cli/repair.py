"""`parityscope repair`: the smallest change that meets the budget, written as a model and proved on held-out samples."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._repair_asked import (
    aim_of,
    budgets_asked,
    budgets_planned,
    check_numbers,
    consents_of,
    matched_of,
    plan_asked,
)
from parityscope.cli._repair_files import check_settings, plan_path, write_plan_file, write_settings
from parityscope.cli._repair_metrics import functions_of
from parityscope.cli.shell.output import claim_file, command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit, ParityError
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer
    from parityscope.repairs.plan import RepairPlan
    from parityscope.repairs.search import RepairOutcome, RepairTask

__all__ = ["NAME", "command"]

NAME = "repair"

_EXITS = {
    "nothing": Exit.WITHIN,
    "certified": Exit.WITHIN,
    "unproved": Exit.INCOMPLETE,
    "infeasible": Exit.BEYOND,
}


def command(
    model: o.ModelArgument,
    *,
    data: o.Data,
    candidate: Annotated[str, typer.Option(help="backend:precision that it is for, e.g. openvino:f16.")] = "",
    low: Annotated[
        str, typer.Option(help="Low formats: f16, bf16, f8e4m3, f8e4m3,f16, ... [the candidate's, else f16].")
    ] = "",
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="The repaired model (.onnx); .html, .json, ...: the report."),
    ] = None,
    answer: Answer,
    budget: o.BudgetOption = None,
    metric: Annotated[list[str] | None, typer.Option(help="NAME of a task metric, or file.py:function.")] = None,
    policy: o.PolicyOption = None,
    match: o.MatchOption = "",
    floor: Annotated[float | None, typer.Option(help="Absolute floor of rel_l2, a root mean square.")] = None,
    search_samples: Annotated[
        int, typer.Option(help="Samples to search on [4; up to 64 where 59 are left].", show_default=False)
    ] = 0,
    held_out: Annotated[int, typer.Option(help="Samples to certify on [all others].", show_default=False)] = 0,
    margin: Annotated[
        float, typer.Option(help="Divides the budget while searching [1.3, with few samples 1.5].", show_default=False)
    ] = 0.0,
    evaluations: Annotated[int, typer.Option(help="End the search after so many evaluations.", show_default=False)] = 0,
    sensing: Annotated[
        int, typer.Option(help="Evaluations for sensitivities at most [one a node].", show_default=False)
    ] = 0,
    time: o.TimeOption = "",
    pick: Annotated[int, typer.Option(help="Take this row of the Pareto front.", show_default=False)] = 0,
    types: Annotated[
        str, typer.Option(help="strong: types and Casts; f32: for runtimes that convert [by target].")
    ] = "",
    no_range_repairs: Annotated[bool, typer.Option("--no-range-repairs", help="Only keep nodes in FP32.")] = False,
    consent: Annotated[list[str] | None, typer.Option(help="A repair that may change the function.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Measured node times (.json).")] = None,
    settings: Annotated[list[str] | None, typer.Option(help="Write settings beside -o: trtexec, ... (docs).")] = None,
    plan: Annotated[Path | None, typer.Option(help="Apply this plan (.toml) without a search.")] = None,
    write_plan: Annotated[Path | None, typer.Option(help="Write the plan (.toml) [beside -o].")] = None,
    threads: Annotated[
        int, typer.Option(help="Threads inside an operator [the runtime's choice].", show_default=False)
    ] = 0,
) -> int:
    """Finds which nodes to keep in FP32, writes the model and proves it; 1: infeasible, 3: ended early, or a sample misses."""
    from parityscope.case import load_model
    from parityscope.repairs.search import RepairTask
    from parityscope.repairs.search.writing import check_output
    from parityscope.report.repair import FORMS, has_succeeded

    file, answer = answer.take_file(output or [])
    answer.claim(FORMS)
    plan_file = plan_path(file, write_plan)
    check_output(file, model)
    claim_file(file, "-o")
    claim_file(plan_file, "--write-plan")
    check_numbers(
        search_samples=search_samples,
        held_out=held_out,
        margin=margin,
        pick=pick,
        evaluations=evaluations,
        sensing=sensing,
        threads=threads,
    )
    check_settings(settings or [], file)
    functions = functions_of(metric)
    budgets = budgets_asked(budget, functions, policy)
    chosen, typed = aim_of(candidate, low, types)
    with o.spool_folder() as scratch, scratch_folder("repair") as folder:
        read = load_model(model)
        task = RepairTask(
            model=read,
            inputs=data.load(read, scratch),
            low=chosen,
            typed=typed,
            budgets=budgets,
            functions=functions,
            floor=floor,
            matched=matched_of(match, policy, budgets, [value.name for value in read.outputs]),
            search_samples=search_samples,
            held_out=held_out,
            margin=margin,
            evaluations=evaluations,
            sensing=sensing,
            seconds=o.seconds_of(time),
            pick=pick,
            seed=data.seed,
            range_repairs=not no_range_repairs,
            consents=consents_of(consent),
            profile=profile,
            journal=None if file is None else file.with_suffix(".search.jsonl"),
            memory=data.memory,
            threads=threads,
        )
        held = None
        if plan is not None:
            held = plan_asked(plan, low=low, types=types, pick=pick)
            own = bool(budget or metric or policy)
            task = replace(
                task, low=held.low, typed=held.typed, budgets=budgets if own else budgets_planned(held, budgets)
            )
        if settings and task.typed:
            fix = "add --types f32: a strongly typed model needs no settings"
            raise ParityError("--settings are for runtimes that convert an FP32 model", fix=fix)
        outcome = _outcome_of(task, Path(folder), file, held, quiet=answer.quiet)
        if settings and file is not None and file.exists():
            notes = write_settings(settings, outcome, file)
            outcome = replace(outcome, skipped=(*outcome.skipped, *notes))
        document = _repair_document(outcome, task, file)
    # A search that ended before it found anything has no plan, nor has a model that needs no change.
    changes = bool(outcome.kept or outcome.edits or outcome.scales)
    found = changes and outcome.chosen is not None and outcome.verdict != "infeasible"
    if plan_file is not None and found and plan is None:
        write_plan_file(plan_file, outcome, task)
    kept = has_succeeded(document)
    answer.hand_over(FORMS, document)
    if not answer.quiet:
        if outcome.resumed:
            print(f"{outcome.resumed} runs of an interrupted search were taken over", file=sys.stderr)
        where = f"; the model is {document['output']}" if document["output"] else "; no model was written"
        print(f"{'within budget on every sample tried' if kept else outcome.verdict}{where}", file=sys.stderr)
    return Exit.WITHIN if kept else _EXITS[outcome.verdict]


def _outcome_of(
    task: RepairTask, folder: Path, output: Path | None, plan: RepairPlan | None, *, quiet: bool
) -> RepairOutcome:
    from parityscope.repairs.plan_certified import certified_plan
    from parityscope.repairs.search import search_repair

    progress = progress_for(quiet=quiet)
    if plan is None:
        return search_repair(task, folder, output, progress)
    return certified_plan(plan, task, folder, output, progress)


def _repair_document(outcome: RepairOutcome, task: RepairTask, output: Path | None) -> dict[str, Any]:
    from parityscope.report.repair import repair_document
    from parityscope.version import __version__

    there = output if output is not None and output.exists() else None
    return repair_document(outcome, task, version=__version__, command=command_line(), output=there)
