"""The error has a shape inside the tensor.

What goes wrong: rounding is everywhere; bugs have shapes. An error only where the reference is at a Clip bound is a lost
bound; only at the border, padding; in one channel, a wrong parameter; from some batch index on, a batch that was not
processed; in a tail of the buffer, a copy that was cut short; in one element of millions, an outlier or a race.

How it shows: nearly all of the introduced error lies in a small, describable part of the tensor.

How we test for it: the squared introduced error is summed over each describable part. A part that holds at least 99 % of
it in at most a quarter of the elements is named; of several, the one with the fewest elements.

What it is confused with: a tensor that is nearly zero elsewhere (then the error follows the values; relative measures
by channel show it).

How to repair: the shape says where to look: the Clip's bound, the padding attributes, one channel's parameters, the copy.

Sources: public issues where the shape gave the cause away (a lost upper bound of Clip; four equal rows with four answers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Example, Proposal, Result
from parityscope.checks._common import leading, number, percent
from parityscope.checks._examples import CLIP, CLIP_CONSTANTS, halved, unclipped
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.checks import Lab, Scene
    from parityscope.records import Suspect

__all__ = ["CHECK", "Part", "find_part"]

_CODE = "FUS001"

_HELD = 0.99  # chosen: what is left over may be the rounding that every element has
_SMALL = 0.25  # chosen: a part of more than a quarter of the tensor says little
_LOOKED_AT = 3  # suspects: the shape of small contributions says nothing about the outputs
_IMAGE_RANK = 4
_FEW = 16  # elements that can be listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A describable part of a tensor: its words, its share of the elements and of the squared error."""

    words: str
    elements: float
    energy: float


def find_part(error: np.ndarray, replayed: np.ndarray) -> Part | None:
    """The smallest describable part that holds nearly all of `error` (float64, any shape); None if there is none.

    `replayed` (same shape) is the value that the error is an error of. Elements that are not finite weigh as if
    each held all of the error.
    """
    if error.size == 0:
        return None
    energy = np.square(error)
    broken = ~np.isfinite(energy)
    if broken.any():
        energy = broken.astype(np.float64)
    total = float(energy.sum())
    if total == 0.0:
        return None
    found = [
        Part(words=words, elements=float(mask.mean()), energy=float(energy[mask].sum()) / total)
        for words, mask in _parts(energy, replayed)
    ]
    held = [part for part in found if part.energy >= _HELD and 0 < part.elements <= _SMALL]
    return min(held, key=lambda part: part.elements, default=None)


