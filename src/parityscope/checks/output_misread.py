"""An output was written rightly and read wrongly: as another type, in another memory order, with its classes in another order.

What goes wrong: the buffer that comes back is taken for what it is not. Half-precision results are viewed as float32 or the
other way round, int64 as int32; a channel-last result is reshaped in place of transposed; rows that the engine pads to
a multiple of bytes are read end to end, or end-to-end rows with a pitch; the labels of a classifier are sorted by their names.

How it shows: numbers of absurd size, or the right ones in wrong places, in every precision alike; the intermediate tensors,
if there are any, are right up to the end.

How we test for it: no run. The reference's output is read in each of these ways and held against the candidate's; and the two
are compared as sets of values, which tells a wrong order of any kind from wrong values. A reading is accepted if what is
left of the error is what the declared arithmetic explains, on every wrong sample looked at. For another order of one axis, the
same on two samples or more, each place is matched with the one of the reference that it is nearest to. Where another type's
bits were read, the candidate's own bits are read back instead, because rounding may change every bit of a number.

What it is confused with: a copy of one row (BND003), which leaves what every pitch leaves that puts the second row behind the
end of the buffer: of that nothing is claimed here; an input in another memory order (BND002); TopK and NMS, whose rows
come in another order by right, which is told with the option that pairs rows; sequences that are padded at their other
end (PRE001), which moves the values of each sample by as many places. Where other outputs are wrong too, an order of one says
little, and is information.

How to repair: take the output's type from the engine (`getTensorDataType`, `session.get_outputs()[i].type`), its strides from
`getTensorFormat`, and transpose in place of reshaping.

Sources: torch2trt issues 190 and 369, ultralytics issue 10298, optimate issue 59 (buffers of the wrong type and layout);
NVIDIA/TensorRT issue 1137.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._correcting import leave_outputs_out
from parityscope.checks._reproducing import (
    Misfit,
    bad_samples,
    limit_of,
    part_of_error,
    show_refuted,
    show_supported,
)
from parityscope.checks.misreading.permuted import find_permutation, find_rolls
from parityscope.checks.misreading.readings import misreadings_of
from parityscope.comparison.distance import distance_between
from parityscope.light_dataclasses import dataclass
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

_TITLE = "An output was read as it was not written"
_FALL = 10.0  # as in _reproducing: 99 % of the error in squares
_DISTINCT = 16  # values: of fewer, a set says nothing
_TELLING = 4  # numbers of another type that are right: six bits each, even of what bfloat16 leaves, are 24 in all
_UNORDERED = "holds"  # the first word of what is said of values whose order nothing tells
_EACH = "was rolled"  # how it begins where each sample was moved by another number of places
_UNTOLD = (_UNORDERED, _EACH)  # what is not said of how an output was read
_MOST = 0.5  # of the error of all outputs, as of a cause
_CARRIED = 0.01  # of the upper halves: rounding carries into one of 128 now and then
_BACK = {"float32": ("float16", "float64"), "float16": ("float32",), "int64": ("int32",), "int32": ("int64",)}


def explain_misreading(reference: np.ndarray, candidate: np.ndarray, limit: float) -> tuple[str, float]:
    """How `candidate` is a misreading of `reference` (one shape), in words, and the error that is left.

    ("", inf) if it is none, or if it is right.

    `limit` is the relative L2 error that the arithmetic explains.
    """
    error = distance_between(reference, candidate)
    for words, left in _try_readings(reference, candidate, limit) if error > limit else ():
        if left <= limit and left * _FALL <= error:
            return words, left
    return "", float("inf")


def _try_readings(reference: np.ndarray, candidate: np.ndarray, limit: float) -> Iterator[tuple[str, float]]:
    yield from _read_as_other_types(reference, candidate)
    # Moving values leaves their norm as it is, and padding only makes it smaller: most candidates need no reading at all.
    right, found = _l2_norm(reference), _l2_norm(candidate)
    if not found <= right * (1.0 + limit):
        return
    for words, changed in misreadings_of("layout", reference, None):
        yield words, distance_between(changed, candidate)
    if found < right * (1.0 - limit):
        return
    for axes in _axis_orders(reference.ndim):
        named = ", ".join(map(str, axes))
        # A reshape in place of a transpose, and a transpose where there was nothing to be transposed.
        moved = np.ascontiguousarray(reference.transpose(axes)).reshape(reference.shape)
        shape = tuple(reference.shape[axis] for axis in axes)
        undone = np.ascontiguousarray(np.transpose(reference.reshape(shape), np.argsort(axes)))
        for words, changed in (("written", moved), ("read", undone)):
            if changed.tobytes() != reference.tobytes():
                yield (
                    f"was {words} with its axes in the order {named} on one side only",
                    distance_between(changed, candidate),
                )
    if reference.size > 1 and len(np.unique(reference)) >= _DISTINCT and reference.dtype.kind in "fiu":
        alike = distance_between(np.sort(reference, axis=None), np.sort(candidate, axis=None))
        yield f"{_UNORDERED} the right values in another order", alike


def _l2_norm(array: np.ndarray) -> float:
    """The L2 norm of the values, NaN if one is not finite or no number."""
    if array.dtype.kind not in "fiub":
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(np.linalg.norm(array.astype(np.float64)))
    return found if np.isfinite(found) else float("nan")


def _axis_orders(rank: int) -> list[tuple[int, ...]]:
    """Orders of up to four axes that frameworks use, the identity left out."""
    return [order for order in itertools.permutations(range(rank)) if order != tuple(range(rank))] if rank <= 4 else []


def _read_as_other_types(reference: np.ndarray, candidate: np.ndarray) -> Iterator[tuple[str, float]]:
    """The candidate's bytes read back as another type: as many of the reference's first elements as they hold."""
    for name in _BACK.get(candidate.dtype.name, ()):
        other = np.dtype(name)
        held = np.ascontiguousarray(candidate).reshape(-1).view(np.uint8)
        count = min(reference.size, held.size // other.itemsize)
        if count < _TELLING:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            read = held[: count * other.itemsize].view(other).astype(reference.dtype)
        left = distance_between(reference.reshape(-1)[:count], read)
        # What was written in a narrower type is rounded to it, whatever was declared.
        rounded = other.kind == "f" and other.itemsize < reference.dtype.itemsize and left <= float(np.finfo(other).eps)
        yield f"was written as {other} and read as {candidate.dtype}", 0.0 if rounded else left
        narrow = np.dtype(name)
        if narrow.itemsize < candidate.dtype.itemsize:
            yield (
                f"was written as {candidate.dtype} and read as {narrow}",
                _read_top_halves(reference, candidate, narrow),
            )


def _read_top_halves(reference: np.ndarray, candidate: np.ndarray, narrow: np.dtype[np.generic]) -> float:
    """The share of elements that are not the upper halves of the reference's, 0 if it is next to nothing.

    The lower halves are the last bits of a number, which no two runtimes share.
    """
    bits = np.ascontiguousarray(reference).reshape(-1).view(narrow)[: candidate.size]
    with np.errstate(over="ignore", invalid="ignore"):
        seen, found = bits.astype(candidate.dtype)[1::2], candidate.reshape(-1)[1::2]
    if len(np.unique(found)) < _TELLING:
        return float("inf")
    # Noughts are noughts in every type.
    telling = (seen != 0) | (found != 0)
    if int(telling.sum()) < _TELLING:
        return float("inf")
    seen, found = seen[telling], found[telling]
    unequal = float(((seen != found) & ~(np.isnan(seen) & np.isnan(found))).mean())
    return unequal if unequal > _CARRIED else 0.0


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    outputs = [pair.site.tensor for pair in known.beyond]
    if outputs:
        yield Claim(
            words=f"output {', '.join(outputs)} was read as another type or in another order",
            predicts=Prediction(
                change="none: read the reference's output in other ways",
                measure="relative L2 distance to the candidate's output",
                if_true="it falls to what the declared arithmetic explains",
                if_false="it stays far above",
            ),
            cost_s=0.01 * len(outputs),
            runs="nothing",
            test=lambda: _test_claim(known, bench, outputs),
        )


def _test_claim(known: Examination, bench: Bench, outputs: Sequence[str]) -> Shown:
    """What is said of one output and of another in the same words is said once."""
    tested = {output: _read_output(known, bench, output) for output in outputs}
    read = {output: one for output, one in tested.items() if isinstance(one, _OutputReading)}
    if not read:
        return next(one for one in tested.values() if isinstance(one, Shown))
    alike: dict[str, list[str]] = {}
    for output, one in read.items():
        alike.setdefault(one.words, []).append(output)
    found = sorted(
        (_show_finding(known, bench, names, [read[name] for name in names]) for names in alike.values()),
        key=lambda one: (one.role != "cause", -(one.share or 0.0)),
    )
    told = [name for words, names in alike.items() for name in names if not words.startswith(_UNTOLD)]
    return replace(found[0], correction=leave_outputs_out(told) if told else None, further=tuple(found[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputReading:
    """How an output was read, in words, the error without and with it on the worst sample, and the samples that were wrong."""

    words: str
    before: Misfit
    after: Misfit
    samples: int


def _read_output(known: Examination, bench: Bench, output: str) -> _OutputReading | Shown:
    limit = limit_of(known, output)
    wrong: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for index in bench.samples:
        reference, candidate = bench.reference(index).get(output), bench.candidate(index).get(output)
        if reference is None or candidate is None or reference.shape != candidate.shape:
            return show_refuted(None, f"sample {index} has no output to compare")
        if distance_between(reference, candidate) > limit:
            wrong[index] = reference, candidate
    if not wrong:
        return show_refuted(None, "no sample of this output is wrong")
    error = max(distance_between(*pair) for pair in wrong.values())
    before = Misfit(error=error, over=error / limit)
    found = {index: explain_misreading(*pair, limit) for index, pair in wrong.items()}
    words, left = next(iter(found.values()))[0], max(left for _, left in found.values())
    alike = all(said == words for said, _ in found.values())
    if not (words and alike) or words.startswith(_UNORDERED):
        # One order of an axis on all samples says more than the same values somewhere.
        words, left = _find_order(list(wrong.values()), limit) or (words if alike else "", left)
    if not words:
        strange = next((index for index, (said, _) in found.items() if not said), next(iter(found)))
        return show_refuted(before, f"sample {strange} is no misreading")
    if "written as" not in words and not bad_samples(known, bench):
        return show_refuted(before, "so few values are equal by chance")
    return _OutputReading(words=words, before=before, after=Misfit(error=left, over=left / limit), samples=len(wrong))


def _find_order(pairs: Sequence[tuple[np.ndarray, np.ndarray]], limit: float) -> tuple[str, float] | None:
    """How the values of all samples were moved along one axis, in words, and what that leaves; None if they were not."""
    rolled = find_rolls(pairs, limit)
    if rolled is None:
        return find_permutation(pairs, limit)
    axis, places, left = rolled
    if len({*places}) == 1:
        return f"is rolled by {places[0]} along axis {axis}", left
    # As many as pad a sequence, at the other end.
    return f"{_EACH} along axis {axis}, by {', '.join(map(str, places))} on the samples in turn", left


def _show_finding(
    known: Examination, bench: Bench, outputs: Sequence[str], readings: Sequence[_OutputReading]
) -> Shown:
    worst = max(readings, key=lambda one: one.before.error)
    words, untold = worst.words, worst.words.startswith(_UNTOLD)
    because = (
        f"read so, the error falls from {format_percent(worst.before.error)} to "
        f"{format_percent(max(one.after.error for one in readings))} on {worst.samples} samples"
    )
    part = part_of_error(known, bench, outputs)
    several = f"Outputs {', '.join(outputs)}: each {words}" if len(outputs) > 1 else f"Output {outputs[0]} {words}"
    repair = "take the output's type, shape and strides from the engine, and transpose in place of reshaping"
    if untold:
        repair = "if rows may come in any order, pair them before they are compared (--match)"
    if words.startswith(_EACH):
        repair = "where sequences are padded, pad them at the end at which the reference's are"
    return replace(
        show_supported(worst.before, worst.after, because),
        title="An output holds the right values in another order" if untold else _TITLE,
        # Rows of detections come in any order by right, and sorting explains away more than a misreading would; and what does
        # so to one output and not to another that is wrong explains too little.
        role=("contributing" if part >= _MOST else "information") if untold else "cause",
        sentence=f"{several}; {because}.",
        confidence=0.6 * part if untold else 1.0,
        confidence_from="equal as sets of values" if untold else "the values themselves, with nothing fitted",
        site=known.places.get(outputs[0]) or Site(tensor=outputs[0], node="", op_type="Input", index=-1),
        share=part,
        repairs=(("read_rightly", repair),),
        details={"output": ", ".join(outputs), "reading": words},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,6,5,4] x) => (float[N,6,5,4] y) { y = Tanh(x) }"""
