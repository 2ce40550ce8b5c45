"""Which tensor of the candidate's graph is which tensor of the reference's.

The same graph: every value is itself. Another graph of the same function (simplified, re-exported, another opset,
quantized): a tensor is paired by its exact name where both graphs have it; any other only by value, and only where that is
proved: both graphs run in reference arithmetic on several samples, and on each of them the two tensors agree within FP32
noise. Nothing is guessed from parts of names; whatever is left over is listed.

Matching by value: for each tensor and sample a fingerprint of four functionals (mean, root mean square, and two fixed
pseudo-random projections) finds the possible partners, and the elements themselves then decide.
"""

from __future__ import annotations

import functools
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.recording import observable_tensors
from parityscope.backends.sizing import plan_chunks
from parityscope.case import Sample
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.case import Inputs, Model

# Two FP32 evaluations of one network agree to 1e-6 ... 1e-5 at every layer (measured on the development models); a
# hundred times FP32's rounding at 2^-24 accepts those and nothing that another function could give on every sample.
_SAME = 1e-4
_NAMES = 5  # that a line can hold
_WAVES = (0.618, 1.414)  # radians from an element to the next; chosen
_BLOCK = 1 << 13  # elements; chosen
_SAMPLES = 3  # enough to prove: a tensor of one element still has to agree three times
_SECOND_SCALE = 0.75  # a second sample made from an only one: exactly representable, keeps every sign


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedGraphs:
    """`names` maps tensors of the reference to the candidate's, `how` says for each by what ("name", "map", "value")."""

    names: Mapping[str, str]
    how: Mapping[str, str]
    skipped: tuple[Skip, ...] = ()


def pair_graphs(
    reference: Model, candidate: Model, inputs: Inputs, *, explicit: Mapping[str, str], memory: int, other: bool = True
) -> PairedGraphs:
    """Pairs the tensors of two graphs; `explicit` (reference name -> candidate name) goes before everything else.

    Without `other` the candidate runs no graph that is known: any name of its may be right.

    Raises:
        ParityError: an explicit name is not in its graph.
    """
    mine = [*observable_tensors(reference), *(value.name for value in reference.outputs)]
    its = [*observable_tensors(candidate), *(value.name for value in candidate.outputs)]
    _check_explicit(explicit, set(mine), {*its, *(() if other else explicit.values())})
    names = dict(explicit)
    how = dict.fromkeys(explicit, "map")
    free = set(its) - set(explicit.values())
    for name in mine:
        if name not in names and name in free:
            names[name] = name
            how[name] = "name"
    if reference.sha256 == candidate.sha256:
        return PairedGraphs(names=names, how=how)
    left_mine = [name for name in mine if name not in names]
    taken = set(names.values())
    left_its = [name for name in its if name not in taken]
    skipped: list[Skip] = []
    if left_mine and left_its:
        proved, problem = _pair_by_value(reference, candidate, inputs, left_mine, left_its, memory)
        names.update(proved)
        how.update(dict.fromkeys(proved, "value"))
        if problem:
            skipped.append(Skip(what="pairing tensors by value", reason=problem))
    skipped.extend(_skips_of_left_over(names, mine, its))
    return PairedGraphs(names=names, how=how, skipped=tuple(skipped))


def _check_explicit(explicit: Mapping[str, str], reference: set[str], candidate: set[str]) -> None:
    for old, new in explicit.items():
        for name, known, side in ((old, reference, "reference"), (new, candidate, "candidate")):
            if name not in known:
                raise ParityError(
                    f"--map {old}={new}: the {side}'s graph has no tensor {name!r}",
                    fix=_tell_names(name, known),
                )


def _tell_names(name: str, known: set[str]) -> str:
    """Of the names that there are, the one that `name` may have been meant to be, else the first few."""
    near = get_close_matches(name, sorted(known), n=1)
    if near:
        return f"names are matched exactly; did you mean {near[0]!r}?"
    return f"names are matched exactly; there are {', '.join(map(repr, sorted(known)[:_NAMES]))}"


def _skips_of_left_over(names: Mapping[str, str], reference: Sequence[str], candidate: Sequence[str]) -> list[Skip]:
    taken = set(names.values())
    reason = "no tensor of the other graph has this name, or is proved to have these values"
    return [
        *(
            Skip(what=f"tensor {name} of the reference", reason=reason, fix="--map")
            for name in reference
            if name not in names
        ),
        *(
            Skip(what=f"tensor {name} of the candidate", reason=reason, fix="--map")
            for name in candidate
            if name not in taken
        ),
    ]