def _parts(energy: np.ndarray, replayed: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield from _few_elements(energy)
    yield from _bounds(replayed)
    for axis, length in enumerate(energy.shape):
        yield from _one_index(energy, axis, length)
    yield from _border(energy)
    yield from _tail(energy)


def _few_elements(energy: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    flat = energy.ravel()
    count = min(_FEW, flat.size)
    top = np.argpartition(flat, flat.size - count)[flat.size - count :]
    order = top[np.argsort(flat[top])[::-1]]
    needed = int(np.searchsorted(np.cumsum(flat[order]), _HELD * float(flat.sum()))) + 1
    if needed > count:
        return
    mask = np.zeros(energy.size, np.bool_)
    mask[order[:needed]] = True
    index = tuple(int(i) for i in np.unravel_index(int(order[0]), energy.shape))
    words = f"one element, {list(index)}" if needed == 1 else f"{needed} elements, the worst at {list(index)}"
    yield f"in {words} of {energy.size:,}", mask.reshape(energy.shape)


def _bounds(replayed: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Elements at the largest and the smallest value; a bound is shared by several elements."""
    finite = replayed[np.isfinite(replayed)]
    if finite.size == 0:
        return
    for word, bound in (("upper", finite.max()), ("lower", finite.min())):
        mask = replayed == bound
        if int(mask.sum()) > 1:
            yield f"only where the reference is at its {word} bound {number(float(bound))}", mask


def _one_index(energy: np.ndarray, axis: int, length: int) -> Iterator[tuple[str, np.ndarray]]:
    if length < 2:
        return
    others = tuple(other for other in range(energy.ndim) if other != axis)
    sums = energy.sum(axis=others)
    worst = int(sums.argmax())
    words = {0: "batch index", 1: "channel" if energy.ndim >= _IMAGE_RANK else "index of axis 1"}
    mask = np.zeros(energy.shape, np.bool_)
    mask[(slice(None),) * axis + (worst,)] = True
    yield f"in {words.get(axis, f'index of axis {axis}')} {worst} of {length}", mask
    first = int(np.flatnonzero(sums > 0)[0])
    if axis == 0 and 0 < first < length - 1:
        late = np.zeros(energy.shape, np.bool_)
        late[first:] = True
        yield f"from batch index {first} on, of {length}", late


def _border(energy: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if energy.ndim < _IMAGE_RANK or min(energy.shape[-2:]) < 3:
        return
    for width in (1, 2, 3):
        if min(energy.shape[-2:]) <= 2 * width:
            return
        mask = np.ones(energy.shape, np.bool_)
        mask[..., width:-width, width:-width] = False
        yield f"at the border, {width} wide", mask


def _tail(energy: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    flat = energy.ravel()
    first = int(np.flatnonzero(flat > 0)[0])
    if first == 0 or float((flat[first:] > 0).mean()) < 0.5:
        return
    mask = np.zeros(flat.size, np.bool_)
    mask[first:] = True
    yield f"in the tail of the buffer, from element {first:,} of {flat.size:,} on", mask.reshape(energy.shape)


def _propose(scene: Scene) -> Iterator[Proposal]:
    if scene.lab is None or scene.verdict == "within":
        return
    for suspect in leading(scene)[:_LOOKED_AT]:
        yield _proposal(scene.lab, suspect)


def _proposal(lab: Lab, suspect: Suspect) -> Proposal:
    tensor = suspect.site.tensor
    experiment = Experiment(
        check=_CODE,
        claim=f"the error introduced at {tensor} lies in a part of the tensor that has a name",
        change="none",
        measure="share of the squared introduced error in bounds, borders, channels, rows, batch indices, tails",
        if_true=f"at least {percent(_HELD)} of it in at most {percent(_SMALL)} of the elements",
        if_false="it is spread, as rounding is",
    )

    def test() -> Result:
        replayed = np.asarray(lab.replay(tensor, {}), np.float64)
        with np.errstate(invalid="ignore"):
            error = np.asarray(lab.candidate(tensor), np.float64) - replayed
        part = find_part(error, replayed)
        if part is None:
            evidence = Evidence(
                experiment=experiment, outcome="refutes", before=suspect.introduced, after=0.0, because="it is spread"
            )
            return Result(evidence=evidence)
        because = f"{percent(part.energy)} of it lies {part.words} ({percent(part.elements)} of the elements)"
        evidence = Evidence(
            experiment=experiment,
            outcome="supports",
            before=suspect.introduced,
            after=part.energy,
            because=because,
        )
        finding = Finding(
            code=_CODE,
            title="The error has a shape inside the tensor",
            role="contributing",
            claim=f"The error that {suspect.site.op_type} {suspect.site.node} introduces at {tensor!r} lies {part.words}.",
            confidence=part.energy,
            confidence_from="the share of the squared introduced error in that part",
            site=suspect.site,
            share=suspect.share,
            evidence=(evidence,),
            repairs=(
                OfferedRepair(
                    repair="look_there",
                    text=f"look at what {suspect.site.node} does there: bounds, padding, one channel's parameters, a copy",
                ),
            ),
            details={"part": part.words, "elements": part.elements},
        )
        return Result(evidence=evidence, finding=finding)

    return Proposal(experiment=experiment, test=test)


_X = np.random.default_rng(3).normal(size=(1, 4, 8, 8)).astype(np.float32)

CHECK = Check(
    code=_CODE,
    title="The error has a shape inside the tensor",
    propose=_propose,
    holds=(Example(model=CLIP, inputs={"x": _X}, fault=("b", unclipped(_X)), site="b", constants=CLIP_CONSTANTS),),
    holds_not=(Example(model=CLIP, inputs={"x": _X}, fault=("a", halved), constants=CLIP_CONSTANTS),),
)
