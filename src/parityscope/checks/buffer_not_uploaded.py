"""An input did not arrive as it is: never, in part, as another type, or in another memory order.

What goes wrong: a copy to the device is forgotten, starts too late, or is too short (elements counted instead of bytes);
int64 goes where the engine reads int32; an array that is a transposed view is handed over by its pointer.

How it shows: the outputs are wrong in every precision alike, on every sample; often they no longer depend on one input.

How we test for it: the reference is run with one input as the engine would then hold it: zero, the sample before, only the
first half (or one part in as many as an element has bytes), the bytes in another type, the bytes in another order of axes, a
sequence backwards. One run each, nothing fitted; accepted if what is left of the error is what the declared arithmetic
explains, on every sample looked at. Several inputs that are zero at once, or the sample before's (a state that is not carried),
are one claim, supported where none of them alone explains it (nor the other way: a state that is what the call before
gave, where the data say that a sequence begins): all sets of up to four inputs, else growing sets, those first
that alone take away most. What was moved or scaled, one input or several alike, is generated (FUS014).

What it is confused with: exchanged inputs (BND001); a stale output (BND003), which looks the same when every input is the
sample before's, so that is left to it; channel-last images, which are preprocessing. Changes that make the same outputs
are told apart by what is left of the error, and where nothing is, the simplest is named. Outputs that tell little, as those of
a saturated classifier of two classes, support no cause; what reproduces them is told as a possibility.

How to repair: upload every input before every run and wait for the copy; take sizes from the array (`nbytes`); convert to the
engine's type; hand over `numpy.ascontiguousarray(x)`.

Sources: NVIDIA/TensorRT issues 904, 1137, 3312; torch2trt issues 190, 220; numpy's manual on memory layout.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, NearMiss, Prediction
from parityscope.checks._arriving import unless_arrived
from parityscope.checks._common import format_percent
from parityscope.checks._correcting import correct_held_values, correct_states
from parityscope.checks._reproducing import (
    NEAR,
    NONSENSE_TOO,
    RUN_S,
    are_same_arrays,
    bad_samples,
    changed_run,
    measure_misfit,
    nonsense_fits,
    odds_of_accident,
    show_as_possible,
    show_refuted,
    show_supported,
    unless_one_answer,
    wrong_samples,
)
from parityscope.checks.misreading.readings import BEFORE, CARRIED, FAMILIES, ZERO, misreadings_of
from parityscope.hypotheses.states import states_left
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Correction, Shown
    from parityscope.checks._reproducing import Misfit
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]
    _Names = tuple[str, ...]

_ALL_SETS = 4  # inputs of which all sets are asked. Chosen: sixteen runs
_MORE = 0.9  # of what fewer inputs leave is what more of them may leave, to be nearer. Chosen
_ACCIDENT = 0.01  # the probability of an accident that is accepted where outputs tell little
_MENDS = {
    "absent": "copy {name} to the device before every run, and wait for the copy before the run starts",
    "part": "copy all of {name}: take the size in bytes from the array (nbytes), and wait for the copy",
    "type": "convert {name} to the type that the engine asks for before its bytes are handed over",
    "layout": "hand {name} over as numpy.ascontiguousarray({name}), or copy it with its strides",
}
_MEND_SEVERAL = (
    "hand {name} over before every run, and wait for the copy before the run starts; where they are a state, hand on what "
    "the call before gave"
)
_MEND_STATE = "give {name} the values that a sequence begins with wherever one begins"
_OF_SEVERAL = {
    ZERO: "never arrived, or a state is not carried on: they are zero throughout",
    BEFORE: "were not uploaded again: they hold the values of the sample before",
    CARRIED: "were not reset: they hold what the call before gave",
}


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    arrays = bench.inputs(bench.samples[0])
    proposed = unless_arrived(known, bench)
    for place, family in enumerate(FAMILIES):
        for name, array in arrays.items():
            count = sum(1 for _ in misreadings_of(family, array, array[...] if array.size else None))
            if count:
                cost = RUN_S * (count + place / len(FAMILIES))
                test = functools.partial(_test_claim, known, bench, family, _one_set(name))
                yield proposed(_make_claim(family, f"input {name}", name, cost, test))
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]
    if len(floats) > 1:
        every = len(floats) <= _ALL_SETS
        cost = 2 * RUN_S * (2 ** len(floats) if every else 2 * len(floats))
        sets = functools.partial(_list_sets if every else _grow_sets, floats)
        test = functools.partial(_test_claim, known, bench, "absent", sets)
        yield proposed(_make_claim("absent", "more than one input", "", cost, test))


def _one_set(name: str) -> Callable[[Mapping[_Names, float]], Iterator[_Names]]:
    return lambda _: iter([(name,)])


def _list_sets(names: Sequence[str], _: Mapping[_Names, float]) -> Iterator[_Names]:
    """All sets of inputs, small ones first."""
    for count in range(1, len(names) + 1):
        yield from itertools.combinations(names, count)


def _grow_sets(names: Sequence[str], left: Mapping[_Names, float]) -> Iterator[_Names]:
    """Each input, then sets of those that alone leave the least error, `left` as far as it is known by then."""
    yield from ((name,) for name in names)
    ranked = sorted(names, key=lambda name: left.get((name,), math.inf))
    for count in range(2, len(ranked) + 1):
        yield tuple(name for name in names if name in ranked[:count])


def _make_claim(family: str, what: str, name: str, cost: float, test: Callable[[], Shown]) -> Claim:
    return Claim(
        words=f"{what} {FAMILIES[family]}",
        predicts=Prediction(
            change=f"run the reference with {name or 'them'} as it would then be held",
            measure="worst relative L2 distance to the candidate's outputs",
            if_true="it falls to what the declared arithmetic explains",
            if_false="it stays far above",
        ),
        cost_s=cost,
        site=Site(tensor=name, node="", op_type="Input", index=-1) if name else None,
        test=test,
    )


def _test_claim(
    known: Examination, bench: Bench, family: str, sets: Callable[[Mapping[_Names, float]], Iterator[_Names]]
) -> Shown:
    judged = bad_samples(known, bench)
    enough = bool(judged)
    if not enough:
        judged = wrong_samples(known, bench)
    # With the sample before at hand, both what a fresh buffer and what a used one holds can be seen.
    judged.sort(key=lambda index: index == bench.samples[0])
    if not judged:
        return show_refuted(None, "no sample's outputs tell enough")
    first, *others = judged
    before = measure_misfit(known, bench.reference(first), bench.candidate(first))
    least, tried = before, 0
    nearest: tuple[_Names, str] | None = None
    left: dict[_Names, float] = {}
    explained: list[tuple[Misfit, _Names, str]] = []
    for names in sets(left):
        if explained and len(names) > len(explained[0][1]):
            break
        for words, changed in _list_readings(bench, family, names, first):
            after = _misfit_of(known, bench, changed, first)
            if after is None:
                continue
            tried += 1
            left[names] = min(after.total, left.get(names, math.inf))
            # What takes more inputs has to take away more.
            if after.error < least.error * (1.0 if nearest is None or len(names) == len(nearest[0]) else _MORE):
                least, nearest = after, (names, words)
            if after.explains(before) and all(
                _reading_explains_sample(known, bench, family, names, words, index) for index in others
            ):
                explained.append((after, names, words))
    for after, names, words in sorted(explained, key=lambda one: one[0].error):
        if len(names) == 1 and len(left) > 1:
            return show_refuted(before, f"{names[0]} alone explains it", after=after.error)
        because = f"the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
        shown = _show_finding(family, names, words, show_supported(before, after, because), after.share(before))
        if enough:
            shown = replace(shown, correction=_correct_reading(bench, names, family, words))
            held = functools.partial(_inputs_as_held, bench, family, names, words)
            return unless_one_answer(known, bench, shown, held)
        if odds_of_accident(bench, judged, after, before, _count_readings(bench)) <= _ACCIDENT:
            return _show_as_possible(known, bench, judged, shown, after, before)
    if not enough:
        return show_refuted(None, "the outputs tell too little of any reading")
    because = f"the nearest reading leaves {format_percent(least.error)} of {format_percent(before.error)}"
    result = show_refuted(before, because, after=least.error)
    # Of several inputs, what one alone does is told by its own claim.
    if nearest is None or least.share(before) < NEAR or (len(left) > 1 and len(nearest[0]) == 1):
        return result
    seen = replace(
        result, because=f"the error falls from {format_percent(before.error)} to {format_percent(least.error)}"
    )
    shown = _show_finding(family, *nearest, seen, least.share(before))
    return replace(
        result,
        nearest=NearMiss(
            shown=replace(shown, correction=_correct_reading(bench, nearest[0], family, nearest[1])), tried=tried
        ),
    )


def _inputs_as_held(bench: Bench, family: str, names: _Names, words: str, index: int) -> Mapping[str, np.ndarray]:
    return {**bench.inputs(index), **dict(_list_readings(bench, family, names, index)).get(words, {})}


def _count_readings(bench: Bench) -> int:
    """How many readings are tried in all."""
    arrays = bench.inputs(bench.samples[0])
    return sum(1 for family in FAMILIES for array in arrays.values() for _ in misreadings_of(family, array, array))


def _show_as_possible(
    known: Examination, bench: Bench, judged: list[int], shown: Shown, after: Misfit, before: Misfit
) -> Shown:
    """The finding as one among other possibilities."""
    saturated = all(nonsense_fits(known, bench, index) for index in judged)
    return replace(
        show_as_possible(shown, NONSENSE_TOO if saturated else "these outputs are few"),
        share=None,
        confidence=0.5 * (1.0 - after.error / before.error),
        confidence_from="half of the part of the error that is gone: other causes may leave as little",
    )


def _list_readings(bench: Bench, family: str, names: _Names, index: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What is said of all of `names`, and what they then hold; an input that a reading leaves as it is holds what it held."""
    place = bench.samples.index(index)
    arrays = bench.inputs(index)
    previous = bench.inputs(bench.samples[place - 1]) if place else None
    left = _states_of(bench, index, names) if family == "absent" else {}
    each = [
        {
            **dict(misreadings_of(family, arrays[name], None if previous is None else previous[name])),
            **({CARRIED: left[name]} if name in left else {}),
        }
        for name in names
    ]
    for words in dict.fromkeys(one for held in each for one in held):
        yield words, {name: held.get(words, arrays[name]) for name, held in zip(names, each, strict=True)}


