"""One change of the network reproduces the outputs, and nothing but these was seen.

What goes wrong: a layer computes another function, with another attribute, constant, input or neighbour; the deployment is a
recording, a program or a server, so that no layer can be looked at.

How it shows: outputs are wrong by more than any arithmetic makes them, and there is no tensor inside to compare.

How we test for it: every edit that is generated for layers (docs/explanations.md) is put to the reference's own graph, at every
node that leads to no output that is right. One sweep of derivatives backwards says what each would do to the outputs; what comes
nearest is computed exactly, shared parts once. An edit is claimed where it explains 98.5 % of the squared error of each output
and sample that is wrong, and saves more bits than it takes to say it. What explains as much is the same class: the claim names
it, with the tensors that would decide if they were recorded. If nothing holds, the answer is the region that can hold the error,
what was tried there, and the nearest description, which is no cause. Of two faults at once neither explains enough alone: what
explains most is put into the reference and what remains searched again; both are claimed where they explain all together.

What it is confused with: several edits that do the same to the outputs (a scale before or behind a Transpose), which is why the
class is told; three faults at once; outputs of a few numbers, which many edits reproduce.

How to repair: record the tensors that are named, or compare the node in the deployed file with the original's.

Sources: docs/outputs-alone.md; description length: J. Rissanen, Automatica 14, 1978.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import backend_named, is_recording
from parityscope.case.graph import values_before
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import (
    GUARD_NAN,
    HALVED,
    STANDS_IN,
    format_percent,
    is_mostly_variation,
    say_equal,
)
from parityscope.checks._correcting import correct_layers
from parityscope.checks._reproducing import (
    NONSENSE_TOO,
    nonsense_fits,
    show_as_possible,
    unless_one_answer,
    wrong_samples,
)
from parityscope.checks.barriers import offer_barrier
from parityscope.checks.preprocessing.repairing import affine_details, repairs_of
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.hypotheses.from_nan import SWALLOWED
from parityscope.hypotheses.from_outputs.reference import READ
from parityscope.hypotheses.from_outputs.rules import EVERYWHERE
from parityscope.hypotheses.from_outputs.searching import KnownOutputs
from parityscope.hypotheses.worker import Worker, skips_of_search
from parityscope.operators import operators_that_move, with_trait
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Offer
    from parityscope.examination import Examination
    from parityscope.hypotheses.from_outputs.telling import EquivalentEdit, OutputsAnswer

_UNPROVED = "What the outputs alone say"
_COST_S = 30.0
_LATER = 0.3  # of the budget, for each copy that is looked at again; chosen: there are up to six of them
_NEAR = "what it leaves is more than rounding leaves, so that it may stand in for another change there or near by"
_COMPARE = (
    "compare this node of the deployed file with the original's, and convert the original again where they differ"
)
_REPLACED = " in place of the result"  # how an edit's words end that puts other values there
_MEND = "take that step out of the deployment's preprocessing"
# Kinds of edits that a fusion makes: what one node computes, and not what it holds.
_OF_FUSIONS = {"attributes", "inputs", "operators", "operator fitted", "upper bound", "lower bound", "both bounds"}
_ENTERED = "input"  # in the place of an operator
_OF_EACH = {"factor", "offset"}  # what is done to every element alike
_PASSING = with_trait("passes on") | operators_that_move("in order", "permuted")
_BARRIERS = 8  # in one command; chosen
_ANOTHER = 0.5  # of the error (chosen): an engine that looking changed by so much is another program
_SHOWN = 3  # members of a class in a claim; the details hold more


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    stands_aside = known.localization is not None and not (_may_be_stale(known) or _is_of_another_program(known))
    if known.verdict != "beyond" or stands_aside:
        return
    if is_mostly_variation(known):  # no change of the network makes what two runs differ by
        return
    yield Claim(
        words="one change of the network's graph gives the candidate's outputs",
        predicts=Prediction(
            change="the reference is computed with one generated edit at a time, best prediction first",
            measure="share of the squared error of all outputs and samples that the edit explains",
            if_true="98.5 % or more of each wrong output and sample, in fewer bits than that saves",
            if_false="less",
        ),
        cost_s=_COST_S,
        runs="reference",
        test=lambda: _test_claim(known, bench),
    )


def _is_of_another_program(known: Examination) -> bool:
    """Whether what was seen inside a recording is not the deployment's: looking changed the outputs by as much as they are wrong.

    What can be run again is asked by barriers (FUS011).
    """
    if not is_recording(known.candidate):
        return False
    errors = [pair.value("rel_l2") for pair in known.outputs]
    return known.disturbance >= _ANOTHER * max((error for error in errors if not math.isnan(error)), default=math.inf)


def _may_be_stale(known: Examination) -> bool:
    """Whether layers that were recorded leave the error to what gives the outputs alone, where nothing explains it.

    They may be of another run or build than the outputs, which then say more.
    """
    given = {value.name for value in known.model.outputs}
    blamed = {tensor for tensor, found in known.explanations.items() if found.is_bug}
    unexplained = all(known.explanations[tensor].status == "unexplained" for tensor in blamed)
    return backend_named(known.candidate.backend).recorded and bool(blamed) and blamed <= given and unexplained


def _test_claim(known: Examination, bench: Bench) -> Shown:
    shown = _search_one_change(known, bench)
    if shown.role != "cause":
        # Where layers were seen, what is known of them says more than what was tried in vain.
        return (
            shown if known.localization is None else Shown(because=shown.because, outcome="refutes", after=shown.after)
        )
    possible = unless_one_answer(known, bench, shown)
    if possible is not shown:
        return possible
    wrong = wrong_samples(known, bench)
    if not wrong or not all(nonsense_fits(known, bench, index) for index in wrong):
        return shown
    # Outputs that any nonsense gives too (NaN everywhere, one saturated answer) are reproduced by countless edits.
    return replace(_show_as_possible(shown), further=tuple(map(_show_as_possible, shown.further)), correction=None)


def _show_as_possible(shown: Shown) -> Shown:
    return replace(
        show_as_possible(shown, NONSENSE_TOO),
        share=None,
        confidence=0.0,
        confidence_from="nothing: what nonsense reproduces too speaks for no edit",
    )


def _search_one_change(known: Examination, bench: Bench) -> Shown:
    # What was kept of the first sample is told by that one, too.
    first = known.case.inputs.indices[0]
    samples = (first, *bench.samples) if bench.before == first else bench.samples
    outputs = KnownOutputs(
        model=known.model.path,
        feeds=[dict(bench.inputs(index)) for index in samples],
        candidate=[dict(bench.candidate(index)) for index in samples],
        noise={
            pair.site.tensor: _noise_of_output(known, pair.expected.get(known.declared, 0.0)) for pair in known.outputs
        },
        scale=known.request.patience * (1.0 if known.number == 1 else _LATER),
        order=samples,
    )
    told = Worker().search_outputs(outputs)
    if told.problem:
        raise ParityError(told.problem, fix="record layers too, so that they can be compared")
    left_out = skips_of_search(", ".join(pair.site.tensor for pair in known.beyond), told)
    return replace(_show_answer(known, told, len(samples)), skipped=tuple(left_out))


def _show_answer(known: Examination, told: OutputsAnswer, samples: int) -> Shown:
    """The change, the pair of changes, or what is known where none is proved."""
    # Of what is done to inputs beside another fault, checks of bindings and of preprocessing know more.
    if told.pair and not any(one.output.endswith(READ) for one in told.pair):
        return _show_pair(known, told)
    if not told.members:
        return _show_unproved(known, told)
    first = told.members[0]
    because = (
        f"{format_percent(first.share)} of the squared error explained on {samples} samples, {_describe_tried(told)}"
    )
    because += "" if told.exact else f"; {_NEAR}"
    # What may stand in for another change is not put right: what it leaves is no error of its own.
    words = f"computes {_describe_place(known, first)} with this change: {first.words}"
    return replace(
        _show_finding(known, told, Shown(because=because, before=0.0, after=first.share)),
        correction=correct_layers(words, [first]) if told.exact else None,
    )


def _show_pair(known: Examination, told: OutputsAnswer) -> Shown:
    """Two changes that hold together: each a finding with its own share."""
    together = sum(one.share for one in told.pair)
    because = f"two changes together explain {format_percent(together)} of the squared error, {_describe_tried(told)}"
    findings = [
        Shown(
            because=because,
            before=0.0,
            after=together,
            sentence=f"{_describe_place(known, one)} ({one.op_type}): {one.words}: {format_percent(one.share)} of "
            f"the squared error; {because}. "
            f"The other is at {_describe_place(known, other)}: {other.words}.",
            confidence=max(0.0, min(1.0, one.least)),
            confidence_from="the share of the error that both explain of the output and sample of which they explain least",
            site=known.places.get(one.output),
            share=max(0.0, one.share),
            repairs=_offer_repairs(known, told, one),
            details={
                "parameter": f"{one.output}:{one.words}",
                "jointly": True,
                "kind": one.kind,
                "fitted": dict(one.numbers),
                "record": list(told.record),
                "evaluations": told.evaluations,
                "run_s": round(told.run_s, 6),
            },
        )
        for one, other in (told.pair, told.pair[::-1])
    ]
    words = "; and ".join(f"computes {_describe_place(known, one)} with this change: {one.words}" for one in told.pair)
    return replace(findings[0], correction=correct_layers(words, told.pair), further=tuple(findings[1:]))


def _noise_of_output(known: Examination, expected: float) -> float:
    return max(margin_of(known.declared) * expected, margin_of("f32") * FLOAT32_ROUNDING)


def _describe_tried(told: OutputsAnswer) -> str:
    kinds = sorted(told.evaluated.items(), key=lambda one: (-one[1], one[0]))
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds[:6])
    untried = f", and for {told.untried:,} there was no time" if told.untried else ""
    return f"{told.predicted:,} changes were estimated, {sum(told.evaluated.values()):,} computed ({listed}){untried}"


def _input_behind(known: Examination, member: EquivalentEdit) -> str:
    """The input of the model whose values are changed, if an edit changes those; else "".

    What scales or shifts every element of an input that was only moved or cast on its way, and that nothing else reads, is
    done to the input.
    """
    if member.output.endswith(READ):
        return member.output.removesuffix(READ)
    if not member.numbers or member.numbers.keys() - _OF_EACH or member.inside or member.also:
        return ""
    graph = known.model.graph().graph
    changed = next((one for node in graph for one in node.outputs if one.name == member.output), None)
    before = [*values_before(changed, _PASSING)][1:]
    alone = all(len(one.uses()) == 1 for one in before)
    return str(before[-1].name) if before and alone and before[-1] in graph.inputs else ""


def _describe_place(known: Examination, member: EquivalentEdit) -> str:
    if entered := _input_behind(known, member):
        if not member.also:
            return f"what is read of input {entered!r}"
        names = [entered, *(one.output.removesuffix(READ) for one in member.also)]
        told, more = ", ".join(map(repr, names[:_SHOWN])), len(names) - _SHOWN
        return f"what is read of inputs {told} and {more} more" if more > 0 else f"what is read of inputs {told}"
    site = known.places.get(member.output)
    inside = f"inside {member.inside}: " if member.inside else ""
    return inside + ((site.node if site is not None else "") or member.output)


def _show_finding(known: Examination, told: OutputsAnswer, seen: Shown) -> Shown:
    first, others = told.members[0], told.members[1:]
    also = f" It cannot be told from {len(others)} other{'' if len(others) == 1 else 's'}: " if others else ""
    also += "; ".join(f"{_describe_place(known, one)}: {one.words}" for one in others[:_SHOWN])
    also += "." if others and len(others) <= _SHOWN else "; ..." if others else ""
    places = len({one.output for one in told.members})
    entered = _input_behind(known, first)
    mapped = _map_of_input(known, entered, first) if first.output.endswith(READ) and not first.also else {}
    return replace(
        seen,
        role="cause" if told.exact else "contributing",
        sentence=(
            f"{_describe_place(known, first)} ({_ENTERED if entered else first.op_type}): {first.words}"
            f"{say_equal(first.equal, first.words)}: {seen.because}.{also}{_describe_next_record(told)}"
        ),
        confidence=max(0.0, min(1.0, first.share)) / places * (1.0 if told.exact else STANDS_IN),
        confidence_from=(
            "with this change the reference gives these outputs"
            if places == 1
            else f"changes of {places} nodes, of which this is one, give these outputs"
        )
        + ("" if told.exact else HALVED),
        site=Site(tensor=entered, node="", op_type="Input", index=-1) if entered else known.places.get(first.output),
        share=max(0.0, first.share),
        repairs=repairs_of(mapped, (), _say_mending(entered, first)) if entered else _offer_repairs(known, told, first),
        details={
            **mapped,
            "parameter": f"{first.output}:{first.words}",
            "kind": first.kind,
            "places": [one.output for one in (first, *first.also)],
            "fitted": dict(first.numbers),
            "alike": [f"{one.output}: {one.words}" for one in others],
            "equal": list(first.equal),
            "record": list(told.record),
            "evaluations": told.evaluations,
            "run_s": round(told.run_s, 6),
        },
    )


def _say_mending(name: str, member: EquivalentEdit) -> str:
    """What to do about an input: take a step out that is done to its values, else give it those that the reference is given."""
    replaced = member.words.endswith(_REPLACED)
    return f"give input {name!r} the values that the reference's samples have" if replaced else _MEND


def _map_of_input(known: Examination, name: str, member: EquivalentEdit) -> Mapping[str, Any]:
    """What turns an input that is scaled and shifted back into what the model expects, as details of a repair."""
    numbers = member.numbers
    if known.bench is None or not numbers or numbers.keys() - _OF_EACH:
        return {}
    sample = known.bench.inputs(known.bench.samples[0])
    scaled = (sample[name] * numbers.get("factor", 1.0) + numbers.get("offset", 0.0)).astype(sample[name].dtype)
    return affine_details({**sample, name: scaled}, sample)


def _describe_next_record(told: OutputsAnswer) -> str:
    return f" Recorded next, {', '.join(map(repr, told.record))} would decide." if told.record else ""


def _offer_repairs(known: Examination, told: OutputsAnswer, member: EquivalentEdit) -> tuple[Offer, ...]:
    kind = member.kind.removesuffix(EVERYWHERE)
    # A fusion takes in what computes element by element, and bounds; what else holds other attributes or weights was converted
    # so, unless the runtime got the original.
    converted = backend_named(known.candidate.backend).recorded or bool(known.candidate.option("model"))
    taken_in = kind.endswith(("bound", "bounds")) or member.op_type in with_trait("pointwise")
    is_fused = kind in _OF_FUSIONS and (taken_in or not converted)
    reads = _list_read_results(known, member) if is_fused else []
    found: list[Offer] = [offer_barrier(known, reads)] if 0 < len(reads) <= _BARRIERS else []
    if kind == SWALLOWED:
        found.append(GUARD_NAN)
    found.append(("compare_node", _COMPARE))
    if told.record:
        found.append(("record", _say_record(told)))
    return tuple(found)


def _list_read_results(known: Examination, member: EquivalentEdit) -> list[str]:
    """What the changed nodes read first of other nodes: made outputs, nothing is fused over these."""
    makers = {str(value.name): node for node in known.model.graph().graph for value in node.outputs}
    nodes = [makers[one] for one in (member.output, *(other.output for other in member.also)) if one in makers]
    read = [str(node.inputs[0].name) for node in nodes if node.inputs and node.inputs[0] is not None]
    return [name for name in dict.fromkeys(read) if name in makers]


def _say_record(told: OutputsAnswer) -> str:
    return f"record this as well, and diagnose again: {', '.join(told.record)}"


def _show_unproved(known: Examination, told: OutputsAnswer) -> Shown:
    """The answer where nothing is proved: region, what was ruled out, nearest description, next measurement."""
    near = told.nearest
    share = max(0.0, near.share) if near is not None else 0.0
    region = "no node leads to the wrong outputs alone"
    if told.sites:
        ends = f"from {told.sites[0]!r} to {told.sites[-1]!r}"
        region = f"the error comes in at one or more of {len(told.sites)} of {told.live} nodes, {ends}"
        if len(told.sites) == told.live:
            region = f"the error comes in at one or more of all {told.live} nodes, or in what enters the network"
    ruled = f"no single change explains it: {_describe_tried(told)}"
    described = (
        f" The nearest description, which is no cause: {_describe_place(known, near)} ({near.op_type}): {near.words}, "
        f"{format_percent(share)} of the squared error."
        if near is not None and share > 0
        else ""
    )
    blind = f" Without a derivative: {', '.join(sorted(told.refused))}." if told.refused else ""
    follow = (
        f" Record {', '.join(map(repr, told.record))} next: whether it is right halves the region."
        if told.record
        else ""
    )
    return Shown(
        because=ruled,
        outcome="refutes",
        before=0.0,
        after=share,
        title=_UNPROVED,
        role="information",
        sentence=f"No cause is proved; {region}; {ruled}.{described}{blind}{follow}",
        confidence_from="nothing is claimed beyond what was computed",
        ruled_out=told.ruled_out,
        repairs=(("record", _say_record(told)),) if told.record else (),
        details={
            "parameter": "the outputs alone",
            "region": list(told.sites),
            "nodes": told.live,
            "nearest": "" if near is None else f"{near.output}: {near.words}",
            "nearest_share": format_number(share),
            "record": list(told.record),
            "evaluations": told.evaluations,
            "run_s": round(told.run_s, 6),
        },
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,16] x) => (float[8,12] y) {
  a = Gemm(x, w, b)
  h = LeakyRelu<alpha = 0.1>(a)
  y = MatMul(h, v)
}"""
_RNG = np.random.default_rng(11)
_CONSTANTS = {
    "w": _RNG.normal(size=(16, 20)).astype(np.float32),
    "b": _RNG.normal(size=20).astype(np.float32),
    "v": _RNG.normal(size=(20, 12)).astype(np.float32),
}
_X = {"x": _RNG.normal(size=(8, 16)).astype(np.float32)}


def _outputs_of_relu(_: Sequence[Mapping[str, np.ndarray]]) -> Sequence[Mapping[str, np.ndarray]]:
    """What a runtime gives that takes LeakyRelu for Relu."""
    hidden = np.maximum(_X["x"] @ _CONSTANTS["w"] + _CONSTANTS["b"], 0)
    return [{"y": hidden @ _CONSTANTS["v"]}]


CHECK = Check(
    code="FUS014",
    title="One change of the network reproduces the outputs",
    propose=_propose_claims,
    holds=(Example(model=_MODEL, inputs=_X, outputs_fault=_outputs_of_relu, constants=_CONSTANTS, site="h"),),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="sim:f16", declared="f16", constants=_CONSTANTS),
        # Layers can be looked at: what they show says more.
        Example(model=_MODEL, inputs=_X, fault=("h", lambda value: value.clip(0)), constants=_CONSTANTS),
    ),
)
