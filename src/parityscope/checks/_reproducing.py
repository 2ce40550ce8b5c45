"""Does the reference, run on changed inputs, reproduce the candidate? What checks from outputs alone have in common.

A hypothesis is a change of the inputs. Its prediction is the whole output vector, nothing in it is fitted, and so the test
can be strict: what is left of the error must be what the candidate's arithmetic explains, on every sample looked at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Shown
from parityscope.comparison.distance import distance_between
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.examination import Examination
    from parityscope.records import Verdict

    Arrays = Mapping[str, np.ndarray]
    Give = Callable[[int], Arrays]

# Seconds written down for one run of the reference. Chosen: only the order among experiments depends on it.
RUN_S = 0.05

# Errors are expected on the samples as they are; on changed inputs the same arithmetic may err more. The MiniLM encoder's
# rounding error moved by up to 2.2 (TF32, FP16, BF16) between its right inputs and exchanged ones. Chosen above that.
_CHANGED = 4.0

# A claim that explains this part of the error, in squares, and not all of it may be one of several causes. Chosen: it says
# only what is worth another look, in which all that is left has to be explained too.
NEAR = 0.3

# The error must fall by this much in L2, so that 99 % of it in squares is explained: below that, two outputs that both lie
# near the limit would count as explained by anything.
_FALL = 10.0

# What outputs must tell before a match means anything, in bits. An honest mistake has some 2^8 hypotheses to fit by chance;
# with sixteen bits more that happens once in 65,536 (chosen).
_ENOUGH_BITS = 24.0
_MOST_BITS = 24.0  # of one element: a float32's significand

_DIRECTIONS = 4  # in which one output of one sample is taken to vary, at most; chosen low

NONSENSE_TOO = "nonsense in place of the inputs gives these outputs too"  # why nothing is proved

# The sizes of nonsense: far beyond any input and any format below FP32, the square of the first still within FP32 and that
# of the second beyond it. Chosen.
_NONSENSE = (2.0**40, 2.0**100)
_ALONE = 3  # inputs of which each alone is made of random bits, as what is read as another type is; the largest. Chosen
_SEED = 40

ORDER = ("f32", "tf32", "f16", "bf16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """How far outputs are from the candidate's: the worst relative L2 error of any, and of any over its limit.

    `total` is the root of the sum of all their squares, which falls with every output that is put right.
    """

    error: float
    over: float
    total: float = math.inf

    @property
    def fits(self) -> bool:
        """Whether the arithmetic explains what is left."""
        return self.over <= 1.0

    def explains(self, before: Misfit) -> bool:
        """Whether going from `before` to this leaves what the arithmetic explains, and a small part of the error."""
        return self.fits and self.error * _FALL <= before.error

    def share(self, before: Misfit) -> float:
        """The part of the error of `before`, in squares, that is gone."""
        return max(0.0, 1.0 - (self.error / before.error) ** 2) if before.error > 0 else 0.0


def limit_of(known: Examination, output: str, *, coarser: bool = False) -> float:
    """The relative L2 error of one output that the declared or executed arithmetic explains, on changed inputs too.

    With `coarser`, the error of any arithmetic that was predicted.
    """
    expected = next((pair.expected for pair in known.outputs if pair.site.tensor == output), {})
    last = max(ORDER.index(name) if name in ORDER else 0 for name in (known.declared, known.executed))
    formats = ORDER if coarser else ORDER[: last + 1]
    allowed = [expected[name] * margin_of(name) for name in formats if name in expected]
    return _CHANGED * max([*allowed, margin_of("f32") * FLOAT32_ROUNDING])


def measure_misfit(known: Examination, outputs: Arrays, candidate: Arrays, *, coarser: bool = False) -> Misfit:
    """The misfit of `outputs` to the candidate's, over all outputs that both have."""
    worst = Misfit(error=math.inf, over=math.inf)
    shared = [name for name in outputs if name in candidate]
    outputs, candidate = make_aligner(known.policy)(outputs, candidate)
    if shared:
        errors = {name: distance_between(outputs[name], candidate[name]) for name in shared}
        over = max(error / limit_of(known, name, coarser=coarser) for name, error in errors.items())
        worst = Misfit(error=max(errors.values()), over=over, total=math.hypot(*errors.values()))
    return worst


def tell_trial(before: Misfit, after: Misfit | None, note: str = "") -> Trial | None:
    """What a repair left that was tried on the candidate itself; None where it could not be run so."""
    if after is None:
        return None
    # Nothing but the repair was changed, so that no room is left for other inputs.
    verdict: Verdict = "within" if after.over * _CHANGED <= 1.0 else "beyond"
    return Trial(before=before.error, after=after.error, verdict=verdict, note=note)