def _states_of(bench: Bench, index: int, names: _Names) -> dict[str, np.ndarray]:
    """What those of `names` that are states would hold on a sample if the call before had not been followed by a reset."""
    place = bench.samples.index(index)
    before = bench.samples[place - 1] if place else bench.before
    left = {} if before is None else states_left(bench.inputs(index), bench.candidate(before))
    return {name: left[name] for name in names if name in left}


def _correct_reading(bench: Bench, names: _Names, family: str, words: str) -> Correction:
    if words != CARRIED:
        return correct_held_values(names, family, words)
    return correct_states({index: _states_of(bench, index, names) for index in bench.samples})


def _misfit_of(known: Examination, bench: Bench, changed: Mapping[str, np.ndarray], index: int) -> Misfit | None:
    arrays = {**bench.inputs(index), **changed}
    place = bench.samples.index(index)
    if place and are_same_arrays(arrays, bench.inputs(bench.samples[place - 1])):
        return None
    found = changed_run(bench, arrays, index)
    return None if found is None else measure_misfit(known, found, bench.candidate(index))


def _reading_explains_sample(
    known: Examination, bench: Bench, family: str, names: _Names, words: str, index: int
) -> bool:
    """Whether the same reading explains another sample; where there is no sample before, it has nothing to say."""
    held = dict(_list_readings(bench, family, names, index))
    if words not in held:
        return index == bench.samples[0]
    after = _misfit_of(known, bench, held[words], index)
    before = measure_misfit(known, bench.reference(index), bench.candidate(index))
    return after is not None and after.explains(before)


