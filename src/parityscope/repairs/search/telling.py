"""Sentences about an outcome: why each node is kept, what blocks, and what was found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.expectation.expecting import ErrorQuestion, expect_error, run_reference
from parityscope.repairs.search.network import price_assignment
from parityscope.repairs.search.records import KeptNode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.case import Inputs
    from parityscope.repairs.search.network import CutNetwork
    from parityscope.repairs.search.records import Certificate, Flag, Point, RepairTask
    from parityscope.repairs.search.sense import Sensed

__all__ = ["describe_floor", "describe_outcome", "kept_nodes", "list_blocking"]

# The floor is measured for budgets below this only. Chosen: a hundred times what FP32 noise of 1e-6 would ask for.
_TIGHT = 1e-4
_SMALL = 0.01  # of the budget; a node that adds less is kept for the Casts that it saves
_NAMED = 5
_HARDLY = 0.9  # of the modelled time in FP32. Chosen


def kept_nodes(
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


def list_blocking(flags: Sequence[Flag], sensed: Sensed | None, names: Sequence[str]) -> tuple[str, ...]:
    """What stands in the way of more nodes in low precision, the heaviest first."""
    said = [f"{flag.node}: {flag.text}" for flag in flags][:_NAMED]
    if sensed is not None:
        order = sorted(range(len(names)), key=lambda index: (-sensed.squared[index], index))
        said.extend(f"{names[index]}: {_describe_error(float(sensed.squared[index]))}" for index in order[:_NAMED])
    return tuple(said)


def describe_floor(task: RepairTask, search: Inputs) -> str:
    """Why even FP32 misses the budget; empty where it does not, or where the budget is far above any floor."""
    tight = [one for one in task.budgets if one.metric == "rel_l2" and one.limit < _TIGHT]
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


def describe_outcome(
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