def bad_samples(known: Examination, bench: Bench) -> list[int]:
    """The samples whose outputs are wrong; none if all of them together tell too little to judge a hypothesis by.

    A sample tells nothing if nonsense in the place of its inputs reproduces the candidate too: a network whose normalization
    overflowed, say, gives its last bias whatever comes in.
    """
    told = {
        index: 0.0
        if nonsense_fits(known, bench, index)
        else _bits_told(known, bench.reference(index), bench.candidate(index))
        for index in bench.samples
    }
    return [index for index, bits in told.items() if bits > 0] if sum(told.values()) >= _ENOUGH_BITS else []


def wrong_samples(known: Examination, bench: Bench) -> list[int]:
    """The samples whose outputs are wrong and not the same everywhere, whatever they tell."""
    found = []
    for index in bench.samples:
        reference, candidate = bench.reference(index), bench.candidate(index)
        # As `_bits_told`, which counts only what is beyond the limit and not constant.
        if _bits_told(known, reference, candidate) > 0:
            found.append(index)
    return found


def odds_of_accident(bench: Bench, samples: list[int], after: Misfit, before: Misfit, tried: int) -> float:
    """The probability that one of `tried` hypotheses comes from `before` to `after` by accident, at most.

    As the search for preparations counts it: (after / before)^d for d numbers that vary, few of each output.
    """
    directions = 0
    for name, array in bench.candidate(samples[0]).items():
        if array.dtype.kind == "f":
            told = {bench.candidate(index)[name].tobytes() for index in samples if name in bench.candidate(index)}
            directions += len(told) * min(_DIRECTIONS, max(1, array.size - 1))
    grain = max(grain_of(array) for index in samples for array in bench.candidate(index).values())
    ratio = max(after.error, grain) / before.error if before.error else 1.0
    return float(min(1.0, max(1, tried) * ratio**directions))


def grain_of(array: np.ndarray) -> float:
    """The least relative L2 distance at which FP32 tells two such outputs apart: one rounding of the smallest element.

    What a sure classifier leaves for its other class is small, and known to as many digits as any number.
    """
    if array.dtype.kind != "f":
        return FLOAT32_ROUNDING
    sizes = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    return FLOAT32_ROUNDING * float(sizes.min() / np.linalg.norm(sizes)) if sizes.size else FLOAT32_ROUNDING


def part_of_error(known: Examination, bench: Bench, outputs: Collection[str]) -> float:
    """The part that some outputs are of the squared error of all, each as large as it is itself at most.

    What explains one output says nothing of the others, however far off it is.
    """
    found = {True: 0.0, False: 0.0}
    for index in bench.samples:
        candidate = bench.candidate(index)
        for name, array in bench.reference(index).items():
            error = distance_between(array, candidate[name]) if name in candidate else 0.0
            if not error <= limit_of(known, name):
                found[name in outputs] += 1.0 if math.isnan(error) else min(error, 1.0) ** 2
    return found[True] / (sum(found.values()) or 1.0)


def nonsense_fits(known: Examination, bench: Bench, index: int) -> bool:
    """Whether inputs of which nothing real is left reproduce what is wrong with a sample: then it tells nothing of its inputs."""
    candidate = bench.candidate(index)
    before = measure_misfit(known, bench.reference(index), candidate)
    for nonsense in _nonsense_for(bench.inputs(index)):
        found = changed_run(bench, nonsense, index)
        if found is not None and measure_misfit(known, found, candidate).explains(before):
            return True
    return False


def is_same_throughout(known: Examination, bench: Bench, output: str) -> bool:
    """Whether the candidate gives one wrong answer to every sample: a dead network does, whatever its buffers hold."""
    limit = limit_of(known, output)
    found = [bench.candidate(index)[output][None] for index in bench.samples]
    wrong = distance_between(bench.reference(bench.samples[0])[output], found[0][0]) > limit
    return wrong and _is_repeated(found, limit)


def _is_repeated(arrays: Sequence[np.ndarray], limit: float = 0.0) -> bool:
    """Whether all rows of all these arrays are the first, within a relative L2 error."""
    first = arrays[0][:1]
    return all(distance_between(np.repeat(first, len(one), axis=0), one) <= limit for one in arrays)


def batch_size(arrays: Arrays) -> int | None:
    """The size of the batch; None if the inputs do not share a first axis."""
    sizes = {array.shape[0] if array.ndim else None for array in arrays.values()}
    return sizes.pop() if len(sizes) == 1 else None


def _split_by(bench: Bench, give: Give, name: str, *, rows: bool) -> list[np.ndarray]:
    """A tensor of each sample, along whose first axis the samples lie, or the rows of their batches; empty if it has none."""
    found = [(give(index)[name], batch_size(bench.inputs(index))) for index in bench.samples]
    if not rows:
        return [array[None] for array, _ in found]
    return [array for array, _ in found] if all(array.ndim and len(array) == size for array, size in found) else []


