"""The candidate gives the same rows in another order.

What goes wrong: nothing but the comparison. Outputs that come out of TopK or non-maximum suppression have rows in the order of
scores; where two scores are nearly equal, a rounding error exchanges two rows, and every element of them then differs. Such
ties are looked for in the scores, those inside the reference's graph too, and judged row by row at once: nothing is wrong then.

How it shows: errors of the size of the outputs in some rows, none in others; task metrics do not change.

How we test for it: the rows of all outputs that share them are paired, those nearest to each other (`comparison.rows`). The
claim holds if that takes most of the error away, and each row of the candidate is used once. It is the cause if what is left is
what some arithmetic explains, or, of integers, in one row of twenty at most: else there are other rows as well, as another
threshold makes them, and the order is told beside that. Outputs whose order cannot have come from a sort (nothing of the
graph before them is a TopK or a NonMaxSuppression) are not asked.

What it is confused with: real errors that lie in few rows. Pairing cannot make those small: each row has to go somewhere.

How to repair: compare with `--match OUTPUT,OUTPUT`, so that what remains is judged.

Sources: RT-DETR's queries come out of a TopK.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._reproducing import limit_of, part_of_error
from parityscope.comparison.distance import distance_between
from parityscope.comparison.rows import match_outputs, match_rows, row_axis
from parityscope.operators import with_trait
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.bench import Bench
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]


_SORTS = with_trait("sorts")
_FALL = 2.0  # chosen: pairing has to take three quarters of the error (in squares) away
# Of the rows of integers, those that are others. Chosen: nearly equal scores at the end of a list let another row in.
_OTHERS = 0.05


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if (known.policy is not None and known.policy.matched) or not bench.samples:
        return
    for names in outputs_behind_sorts(known):
        yield Claim(
            words=f"the rows of {', '.join(names)} stand in another order",
            predicts=Prediction(
                change="the candidate's rows are paired with the reference's, the nearest first, all outputs together",
                measure="worst relative L2 of these outputs over the samples",
                if_true=f"it falls by a factor of {_FALL:g} or more",
                if_false="pairing changes little",
            ),
            cost_s=0.5,
            test=functools.partial(_test_claim, known, bench, names),
        )


def outputs_behind_sorts(known: Examination) -> list[tuple[str, ...]]:
    """Outputs beyond behind a sort, by the number of their rows."""
    sorted_ = _values_behind_sorts(known.graph)
    groups: dict[tuple[int, ...], list[str]] = {}
    for pair in known.outputs:
        axis = row_axis([pair.shape])
        if pair.site.tensor in sorted_ and axis is not None and pair.shape[axis] > 1:
            groups.setdefault(pair.shape[: axis + 1], []).append(pair.site.tensor)
    beyond = {pair.site.tensor for pair in known.beyond}
    return [tuple(names) for names in groups.values() if beyond & set(names)]


def _values_behind_sorts(model: ir.Model) -> set[str]:
    """The values that a sort of the main graph reaches."""
    reached: set[str] = set()
    for node in model.graph:
        given = {str(value.name) for value in node.inputs if value is not None}
        if node.op_type in _SORTS or given & reached:
            reached |= {str(value.name) for value in node.outputs}
    return reached


def _test_claim(known: Examination, bench: Bench, names: Sequence[str]) -> Shown:
    before, after, moved, rows, same = 0.0, 0.0, 0, 0, True
    for index in bench.samples:
        reference, candidate = bench.reference(index), bench.candidate(index)
        both = [name for name in names if name in reference and name in candidate]
        if any(np.shape(reference[name]) != np.shape(candidate[name]) for name in both) or not both:
            continue
        paired = match_outputs(both, reference, candidate)
        orders = match_rows([reference[name] for name in both], [candidate[name] for name in both]) or []
        moved += sum(int((order != np.arange(len(order))).sum()) for order in orders)
        rows += sum(map(len, orders))
        before = max(before, *(distance_between(reference[name], candidate[name]) for name in both))
        after = max(after, *(distance_between(reference[name], paired[name]) for name in both))
        same = same and all(_have_the_same_rows(known, name, reference[name], paired[name]) for name in both)
    told = (
        f"{moved:,} of {rows:,} rows moved; by position the error is {format_number(before)}, row by row "
        f"{format_number(after)}"
    )
    holds = rows > 0 and moved > 0 and np.isfinite(after) and after * _FALL <= before
    seen = Shown(because=told, outcome="supports" if holds else "refutes", before=before, after=after)
    if not holds:
        return seen
    shown = _show_finding(names, seen, moved, same=same)
    return replace(shown, share=(shown.share or 0.0) * part_of_error(known, bench, names))


def _have_the_same_rows(known: Examination, name: str, reference: np.ndarray, paired: np.ndarray) -> bool:
    """Whether the rows, once paired, are the same ones."""
    if reference.dtype.kind == "f":
        return distance_between(reference, paired) <= limit_of(known, name, coarser=True)
    axis = row_axis([reference.shape]) or 0
    others = (reference != paired).reshape(*reference.shape[: axis + 1], -1).any(axis=-1)
    return float(others.mean()) <= _OTHERS


def _show_finding(names: Sequence[str], seen: Shown, moved: int, *, same: bool) -> Shown:
    option = ",".join(names)
    gone = 1.0 - min(1.0, seen.after / seen.before) ** 2
    return replace(
        seen,
        role="cause" if same else "contributing",
        sentence=f"The rows of {', '.join(names)} come out of a sort, and the candidate gives them in another order: "
        f"{seen.because}. What is left has to be judged after pairing"
        + ("." if same else ", because some rows are others."),
        confidence=gone if same else 0.5 * gone,
        confidence_from="the part of the squared error that pairing takes away"
        if same
        else "half the part of the squared error that pairing takes away: some rows are others",
        share=gone,
        repairs=(("match_rows", "compare row by row", f"--match {option}"),),
        details={"outputs": list(names), "moved": moved, "before": seen.before, "after": seen.after},
    )


_TOP = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,32] x) => (float[1,8] scores, float[1,8,4] boxes) {
  k = Constant<value = int64[1] {8}>()
  scores, places = TopK(x, k)
  flat = Squeeze(places)
  chosen = Gather(table, flat)
  one = Constant<value = int64[1] {0}>()
  boxes = Unsqueeze(chosen, one)
}"""
_RNG = np.random.default_rng(41)
_CONSTANTS = {"table": _RNG.normal(size=(32, 4)).astype(np.float32)}
# Scores that differ: of those that tie any may come first, and that is judged before.
_X = {"x": np.linspace(2.0, 1.0, 32)[None].astype(np.float32)}
_PAIRS = [1, 0, 3, 2, 5, 4, 7, 6]


def _exchange_rows(outputs: Sequence[Arrays]) -> Sequence[Arrays]:
    return [{"scores": one["scores"][:, _PAIRS], "boxes": one["boxes"][:, _PAIRS]} for one in outputs]


def _move_boxes(outputs: Sequence[Arrays]) -> Sequence[Arrays]:
    noise = np.random.default_rng(42).normal(size=(1, 8, 4)).astype(np.float32)
    return [{"scores": one["scores"], "boxes": one["boxes"] + noise} for one in outputs]


CHECK = Check(
    code="DAT010",
    title="The rows stand in another order",
    propose=_propose_claims,
    holds=(Example(model=_TOP, inputs=_X, outputs_fault=_exchange_rows, constants=_CONSTANTS),),
    holds_not=(
        Example(model=_TOP, inputs=_X, outputs_fault=_move_boxes, constants=_CONSTANTS),
        # Rows that no sort has made have an order of their own.
        Example(
            model="""<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,4] x) => (float[1,8,4] y) { y = Mul(x, x) }""",
            inputs={"x": _RNG.normal(size=(1, 8, 4)).astype(np.float32)},
            outputs_fault=lambda outputs: [{"y": one["y"][:, _PAIRS]} for one in outputs],
        ),
    ),
)
