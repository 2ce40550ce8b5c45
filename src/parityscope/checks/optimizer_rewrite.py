"""The runtime's optimizer makes the error: unoptimized, or with a barrier in the right place, the same deployment is right.

What goes wrong: an optimizer replaces several nodes by one that is not the same function. A Resize between QuantizeLinear and
DequantizeLinear is computed in integers, a Pad is taken into a pooling that treats its border otherwise, a Transpose that
exchanges nothing is folded into a product as if it did.

How it shows: an error far above any rounding that is gone as soon as one looks. Every tensor that is marked as an output is
right, because nothing can be fused over a tensor that must be given back; layer by layer nothing is to be found.

How we test for it: by two interventions on the candidate itself, with nothing else changed. Its optimizer is switched off
(`optimization=disabled`; a program is asked to in its manifest), and tensors are marked as barriers: all that could be
captured, then ever fewer (delta debugging), until no smaller set keeps the answer right. Tensors beside that are tried alone,
and the node between the most barriers is named. Last, the deployment is run undisturbed once more and must be wrong again.
Where the runtime writes the graph that it runs, that is compared with the file's, and what it does otherwise is told (EXP005
says how).

What it is confused with: a candidate that does not give the same answer twice (RUN001), which the last run tells; rounding
that fusion saves or adds, which is no more than the arithmetic allows.

How to repair: update the runtime; until then switch that optimizer off, or make the tensor named an output of the model.

Sources: ONNX Runtime issues 21319 and 28448 (QDQ Resize), 22177 (Pad and AveragePool), 32228 (Transpose and Gemm), 25855;
NVIDIA/TensorRT issues 3645, 4400 and 2706 (the error vanishes with marked outputs); A. Zeller and R. Hildebrandt, "Simplifying
and isolating failure-inducing input", IEEE TSE 28 (2002), for the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.backends import known_backend
from parityscope.backends.targets import format_target
from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._common import format_percent
from parityscope.checks._examples import POOLED, POOLED_INPUTS, PRODUCTS, product_arrays
from parityscope.checks._reproducing import RUN_S, Misfit, measure_misfit, show_refuted, show_supported, tell_trial
from parityscope.checks.barriers import find_fewest_barriers, list_neighbour_tensors, offer_barrier
from parityscope.environment import numbers_of
from parityscope.errors import ParityError
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.known_faults import RUNTIMES
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import operators_that_move
from parityscope.records import OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.bench import Bench, Run
    from parityscope.checks import Offer, Shown
    from parityscope.examination import Examination


_OFF = "optimization=disabled"
# Operators that move or store what others compute.
_STORING = operators_that_move("in order", "permuted") | {"Pad", "Cast"} | {"DequantizeLinear", "QuantizeLinear"}
_TOLD = 3  # rewrites that are named
_RUNS = 40  # chosen: one barrier among 1,000 tensors takes some 20, each a session of the candidate


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    off = next((run for target, run in bench.switched.items() if _OFF in target), None)
    tensors = _tensors_given_back(known) if bench.watched and known.disturbance > FLOAT32_ROUNDING else []
    if off is None and not tensors:
        return
    ways = [*(["switch its optimizer off"] if off else []), *(["mark tensors as outputs"] if tensors else [])]
    yield Claim(
        words="the candidate's optimizer makes the error",
        predicts=Prediction(
            change=" and ".join(ways),
            measure="worst relative L2 error of the outputs",
            if_true="it falls to what the declared arithmetic explains, and comes back with the optimizer",
            if_false="it stays",
        ),
        cost_s=RUN_S * 20,
        runs="rebuild",
        test=lambda: _test_claim(_BarrierTrial(known, bench), off, tensors),
    )


def _tensors_given_back(known: Examination) -> list[str]:
    """The intermediate tensors that the candidate gave back, in the graph's order."""
    outputs = {value.name for value in known.model.outputs}
    found = [name for name in known.tensors if name not in outputs and name in known.places]
    return sorted(found, key=lambda name: known.places[name].index)