def _say_one_answer(known: Examination, bench: Bench, held: Give) -> str:
    """In words, where all that is wrong is one answer to what differs, in `held` and in the reference; "" if nowhere.

    What such inputs tell ends somewhere, and nobody sees where. The first sample, or row, is wrong itself: else its answer is
    what the others were given.
    """
    beyond = [pair.site.tensor for pair in known.beyond]
    for rows, words in ((False, "on every sample"), (True, "in every row")):
        mine = {name: _split_by(bench, bench.reference, name, rows=rows) for name in beyond}
        its = {name: _split_by(bench, bench.candidate, name, rows=rows) for name in beyond}
        if (
            beyond
            and all([*mine.values(), *its.values()])
            and all(_is_repeated(its[name], limit_of(known, name)) for name in beyond)
            and not all(_is_repeated(mine[name], limit_of(known, name)) for name in beyond)
            and not all(_is_repeated(_split_by(bench, held, name, rows=rows)) for name in held(bench.samples[0]))
            and any(distance_between(mine[name][0][:1], its[name][0][:1]) > limit_of(known, name) for name in beyond)
        ):
            return words
    return ""


def unless_one_answer(known: Examination, bench: Bench, shown: Shown, held: Give | None = None) -> Shown:
    """What was shown; as one possibility among others where all that is wrong is one answer to what differs.

    `held` gives the inputs of a sample as the claim has them: where they do not differ themselves, one answer is predicted.
    """
    alike = _say_one_answer(known, bench, held or bench.inputs)
    if not alike:
        return shown
    return replace(
        show_as_possible(
            shown, f"the outputs are the same {alike}, and any layer that gives nothing on leaves them so"
        ),
        share=None,
        confidence=0.5 * (1.0 if shown.confidence is None else shown.confidence),
        confidence_from="half: what ends all that the inputs tell leaves the same outputs, wherever it stands",
        correction=None,
        further=tuple(unless_one_answer(known, bench, one, held) for one in shown.further),
    )


def show_as_possible(shown: Shown, why: str) -> Shown:
    """What was shown as no cause but one possibility among others, which is said first."""
    return replace(shown, role="contributing", sentence=f"One possibility of several ({why}): {shown.sentence}")


def _nonsense_for(arrays: Arrays) -> Iterator[Arrays]:
    """Inputs of which nothing real is left: floats far beyond any, and random bits in one input after the other."""
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    for size in _NONSENSE:
        noise = np.random.default_rng(_SEED)
        with np.errstate(over="ignore"):  # infinity is as good a nonsense in float16
            drawn = {name: (noise.normal(size=arrays[name].shape) * size).astype(arrays[name].dtype) for name in floats}
        yield {**arrays, **drawn}
    for name in sorted(floats, key=lambda one: -arrays[one].size)[:_ALONE]:
        array = arrays[name]
        bits = np.frombuffer(np.random.default_rng(_SEED).bytes(array.nbytes), array.dtype)
        yield {**arrays, name: bits.reshape(array.shape)}


def changed_run(bench: Bench, arrays: Arrays, index: int) -> dict[str, np.ndarray] | None:
    """The reference's outputs on changed inputs of sample `index`; None if they are not changed or the model refuses them."""
    if are_same_arrays(arrays, bench.inputs(index)):
        return None
    try:
        return bench.outputs(arrays)
    except ParityError:
        return None


def show_refuted(before: Misfit | None, because: str, *, after: float | None = None) -> Shown:
    """What a test showed that supports nothing; without `before` nothing could be judged."""
    error = before.error if before else 0.0
    left = error if after is None else after
    return Shown(because=because, outcome="refutes" if before else "inconclusive", before=error, after=left)


def show_supported(before: Misfit, after: Misfit, because: str) -> Shown:
    """What a test showed of a claim that explains the error."""
    return Shown(because=because, before=before.error, after=after.error)


def are_same_arrays(first: Arrays, second: Arrays) -> bool:
    """Whether both hold the same bytes under the same names."""
    return all(np.array_equal(array, second[name], equal_nan=array.dtype.kind in "fc") for name, array in first.items())


def _bits_told(known: Examination, reference: Arrays, candidate: Arrays) -> float:
    """What a match with the candidate's wrong outputs would tell: -log2 of the chance that it comes about by itself.

    A vector of n wrong floats at a distance e is within a limit l of another one by chance with (l / e)^n, a ball in a ball;
    a wrong integer is counted as one of two values.
    """
    bits = 0.0
    for name, expected in reference.items():
        found = candidate.get(name)
        if found is None or found.shape != expected.shape or found.size == 0:
            continue
        limit = limit_of(known, name)
        error = distance_between(expected, found)
        # The same value everywhere fits whatever makes the network dead, and NaN whatever breaks it.
        finite = np.isfinite(found) if found.dtype.kind == "f" else np.ones(found.shape, bool)
        values = found[finite]
        constant = values.size > 1 and bool((values == values[0]).all())
        if error <= limit or constant:
            continue
        each = min(_MOST_BITS, math.log2(error / limit)) if expected.dtype.kind in "fcV" else 1.0
        bits += each * int((expected[finite] != values).sum())
    return bits
