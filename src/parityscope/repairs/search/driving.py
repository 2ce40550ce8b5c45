"""The whole search: screen, sense, cut, certify.

Sentences about an outcome: why each node is kept, what blocks, and what was found.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.backends.recording import ignore_progress
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.expectation.expecting import ErrorQuestion, expect_error, run_reference
from parityscope.light_dataclasses import dataclass, replace
from parityscope.memory import allow_memory
from parityscope.repairs.search.finding import find_cheapest
from parityscope.repairs.search.fp8 import chosen_products, scales_said
from parityscope.repairs.search.network import price_assignment
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.preparing import outcome_of, prepare_search
from parityscope.repairs.search.proving import certificate_of, certify_written, draws_of
from parityscope.repairs.search.records import KeptNode
from parityscope.repairs.search.second import Second, kept_in_bf16, offer_second_format
from parityscope.repairs.search.writing import (
    WrittenRepair,
    check_output,
    move_model,
    unwritable_nodes,
    write_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Sample
    from parityscope.repairs.search.network import CutNetwork
    from parityscope.repairs.search.preparing import SearchWork
    from parityscope.repairs.search.records import Certificate, Flag, Point, RepairOutcome, RepairTask, Verdict
    from parityscope.repairs.search.sense import Sensed

# The floor is measured for budgets below this only. Chosen: a hundred times what FP32 noise of 1e-6 would ask for.
_TIGHT = 1e-4
_SMALL = 0.01  # of the budget; a node that adds less is kept for the Casts that it saves
_NAMED = 5
_HARDLY = 0.9  # of the modelled time in FP32. Chosen
_ATTEMPTS = 3  # chosen: each one weakens the statement by the union bound
_LARGE = 1 << 28  # bytes of a model whose search gives its memory back while a certificate is made. Chosen
_STRICTER = 1.1  # beyond what the worst held-out sample asks for. Chosen


def search_repair(
    task: RepairTask, folder: Path, output: Path | None = None, progress: Progress = ignore_progress
) -> RepairOutcome:
    """Finds the cheapest assignment that meets the budgets, writes it to `output`, and certifies what was written.

    `folder` is a scratch folder. Nothing is written where nothing needs a repair, or where nothing meets the budget.

    Raises:
        ParityError: the model, the data or the options cannot be used, or a runtime fails.
    """
    check_output(output, task.model.path)
    allow_memory(task.memory)
    work = prepare_search(task, folder, progress)
    floor = _describe_floor(task, work.search)
    if floor:
        return replace(outcome_of(work, "infeasible", f"No assignment can meet the budget. {floor}."), blocks=(floor,))
    if work.original <= 1 / work.margin:
        # The repairs are not needed: what is searched and certified is the model as it is.
        work = prepare_search(replace(task, range_repairs=False), folder, progress)
    with contextlib.closing(work.journal):
        found = _search_and_conclude(work, output, progress)
        # A search that ran out of time or evaluations can go on from its record, as one that was interrupted can.
        if not work.finder.spent:
            work.journal.remove()
    return found


def _search_and_conclude(work: SearchWork, output: Path | None, progress: Progress) -> RepairOutcome:
    tried = _make_attempts(work, progress)
    if work.task.pick:
        return _conclude_outcome(work, _certify_picked(work, tried, progress), output)
    best = min(tried, key=lambda attempt: attempt.rank, default=None)
    if best is None:
        return _ended_early(work) if work.finder.spent else _infeasible_outcome(work)
    return _conclude_outcome(work, best, output)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """An assignment that was written and certified."""

    point: Point
    kept: tuple[KeptNode, ...]
    written: WrittenRepair
    certificate: Certificate

    @property
    def rank(self) -> tuple[bool, int, float]:
        """The best comes first: certified, then fewest failures, then cheapest."""
        return not self.certificate.certified, self.certificate.failures, self.point.seconds


def _make_attempts(work: SearchWork, progress: Progress) -> list[_Attempt]:
    """Certifies, and searches again with a stricter target while a held-out sample misses the budget."""
    strict = 1 / work.margin
    target, careful = _first_target(work, strict), False
    tried: list[_Attempt] = []
    for number in range(1, _ATTEMPTS + 1):
        found = find_cheapest(work.finder, target, careful=careful)
        if _is_useless(work, found.point):
            break
        point, brain = _offer_bf16(work, found.point, target)
        attempt = _make_attempt(work, point, brain, work.folder / f"attempt{number}.onnx", number, progress)
        tried.append(attempt)
        if not attempt.certificate.failures:
            break
        worst = attempt.certificate.worst
        careful = True
        # What held-out samples miss by is asked for beyond what this assignment reached on the search samples.
        reached = min(target, found.point.excess)
        target = min(strict, target if math.isinf(worst) else reached / (worst * _STRICTER))
    return tried


def _first_target(work: SearchWork, strict: float) -> float:
    """Without the margin where everything low meets the budget itself: whether that holds is for the certificate to say."""
    try:
        worst = work.finder.evaluate("all low", ~work.finder.forced, probe=True).excess
    except Spent:
        return strict
    return 1.0 if strict < worst <= 1 else strict


def _certify_picked(work: SearchWork, tried: list[_Attempt], progress: Progress) -> _Attempt:
    """The row of the Pareto front that the user picked: the front of the same search without --pick."""
    front = outcome_of(work, "unproved", "").front
    if work.task.pick > len(front):
        raise ParityError(
            f"the Pareto front has {len(front)} points, not {work.task.pick}", fix=f"use --pick 1 to {len(front)}"
        )
    point = front[work.task.pick - 1]
    known = next((one for one in tried if (one.point.kept, one.point.seconds) == (point.kept, point.seconds)), None)
    if known is not None:
        return known
    # Held-out samples on which an attempt failed have had a part in what was searched since.
    number = 1 + sum(bool(one.certificate.failures) for one in tried)
    brain = work.finder.offers.get(point, frozenset())
    return _make_attempt(work, point, brain, work.folder / "picked.onnx", number, progress)


def _is_useless(work: SearchWork, point: Point) -> bool:
    """Whether nothing of the model is left in low precision."""
    return len(point.kept) == len(work.finder.oracle.names) and bool(point.kept)


def _offer_bf16(work: SearchWork, point: Point, target: float) -> tuple[Point, frozenset[str]]:
    """The point, or one with some nodes in BF16 where that is a label; and those nodes."""
    if not (work.task.labels.second and point.kept):
        return point, frozenset()
    return offer_second_format(work.finder, point, target, _second_format(work))


def _make_attempt(
    work: SearchWork, point: Point, brain: frozenset[str], path: Path, number: int, progress: Progress
) -> _Attempt:
    started = time.monotonic()
    finder = work.finder
    kept = _kept_nodes(point, finder.flags, finder.sensed, finder.oracle.names, finder.network)
    kept = kept_in_bf16(kept, brain, finder.flags)
    written = write_assignment(
        work.screened.model, work.task.labels.storage, kept, path, typed=work.task.typed, products=work.products
    )
    if work.screened.model.nbytes > _LARGE:
        finder.oracle.rest()
    proof = prove_written(work, written, point, number, progress)
    work.seconds["certify"] = work.seconds.get("certify", 0.0) + time.monotonic() - started
    return _Attempt(point=point, kept=kept, written=written, certificate=proof)


def _second_format(work: SearchWork) -> Second:
    """What it takes to offer BF16 to nodes."""
    model = work.screened.model
    return Second(
        model=model,
        products=work.products,
        unwritable=unwritable_nodes(model.graph(), "bf16"),
        threads=work.task.threads,
        full=work.task.labels.full,
    )


def prove_written(
    work: SearchWork, written: WrittenRepair, point: Point, attempts: int, progress: Progress
) -> Certificate:
    """The certificate of a written model; without held-out samples it says that there are none."""
    if not len(work.held_out):
        return certificate_of((), attempts=attempts)
    keep = None if written.casts is not None else (work.task.labels.storage, point.kept)
    draws = draws_of(load_model(written.path), work.task.threads, keep, work.task.labels.full)

    def reference(sample: Sample) -> Mapping[str, np.ndarray]:
        return work.reference(sample.arrays)

    return certify_written(
        draws, reference, list(work.held_out), work.held, attempts=attempts, seed=work.task.seed, progress=progress
    )


def _conclude_outcome(work: SearchWork, best: _Attempt, output: Path | None) -> RepairOutcome:
    proof, point = best.certificate, best.point
    verdict: Verdict
    # Of FP8 somebody has to know the scales: it is written even where all of it meets the budget.
    untouched = not point.kept and not work.screened.edits and not work.products
    if untouched and not proof.failures and not work.task.pick:
        verdict = "nothing" if proof.certified else "unproved"
        statement = f"{_say_nothing_needed(work)} {proof.statement}"
    else:
        verdict = "certified" if proof.certified else "unproved"
        brain = sum(one.format == "bf16" for one in best.kept)
        statement = _describe_outcome(work.task, point, work.finder.network, len(work.screened.edits), proof, brain)
        if output is not None:
            move_model(best.written.path, output)
    base = outcome_of(work, "certified", statement)
    return replace(
        base,
        verdict=verdict,
        kept=best.kept,
        chosen=point,
        certificate=proof,
        casts_written=best.written.casts,
        scales=_scales_of_products(work, point),
        skipped=(*base.skipped, *best.written.notes),
    )


def _scales_of_products(work: SearchWork, point: Point) -> dict[str, dict[str, float]]:
    chosen = chosen_products(work.products, point.kept)
    return scales_said(chosen, work.screened.model.graph()) if chosen else {}


def _say_nothing_needed(work: SearchWork) -> str:
    return f"Nothing needs a repair: everything in {work.task.labels.title} meets the budget; no file was written."


def _ended_early(work: SearchWork) -> RepairOutcome:
    statement = (
        f"The search ended after {work.finder.oracle.count} evaluations, before it found an assignment that meets the "
        "budget; give it more --time or --evaluations."
    )
    return outcome_of(work, "unproved", statement)


def _infeasible_outcome(work: SearchWork) -> RepairOutcome:
    point = min(work.finder.trail, key=lambda one: (one.excess, one.seconds))
    finder = work.finder
    blocks = _list_blocking(finder.flags, finder.sensed, finder.oracle.names)
    least = min((one for one in finder.trail if one.flops < 1), key=lambda one: one.excess, default=point)
    statement = (
        f"No assignment with anything in {work.task.labels.title} meets the budget. The nearest one with products in it makes "
        f"{least.excess:.3g} times the error allowed."
    )
    return replace(outcome_of(work, "infeasible", statement), chosen=least, blocks=blocks)


def _kept_nodes(
    point: Point, flags: Sequence[Flag], sensed: Sensed | None, names: Sequence[str], network: CutNetwork
) -> tuple[KeptNode, ...]:
    """The kept nodes of an assignment in graph order, each with why."""
    why = {flag.node: flag.text for flag in flags}
    place = {name: index for index, name in enumerate(names)}
    types = {vertex.name: vertex.op_type for vertex in network.vertices}
    found = []
    for name in point.kept:
        squared = math.nan if sensed is None else float(sensed.squared[place[name]])
        found.append(
            KeptNode(
                node=name,
                op_type=types.get(name, ""),
                reason=why.get(name) or _describe_error(squared, eighth=name.endswith(IN_FP8)),
                sensitivity=math.nan if name in why else squared,
            )
        )
    return tuple(found)


def _list_blocking(flags: Sequence[Flag], sensed: Sensed | None, names: Sequence[str]) -> tuple[str, ...]:
    """What stands in the way of more nodes in low precision, the heaviest first."""
    said = [f"{flag.node}: {flag.text}" for flag in flags][:_NAMED]
    if sensed is not None:
        order = sorted(range(len(names)), key=lambda index: (-sensed.squared[index], index))
        said.extend(f"{names[index]}: {_describe_error(float(sensed.squared[index]))}" for index in order[:_NAMED])
    return tuple(said)


def _describe_floor(task: RepairTask, search: Inputs) -> str:
    """Why even FP32 misses the budget; empty where it does not, or where the budget is far above any floor."""
    tight = [one for one in task.policy.budgets if one.metric == "rel_l2" and one.limit < _TIGHT]
    if not tight:
        return ""
    names = [value.name for value in task.model.outputs]
    plain = run_reference(task.model, search, search.indices)
    question = ErrorQuestion(
        model=task.model,
        inputs=search,
        samples=search.indices,
        tensors=names,
        formats=(),
        reference=lambda index, name: plain.get(index, {}).get(name),
    )
    floor = expect_error(question).errors["f32"]
    for budget in tight:
        for name in [budget.output] if budget.output else names:
            if floor.get(name, 0.0) >= budget.limit:
                return (
                    f"Two honest FP32 evaluations of {name} are {floor[name]:.2g} apart, which is more than the "
                    f"budget of {budget.limit:g}: even FP32 misses it"
                )
    return ""


def _describe_outcome(
    task: RepairTask, point: Point, network: CutNetwork, edits: int, certificate: Certificate, brain: int = 0
) -> str:
    """The outcome in words; `brain` of the kept nodes are in BF16."""
    title, nodes = task.labels.title, network.decisions
    eighths = sum(vertex.name.endswith(IN_FP8) for vertex in network.vertices)
    beyond = sum(name.endswith(IN_FP8) for name in point.kept)
    kept, others = len(point.kept) - beyond - brain, nodes - eighths
    changed = f"after {edits} range repair{'' if edits == 1 else 's'} " if edits else ""
    what = f"{eighths - beyond} of {eighths} products are in FP8" if eighths else ""
    what += ", and " if eighths and others else ""
    if others and not kept:
        what += f"no node is left in FP32 {changed}".rstrip()
    elif others:
        what += f"{kept} of {others} nodes stay in FP32 {changed}({point.flops:.1%} of the FLOPs)"
    what += f", {brain} {'is' if brain == 1 else 'are'} in BF16" if brain else ""
    full = price_assignment(network, np.zeros(nodes, np.bool_)).seconds
    slow = " By the cost model it is hardly faster than FP32." if point.seconds > _HARDLY * full else ""
    return f"{title}: {what}. {certificate.statement}{slow}"


def _describe_error(squared: float, *, eighth: bool = False) -> str:
    if math.isnan(squared):
        return "its error was not measured"
    if math.isinf(squared):
        return "an output is not finite with it in low precision, or it was not measured"
    share = math.sqrt(squared)
    if share < _SMALL:
        return "FP8 saves it no time" if eighth else "cheaper in FP32 than the Casts around it"
    return f"its rounding alone makes {share:.2g} times the error that the budget allows"
