"""The answer depends on what stands in the padding.

What goes wrong: sequences are padded to one length and a mask says which part counts. A deployment that ignores the mask (an
export without it, a kernel for full sequences, a cast that makes ones of it) lets the padding take part, in the attention or
in the mean at the end.

How it shows: short sequences are wrong and the longest of a batch is right; the error grows with the padding.

How we test for it: the positions that the mask leaves out in every row are taken away, or, where the length is fixed, other
values are put there. The reference is asked first: its answer must not change. If the candidate's does, it reads its
padding; if it is right without any, that is the cause.

What it is confused with: a mask that was exchanged with another input (BND001) or never uploaded (BND002), which are found by
name; a network that has no mask.

How to repair: give the mask to the model that is deployed and see that its export keeps it; until then run sequences at their own
length, in batches of equal ones.

Sources: NVIDIA/TensorRT issues 1697, 1912 and 3744 (results that change with the dynamic length); public reports of encoders
exported without their attention mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_number, format_percent
from parityscope.checks._reproducing import (
    RUN_S,
    Misfit,
    limit_of,
    measure_misfit,
    show_refuted,
    show_supported,
)
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.bench import Bench, Run
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Arrays = Mapping[str, np.ndarray]

__all__ = ["CHECK"]


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if bench.answers is None:
        return
    for name, array in bench.inputs(bench.samples[0]).items():
        if "mask" in name.lower() and _left_out(array) is not None:
            yield _make_claim(known, bench, bench.answers, name)


def _make_claim(known: Examination, bench: Bench, answers: Run, mask: str) -> Claim:
    return Claim(
        words=f"what {mask} leaves out takes part",
        predicts=Prediction(
            change="take the padding away, or put other values there",
            measure="worst relative L2 distance of the outputs from before",
            if_true="the candidate's answer changes, and the reference's does not",
            if_false="neither changes",
        ),
        cost_s=RUN_S * 4,
        runs="candidate",
        test=lambda: _test_claim(known, bench, answers, mask),
    )


def _test_claim(known: Examination, bench: Bench, answers: Run, mask: str) -> Shown:
    index = bench.samples[0]
    arrays = bench.inputs(index)
    before = measure_misfit(known, bench.reference(index), bench.candidate(index))
    for words, changed in _change_padding(arrays, mask):
        try:
            reference, candidate = bench.outputs(changed), answers(changed)
        except ParityError:
            continue  # a length that the model or the engine does not take
        lengths = arrays[mask].shape[-1], changed[mask].shape[-1]
        if (moved := _worst_distance(known, bench.reference(index), reference, lengths)) is None or moved[1] > 1.0:
            return show_refuted(before, f"with {words} the reference's answer changes too", after=before.error)
        found = _worst_distance(known, bench.candidate(index), candidate, lengths)
        if found is None:
            continue
        if found[1] <= 1.0:
            return show_refuted(before, f"with {words} the answer stays", after=found[0])
        after = measure_misfit(known, reference, candidate)
        because = (
            f"with {words} the candidate's answer moves by {format_number(found[0])} and the reference's by "
            f"{format_number(moved[0])}"
        )
        cured = after.explains(before)
        if cured:
            because += (
                f"; without it the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
            )
        share = after.share(before) if cured else None
        return _show_finding(
            mask,
            share,
            found[0],
            show_supported(before, after if cured else Misfit(error=found[0], over=found[1]), because),
        )
    return show_refuted(None, "another length or other padding cannot be run")


def _change_padding(arrays: Arrays, mask: str) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The sample without its padding, and with other values in it."""
    kept = _left_out(arrays[mask])
    if kept is None:
        return
    size = kept.size
    like = [name for name, array in arrays.items() if array.ndim and array.shape[-1] == size]
    yield "no padding", {name: array[..., kept] if name in like else array for name, array in arrays.items()}
    others = {}
    for name, array in arrays.items():
        changed = array.copy()
        if name in like and name != mask and array.dtype.kind in "iuf":
            # Values that the sample has elsewhere: a token number must be one that the table has.
            changed[..., ~kept] = array[..., :1] if kept[0] else array[..., -1:]
        others[name] = changed
    yield "other values in the padding", others


