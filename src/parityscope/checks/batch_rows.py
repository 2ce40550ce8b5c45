"""A row of a batch gets another answer because of where it stands or who stands beside it.

What goes wrong: a kernel was chosen for another batch size, a plugin takes its strides from the first row, a fixed batch of one
was built into the graph, a workspace is shared between rows, a batch is filled with a row twice or with one of zeros. Row 0 is
often right.

How it shows: errors that come with batch size, rows from some index on that are wrong, identical rows with different answers.

How we test for it: first, whether each wrong row has the reference's answer to another row (the first k, over and over, say) or
to zeros: a recording can tell that too. Otherwise, rows of most networks do not know of each other, and the reference is asked
whether these do. Then the candidate gets a batch whose rows are all the sample's first row, which must come out alike; the
sample's first row beside other rows; its rows each one place further on, whose answers must go with them; and, where the batch
size is open, its rows one by one, which must come out as in the batch. With a recording, rows that happen to be identical in
the data and in the reference's answers are compared.

A network that knows its batch by right (ranges of dynamic quantization, batch statistics) gives other answers in another
one. Where only outputs are known the reference is run on several samples as one batch, and on each row alone: what gives the
candidate's outputs on every wrong sample is how the deployment runs it.

What it is confused with: a network that mixes rows by right, in the same batches: the reference mixes them too, and nothing
is claimed. An output that is old from some row on (BND003).

How to repair: run with the batch size that is right until the runtime is mended; rebuild the engine with this batch size in its
profile; report the smallest batch that shows it.

Sources: NVIDIA/TensorRT issues 4813 (four identical rows get four answers), 4796, 842, 4330.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_percent
from parityscope.checks._regrouped import propose_regrouped
from parityscope.checks._reproducing import (
    RUN_S,
    Misfit,
    batch_size,
    limit_of,
    measure_misfit,
    show_refuted,
    show_supported,
)
from parityscope.checks._rows import (
    MOST_ALONE,
    TakenRows,
    Uneven,
    find_taken_rows,
    find_uneven_row,
    furthest_row,
    is_open,
    take_row,
    uneven_in_recording,
)
from parityscope.checks.misreading.remains import remains_by_sample
from parityscope.errors import ParityError
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]

_RUN_APART = (
    "batch_size",
    "run row by row until the runtime is mended, or rebuild the engine with this batch size in its profile",
)
_FILL_ROWS = ("pair_samples", "write each sample into its own row of the batch, and each answer beside its own sample")
_OF_ZEROS = "the answer to inputs of zeros"
_NAMED = 4  # rows; chosen
_ROWS = 4  # of the batch that is made where the data have one row: as many as the public case had


def _propose_claims(known: Examination) -> list[Claim]:
    bench = known.bench
    if bench is None:
        return []
    rows = batch_size(bench.inputs(bench.samples[0]))
    if rows is None:
        return []
    regrouped = list(propose_regrouped(known, bench, rows)) if is_open(known) else []
    if rows < 2 and (bench.answers is None or not is_open(known)):
        return regrouped
    return [
        *regrouped,
        Claim(
            words="a row's answer depends on its place in the batch or on its neighbours",
            predicts=Prediction(
                change="run a batch of identical rows, the same rows in other places, and each row alone",
                measure="worst relative L2 distance between the answers to one row",
                if_true="above what the declared arithmetic explains, and not so in the reference",
                if_false="below",
            ),
            cost_s=RUN_S * 4,
            runs="candidate",
            test=lambda: _test_claim(known, bench, rows),
        ),
    ]


def _test_claim(known: Examination, bench: Bench, rows: int) -> Shown:
    index = bench.samples[0]
    arrays = bench.inputs(index)
    before = measure_misfit(known, bench.reference(index), bench.candidate(index))
    if rows > 1 and (taken := find_taken_rows(known, bench, rows)):
        return _show_taken_rows(bench, before, taken, rows)
    if bench.answers is None:
        found = uneven_in_recording(known, arrays, (bench.reference(index), bench.candidate(index)), rows)
    else:
        count = rows if rows > 1 else _ROWS
        same = {name: np.repeat(array[:1], count, axis=0) for name, array in arrays.items()}
        try:
            found = find_uneven_row(known, bench.answers, bench.outputs, arrays, same, rows)
        except ParityError as error:
            return show_refuted(None, f"a changed batch cannot be run: {error.problem}")
    if found is None:
        return show_refuted(before, "every row gets one answer, whatever stands beside it", after=0.0)
    if _is_old(known, bench, found.output):
        because = "what is wrong was there before or never written: rows that differ in that do not know of each other"
        return show_refuted(before, because)
    how, alone = "row by row", _misfit_row_by_row(known, bench, arrays, rows)
    if alone is None and bench.answers is not None and rows > 1:
        how, alone = _misfit_at_best_place(known, bench, arrays, rows)
    after = alone if alone is not None and alone.explains(before) else None
    because = (
        f"{found.words} at output {found.output}, row {found.row}: {format_number(found.error)} apart (relative L2)"
    )
    if after is not None:
        because += f"; {how} the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
    share = after.share(before) if after is not None else None
    return _show_finding(
        found, share, show_supported(before, after or Misfit(error=found.error, over=math.inf), because)
    )


def _is_old(known: Examination, bench: Bench, output: str) -> bool:
    """Whether all that is wrong with an output is old, wherever it is known what came before (BND003)."""
    seen = list(remains_by_sample(bench, output, limit_of(known, output)))
    found = [remains for _, _, remains in seen if remains is not None]
    return bool(found) and all(remains is not None or place == 0 for place, _, remains in seen)


def _show_taken_rows(bench: Bench, before: Misfit, taken: TakenRows, rows: int) -> Shown:
    """The finding that rows have the answers of others."""
    index, sources = bench.samples[0], taken.sources
    found = furthest_row(bench.reference(index), bench.candidate(index), min(sources))
    count = next((k for k in range(1, rows) if all(sources.get(r, r) == r % k for r in range(rows))), None)
    if count is not None:
        first = "the first row's answer" if count == 1 else f"the first {count} rows' answers"
        said, repair = f"every row from {count} on gets {first} again", _RUN_APART
    else:
        told = [f"row {row} has " + (_OF_ZEROS if of is None else f"row {of}'s answer") for row, of in sources.items()]
        said = "; ".join(told[:_NAMED]) + (f"; and {len(told) - _NAMED} rows more" if len(told) > _NAMED else "")
        repair = _FILL_ROWS
    fallen = f"with that the error falls from {format_percent(before.error)} to {format_percent(taken.left.error)}"
    seen = show_supported(before, taken.left, f"{said}: {fallen}")
    return _show_finding(found, taken.left.share(before), seen, "the reference gives each its own", repair)


def _misfit_row_by_row(known: Examination, bench: Bench, arrays: Arrays, rows: int) -> Misfit | None:
    """The misfit when the candidate is given one row at a time; None where the batch cannot be taken apart."""
    if bench.answers is None or not is_open(known) or rows > MOST_ALONE:
        return None
    worst = Misfit(error=0.0, over=0.0)
    for row in range(rows):
        one = take_row(arrays, row)
        try:
            found = measure_misfit(known, bench.outputs(one), bench.answers(one))
        except ParityError:
            return None
        worst = max(worst, found, key=lambda each: each.over)
    return worst


def _misfit_at_best_place(known: Examination, bench: Bench, arrays: Arrays, rows: int) -> tuple[str, Misfit | None]:
    """The misfit when every row is asked at the place that answers best, with words for that; None where that cannot be asked."""
    if bench.answers is None or rows > MOST_ALONE:
        return "", None
    worst = [Misfit(error=0.0, over=0.0)] * rows
    for turn in range(rows):
        turned = {name: np.roll(array, -turn, axis=0) for name, array in arrays.items()}
        try:
            sides = bench.outputs(turned), bench.answers(turned)
        except ParityError:
            return "", None
        if any(not array.ndim or array.shape[0] != rows for side in sides for array in side.values()):
            return "", None
        for place in range(rows):
            one, other = (take_row(side, place) for side in sides)
            worst[place] = max(worst[place], measure_misfit(known, one, other), key=lambda each: each.over)
    best = min(range(rows), key=lambda place: worst[place].over)
    return f"with each row at place {best}", worst[best]


def _show_finding(
    found: Uneven,
    share: float | None,
    seen: Shown,
    otherwise: str = "the reference gives one answer",
    repair: tuple[str, str] = _RUN_APART,
) -> Shown:
    return replace(
        seen,
        role="contributing" if share is None else "cause",
        sentence=f"{seen.because[0].upper()}{seen.because[1:]}; {otherwise}.",
        confidence=1.0 if share is None else share,
        confidence_from="measured on the candidate"
        if share is None
        else "the share of the error, in squares, that is gone row by row, or with each row at one place",
        site=Site(tensor=found.output, node="", op_type="", index=-1),
        share=share,
        repairs=(repair,),
        details={"output": found.output, "row": found.row, "apart": found.error},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,32] x) => (float[N,32] y) { y = Tanh(x) }"""
