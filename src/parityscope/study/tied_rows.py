"""Rows that a sort gave in another order because their scores tie: they are paired before they are judged.

Which of two rows with one score comes first is nobody's mistake. A tie is proved where the scores that TopK gives, or that
are read where a suppression says, are, place by place, what the arithmetic allows, and where, row by row, every output is.

Scores that are no output are computed in the reference's graph. Rows that passed each other are then held against how far honest
draws scatter about what their scores differ by, as every changed decision is (`changed_decisions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.decisions import GAP, Decided, choices_that_passed
from parityscope.comparison.rows import match_rows, row_axis
from parityscope.errors import ParityError
from parityscope.expectation.grades import FORMATS, margin_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import operators_that_move, role_of, with_trait
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.examination import Examination

_SORT, _SUPPRESSION = "TopK", "NonMaxSuppression"
_IN_ORDER = with_trait("passes on") | operators_that_move("in order")
_LAYS_OUT = _IN_ORDER | operators_that_move("permuted")
_PICKS = operators_that_move("picked")


def pair_tied_rows(judged: Examination, judge_paired: Callable[[tuple[str, ...]], Examination]) -> Examination:
    """The examination with rows of tied scores paired, where that makes all of it within; else as it was judged.

    `judge_paired` compares and judges once more, with the rows of the outputs of these names paired.

    Raises:
        ParityError: a side cannot run once more.
    """
    if judged.verdict != "beyond" or judged.case.policy.matched:
        return judged
    sorts = _sorts_of_graph(judged.graph)
    if not sorts:
        return judged
    from parityscope.checks.row_order import outputs_behind_sorts

    scores = _scores_of_sorts(judged.graph)
    beyond = {pair.site.tensor for pair in judged.beyond}
    for names in outputs_behind_sorts(judged):
        told_by_outputs = bool(scores & set(names))
        if not scores & set(names) & beyond:
            paired = judge_paired(names)
            if paired.verdict == "within" and (told_by_outputs or _are_ties(judged, names, sorts)):
                told = f"the order of the rows of {', '.join(names)}"
                return paired.skipping(Skip(what=told, reason="rows that stand in another order have the same scores"))
    return judged


def _scores_of_sorts(model: ir.Model) -> set[str]:
    """The values that hold what a sort of the main graph sorted by, in its order."""
    found: set[str] = set()
    origin: dict[str, str] = {}  # what a value lays out otherwise
    suppressed: set[str] = set()  # what suppressions sort by
    chosen: set[str] = set()  # what depends on what they choose
    for node in model.graph:
        given = ["" if value is None else str(value.name) for value in node.inputs]
        made = [str(value.name) for value in node.outputs]
        read = given[0] if given else ""
        if node.op_type == _SORT or (node.op_type in _IN_ORDER and read in found):
            found.add(made[0])
        if node.op_type in _LAYS_OUT:
            origin[made[0]] = origin.get(read, read)
        if node.op_type == _SUPPRESSION:
            suppressed.add(origin.get(given[1], given[1]))
        picks = node.op_type in _PICKS and role_of(node.op_type, 1) == "indices"
        if picks and given[1] in chosen and origin.get(read, read) in suppressed:
            found.add(made[0])
        if node.op_type == _SUPPRESSION or chosen & set(given):
            chosen.update(made)
    return found


@dataclass(frozen=True, slots=True)
class _Sort:
    """What a sort of the main graph reads as scores, and where it gives which of them it chose: values of the graph."""

    scores: str
    chosen: str
    suppresses: bool

    def places(self, scores: np.ndarray, chosen: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray] | None:
        """For each row of a batch index its flat place but for the last axis, and its index there: int64, (rows,)."""
        if self.suppresses:  # (rows, 3): batch, class, box
            kept = chosen[chosen[:, 0] == batch] if len(chosen) else chosen
            return kept[:, 0] * scores.shape[1] + kept[:, 1], kept[:, 2]
        if scores.ndim > 2 or (scores.ndim == 2 and batch >= len(chosen)):
            return None
        own = chosen.reshape(-1, chosen.shape[-1])[batch if scores.ndim == 2 else 0]
        return np.full(len(own), batch if scores.ndim == 2 else 0), own


def _sorts_of_graph(model: ir.Model) -> list[_Sort]:
    found = []
    for node in model.graph:
        if node.op_type == _SORT and node.inputs[0] is not None and len(node.outputs) > 1:
            found.append(_Sort(str(node.inputs[0].name), str(node.outputs[1].name), suppresses=False))
        elif node.op_type == _SUPPRESSION and node.inputs[1] is not None:
            found.append(_Sort(str(node.inputs[1].name), str(node.outputs[0].name), suppresses=True))
    return found


def _are_ties(judged: Examination, names: Sequence[str], sorts: Sequence[_Sort]) -> bool:
    """Whether the rows that passed each other on any sample have scores that the declared arithmetic does not tell apart.

    Of several sorts the first is taken that gives as many rows on every sample.
    """
    try:
        orders = _orders_by_sample(judged, names)
        return orders is not None and any(_explain_order(judged, orders, one) for one in sorts)
    except ParityError:  # a side that cannot run again, or scores that cannot be computed
        return False


def _orders_by_sample(judged: Examination, names: Sequence[str]) -> dict[int, list[np.ndarray]] | None:
    """By sample, where rows moved: which row of the candidate each of the reference's is, for each batch index."""
    from parityscope.backends import Capture
    from parityscope.backends.opening import open_target

    found: dict[int, list[np.ndarray]] = {}
    model = judged.case.model
    with (
        open_target(model, judged.reference, Capture()) as mine,
        open_target(model, judged.candidate, Capture()) as its,
    ):
        for sample in judged.case.inputs:
            sides = mine.run(sample), its.run(sample)
            rows = [sides[0][name] for name in names], [sides[1][judged.names.get(name, name)] for name in names]
            if any(one.shape != other.shape for one, other in zip(*rows, strict=True)):
                return None
            orders = match_rows(*rows)
            if orders is None:
                return None
            if row_axis([one.shape for one in rows[0]]) == 0:
                orders = orders[:1]
            if any((order != np.arange(len(order))).any() for order in orders):
                found[sample.index] = orders
    return found


