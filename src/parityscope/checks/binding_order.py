"""Inputs or outputs are bound in another order than the model's.

What goes wrong: a runtime that binds buffers by position is fed in the order of another list: the exporter's, the
tokenizer's, the engine's after its optimizer. Two tensors of equal shape and type are then exchanged in silence.

How it shows: all outputs are wrong, by far more than any precision, in FP32 as much as in FP16; no layer is to blame.

How we test for it: the reference is run with its own inputs exchanged: up to 24 orders all of them, fewest moves first.
Beyond that a candidate that can be run is asked where it puts each input, which takes two runs an input; else the orders of
sorted lists are tried, then the exchanges of two that bring the outputs nearest to the candidate's, again and again, then
what a model of all single exchanges proposes. An order is accepted if what is left of the error is what the arithmetic
explains, on every sample looked at. Outputs need no run: their values are matched.

What it is confused with: an input that never arrived (BND002), where the exchanged one is nought anyway; inputs with
equal values cannot be told apart and are never named. Where the reference is the network before its conversion and the
ONNX file does what the deployment does, the names were exchanged when it was exported, and the finding says so.

How to repair: bind by name. `docs/bindings.md` shows the lines.

Sources: NVIDIA/TensorRT issue 3616 (a BERT fed as input_ids, token_type_ids, attention_mask whose engine wants
input_ids, attention_mask, token_type_ids); triton-inference-server issue 4269.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, NearMiss, Prediction
from parityscope.checks._arriving import clean_inputs, comes_from_file, has_arrived_right
from parityscope.checks._common import format_percent
from parityscope.checks._correcting import correct_input_order, correct_output_order
from parityscope.checks._reproducing import (
    NEAR,
    RUN_S,
    Misfit,
    bad_samples,
    changed_run,
    limit_of,
    measure_misfit,
    show_refuted,
    show_supported,
    tell_trial,
    unless_one_answer,
)
from parityscope.checks.misreading.orders import count_runs, groups_of, search_order
from parityscope.comparison.distance import distance_between
from parityscope.errors import ParityError
from parityscope.plain_numbers import format_number
from parityscope.records import OfferedRepair, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.checks.misreading.orders import Order
    from parityscope.examination import Examination
    from parityscope.records import Trial

    Samples = Sequence[Mapping[str, np.ndarray]]
    Arrays = Mapping[str, np.ndarray]

# Where a candidate that can be run puts each input: 2 n runs, exact for any network, however many inputs are exchanged.
#
# All inputs of equal shape and type are given the same data, so that it does not matter which is which, and one of them other
# data. What the candidate answers is what the reference answers with the other data in the place where the candidate puts that
# input. Each place of n is tried on the reference once, and each input on the candidate once.

_PAIRS = 6  # of data that are tried: a table of two rows refuses token numbers, and masks are ones everywhere
_TOLD_APART = 10.0  # how much nearer an answer is to its own place than to the next
_ALL_TRIED = 24  # orders: so many are
_NUMBERS = 4096  # of an output that the search looks at: it tells orders apart, not networks
# Chosen: the time that the search by exchanges may take, as of the duration of a run, and the fewest and most orders. What
# outputs have to tell (`bad_samples`) leaves an accident among the most a chance of a thousandth.
_SECONDS = 10.0
_FEW = 4  # inputs, or outputs, that are all named; chosen
_ORDERS = (256, 10_000)


def _probed_order(known: Examination, bench: Bench, groups: Sequence[Sequence[str]], index: int) -> dict[str, str]:
    """Place -> the input whose data the candidate has there, for the places that are not their own.

    Empty if the candidate cannot be run, if it is right, or if two places cannot be told apart.
    """
    if bench.answers is None:
        return {}
    arrays = bench.inputs(index)
    alike = dict(arrays)
    for group in groups:
        alike.update(dict.fromkeys(group, arrays[group[0]]))
    found: dict[str, str] = {}
    for group in groups:
        placed = _place_by_runs(known, bench, arrays, alike, group)
        if placed is None:
            return {}
        found.update(placed)
    return {place: name for place, name in found.items() if place != name}


def _place_by_runs(
    known: Examination, bench: Bench, arrays: Arrays, alike: Mapping[str, np.ndarray], group: Sequence[str]
) -> dict[str, str] | None:
    pairs = [
        (base, other)
        for base, other in itertools.permutations(group, 2)
        if not np.array_equal(arrays[base], arrays[other])
    ]
    for base, other in pairs[:_PAIRS]:
        plain = {**alike, **dict.fromkeys(group, arrays[base])}
        try:
            reference = {name: bench.outputs({**plain, name: arrays[other]}) for name in group}
            candidate = {name: bench.answers({**plain, name: arrays[other]}) for name in group} if bench.answers else {}
        except ParityError:
            continue
        found = {}
        for name, answer in candidate.items():
            errors = {
                place: measure_misfit(known, outputs, answer, coarser=True) for place, outputs in reference.items()
            }
            nearest, *others = sorted(errors, key=lambda place: errors[place].error)
            clear = all(errors[place].error > _TOLD_APART * errors[nearest].error for place in others)
            if errors[nearest].fits and clear:
                found[nearest] = name
        if len(found) == len(group):
            return found
    return None


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    outputs = [pair.site.tensor for pair in known.outputs]
    if len(outputs) > 1:
        change = "match the values of outputs of equal shape and type"
        yield _make_claim("outputs", change, 0.0, lambda: _outputs_tested(known, bench))
    groups = groups_of(bench.inputs(bench.samples[0]))
    if groups:
        names = ", ".join(name for group in groups for name in group)
        change, cost = f"run the reference with {names} exchanged", RUN_S * count_runs(groups)
        claim = _make_claim("inputs", change, cost, lambda: _inputs_tested(known, bench, groups))
        yield clean_inputs(claim) if has_arrived_right(known) else claim


def _make_claim(side: str, change: str, cost: float, test: Callable[[], Shown]) -> Claim:
    return Claim(
        words=f"{side} of equal shape and type are exchanged",
        predicts=Prediction(
            change=change,
            measure="worst relative L2 distance to the candidate's outputs",
            if_true="it falls to what the arithmetic explains",
            if_false="it stays far above",
        ),
        cost_s=cost,
        test=test,
    )


def _inputs_tested(known: Examination, bench: Bench, groups: list[tuple[str, ...]]) -> Shown:
    bad = bad_samples(known, bench)
    if not bad:
        return show_refuted(None, "no sample's outputs tell enough")
    befores = {
        index: measure_misfit(known, bench.reference(index), bench.candidate(index), coarser=True) for index in bad
    }
    before = max(befores.values(), key=lambda one: one.error)
    first = next(index for index in bad if befores[index] is before)
    tried: list[Misfit] = []
    orders: list[Order] = []

    def attempt(order: Order) -> tuple[float, bool] | None:
        after = _misfit_of(known, bench, order, first)
        if after is None:
            return None
        tried.append(after)
        orders.append(order)
        return after.error, after.explains(before) and all(
            _order_explains_sample(known, bench, order, index, befores[index]) for index in bad if index != first
        )

    looked: list[Order] = []

    def seen(order: Order) -> np.ndarray | None:
        looked.append(order)
        rows = [_output_change(bench, order, index) for index in bad]
        return None if any(row is None for row in rows) else np.concatenate([row for row in rows if row is not None])

    # Of many inputs a candidate that runs can be asked where it puts each; what it tells is judged as any order.
    told = _probed_order(known, bench, groups, first) if count_runs(groups) > _ALL_TRIED else {}
    probed = attempt(told) if told else None
    if probed is not None and probed[1]:
        order: Order | None = told
    else:
        order = search_order(groups, attempt, before.error, seen, _count_affordable_orders(seen))
    if order is None:
        least = min((one.error for one in tried), default=before.error)
        because = (
            f"{max(len(tried), len(looked))} orders tried: the nearest leaves {format_number(least)} of "
            f"{format_percent(before.error)}"
        )
        result = show_refuted(before, because, after=least)
        return replace(result, nearest=_nearest_order(known, before, tried, orders, result))
    after = tried[-1]
    because = f"the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
    if len(bad) > 1:
        because += f", and likewise on all {len(bad)} samples looked at"
    trial = _try_order(known, bench, order, first, before)
    shown = _show_finding(known, order, {}, show_supported(before, after, because), after.share(before), trial)
    if comes_from_file(known, bench) is not None:
        shown = _show_exported_order(shown)
    return unless_one_answer(known, bench, replace(shown, correction=correct_input_order(order)))


def _show_exported_order(shown: Shown) -> Shown:
    """The finding where the converted file, given the same inputs by name, does what the deployment does."""
    text = "export again with `input_names` in the order in which `forward` takes its arguments"
    return replace(
        shown,
        sentence=f"{shown.sentence} The ONNX file has them so: they were exchanged when the network was exported.",
        repairs=(("export_again", text),),
    )


def _nearest_order(
    known: Examination, before: Misfit, tried: Sequence[Misfit], orders: Sequence[Order], seen: Shown
) -> NearMiss | None:
    """The order that comes nearest, should what it leaves have another cause."""
    after, order = min(zip(tried, orders, strict=True), key=lambda one: one[0].error, default=(before, {}))
    if not order or after.share(before) < NEAR:
        return None
    left = replace(
        seen, because=f"the error falls from {format_percent(before.error)} to {format_percent(after.error)}"
    )
    shown = _show_finding(known, order, {}, left, after.share(before))
    return NearMiss(shown=replace(shown, correction=correct_input_order(order)), tried=len(tried), distinct=True)


def _count_affordable_orders(seen: Callable[[Order], np.ndarray | None]) -> int:
    """How many orders the time allows, from what one takes."""
    started = time.perf_counter()
    seen({})
    return int(np.clip(_SECONDS / max(time.perf_counter() - started, 1e-9), *_ORDERS))


def _order_explains_sample(known: Examination, bench: Bench, order: Order, index: int, before: Misfit) -> bool:
    after = _misfit_of(known, bench, order, index)
    return after is not None and after.explains(before)


def _misfit_of(known: Examination, bench: Bench, order: Order, index: int) -> Misfit | None:
    arrays = bench.inputs(index)
    found = changed_run(bench, {name: arrays[order.get(name, name)] for name in arrays}, index)
    return None if found is None else measure_misfit(known, found, bench.candidate(index), coarser=True)


def _output_change(bench: Bench, order: Order, index: int) -> np.ndarray | None:
    """The reference's outputs for an order less the candidate's, some thousand numbers; None if they are not finite."""
    arrays = bench.inputs(index)
    try:
        found = bench.outputs({name: arrays[order.get(name, name)] for name in arrays})
    except ParityError:
        return None
    rows = []
    for name, held in bench.candidate(index).items():
        if name in found and found[name].shape == held.shape and held.dtype.kind in "fiu":
            apart = found[name].astype(np.float64) - held.astype(np.float64)
            size = float(np.linalg.norm(held.astype(np.float64)))
            # Outputs of other sizes weigh alike, and a stride leaves out no region of a large one.
            rows.append(apart.reshape(-1)[:: max(1, apart.size // _NUMBERS)] / (size or 1.0))
    row = np.concatenate(rows) if rows else np.zeros(0)
    return row if row.size and np.isfinite(row).all() else None


def _outputs_tested(known: Examination, bench: Bench) -> Shown:
    order: Order | None = None
    befores = []
    for index in bad_samples(known, bench):
        reference, candidate = bench.reference(index), bench.candidate(index)
        matched = _match_outputs(known, reference, candidate)
        if not matched or (order is not None and matched != order):
            order = None
            break
        order = matched
        befores.append(measure_misfit(known, reference, candidate))
    if order is None or not befores:
        return show_refuted(None, "no output has the values of another one")
    moved = [name for name in bench.reference(bench.samples[0]) if name in order]
    before = max(befores, key=lambda one: one.error)
    because = f"on {len(befores)} samples {', '.join(f'{name} holds the values of {order[name]}' for name in moved)}"
    shown = _show_finding(known, {}, order, show_supported(before, Misfit(error=0.0, over=0.0), because), 1.0)
    return replace(shown, correction=correct_output_order(order))


def _match_outputs(
    known: Examination, reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> Order:
    """For every output that is wrong, the one output whose values it has; nothing if one of them has none or several."""
    found: dict[str, str] = {}
    for name, held in candidate.items():
        if name not in reference or distance_between(reference[name], held) <= limit_of(known, name):
            continue
        fits = [
            other
            for other, values in reference.items()
            if other != name
            and values.dtype == reference[name].dtype
            and distance_between(values, held) <= limit_of(known, other)
            and held.size > 1
        ]
        if len(fits) != 1:
            return {}
        found[name] = fits[0]
    return found


def _try_order(known: Examination, bench: Bench, order: Order, index: int, before: Misfit) -> Trial | None:
    """What is left where the candidate itself is fed so that each input arrives where it belongs; None of a recording."""
    if bench.answers is None:
        return None
    arrays = bench.inputs(index)
    try:
        found = bench.answers({order.get(name, name): array for name, array in arrays.items()})
    except ParityError:
        return None
    return tell_trial(
        before, measure_misfit(known, bench.reference(index), found), "in the candidate itself, fed in this order"
    )


def _show_finding(
    known: Examination, inputs: Order, outputs: Order, seen: Shown, share: float, trial: Trial | None = None
) -> Shown:
    names = {"inputs": [one.name for one in known.model.inputs], "outputs": [one.name for one in known.model.outputs]}
    side, order = ("inputs", inputs) if inputs else ("outputs", outputs)
    given = [order.get(name, name) for name in names[side]]
    moved = [name for name in names[side] if name in order]
    # A few are told as they follow each other; of many those alone that stand where others belong.
    told = names[side] if len(names[side]) <= _FEW else moved
    where = ", ".join(told), ", ".join(order.get(name, name) for name in told)
    if inputs:
        claim = f"Inputs {where[0]} were bound as {where[1]}: with the reference fed in that order, {seen.because}."
    else:
        claim = f"Outputs {where[0]} were bound as {where[1]}: {seen.because}."
    details = {**names, "order": dict(order), **({"given": given} if inputs else {})}
    return replace(
        seen,
        sentence=claim,
        confidence_from="the share of the error, in squares, that the exchange explains with nothing fitted",
        site=known.places.get(moved[0]) or Site(tensor=moved[0], node="", op_type="Input", index=-1),
        share=share,
        repairs=(
            OfferedRepair(
                repair="bind_by_name", text=f"bind {side} by name, or in the model's order: {where[0]}", trial=trial
            ),
        ),
        details=details,
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,8] a, float[N,8] b, float[N,8] c) => (float[N,8] y) {
  p = Mul(a, b)
  q = Tanh(p)
  y = Add(q, c)
}"""
_TWO = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y, float[N,8] z) {
  y = Tanh(x)
  z = Exp(x)
}"""
_MANY = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,8] a, float[N,8] b, float[N,8] c, float[N,8] d, float[N,8] e) => (float[N,8] y) {
  ab = Sub(a, b)
  t = Mul(ab, w)
  abc = Add(t, c)
  u = Mul(abc, w)
  abcd = Sub(u, d)
  v = Mul(abcd, w)
  y = Add(v, e)
}"""
_RNG = np.random.default_rng(20)
_INPUTS = {name: _RNG.normal(size=(3, 8)).astype(np.float32) for name in "abcde"}
_ABC = {name: _INPUTS[name] for name in "abc"}
_X = {"x": _INPUTS["a"]}