# Row k is scaled by 1 + k / 10.
_PLACED = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,32] x) => (float[N,32] y) {
  t = Tanh(x)
  z = Mul(t, zero)
  one = Add(z, tenth)
  count = CumSum(one, axis)
  scale = Add(count, rest)
  y = Mul(t, scale)
}"""
# Every row gets a tenth of the mean of all.
_MIXED = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,32] x) => (float[N,32] y) {
  t = Tanh(x)
  m = ReduceMean<axes = [0], keepdims = 1>(t)
  d = Sub(m, t)
  e = Mul(d, tenth)
  y = Add(t, e)
}"""
# Row r gets the answer of another row: the first two over and over, or 1 and 2 exchanged, which only other places show.
_TAKEN = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,32] x) => (float[N,32] y) {
  t = Tanh(x)
  y = Gather<axis = 0>(t, rows)
}"""
_CONSTANTS: dict[str, np.ndarray] = {
    "zero": np.zeros(1, np.float32),
    "tenth": np.full(1, 0.1, np.float32),
    "rest": np.full(1, 0.9, np.float32),
    "axis": np.array(0, np.int64),
}
_TWO = {"rows": np.array([0, 1, 0, 1], np.int64)}
_EXCHANGED = {"rows": np.array([0, 2, 1, 3], np.int64)}
# One sample of four rows; a leading axis of samples would be taken for its batch.
_ROWS_OF = {"x": np.random.default_rng(67).normal(size=(1, 32)).astype(np.float32)}
_FIXED = _MODEL.replace("float[N,32]", "float[4,32]")
_BIASED = _FIXED.replace("Tanh", "Cos")
_FOUR = {"x": np.random.default_rng(68).normal(size=(4, 32)).astype(np.float32)}
_ALIKE = {"x": np.repeat(_FOUR["x"][:1], 4, axis=0)}
_PLAIN = "ort?optimization=disabled"


def _has_only_first(outputs: Sequence[Arrays]) -> Sequence[Arrays]:
    return [{name: np.repeat(array[:1], len(array), axis=0) for name, array in one.items()} for one in outputs]


def _has_a_row_twice(outputs: Sequence[Arrays]) -> Sequence[Arrays]:
    return [{name: array[[0, 1, 0, 3]] for name, array in one.items()} for one in outputs]


def _has_an_empty_row(outputs: Sequence[Arrays]) -> Sequence[Arrays]:
    """The answer of `_BIASED` to zeros in its third row."""
    return [{"y": np.where(np.arange(4)[:, None] == 2, np.cos(np.float32(0)), one["y"])} for one in outputs]


def _mix_samples(_: Sequence[Arrays]) -> Sequence[Arrays]:
    """What `_MIXED` makes of all samples as one batch."""
    whole = np.tanh(_FOUR["x"])
    mixed = whole + (whole.mean(axis=0, keepdims=True) - whole) * _CONSTANTS["tenth"]
    return [{"y": mixed[row : row + 1]} for row in range(len(mixed))]


def _fix_batch_size(text: str) -> str:
    return text.replace("float[N,32]", "float[4,32]")


CHECK = Check(
    code="SHP001",
    title="A row's answer depends on the batch around it",
    propose=_propose_claims,
    holds=(
        Example(
            model=_FIXED, candidate_model=_fix_batch_size(_PLACED), inputs=_FOUR, constants=_CONSTANTS, candidate=_PLAIN
        ),
        Example(
            model=_FIXED, candidate_model=_fix_batch_size(_MIXED), inputs=_FOUR, constants=_CONSTANTS, candidate=_PLAIN
        ),
        Example(model=_FIXED, candidate_model=_fix_batch_size(_TAKEN), inputs=_FOUR, constants=_TWO, candidate=_PLAIN),
        Example(
            model=_FIXED, candidate_model=_fix_batch_size(_TAKEN), inputs=_FOUR, constants=_EXCHANGED, candidate=_PLAIN
        ),
        Example(model=_FIXED, inputs=_FOUR, outputs_fault=_has_only_first),
        Example(model=_FIXED, inputs=_FOUR, outputs_fault=_has_a_row_twice),
        Example(model=_BIASED, inputs=_FOUR, outputs_fault=_has_an_empty_row),
        # The network itself mixes the rows of its batch, and four samples were one.
        Example(model=_MIXED, inputs=_FOUR, constants=_CONSTANTS, outputs_fault=_mix_samples),
    ),
    holds_not=(
        Example(model=_FIXED, inputs=_FOUR, candidate="sim:bf16", declared="f32"),
        Example(
            model=_FIXED, candidate_model=_fix_batch_size(_MODEL).replace("Tanh", "Sin"), inputs=_FOUR, candidate=_PLAIN
        ),
        # The reference mixes rows too.
        Example(
            model=_fix_batch_size(_MIXED), inputs=_FOUR, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"
        ),
        # Rows that are alike have one answer by right.
        Example(model=_FIXED, inputs=_ALIKE, outputs_fault=lambda outputs: [{"y": one["y"] * 1.5} for one in outputs]),
        # Rows that are moments of one sample: the reference answers by their places, too.
        Example(
            model=_fix_batch_size(_PLACED),
            inputs=_ALIKE,
            constants=_CONSTANTS,
            outputs_fault=lambda outputs: [{"y": np.tanh(one["y"] * 1.5)} for one in outputs],
        ),
        Example(model=_MODEL, inputs=_ROWS_OF, candidate="sim:bf16", declared="f32"),
    ),
)
