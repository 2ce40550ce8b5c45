"""Rows that a sort gave in another order because their scores tie: they are paired before they are judged.

Which of two rows with one score comes first is nobody's mistake. A tie is proved where the scores that TopK gives are, place by
place, what the arithmetic allows, and where, row by row, every output is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators import with_trait
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.examination import Examination

__all__ = ["pair_tied_rows"]

_SORT = "TopK"
_HANDS_ON = with_trait("passes on")


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
    for node in model.graph:
        read = node.inputs[0].name if node.inputs and node.inputs[0] is not None else ""
        if node.op_type == _SORT or (node.op_type in _HANDS_ON and read in found):
            found.add(str(node.outputs[0].name))
    return found
