"""Rows that a sort gave in another order because their scores tie: they are paired before they are judged.

Which of two rows with one score comes first is nobody's mistake. A tie is proved where the scores that TopK gives, or that
are read where a suppression says, are, place by place, what the arithmetic allows, and where, row by row, every output is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators import operators_that_move, role_of, with_trait
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.examination import Examination

__all__ = ["pair_tied_rows"]

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
    scores = _scores_of_sorts(judged.graph)
    if not scores:
        return judged
    from parityscope.checks.row_order import outputs_behind_sorts

    beyond = {pair.site.tensor for pair in judged.beyond}
    for names in outputs_behind_sorts(judged):
        if scores & set(names) and not scores & set(names) & beyond:
            paired = judge_paired(names)
            if paired.verdict == "within":
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