class _BarrierTrial:
    """The candidate on the sample that is furthest off, disturbed in one way or another."""

    def __init__(self, known: Examination, bench: Bench) -> None:
        errors = {
            index: measure_misfit(known, bench.reference(index), bench.candidate(index)) for index in bench.samples
        }
        self.known, self.bench = known, bench
        self.sample = max(errors, key=lambda index: errors[index].over)
        self.before = errors[self.sample]

    def measure(self, found: Mapping[str, np.ndarray]) -> Misfit:
        return measure_misfit(self.known, self.bench.reference(self.sample), found)

    def unoptimized(self, run: Run) -> Misfit | None:
        """The misfit without the optimizer; None where the candidate cannot be run so."""
        try:
            return self.measure(run(self.bench.inputs(self.sample)))
        except ParityError:
            return None

    def barred(self, tensors: Sequence[str]) -> Misfit:
        """The misfit with these tensors marked; an engine that refuses to mark them leaves all of the error."""
        if self.bench.watched is None:
            raise ValueError("nothing can be marked")
        try:
            return self.measure(self.bench.watched(self.sample, tensors))
        except ParityError:
            return self.before

    def cures(self, tensors: Sequence[str]) -> bool:
        return self.barred(tensors).explains(self.before)

    def again(self) -> Misfit:
        """The misfit of the deployment as it is, run once more."""
        if self.bench.answers is None:
            raise ValueError("a recording cannot be run again")
        return self.measure(self.bench.answers(self.bench.inputs(self.sample)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cure:
    """What took the error away: the optimizer switched off, and barriers, each by itself or only all `together`."""

    off: Misfit | None
    barriers: tuple[str, ...]
    together: bool
    after: Misfit


def _test_claim(trial: _BarrierTrial, off: Run | None, tensors: list[str]) -> Shown:
    before = trial.before
    if before.fits:
        return show_refuted(None, "the samples looked at are right")
    plain = trial.unoptimized(off) if off else None
    marked = trial.barred(tensors) if tensors else None
    cured = [one for one in (plain, marked) if one is not None and one.explains(before)]
    told = [f"{format_percent(plain.error)} with the optimizer off"] if plain else []
    many = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
    told += [f"{format_percent(marked.error)} with {many} as outputs"] if marked else []
    because = (
        f"the error of {format_percent(before.error)} becomes {' and '.join(told) or 'nothing that could be measured'}"
    )
    if not cured:
        worst = plain or marked
        return show_refuted(before, because, after=worst.error if worst else None)
    again = trial.again()
    if again.fits:
        return show_refuted(None, f"{because}, but run once more as it is the candidate is right too")
    barriers, together = (
        _find_barriers(trial, tensors) if marked is not None and marked.explains(before) else ((), False)
    )
    cure = _Cure(off=plain if plain in cured else None, barriers=barriers, together=together, after=cured[0])
    return _show_finding(trial, cure, show_supported(before, cured[0], because))


def _find_barriers(trial: _BarrierTrial, tensors: list[str]) -> tuple[tuple[str, ...], bool]:
    """The smallest set of barriers found, and whether it takes all of them; with a single one, those beside it that do too."""
    needed, used = find_fewest_barriers(tensors, trial.cures, _RUNS)
    if len(needed) > 1:
        return tuple(needed), True
    beside = [name for name in list_neighbour_tensors(trial.known.graph, needed[0]) if name in tensors]
    return (*needed, *(name for name in beside[: _RUNS - used] if trial.cures([name]))), False


def _show_finding(trial: _BarrierTrial, cure: _Cure, seen: Shown) -> Shown:
    nodes = _nodes_touching(trial.known, cure.barriers)
    node = _node_between_barriers(nodes, cure.barriers)
    tensor = str(node.outputs[0].name) if node else ""
    share = cure.after.share(trial.before)
    return replace(
        seen,
        sentence=_describe_cure(trial.known, cure, nodes, node, seen) + _tell_rewrite(trial.bench),
        confidence_from="the share of the error, in squares, that is gone from the candidate itself by that intervention",
        site=trial.known.places.get(tensor),
        share=share,
        repairs=_offer_repairs(trial, cure),
        details={
            "barriers": list(cure.barriers),
            "nodes": [_node_name(trial.known, one) for one in nodes],
            "optimizer_off": cure.off.error if cure.off else None,
        },
    )


def _describe_cure(known: Examination, cure: _Cure, nodes: list[ir.Node], node: ir.Node | None, seen: Shown) -> str:
    if node is None:
        return f"Without its optimizer the candidate is right: {seen.because}."
    kinds = ", ".join(f"{_node_name(known, one)} ({one.op_type})" for one in nodes)
    names = " and ".join(cure.barriers) if cure.together else " or ".join(cure.barriers)
    keeps = f"With {names} as {'outputs' if cure.together else 'an output'} of the model the answer is right."
    return f"The optimizer's rewrite of {kinds} is not the same function: {seen.because}. {keeps}"


def _tell_rewrite(bench: Bench) -> str:
    """What the graph that the runtime executes says otherwise, where that makes the error."""
    try:
        decision = bench.executed().decision if bench.executed else None
    except ParityError:
        return ""
    causes = decision.causes if decision and decision.alone else ()
    if decision is None or not causes:
        return ""
    words = "; ".join(unit.differences[0].words for unit, _ in causes[:_TOLD])
    return (
        f" In the graph that it runs: {words}. Put into the reference's graph, that makes "
        f"{format_percent(decision.explained)} of the error."
    )


def _node_name(known: Examination, node: ir.Node) -> str:
    site = known.places.get(str(node.outputs[0].name))
    return site.node if site and site.node else str(node.outputs[0].name)


def _nodes_touching(known: Examination, barriers: Sequence[str]) -> list[ir.Node]:
    """The nodes that write or read a barrier, in the graph's order."""
    wanted = set(barriers)
    return [node for node in known.graph.graph if wanted & _tensors_of(node)]


def _node_between_barriers(nodes: list[ir.Node], barriers: Sequence[str]) -> ir.Node | None:
    """The node between the most barriers; of equal ones the middle one of those that compute, of two the second."""
    wanted = set(barriers)
    counts = [len(wanted & _tensors_of(node)) for node in nodes]
    among = [node for node, count in zip(nodes, counts, strict=True) if count == max(counts)]
    computing = [node for node in among if node.op_type not in _STORING] or among
    return computing[len(computing) // 2] if computing else None


def _tensors_of(node: ir.Node) -> set[str]:
    return {str(value.name) for value in (*node.inputs, *node.outputs) if value is not None}


def _offer_update(trial: _BarrierTrial) -> Offer:
    """A later version of the runtime: one that the reference ran the same file in, optimized, where there is such."""
    known = trial.known
    ours, theirs = known.environments
    files = known.reference.option("model"), known.candidate.option("model")
    optimized = _OFF not in format_target(known.reference)
    for runtime, title in RUNTIMES.items() if optimized and files == ("", "") else ():
        later, used = ours.get(runtime, ""), theirs.get(runtime, "")
        if used and numbers_of(later) > numbers_of(used):
            text = f"update {title} {used} to {later}, the reference's version, which optimizes this file rightly"
            return "update_runtime", text
    return "update_runtime", f"run it in a later version of {_name_runtime(known)}"


def _name_runtime(known: Examination) -> str:
    """The candidate's runtime, where it is known and no program that may use any."""
    found = known_backend(known.candidate.backend)
    if found is None or found.runs_program or found.recorded:
        return "the candidate's runtime"
    return found.title


def _offer_repairs(trial: _BarrierTrial, cure: _Cure) -> tuple[Offer, ...]:
    """What was tried first, as the candidate's own runs with it showed it, or the reference's in a later version."""
    found: list[Offer] = []
    if cure.barriers:
        barriers = cure.barriers if cure.together else cure.barriers[:1]
        found.append(offer_barrier(trial.known, barriers, tell_trial(trial.before, trial.barred(barriers))))
    found.append(_offer_update(trial))
    if cure.off is not None:
        text = "switch the optimizer off (what that costs in speed was not measured)"
        tried = tell_trial(trial.before, cure.off)
        found.append(OfferedRepair(repair="optimizer_off", text=text, trial=tried))
    return tuple(found)


_W, _X = product_arrays(91)
CHECK = Check(
    code="FUS011",
    title="The runtime's optimizer makes the error",
    propose=_propose_claims,
    holds=(Example(model=POOLED, inputs=POOLED_INPUTS, candidate="ort", reference=f"ort?{_OFF}", site="y"),),
    holds_not=(
        # Wrong with the optimizer and without it; and rounding, which is not the optimizer's.
        Example(
            model=PRODUCTS, candidate_model=PRODUCTS.replace("Relu", "Tanh"), inputs=_X, constants=_W, candidate="ort"
        ),
        Example(model=PRODUCTS, inputs=_X, constants=_W, candidate="sim:bf16", declared="f32"),
        Example(model=PRODUCTS, inputs=_X, constants=_W, candidate="openvino:bf16", declared="f32"),
    ),
)