_X = {"x": np.random.default_rng(66).normal(size=(3, 6, 5, 4)).astype(np.float32)}


def _deployment_reading(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Samples], Samples]:
    return lambda samples: [{"y": np.ascontiguousarray(change(each["y"]))} for each in samples]


def _read_channel_last(value: np.ndarray) -> np.ndarray:
    """Written (n, h, w, c), and its buffer reshaped to (n, c, h, w)."""
    return value.transpose(0, 2, 3, 1).reshape(value.shape)


def _read_as_float(value: np.ndarray) -> np.ndarray:
    """Halves in a buffer that is read as float32: half of it is filled, the rest is zero."""
    held = np.zeros(value.size, np.float32)
    halves = value.astype(np.float16).reshape(-1)
    held.view(np.float16)[: halves.size] = halves
    return held.reshape(value.shape)


def _read_as_half(value: np.ndarray) -> np.ndarray:
    """Numbers whose every half is read as one; a half of the output is enough to fill it. NaN is quiet, as processors make it."""
    with np.errstate(invalid="ignore"):
        read = value.reshape(-1).view(np.float16)[: value.size].astype(np.float32)
    return np.where(np.isnan(read), np.float32(np.nan), read).reshape(value.shape)


def _read_padded_rows(value: np.ndarray) -> np.ndarray:
    rows = value.reshape(-1, 4)
    padded = np.zeros((len(rows), 8), np.float32)
    padded[:, :4] = rows
    return padded.reshape(-1)[: value.size].reshape(value.shape)


CHECK = Check(
    code="BND004",
    title=_TITLE,
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(_read_channel_last), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda y: y.T.reshape(y.shape)), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(_read_as_float), declared="f16", site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(_read_as_half), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(_read_padded_rows), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda y: y[..., ::-1]), site="y"),
        Example(
            model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda y: y[:, [3, 0, 1, 5, 2, 4]]), site="y"
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", declared="f32"),
        Example(model=_MODEL, inputs=_X, candidate="sim:f16"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda y: y * 2)),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda y: y * 0)),
    ),
)
