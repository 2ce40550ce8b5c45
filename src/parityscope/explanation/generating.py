"""Generated hypotheses about a region: the context that they are made of, and what a search of it says, as outcomes.

They are asked where no arithmetic explains what a region introduced, on top of the arithmetics that come nearest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import Regions, computing_nodes, constant_value, dependencies_of
from parityscope.errors import ParityError
from parityscope.explanation.claims import ClaimOutcome, VariantClaim
from parityscope.explanation.judging import is_accepted
from parityscope.explanation.weighed import TimeBudget
from parityscope.explanation.weighing import weigh_claim
from parityscope.hypotheses.arithmetic import Hypothesis, Variant
from parityscope.hypotheses.power import SURE_BITS
from parityscope.hypotheses.searching import pattern_of
from parityscope.hypotheses.stretch import StretchContext
from parityscope.hypotheses.worker import EditCandidate, StretchTask, skips_of_search
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx
    import onnx_ir as ir

    from parityscope.explanation.records import ExplanationOptions
    from parityscope.explanation.weighed import Weighed
    from parityscope.hypotheses.searching import EditPattern
    from parityscope.hypotheses.worker import StretchAnswer, Worker
    from parityscope.localization import Sides
    from parityscope.records import RuledOut

NEARLY_ALL = (
    0.985  # of the squared error, on elements that nothing was fitted to: below it a description is no cause (measured)
)
_EXACTLY = 0.9999  # a share that leaves nothing to argue about, whatever the noise model says of the rest
_FEW_BITS = 45.0  # chosen: one fitted number and what it is about
_HIDES = 0.5  # chosen: of the squared error
_NEAR = 12  # nodes before and behind the stretch whose tensors are looked at; chosen
_BASES = 3  # arithmetics that edits are tried on top of
SHARE_OF_TIME = 1.5  # of what arithmetics may take, for each of them; chosen
_ALL_REGIONS = 4.0  # times what the first search of all may take: each may take a quarter of what is left; chosen
_NBYTES = 256 << 20  # of the context's tensors, for all samples; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What a search found: outcomes that hold, best first; the nearest descriptions; what was not tried; and what was in vain."""

    held: tuple[ClaimOutcome, ...]
    nearest: tuple[EditCandidate, ...]
    skipped: tuple[Skip, ...]
    ruled_out: tuple[RuledOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surroundings:
    """Where a region lies: both sides' tensors, the whole graph, and which worker searches."""

    sides: Sides
    graph: ir.Model
    worker: Worker
    held_elsewhere: list[EditPattern]
    budget: TimeBudget

    def context(self, weighed: Weighed) -> StretchContext:
        """The region of `weighed` with the nodes around it."""
        return _context_around(self, weighed.tensor, [str(value.name) for value in weighed.region.graph.inputs])


def budget_of_searches(options: ExplanationOptions, share: float = 1.0) -> TimeBudget:
    """What the searches of all regions may take together; a share of what is usual."""
    return TimeBudget(left=_ALL_REGIONS * SHARE_OF_TIME * options.seconds * share)


def generate_hypotheses(
    weighed: Weighed,
    bases: Sequence[tuple[str, Variant | None, float]],
    context: StretchContext,
    worker: Worker,
    held_elsewhere: list[EditPattern],
    budget: TimeBudget,
) -> Generated:
    """Searches the region on top of each of `bases` (hypothesis, variant, share), until one explains it.

    An arithmetic that makes less than half of the error cannot hide what made the rest: on top of it only those edits are tried
    again that came nearest before. `budget` is that of all regions: each search may take a quarter of what is left of it.
    `held_elsewhere` are patterns of what explained other regions, tried first; what explains this one is added.
    """
    nearest: list[EditCandidate] = []
    skipped: list[Skip] = []
    held: list[tuple[EditCandidate, ClaimOutcome]] = []
    ruled_out: tuple[RuledOut, ...] = ()
    for place, (name, variant, share) in enumerate(bases[:_BASES]):
        if variant is not None and variant.accumulate is not None:
            continue
        words = "" if variant is None else variant.words
        again = place > 0 and share < _HIDES
        task = StretchTask(
            context=context,
            seconds=budget.left / _ALL_REGIONS,
            arithmetic=(name, words),
            first=tuple(held_elsewhere),
            among=frozenset(pattern_of(one.kind, one.words) for one in nearest) if again else None,
        )
        if task.among is not None and not task.among:
            continue
        answer = worker.search(task)
        budget.pay(answer.spent, weighed.tensor)
        skipped += _skips_of_stretch(weighed.tensor, answer)
        ruled_out = ruled_out or answer.ruled_out  # on top of the first, where all kinds are tried
        for candidate in answer.candidates:
            outcome = _outcome_of_candidate(weighed, candidate, name, variant)
            if outcome is not None and _is_cause(outcome, candidate):
                held.append((candidate, outcome))
        nearest += answer.candidates
        # What leaves a little may leave nothing on top of another arithmetic.
        if any(outcome.line.share >= _EXACTLY for _, outcome in held):
            break
    if held:
        held.sort(key=lambda one: one[0].length)
        held_elsewhere.append(pattern_of(held[0][0].kind, held[0][0].words))
        return Generated(held=tuple(outcome for _, outcome in held), nearest=(), skipped=tuple(skipped))
    nearest.sort(key=lambda one: -one.share)
    return Generated(held=(), nearest=tuple(nearest), skipped=tuple(skipped), ruled_out=ruled_out)


def _skips_of_stretch(tensor: str, answer: StretchAnswer) -> Iterator[Skip]:
    what = f"generated hypotheses of {tensor}"
    if answer.problem:
        yield Skip(what=f"{what}: all of them", reason=answer.problem)
    if answer.untried:
        yield Skip(what=what, reason=f"the budget was spent before {answer.untried} of them")
    yield from skips_of_search(tensor, answer)


def _outcome_of_candidate(
    weighed: Weighed, candidate: EditCandidate, base_name: str, base: Variant | None
) -> ClaimOutcome | None:
    """What a candidate predicts held against the noise floor, as every arithmetic is."""
    if candidate.predicted.shape != weighed.scene.candidate.shape:
        return None
    steps = [str(node.outputs[0].name) for node in weighed.scene.model.graph]
    kind = Hypothesis(
        name=f"generated: {candidate.kind}",
        title=candidate.words,
        family="semantic",
        applies=lambda *_: True,
        variants=lambda *_: (),
    )
    claim = VariantClaim(
        hypothesis=kind,
        variant=Variant(words=candidate.words),
        position=steps.index(candidate.step) if candidate.step in steps else len(steps) - 1,
        base=base,
        base_name=base_name,
        exact=candidate.predicted,
        generated=candidate,
    )
    outcome = weigh_claim(weighed.scene, claim, weighed.sigma)
    # Judged by what it explains of elements and samples that nothing was fitted to.
    return None if outcome is None else replace(outcome, line=replace(outcome.line, share=candidate.share))


def _is_cause(outcome: ClaimOutcome, candidate: EditCandidate) -> bool:
    """Whether a candidate is a cause: it explains everything, or nearly so in few words; more words describe anything."""
    if (
        candidate.curve is not None
        or outcome.mismatched
        or candidate.share < NEARLY_ALL
        or candidate.length > -SURE_BITS
    ):
        return False
    return candidate.share >= _EXACTLY or is_accepted(outcome, np.zeros(0)) or candidate.bits <= _FEW_BITS


def _context_around(around: Surroundings, tensor: str, entering: Sequence[str]) -> StretchContext:
    sides, graph = around.sides, around.graph
    nodes = list(computing_nodes(graph))
    places = {id(node): index for index, node in enumerate(nodes)}
    inside = Regions(graph).of(tensor, frozenset(sides.observed()))
    first, last = min(places[id(node)] for node in inside), max(places[id(node)] for node in inside)
    wanted = {str(value.name) for node in inside for value in node.outputs}
    borders = set(entering)
    close = [
        node
        for node in nodes
        if any(value.name in borders for value in node.outputs)
        or any(value is not None and value.name == tensor for value in node.inputs)
    ]
    chosen = sorted({places[id(node)] for node in (*inside, *close)})
    behind = _tensors_behind(nodes, tensor)
    near = nodes[max(0, first - _NEAR) : last + _NEAR]
    read = {str(value.name): value for node in near for value in node.inputs if value is not None}
    constants = {
        name: np.asarray(held.numpy())
        for node in (nodes[place] for place in chosen)
        for value in dependencies_of(node)
        if (held := constant_value(value)) is not None and (name := str(value.name))
    }
    constants |= _near_constants(read)
    samples = list(sides.reference.samples)
    names = [
        name for name in _near_tensors(near, nodes, chosen) if name not in behind | wanted and name not in constants
    ]
    worlds = [_candidate_tensors(sides, sample, names, tensor, len(samples)) for sample in samples]
    candidate = [sides.candidate.get(sample, sides.pairing[tensor]) for sample in samples]
    return StretchContext(
        nodes=[_node_message(nodes[place]) for place in chosen],
        stretch=[chosen.index(places[id(node)]) for node in inside],
        output=tensor,
        constants=constants,
        worlds=worlds,
        candidate=candidate,
        behind=frozenset(behind),
        opsets=dict(graph.opset_imports),
        ir_version=graph.ir_version or 8,
        order=samples,
    )


def _node_message(node: ir.Node) -> onnx.NodeProto:
    import onnx_ir as ir

    return ir.serde.serialize_node(node)


def _tensors_behind(nodes: Sequence[ir.Node], tensor: str) -> set[str]:
    """What depends on a tensor."""
    found = {tensor}
    for node in nodes:
        if any(value.name in found for value in dependencies_of(node)):
            found.update(str(value.name) for value in node.outputs)
    return found - {tensor}


def _near_constants(read: Mapping[str, ir.Value]) -> dict[str, np.ndarray]:
    """Small parameters of nodes near by: a bias that is applied elsewhere, an epsilon of a neighbour."""
    found = {}
    for name, value in read.items():
        held = constant_value(value)
        if held is not None and 0 < held.size <= 1 << 16 and held.dtype.is_floating_point():
            found[name] = np.asarray(held.numpy())
    return found


def _near_tensors(near: Sequence[ir.Node], nodes: Sequence[ir.Node], chosen: Sequence[int]) -> list[str]:
    """Tensors that the chosen nodes read or give, and those of nodes near by."""
    values = [value for place in chosen for value in (*dependencies_of(nodes[place]), *nodes[place].outputs)]
    values += [value for node in near for value in (*node.inputs, *node.outputs) if value is not None]
    return list(dict.fromkeys(str(value.name) for value in values if value.name))


def _candidate_tensors(
    sides: Sides, sample: int, names: Sequence[str], reader: str, samples: int
) -> dict[str, np.ndarray]:
    """The candidate's tensors as far as it showed them, the nearest first, within the memory for all samples."""
    given = sides.inputs.sample(sample).arrays
    left = _NBYTES // samples
    world: dict[str, np.ndarray] = {}
    for name in names:
        if name in given:
            array = np.asarray(given[name])
        elif name in sides.pairing and not sides.unlike(sample, name):
            try:
                array = sides.candidate_tensor(sample, name, reader=reader)
            except (ParityError, KeyError):
                continue
        else:
            continue
        if array.nbytes <= left:
            left -= array.nbytes
            world[name] = array
    return world


def context_of_region(region: ir.Model, feeds: Mapping[str, np.ndarray], candidate: np.ndarray) -> StretchContext:
    """A region on its own, with nothing known around it."""
    nodes = list(computing_nodes(region))
    values = [value for node in nodes for value in dependencies_of(node)]
    constants = {str(v.name): np.asarray(held.numpy()) for v in values if (held := constant_value(v)) is not None}
    return StretchContext(
        nodes=[_node_message(node) for node in nodes],
        stretch=list(range(len(nodes))),
        output=str(region.graph.outputs[0].name),
        constants=constants,
        worlds=[dict(feeds)],
        candidate=[candidate],
        behind=frozenset(),
        opsets=dict(region.opset_imports),
        ir_version=region.ir_version or 8,
    )