def _bind_in_order(order: Order) -> Callable[[Samples], Samples]:
    return lambda samples: [{name: each[order.get(name, name)] for name in each} for each in samples]


CHECK = Check(
    code="BND001",
    title="Inputs or outputs are bound in another order",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_ABC, inputs_fault=_bind_in_order({"b": "c", "c": "b"}), site="b"),
        Example(model=_MODEL, inputs=_ABC, inputs_fault=_bind_in_order({"a": "b", "b": "c", "c": "a"}), site="a"),
        Example(model=_TWO, inputs=_X, outputs_fault=_bind_in_order({"y": "z", "z": "y"}), site="y"),
        # Five inputs have 120 orders: the search goes from one exchange to the next.
        Example(
            model=_MANY,
            inputs=_INPUTS,
            constants={"w": np.array([3.0], np.float32)},
            inputs_fault=_bind_in_order({"a": "e", "e": "a", "b": "d", "d": "b"}),
            site="a",
        ),
    ),
    holds_not=(
        # As good as its arithmetic allows, and wrong in a way that no order explains.
        Example(model=_MODEL, inputs=_ABC, candidate="sim:bf16"),
        Example(model=_MODEL, inputs=_ABC, candidate="sim:f16"),
        Example(model=_MODEL, inputs=_ABC, outputs_fault=lambda samples: [{"y": each["y"] * 2} for each in samples]),
    ),
)
