"""What a repair is asked, as options say it -> what is searched; and the files that are written beside the repaired model."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.errors import Exit, ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.private_folders import scratch_folder
from parityscope.records import Policy
from parityscope.request import Judged
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from parityscope.case import Model
    from parityscope.case.formats.loader import UserFunction
    from parityscope.records import Budget, Skip
    from parityscope.repairs.plan import RepairPlan
    from parityscope.repairs.search import RepairOutcome, RepairTask
    from parityscope.request import Data
    from parityscope.verification import Chosen

_EXITS = {
    "nothing": Exit.WITHIN,
    "certified": Exit.WITHIN,
    "unproved": Exit.INCOMPLETE,
    "infeasible": Exit.BEYOND,
}
_COUNTS = ("search_samples", "held_out", "margin", "pick", "evaluations", "sensing", "threads")
_PLACEHOLDER = "MODEL.onnx"  # what the exporters call the model


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAsked:
    """What a repair is asked beside its model and data; empty, zero and None leave it to the search.

    `candidate` is a target that the model is for, `low` the formats, `types` "strong" or "f32". `budgets` are in our metrics;
    `functions` are metrics of the user's by name (`functions_of`), and `limits` their budgets. `plan` is applied without a
    search; `output` and `write_plan` are the files that are written, `settings` the kinds of settings beside them. The others are
    fields of `RepairTask`.
    """

    candidate: str = ""
    low: str = ""
    types: str = ""
    budgets: tuple[Budget, ...] = ()
    functions: Mapping[str, UserFunction] = field(default_factory=lambda: MappingProxyType({}))
    limits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    judged: Judged = field(default_factory=Judged)
    floor: float | None = None
    search_samples: int = 0
    held_out: int = 0
    margin: float = 0.0
    evaluations: int = 0
    sensing: int = 0
    seconds: float = float("inf")
    pick: int = 0
    range_repairs: bool = True
    consents: tuple[str, ...] = ()
    profile: Path | None = None
    threads: int = 0
    settings: tuple[str, ...] = ()
    plan: Path | None = None
    output: Path | None = None
    write_plan: Path | None = None


def report_repair(path: Path, data: Data, asked: RepairAsked, *, caller: Caller = PYTHON) -> Report[RepairOutcome]:
    """Searches the smallest change that keeps the budgets, or applies a plan, writes the files, and certifies it.

    Raises:
        ParityError: bad input, options that contradict each other, a format that cannot be searched, or a file that cannot be
            written.
    """
    from parityscope.case import load_model
    from parityscope.repairs.search.writing import check_output
    from parityscope.report.repair import FORMS, has_succeeded, repair_document

    check_output(asked.output, path)
    _check_counts(asked)
    _check_settings(asked.settings, asked.output)
    with scratch_folder("spool") as spool, scratch_folder("repair") as folder:
        model = load_model(path)
        task = _task_of(asked, model, data, Path(spool))
        held = None
        if asked.plan is not None:
            held = _plan_of(asked.plan, asked)
            own = bool(asked.budgets or asked.functions or asked.judged.policy)
            policy = task.policy
            if not own:
                policy = replace(policy, budgets=_budgets_of_plan(held, policy.budgets))
            task = replace(task, low=held.low, typed=held.typed, policy=policy)
        if asked.settings and task.typed:
            fix = "add --types f32: a strongly typed model needs no settings"
            raise ParityError("--settings are for runtimes that convert an FP32 model", fix=fix)
        outcome = _outcome_of(task, Path(folder), asked.output, held, caller)
        written = asked.output if asked.output is not None and asked.output.exists() else None
        if asked.settings and written is not None:
            notes = _write_settings(asked.settings, outcome, written)
            outcome = replace(outcome, skipped=(*outcome.skipped, *notes))
        document = repair_document(outcome, task, command=caller.command, output=written)
    # A search that ended before it found anything has no plan, nor has a model that needs no change.
    changes = bool(outcome.kept or outcome.edits or outcome.scales)
    found = changes and outcome.chosen is not None and outcome.verdict != "infeasible"
    place = plan_path(asked.output, asked.write_plan)
    if place is not None and found and held is None:
        _write_plan(place, outcome, task)
    status = Exit.WITHIN if has_succeeded(document) else _EXITS[outcome.verdict]
    if status == Exit.WITHIN and any(skip.asked for skip in task.inputs.not_judged):
        status = Exit.INCOMPLETE
    return Report(document=document, record=outcome, forms=FORMS, exit=status)


def _task_of(asked: RepairAsked, model: Model, data: Data, spool: Path) -> RepairTask:
    from parityscope.repairs.search import RepairTask

    low, typed = _aim_of(asked.candidate, asked.low, asked.types)
    policy = _judged_of(asked, _budgets_of(asked), model)
    return RepairTask(
        model=model,
        inputs=data.load_samples(model, spool),
        low=low,
        typed=typed,
        policy=policy,
        functions=asked.functions,
        floor=asked.floor,
        search_samples=asked.search_samples,
        held_out=asked.held_out,
        margin=asked.margin,
        evaluations=asked.evaluations,
        sensing=asked.sensing,
        seconds=asked.seconds,
        pick=asked.pick,
        seed=data.seed,
        range_repairs=asked.range_repairs,
        consents=_consents_of(asked.consents),
        profile=asked.profile,
        journal=None if asked.output is None else asked.output.with_suffix(".search.jsonl"),
        memory=data.memory,
        threads=asked.threads,
    )


def _outcome_of(
    task: RepairTask, folder: Path, output: Path | None, plan: RepairPlan | None, caller: Caller
) -> RepairOutcome:
    from parityscope.repairs.plan_certified import certified_plan
    from parityscope.repairs.search import search_repair

    if plan is None:
        return search_repair(task, folder, output, caller.progress)
    return certified_plan(plan, task, folder, output, caller.progress)


def _check_counts(asked: RepairAsked) -> None:
    """Checks the numbers that have a meaning in a range only; 0 is "chosen by the search" for all of them.

    Raises:
        ParityError: one is negative, or a margin would loosen the budget.
    """
    for name in _COUNTS:
        number = getattr(asked, name)
        if number < 0 or (name == "margin" and 0 < number < 1):
            option = name.replace("_", "-")
            raise ParityError(
                f"--{option} {number:g} makes no sense", fix=f"leave --{option} out, or use a larger number"
            )


def _aim_of(candidate: str, low: str, types: str) -> tuple[str, bool]:
    """The low format, and whether types and Casts are written into the model, by the target where no option says it.

    Raises:
        ParityError: an option is not known, or two contradict each other.
    """
    from parityscope.arithmetic.formats import format_word
    from parityscope.backends import known_backend
    from parityscope.backends.targets import parse_target

    low = ",".join(format_word(one) for one in low.split(",")) if low else low
    if types not in {"", "strong", "f32"}:
        raise ParityError(f"--types {types!r} is not known", fix="use --types strong or --types f32")
    target = parse_target(candidate) if candidate else None
    if target is not None and low and target.precision and low != target.precision:
        raise ParityError(f"--low {low} contradicts --candidate {candidate}", fix="leave one of them out")
    chosen = low or (target.precision if target is not None else "") or "f16"
    # A runtime that converts an FP32 model by itself gets the range repairs in FP32 and no Casts.
    converts = target is not None and (found := known_backend(target.backend)) is not None and found.converts
    return chosen, types == "strong" if types else not converts


def _budgets_of(asked: RepairAsked) -> tuple[Budget, ...]:
    """The budgets that were stated, those of the policy, or the default.

    Raises:
        ParityError: the policy cannot be read, or a metric of the user's has no budget.
    """
    from parityscope.records import Budget
    from parityscope.repairs.search import DEFAULT_BUDGET

    own = (
        Budget(output="", metric=name, limit=limit, reason="given with --budget")
        for name, limit in asked.limits.items()
    )
    missing = sorted(set(asked.functions) - set(asked.limits))
    if missing:
        raise ParityError(f"the metric {missing[0]!r} has no budget", fix=f"add --budget {missing[0]}=VALUE")
    return (*asked.budgets, *own) or _policy_of(asked).budgets or (DEFAULT_BUDGET,)


def _policy_of(asked: RepairAsked) -> Policy:
    """The policy that is given, read where it is a file; an empty one where there is none."""
    if asked.judged.policy is None or isinstance(asked.judged.policy, Policy):
        return asked.judged.policy or Policy()
    from parityscope.case.policy_file import read_policy
    from parityscope.study import known_metrics

    return read_policy(Path(asked.judged.policy), known_metrics()).policy


def _consents_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """The repairs that may change the function.

    Raises:
        ParityError: one of them is none.
    """
    if not names:
        return ()
    from parityscope.repairs import known_repairs

    known = sorted(name for name, repair in known_repairs().items() if repair.consent)
    for name in names:
        if name not in known:
            raise ParityError(
                f"--consent {name!r} is no repair that asks for it", fix=f"use one of: {', '.join(known)}"
            )
    return names


def _plan_of(path: Path, asked: RepairAsked) -> RepairPlan:
    """The plan that is to be applied, which says itself what options of a search would say.

    Raises:
        ParityError: it cannot be read, or one of these options is given.
    """
    from parityscope.repairs.plan import read_plan

    for name, given in (("low", asked.low), ("types", asked.types), ("pick", asked.pick)):
        if given:
            raise ParityError(
                f"--{name} is for a search, and --plan applies what is written there", fix=f"leave --{name} out"
            )
    return read_plan(path)


def _budgets_of_plan(plan: RepairPlan, default: tuple[Budget, ...]) -> tuple[Budget, ...]:
    """The budgets that a plan was found for, for a new certificate; the default where it names none.

    Raises:
        ParityError: one is in a metric of the user's.
    """
    from parityscope.study import known_metrics

    unknown = sorted({one.metric for one in plan.budgets} - set(known_metrics()))
    if unknown:
        raise ParityError(
            f"the plan has a budget in {unknown[0]!r}, which is no metric of ours",
            fix=f"add --metric and --budget {unknown[0]}=VALUE, as for the search",
        )
    return plan.budgets or default


def _judged_of(asked: RepairAsked, budgets: tuple[Budget, ...], model: Model) -> Policy:
    """The budgets, outputs whose rows have no order and what others decide: as it was said, else as the policy says.

    Raises:
        ParityError: the model has no such output, or none that a budget is for, or the policy cannot be read.
    """
    from parityscope.case.policy import fit_policy

    return fit_policy(replace(asked.judged.override(_policy_of(asked)), budgets=budgets), model)


def plan_path(output: Path | None, given: Path | None) -> Path | None:
    """Where the plan goes: what is given, else beside `output`; None for nowhere."""
    return given or (None if output is None else output.with_suffix(".plan.toml"))


def _write_plan(path: Path, outcome: RepairOutcome, task: RepairTask) -> None:
    from parityscope.repairs.plan import plan_text

    write_whole(path, plan_text(task.model, task.policy.budgets, outcome, task.inputs.sha256))


def _check_settings(kinds: Sequence[str], output: Path | None) -> None:
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


def _write_settings(kinds: Sequence[str], outcome: RepairOutcome, output: Path) -> tuple[Skip, ...]:
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


def functions_of(metrics: Sequence[str | Callable[..., Any]]) -> dict[str, UserFunction]:
    """Metrics by name, as functions of one sample: (reference's outputs, candidate's outputs) -> float.

    Each is such a function, "file.py:function", or the name of a task metric, which is asked about one sample at a time with the
    reference's own answer for the right one: it is agreement with the reference's decisions, measured without labels.

    Raises:
        ParityError: there is no such function or metric.
    """
    from parityscope.case.formats.loader import find_function, handed_function, is_function
    from parityscope.verification import chosen_metric

    found: dict[str, UserFunction] = {}
    for item in metrics:
        if not isinstance(item, str):
            user = handed_function(item)
            found[user.text] = user
        elif is_function(item):
            found[item.rpartition(":")[2]] = find_function(item)
        else:
            chosen = chosen_metric(item)
            found[chosen.metric.name] = _agreement_of(chosen)
    return found


def _agreement_of(chosen: Chosen) -> UserFunction:
    from parityscope.case.formats.loader import UserFunction
    from parityscope.verification import TaskAnswer

    metric = chosen.metric

    def value(reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
        answer = TaskAnswer(name="a sample", outputs=candidate, reference=reference, labels=None)
        return float(metric.combine(metric.score([answer], chosen.options)))

    return UserFunction(text=chosen.text, folder=Path.cwd(), function=value)