def _pair_by_value(
    reference: Model, candidate: Model, inputs: Inputs, mine: Sequence[str], its: Sequence[str], memory: int
) -> tuple[dict[str, str], str]:
    """Pairs that are proved by value, and why none could be sought (empty when they were)."""
    samples = _proof_samples(inputs)
    if len(samples) < 2:
        return {}, "one sample without float inputs proves nothing; give more samples"
    try:
        marks = _fingerprint_tensors(reference, samples, mine, memory // 4)
        other = _fingerprint_tensors(candidate, samples, its, memory // 4)
    except ParityError as error:
        return {}, f"both graphs must run in ONNX Runtime for that: {error.problem}"
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name, mark in marks.items():
        for partner, its_mark in other.items():
            if partner not in taken and _are_alike(mark, its_mark):
                found[name] = partner
                taken.add(partner)
                break
    return _prove_pairs(reference, candidate, samples, found, memory // 4), ""


def _proof_samples(inputs: Inputs) -> list[Sample]:
    samples = [inputs.sample(index) for index in inputs.indices[:_SAMPLES]]
    if len(samples) == 1 and any(array.dtype.kind == "f" for array in samples[0].arrays.values()):
        only = samples[0]
        scaled = {
            name: (array * array.dtype.type(_SECOND_SCALE)).astype(array.dtype) if array.dtype.kind == "f" else array
            for name, array in only.arrays.items()
        }
        samples.append(Sample(index=1, name=f"{only.name}, scaled", arrays=scaled))
    return samples


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    numbers: np.ndarray


def _fingerprint_tensors(model: Model, samples: Sequence[Sample], names: Sequence[str], limit: int) -> dict[str, _Mark]:
    shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in names}
    numbers: dict[str, list[float]] = {name: [] for name in names}
    dtypes: dict[str, str] = {}
    for chunk in plan_chunks(model, samples[0], names, limit):
        run = open_session(model.graph(), outputs=list(chunk), folder=model.path.parent)
        for sample in samples:
            for name, array in run(sample.arrays).items():
                shapes[name].append(array.shape)
                numbers[name].extend(_functionals_of(array))
                dtypes[name] = array.dtype.name
    return {
        name: _Mark(shapes=tuple(shapes[name]), dtype=dtypes[name], numbers=np.array(numbers[name]))
        for name in names
        if name in dtypes
    }


def _functionals_of(array: np.ndarray) -> tuple[float, float, float, float]:
    """Mean, root mean square, and the mean of what two waves along the elements leave of them."""
    if array.dtype.kind in "OUS" or array.size == 0:
        return (0.0, 0.0, 0.0, 0.0)
    flat = array.astype(np.float64).ravel()
    length = min(flat.size, _BLOCK)
    blocks = np.zeros((-(-flat.size // length), length))
    blocks.ravel()[: flat.size] = flat
    with np.errstate(all="ignore"):
        # cos(start + x) = cos(start) cos(x) - sin(start) sin(x): one block of each wave does for all of them.
        cosines, sines = np.moveaxis((blocks @ _waves()[:length]).reshape(-1, 2, 2), 1, 0)
        turns = np.arange(len(blocks))[:, np.newaxis] * length * np.array(_WAVES)
        first = (np.cos(turns) * cosines - np.sin(turns) * sines)[:, 0].sum()
        second = (np.sin(turns) * cosines + np.cos(turns) * sines)[:, 1].sum()
        scale = 1.0 / flat.size
        return (
            float(flat.mean()),
            float(np.sqrt(np.vdot(flat, flat) * scale)),
            float(first * scale),
            float(second * scale),
        )


@functools.cache
def _waves() -> np.ndarray:
    """float64 (_BLOCK, 4): the cosines and the sines of both waves."""
    phases = np.arange(_BLOCK)[:, np.newaxis] * np.array(_WAVES)
    return np.concatenate([np.cos(phases), np.sin(phases)], axis=1)


def _are_alike(reference: _Mark, candidate: _Mark) -> bool:
    if reference.shapes != candidate.shapes or reference.dtype != candidate.dtype:
        return False
    scale = max(float(np.abs(reference.numbers[1::4]).max(initial=0.0)), np.finfo(np.float64).tiny)
    return bool(
        np.isfinite(reference.numbers).all() and (np.abs(reference.numbers - candidate.numbers) <= _SAME * scale).all()
    )


def _prove_pairs(
    reference: Model, candidate: Model, samples: Sequence[Sample], found: Mapping[str, str], limit: int
) -> dict[str, str]:
    """Those of `found` whose elements agree on every sample."""
    proved: dict[str, str] = {}
    for chunk in plan_chunks(reference, samples[0], list(found), limit) if found else []:
        mine = open_session(reference.graph(), outputs=list(chunk), folder=reference.path.parent)
        partners = list(dict.fromkeys(found[name] for name in chunk))
        its = open_session(candidate.graph(), outputs=partners, folder=candidate.path.parent)
        agree = dict.fromkeys(chunk, True)
        for sample in samples:
            left, right = mine(sample.arrays), its(sample.arrays)
            for name in chunk:
                agree[name] = agree[name] and _are_same(left[name], right[found[name]])
        proved.update((name, found[name]) for name in _names_flagged(agree))
    return proved


def _names_flagged(flags: Mapping[str, bool]) -> Iterable[str]:
    return (name for name, flag in flags.items() if flag)


def _are_same(reference: np.ndarray, candidate: np.ndarray) -> bool:
    if reference.dtype.kind != "f":
        return bool(np.array_equal(reference, candidate))
    size = float(np.linalg.norm(reference.astype(np.float64)))
    return float(np.linalg.norm(candidate.astype(np.float64) - reference.astype(np.float64))) <= _SAME * size
