"""`parityscope repair`: the smallest change that meets the budget, written as a model and proved on held-out samples."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import claim_file
from parityscope.cli.shell.progress import name_caller
from parityscope.errors import ParityError
from parityscope.plain_numbers import plain_number
from parityscope.request import Data, Judged

if TYPE_CHECKING:
    from collections.abc import Collection

    from parityscope.cli.shell.answering import Answer
    from parityscope.records import Budget

NAME = "repair"


def command(
    model: o.ModelArgument,
    *,
    data: Data,
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
    judged: Judged,
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
    from parityscope.api.shared.repairs import RepairAsked, functions_of, plan_path, report_repair
    from parityscope.repairs.search.writing import check_output
    from parityscope.report.repair import FORMS, has_succeeded

    file, answer = answer.take_file(output or [])
    answer.claim(FORMS)
    check_output(file, model)
    claim_file(file, "-o")
    claim_file(plan_path(file, write_plan), "--write-plan")
    functions = functions_of(metric or [])
    stated, limits = _split_budgets(budget or [], functions)
    asked = RepairAsked(
        candidate=candidate,
        low=low,
        types=types,
        budgets=stated,
        functions=functions,
        limits=limits,
        judged=judged,
        floor=floor,
        search_samples=search_samples,
        held_out=held_out,
        margin=margin,
        evaluations=evaluations,
        sensing=sensing,
        seconds=o.seconds_of(time),
        pick=pick,
        range_repairs=not no_range_repairs,
        consents=tuple(consent or ()),
        profile=profile,
        threads=threads,
        settings=tuple(settings or ()),
        plan=plan,
        output=file,
        write_plan=write_plan,
    )
    found = report_repair(model, data, asked, caller=name_caller(quiet=answer.quiet))
    document, outcome = found.document, found.record
    answer.hand_over(FORMS, document)
    if not answer.quiet:
        if outcome.resumed:
            print(f"{outcome.resumed} runs of an interrupted search were taken over", file=sys.stderr)
        where = f"; the model is {document['output']}" if document["output"] else "; no model was written"
        said = "within budget on every sample tried" if has_succeeded(document) else outcome.verdict
        print(f"{said}{where}", file=sys.stderr)
    return found.exit


def _split_budgets(items: list[str], functions: Collection[str]) -> tuple[tuple[Budget, ...], dict[str, float]]:
    """The budgets in our metrics, and the limits of metrics of the user's: `NAME=VALUE` may name one of `functions`.

    Raises:
        ParityError: an item cannot be read.
    """
    limits: dict[str, float] = {}
    rest = []
    for item in items:
        name, _, value = item.rpartition("=")
        if name not in functions:
            rest.append(item)
            continue
        limits[name] = plain_number(value)
        if math.isnan(limits[name]):
            raise ParityError(f"--budget {item!r} is not NAME=VALUE", fix="write --budget accuracy=0.99")
    return o.budgets_of(rest), limits