def _explain_order(judged: Examination, orders: Mapping[int, list[np.ndarray]], sort: _Sort) -> bool:
    """Whether honest draws explain each two rows that stand in another order than their scores."""
    from parityscope.study.changed_decisions import worst_of_draws
    from parityscope.study.flips import Flips

    values = _reference_values(judged, sorted(orders), (sort.scores, sort.chosen))
    rows = []
    for sample, held in orders.items():
        scores, chosen = (values[sample][name] for name in (sort.scores, sort.chosen))
        for batch, order in enumerate(held):
            placed = sort.places(scores, chosen, batch)
            if placed is None or len(placed[1]) != len(order):
                return False
            rows.append(choices_that_passed(scores, *placed, order, sample))
    flips = np.concatenate(rows) if rows else np.zeros((0, 7))
    if not len(flips):
        return bool(orders)
    declared = judged.case.policy.declared
    if not flips[:, GAP].any():
        return True
    if declared not in {"f32", *FORMATS}:
        return False
    asked = Flips(
        decided=Decided(kind="order", count=len(flips), changed=len(flips), flips=flips, axis=-1),
        flips=flips,
        tensor=sort.scores,
        margin=margin_of(declared),
        least=0.0,
        error=None if declared in FORMATS else float("nan"),
    )
    worst = worst_of_draws(judged, asked)
    return worst is not None and worst.explained


def _reference_values(
    judged: Examination, samples: Sequence[int], names: tuple[str, ...]
) -> dict[int, Mapping[str, np.ndarray]]:
    from parityscope.evaluation.evaluating import run_world
    from parityscope.evaluation.program import wide_program
    from parityscope.evaluation.sessions import Sessions
    from parityscope.evaluation.worlds import World

    plain, sessions = World(name="reference", program=wide_program(judged.case.model)[1]), Sessions()
    inputs = judged.case.inputs
    return {index: run_world(plain, inputs.sample(index).arrays, names, sessions) for index in samples}