def _left_out(mask: np.ndarray) -> np.ndarray | None:
    """Which positions of the last axis count in some row; None if all do, or none, or it is no mask of zeros and ones."""
    if mask.ndim < 2 or not np.isin(mask, (0, 1)).all():
        return None
    kept = np.asarray((mask != 0).reshape(-1, mask.shape[-1]).any(axis=0))
    return None if kept.all() or not kept.any() else kept


def _worst_distance(
    known: Examination, first: Arrays, second: Arrays, lengths: tuple[int, int]
) -> tuple[float, float] | None:
    """The worst distance, and over its limit, of outputs that do not hold the sequence's length; None if all do."""
    worst: tuple[float, float] | None = None
    for name, array in first.items():
        other = second.get(name)
        if other is None or array.shape != other.shape or (lengths[0] != lengths[1] and lengths[0] in array.shape[1:]):
            continue
        error = distance_between(array, other)
        found = (error, error / limit_of(known, name))
        worst = found if worst is None or found[1] > worst[1] else worst
    return worst


def _show_finding(mask: str, share: float | None, moved: float, seen: Shown) -> Shown:
    return replace(
        seen,
        role="contributing" if share is None else "cause",
        sentence=f"What {mask} leaves out takes part: {seen.because}.",
        confidence=1.0 if share is None else share,
        confidence_from="measured on the candidate"
        if share is None
        else "the share of the error, in squares, that is gone without padding",
        site=Site(tensor=mask, node="", op_type="Input", index=-1),
        share=share,
        repairs=(
            (
                "mask_padding",
                f"see that the deployed model takes {mask} and uses it; until then run sequences at their own length",
            ),
        ),
        details={"mask": mask, "moved": moved},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[N,S] ids, float[N,S] attention_mask) => (float[N,8] y) {
  e = Gather<axis = 0>(w, ids)
  m = Unsqueeze(attention_mask, last)
  kept = Mul(e, m)
  total = ReduceSum<keepdims = 0>(kept, one)
  count = ReduceSum<keepdims = 1>(attention_mask, one)
  y = Div(total, count)
}"""
# The mean over all positions, padding too.
_UNMASKED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[N,S] ids, float[N,S] attention_mask) => (float[N,8] y) {
  e = Gather<axis = 0>(w, ids)
  y = ReduceMean<axes = [1], keepdims = 0>(e)
}"""
_RNG = np.random.default_rng(72)
_CONSTANTS: dict[str, np.ndarray] = {
    "w": _RNG.normal(size=(32, 8)).astype(np.float32),
    "last": np.array([2], np.int64),
    "one": np.array([1], np.int64),
}
_IDS = _RNG.integers(1, 32, size=(1, 12))
_IDS[:, 7:] = 0
_MASK = (np.arange(12) < 7).astype(np.float32)[None]
_PADDED: dict[str, np.ndarray] = {"ids": _IDS, "attention_mask": _MASK}
_PLAIN = "ort?optimization=disabled"

CHECK = Check(
    code="SHP002",
    title="The answer depends on the padding",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            candidate_model=_UNMASKED,
            inputs=_PADDED,
            constants=_CONSTANTS,
            candidate=_PLAIN,
            site="attention_mask",
        ),
        Example(
            model=_MODEL.replace("[N,S]", "[N,12]"),
            candidate_model=_UNMASKED.replace("[N,S]", "[N,12]"),
            inputs=_PADDED,
            constants=_CONSTANTS,
            candidate=_PLAIN,
            site="attention_mask",
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_PADDED, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"),
        # The reference reads its padding as well; nothing is padded; the values are wrong and the padding is innocent.
        Example(model=_UNMASKED, inputs=_PADDED, constants=_CONSTANTS, candidate="sim:bf16", declared="f32"),
        Example(
            model=_MODEL,
            candidate_model=_UNMASKED,
            inputs={"ids": _IDS, "attention_mask": np.ones_like(_MASK)},
            constants=_CONSTANTS,
            candidate=_PLAIN,
        ),
        Example(
            model=_MODEL,
            candidate_model=_MODEL.replace("y = Div(total, count)", "d = Div(total, count)\n  y = Tanh(d)"),
            inputs=_PADDED,
            constants=_CONSTANTS,
            candidate=_PLAIN,
        ),
    ),
)
