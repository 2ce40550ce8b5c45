"""`parityscope repair`: the smallest change that meets the budget, written as a model and proved on held-out samples."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from parityscope.case.formats.loader import UserFunction
    from parityscope.records import Budget
    from parityscope.repairs.search import Outcome, Task

__all__ = ["NAME", "command"]

NAME = "repair"

_EXITS = {
    "nothing": Exit.WITHIN,
    "certified": Exit.WITHIN,
    "unproved": Exit.INCOMPLETE,
    "infeasible": Exit.BEYOND,
}
# Runtimes that convert an FP32 model by themselves: they get the range repairs in FP32 and no Casts.
_CONVERT = frozenset({"openvino"})
_DEFAULT_LIMIT = 1e-2  # chosen: a hundredth of the output's energy norm, what the documentation calls repaired


def command(
    model: o.ModelArgument,
    *,
    inputs: o.InputsOption = "",
    candidate: Annotated[str, typer.Option(help="backend:precision that it is for, e.g. openvino:f16.")] = "",
    low: Annotated[str, typer.Option(help="The low format, f16 or bf16 [the candidate's, else f16].")] = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The repaired model (.onnx).")] = None,
    budget: o.BudgetOption = None,
    metric: Annotated[list[str] | None, typer.Option(help="file.py:function(reference, candidate) -> float.")] = None,
    policy: o.PolicyOption = None,
    floor: Annotated[float | None, typer.Option(help="Absolute floor of rel_l2, a root mean square.")] = None,
    search_samples: Annotated[int, typer.Option(help="Samples to search on [at most 4].")] = 0,
    held_out: Annotated[int, typer.Option(help="Samples to certify on [all others].")] = 0,
    margin: Annotated[
        float, typer.Option(help="Divides the budget while searching [1.3, with few samples 1.5].")
    ] = 0.0,
    evaluations: Annotated[int, typer.Option(help="End the search after so many evaluations.")] = 0,
    sensing: Annotated[int, typer.Option(help="Evaluations for sensitivities at most [one a node].")] = 0,
    time: o.TimeOption = "",
    pick: Annotated[int, typer.Option(help="Take this row of the Pareto front.")] = 0,
    types: Annotated[
        str, typer.Option(help="strong: types and Casts; f32: for runtimes that convert [by target].")
    ] = "",
    no_range_repairs: Annotated[bool, typer.Option("--no-range-repairs", help="Only keep nodes in FP32.")] = False,
    consent: Annotated[list[str] | None, typer.Option(help="A repair that may change the function.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Measured node times (.json).")] = None,
    settings: Annotated[list[str] | None, typer.Option(help="Write settings beside -o: trtexec, ... (docs).")] = None,
    plan: Annotated[Path | None, typer.Option(help="Apply this plan (.toml) without a search.")] = None,
    write_plan: Annotated[Path | None, typer.Option(help="Write the plan (.toml) [beside -o].")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a .html, .json or .txt report as well.")] = None,
    preprocess: o.PreprocessOption = "",
    stacked: o.StackedOption = False,
    shapes: o.ShapesOption = None,
    samples: o.SamplesOption = None,
    seed: o.SeedOption = 0,
    threads: Annotated[int, typer.Option(help="Threads inside an operator [the runtime's choice].")] = 0,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json or html.")] = "text",
    memory: o.MemoryOption = "512MiB",
    quiet: o.QuietOption = False,
) -> int:
    """Finds which nodes to keep in FP32, writes the model and certifies it; 1: infeasible, 3: not certified."""
    from parityscope.report.repair import FORMATS, render

    if format_name not in FORMATS:
        raise ParityError(f"a repair has no format {format_name!r}", fix=f"use one of: {', '.join(FORMATS)}")
    written = _plan_path(output, write_plan)
    kind = _report_format(report)
    for number, name in (
        (search_samples, "search-samples"),
        (held_out, "held-out"),
        (margin, "margin"),
        (pick, "pick"),
    ):
        if number < 0 or (name == "margin" and 0 < number < 1):
            raise ParityError(f"--{name} {number:g} makes no sense", fix=f"leave --{name} out, or use a larger number")
    if settings and output is None:
        raise ParityError("--settings are written beside -o, and there is none", fix="add -o FIXED.onnx")
    functions = _functions(metric)
    budgets = _budgets(budget, functions, policy)
    data = {"preprocess": preprocess, "stacked": stacked, "samples": samples, "seed": seed}
    with o.spool() as scratch, tempfile.TemporaryDirectory(prefix="parityscope-repair-") as folder:
        task = _task(model, inputs, scratch, candidate, low, types, shapes=shapes, data=data)
        task = replace(
            task,
            budgets=budgets,
            functions=functions,
            floor=floor,
            search_samples=search_samples,
            held_out=held_out,
            margin=margin,
            evaluations=evaluations,
            sensing=sensing,
            seconds=o.seconds_of(time),
            pick=pick,
            seed=seed,
            range_repairs=not no_range_repairs,
            consents=tuple(consent or ()),
            profile=profile,
            memory=o.size_of(memory),
            threads=threads,
        )
        if settings and task.typed:
            fix = "add --types f32: a strongly typed model needs no settings"
            raise ParityError("--settings are for runtimes that convert an FP32 model", fix=fix)
        outcome, task = _outcome(task, Path(folder), output, plan, quiet=quiet)
        document = _document(outcome, task, output)
    if written is not None and outcome.verdict != "infeasible" and plan is None:
        from parityscope.repairs.plan import plan_text

        written.write_text(plan_text(task.model, task.budgets, outcome), encoding="utf-8")
    if settings and output is not None and output.exists():
        _write_settings(settings, outcome, output)
    if report is not None:
        report.write_text(render(document, kind), encoding="utf-8")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    print(render(document, format_name, width=width, color=color), end="")
    if not quiet:
        where = f"; the model is {document['output']}" if document["output"] else "; no model was written"
        print(f"{outcome.verdict}{where}", file=sys.stderr)
    return _EXITS[outcome.verdict]


def _task(
    path: Path,
    inputs: str,
    scratch: Path,
    candidate: str,
    low: str,
    types: str,
    *,
    shapes: list[str] | None,
    data: dict[str, Any],
) -> Task:
    """The model, its data, and what the target asks for."""
    from parityscope.backends.targets import parse_target
    from parityscope.case import load_inputs, load_model
    from parityscope.repairs.search import Task

    if types not in {"", "strong", "f32"}:
        raise ParityError(f"--types {types!r} is not known", fix="use --types strong or --types f32")
    target = parse_target(candidate) if candidate else None
    if target is not None and low and target.precision and low != target.precision:
        raise ParityError(f"--low {low} contradicts --candidate {candidate}", fix="leave one of them out")
    chosen = low or (target.precision if target is not None else "") or "f16"
    strong = types == "strong" if types else target is None or target.backend not in _CONVERT
    model = load_model(path)
    loaded = load_inputs(model, inputs or None, spool=scratch, shapes=o.shapes_of(shapes) or None, **data)
    return Task(model=model, inputs=loaded, low=chosen, budgets=(), typed=strong)


def _outcome(task: Task, folder: Path, output: Path | None, plan: Path | None, *, quiet: bool) -> tuple[Outcome, Task]:
    from parityscope.repairs.plan_certified import certified_plan
    from parityscope.repairs.search import search

    progress = o.progress_for(quiet=quiet)
    if plan is None:
        return search(task, folder, output, progress), task
    from parityscope.repairs.plan import read_plan

    held = read_plan(plan)
    task = replace(task, low=held.low, typed=held.typed)
    return certified_plan(held, task, folder, output, progress), task


def _document(outcome: Outcome, task: Task, output: Path | None) -> dict[str, Any]:
    import parityscope
    from parityscope.report.repair import document

    line = shlex.join(["parityscope", *sys.argv[1:]])
    there = output if output is not None and output.exists() else None
    return document(outcome, task, version=parityscope.__version__, command=line, output=there)


def _write_settings(kinds: list[str], outcome: Outcome, output: Path) -> None:
    """What runtimes take that are told by settings which nodes to keep, beside the model; its FP32 form names the nodes."""
    from parityscope.case.model import read_graph
    from parityscope.repairs.settings import settings_for

    kept = {one.node: "f32" for one in outcome.kept}
    for kind in kinds:
        written = settings_for(kind, kept, read_graph(output), low=outcome.low)
        path = output.with_name(f"{output.stem}.{written.filename}")
        if path.exists():
            raise ParityError(f"{path} exists already", where=str(path), fix="remove it, or choose another -o")
        path.write_text(written.text, encoding="utf-8")


def _budgets(items: list[str] | None, functions: dict[str, UserFunction], policy: Path | None) -> tuple[Budget, ...]:
    """Budgets of the options, of the policy file, or the default; `NAME=VALUE` may name a function of the user's."""
    from parityscope.records import Budget

    own, rest = [], []
    for item in items or []:
        head, _, value = item.rpartition("=")
        if head in functions:
            own.append(Budget(output="", metric=head, limit=_limit(item, value), reason="given with --budget"))
        else:
            rest.append(item)
    missing = sorted(set(functions) - {one.metric for one in own})
    if missing:
        raise ParityError(f"the metric {missing[0]!r} has no budget", fix=f"add --budget {missing[0]}=VALUE")
    found = (*o.budgets_of(rest), *own)
    if policy is not None and not found:
        from parityscope.case.policy_file import read_policy
        from parityscope.study import known_metrics

        found = read_policy(policy, known_metrics()).policy.budgets
    default = Budget(output="", metric="rel_l2", limit=_DEFAULT_LIMIT, reason="the default of this command")
    return found or (default,)


def _limit(item: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise ParityError(f"--budget {item!r} is not NAME=VALUE", fix="write --budget accuracy=0.99") from error


def _functions(items: list[str] | None) -> dict[str, UserFunction]:
    from parityscope.case.formats.loader import find_function

    return {item.rpartition(":")[2]: find_function(item) for item in items or []}


def _plan_path(output: Path | None, given: Path | None) -> Path | None:
    path = given or (None if output is None else output.with_suffix(".plan.toml"))
    if path is not None and path.exists():
        raise ParityError(f"{path} exists already", where=str(path), fix="choose another --write-plan, or remove it")
    return path


def _report_format(report: Path | None) -> str:
    if report is None:
        return "text"
    kinds = {".html": "html", ".json": "json", ".txt": "text"}
    if report.suffix not in kinds:
        raise ParityError(f"--report {report} has no suffix that says how to write it", fix="use .html, .json or .txt")
    if report.exists():
        raise ParityError(f"{report} exists already", where=str(report), fix="choose another --report, or remove it")
    return kinds[report.suffix]