def _show_finding(family: str, names: _Names, words: str, seen: Shown, share: float) -> Shown:
    told = ", ".join(names)
    claim = f"Input {told} {words}: with the reference's so, {seen.because}."
    if len(names) > 1:
        claim = f"Inputs {told} {_OF_SEVERAL.get(words, words)}: with the reference's so, {seen.because}."
    mend = _MENDS[family] if len(names) == 1 else _MEND_SEVERAL
    mend = _MEND_STATE if words == CARRIED else mend
    return replace(
        seen,
        sentence=claim,
        confidence_from="the share of the error, in squares, that the reading explains with nothing fitted",
        share=share,
        repairs=(("upload", mend.format(name=told)),),
        details={"input": names[0], "inputs": list(names), "kind": family, "reading": words},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4,6] a, float[N,4,6] b) => (float[N,4,6] y) {
  p = Tanh(a)
  q = Mul(b, w)
  y = Add(p, q)
}"""
_STATES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6] a, float[N,4,6] b, float[N,4,6] c) => (float[N,4,6] y, float[N,4,6] bn, float[N,4,6] cn) {
  p = Tanh(a)
  q = Mul(b, w)
  bn = Add(p, q)
  r = Sigmoid(bn)
  s = Mul(r, c)
  cn = Add(s, p)
  y = Mul(cn, r)
}"""
_TOKENS = """<ir_version: 8, opset_import: ["" : 17]> g (int64[N,6] ids) => (float[N,6,8] y) {
  y = Gather<axis = 0>(w, ids)
}"""
# Two classes, sure of one of them: the second half of the input moves the other's share from 2e-4 to 6e-4, and nothing else.
_CLASSES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,16] b) => (float[N,2] y) {
  a = MatMul(b, w)
  y = Softmax<axis = 1>(a)
}"""
_SURE = {"w": np.stack([np.zeros(16), np.repeat([0.75, 0.1], 8)], axis=1).astype(np.float32)}
_ONE = {"b": (1.0 + np.arange(16, dtype=np.float32)[None] / 16)}
_RNG = np.random.default_rng(21)
# Significands that end in 0x3555, a third as a half: read as halves, these have no NaN, which other numbers have now and then.
_LONG = (np.arange(1, 73, dtype=np.float32).view(np.uint32) | 0x3555).view(np.float32).reshape(3, 4, 6)
_W = {"w": np.linspace(0.5, 2, 6, dtype=np.float32)}
_AB = {name: _RNG.normal(size=(3, 4, 6)).astype(np.float32) for name in "ab"}
_BEGUN = {"a": _AB["a"], "b": np.zeros_like(_AB["a"]), "c": np.ones_like(_AB["a"])}
_IDS = {"ids": _RNG.integers(1, 16, size=(3, 6))}
_TABLE = {"w": _RNG.normal(size=(16, 8)).astype(np.float32)}


def _deployment_reading(
    change: Callable[[np.ndarray, np.ndarray], np.ndarray], name: str = "b"
) -> Callable[[Samples], Samples]:
    """A deployment whose input `name` is `change(its values, those of the sample before)`; zero before the first."""

    def fault(samples: Samples) -> Samples:
        held = [np.zeros_like(samples[0][name]), *(each[name] for each in samples)]
        return [{**each, name: change(each[name], held[place])} for place, each in enumerate(samples)]

    return fault


def _keep_first_half(value: np.ndarray, rest: np.ndarray) -> np.ndarray:
    size = value.size // 2
    return np.concatenate([value.reshape(-1)[:size], rest.reshape(-1)[size:]]).reshape(value.shape)


def _read_as_int32(value: np.ndarray, _: np.ndarray) -> np.ndarray:
    return value.reshape(-1).view(np.int32)[: value.size].astype(np.int64).reshape(value.shape)


def _read_as_float16(value: np.ndarray, _: np.ndarray) -> np.ndarray:
    return value.reshape(-1).view(np.float16)[: value.size].astype(np.float32).reshape(value.shape)


def _read_transposed(value: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value.T).reshape(value.shape)


def _leave_states(samples: Samples) -> Samples:
    """A deployment that hands on what _STATES gave; of all sequences the first alone begins anew."""
    found: list[Mapping[str, np.ndarray]] = []
    held: dict[str, np.ndarray] = {}
    for each in samples:
        found.append({**each, **held})
        p, b, c = np.tanh(each["a"]), found[-1]["b"], found[-1]["c"]
        bn = (p + b * _W["w"]).astype(np.float32)
        held = {"b": bn, "c": (c / (1 + np.exp(-bn)) + p).astype(np.float32)}
    return found


CHECK = Check(
    code="BND002",
    title="An input did not arrive as it is",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            inputs=_AB,
            constants=_W,
            inputs_fault=_deployment_reading(lambda value, _: value * 0),
            site="b",
        ),
        Example(
            model=_MODEL, inputs=_AB, constants=_W, inputs_fault=_deployment_reading(lambda _, before: before), site="b"
        ),
        # Two states of three inputs are not carried.
        Example(
            model=_STATES,
            inputs={**_AB, "c": _AB["b"][::-1] * 0.5},
            constants=_W,
            inputs_fault=lambda samples: [{**each, "b": each["b"] * 0, "c": each["c"] * 0} for each in samples],
        ),
        # Two states are as the sample before left them.
        Example(model=_STATES, inputs=_BEGUN, constants=_W, inputs_fault=_leave_states),
        Example(model=_MODEL, inputs=_AB, constants=_W, inputs_fault=_deployment_reading(_keep_first_half), site="b"),
        Example(
            model=_MODEL,
            inputs=_AB,
            constants=_W,
            inputs_fault=_deployment_reading(lambda value, _: _keep_first_half(value, value * 0)),
            site="b",
        ),
        Example(model=_MODEL, inputs=_AB, constants=_W, inputs_fault=_deployment_reading(_read_transposed), site="b"),
        Example(
            model=_TOKENS,
            inputs=_IDS,
            constants=_TABLE,
            inputs_fault=_deployment_reading(_read_as_int32, "ids"),
            site="ids",
        ),
        Example(
            model=_MODEL,
            inputs={**_AB, "b": _LONG},
            constants=_W,
            inputs_fault=_deployment_reading(_read_as_float16),
            site="b",
        ),
        Example(
            model=_CLASSES,
            inputs=_ONE,
            constants=_SURE,
            inputs_fault=_deployment_reading(lambda value, _: _keep_first_half(value, value * 0)),
            site="b",
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_AB, constants=_W, candidate="sim:bf16"),
        Example(model=_MODEL, inputs=_AB, constants=_W, candidate="sim:f16"),
        # Exchanged, scaled or stale in all: other checks' claims.
        Example(
            model=_MODEL,
            inputs=_AB,
            constants=_W,
            inputs_fault=lambda samples: [{"a": each["b"], "b": each["a"]} for each in samples],
        ),
        Example(model=_MODEL, inputs=_AB, constants=_W, inputs_fault=_deployment_reading(lambda value, _: value / 255)),
        Example(
            model=_MODEL,
            inputs=_AB,
            constants=_W,
            outputs_fault=lambda samples: [samples[max(0, place - 1)] for place in range(len(samples))],
        ),
    ),
)
