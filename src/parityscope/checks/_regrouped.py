"""Were samples run together, or each row of a sample alone? A network that knows its batch gives other answers then, by right.

The reference is run so. That predicts the whole output vector, and nothing in it is fitted but how many samples there were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Claim, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S, bad_samples, measure_misfit, show_refuted, show_supported
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.bench import Bench
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]

_SIZES = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 10, 12, 20, 24, 48)  # of batches that people make, usual ones first; chosen
_MOST = 64  # rows that are run at once; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grouping:
    """How many samples are run at once; 0 where each row of a sample is run alone."""

    samples: int

    @property
    def words(self) -> str:
        """Who was run with whom."""
        return f"{self.samples} samples were run as one batch" if self.samples else "each row was run alone"


def propose_regrouped(known: Examination, bench: Bench, rows: int) -> Iterator[Claim]:
    """The claim that samples of `rows` rows were run in batches of another size, where outputs alone can tell."""
    groupings = _list_groupings(known, rows)
    if known.localization is not None or not groupings:
        return
    yield Claim(
        words="the samples were run in batches of another size, and the network itself knows its batch",
        predicts=Prediction(
            change="run the reference on several samples as one batch, or on each row alone",
            measure="worst relative L2 error of the outputs",
            if_true="one size reproduces the candidate on every wrong sample",
            if_false="none does, or the rows of the network do not know of each other",
        ),
        cost_s=RUN_S * len(groupings),
        runs="reference",
        test=lambda: _test_claim(known, bench, rows, groupings),
    )


def _list_groupings(known: Examination, rows: int) -> list[_Grouping]:
    count = len(known.inputs.indices)
    sizes = [size for size in dict.fromkeys((*_SIZES, count)) if 1 < size <= count and size * rows <= _MOST]
    return [*([_Grouping(samples=0)] if 1 < rows <= _MOST else []), *(_Grouping(samples=size) for size in sizes)]


def _test_claim(known: Examination, bench: Bench, rows: int, groupings: list[_Grouping]) -> Shown:
    bad = bad_samples(known, bench)
    if not bad:
        return show_refuted(None, "no sample's outputs tell enough")
    befores = {index: measure_misfit(known, bench.reference(index), bench.candidate(index)) for index in bad}
    first = max(bad, key=lambda index: befores[index].error)
    before = befores[first]
    least = before.error
    knows = _knows_batch(known, bench, rows)
    if not knows:
        because = "the rows of the network do not know of each other"
        return show_refuted(None if knows is None else before, because if knows is False else "no batch could be made")
    for grouping in groupings:
        found = _outputs_of(known, bench, grouping, rows, first)
        if found is None:
            continue
        after = measure_misfit(known, found, bench.candidate(first))
        least = min(least, after.error)
        if after.explains(before) and all(
            _explains_sample(known, bench, grouping, rows, index, befores[index]) for index in bad if index != first
        ):
            return _show_finding(known, grouping, before, after)
    because = f"the nearest size leaves {format_percent(least)} of {format_percent(before.error)}"
    return show_refuted(before, because, after=least)


def _knows_batch(known: Examination, bench: Bench, rows: int) -> bool | None:
    """Whether answers change where rows are run alone, or two samples of one row as one batch; None if that cannot be run."""
    pair = bench.samples[: 1 if rows > 1 else 2]
    joined = _join([bench.inputs(index) for index in pair])
    if joined is None:
        return None
    reference = _join([bench.reference(index) for index in pair])
    try:
        if rows > 1:
            found = _join(
                [bench.outputs({name: array[row : row + 1] for name, array in joined.items()}) for row in range(rows)]
            )
        else:
            found = bench.outputs(joined)
    except ParityError:
        return None
    if found is None or reference is None:
        return None
    return not measure_misfit(known, reference, found).fits


def _explains_sample(
    known: Examination, bench: Bench, grouping: _Grouping, rows: int, index: int, before: Misfit
) -> bool:
    found = _outputs_of(known, bench, grouping, rows, index)
    return found is not None and measure_misfit(known, found, bench.candidate(index)).explains(before)


def _outputs_of(
    known: Examination, bench: Bench, grouping: _Grouping, rows: int, index: int
) -> dict[str, np.ndarray] | None:
    """The reference's outputs on a sample that is run in such a batch; None where it cannot be, or stands alone in it."""
    try:
        if not grouping.samples:
            arrays = bench.inputs(index)
            parts = [{name: array[row : row + 1] for name, array in arrays.items()} for row in range(rows)]
            return _join([bench.outputs(one) for one in parts])
        place = known.inputs.indices.index(index)
        start = place - place % grouping.samples
        together = known.inputs.indices[start : start + grouping.samples]
        if len(together) < 2:
            return None
        joined = _join([known.inputs.sample(one).arrays for one in together])
        outputs = None if joined is None else bench.outputs(joined)
    except ParityError:
        return None
    if outputs is None or any(not one.ndim or len(one) != rows * len(together) for one in outputs.values()):
        return None
    own = slice((place - start) * rows, (place - start + 1) * rows)
    return {name: array[own] for name, array in outputs.items()}


def _join(many: list[Arrays]) -> dict[str, np.ndarray] | None:
    """The arrays of several, one behind the other along the first axis; None where their shapes differ."""
    first = many[0]
    if any(not array.ndim or one[name].shape != array.shape for one in many for name, array in first.items()):
        return None
    return {name: np.concatenate([one[name] for one in many]) for name in first}


def _show_finding(known: Examination, grouping: _Grouping, before: Misfit, after: Misfit) -> Shown:
    because = f"the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
    share = after.share(before)
    # What takes its range from all that it is given.
    ranged = sorted({node.op_type for node in known.graph.graph if node.op_type.startswith("DynamicQuantize")})
    whole = f" ({', '.join(ranged)} takes its range over all of it)" if ranged else ""
    return replace(
        show_supported(before, after, because),
        sentence=f"In the deployment {grouping.words}, and the network itself knows its batch{whole}: "
        f"with the reference's so, {because}.",
        confidence=share,
        confidence_from="the share of the error, in squares, that the batch explains with nothing fitted",
        share=share,
        repairs=(
            (
                "batch_size",
                "run the deployment in the batches of the data, or give the data in the batches of the deployment",
            ),
        ),
        details={"samples": grouping.samples},
    )
