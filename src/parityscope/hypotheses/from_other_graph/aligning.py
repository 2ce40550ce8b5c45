"""Which value of the candidate's graph is which of the reference's: by what is computed, and by what is done with it.

The candidate's steps run one after the other on one sample. Wherever a value is paired, its readers get the *reference's* value,
so that behind a step that differs everything is equal again, and equal values go on pairing. Where nothing is equal, structure
decides: upwards from what is paired (the inputs of steps that do the same to the same are the same), then by likeness of steps
that are left (weights, attributes, neighbours, names last). A wrong pair costs words, never truth: the pairs cut both graphs into
stretches, and any choice of stretches is a network; with all of the candidate's it is the candidate.

What a step gives that no runtime here can run is unknown, on either side: structure pairs it, then its name, with a value of any
shape. Behind one of the candidate's everything is computed from the reference's value again, and the other way round.
"""

from __future__ import annotations

from collections import deque
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph.likeness import (
    fingerprint_value,
    is_numeric,
    may_be_same,
    outlines_of,
    relative_distance,
)
from parityscope.hypotheses.from_other_graph.reading import content_of, operator_family, run_step
from parityscope.light_dataclasses import dataclass
from parityscope.operators import CONTRACTIONS, with_trait
from parityscope.spilling import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from parityscope.evaluation.program import ProgramStep
    from parityscope.evaluation.sessions import Sessions
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph, SideValues, Values

_COUNTS = with_trait("counts")
_SAME = 1e-4  # relative L2 of FP32 evaluations of one value, as in `pairing`
_FEW = 8  # elements: so few may be equal by accident
_LIKE = 3.0  # the least likeness of two steps that are paired by it, chosen: two of weights, attributes, neighbours
_FUSING, _FUSED = (
    (CONTRACTIONS - {"ConvTranspose"}) | {"LayerNormalization"},
    5,
)  # what swallows so many steps, with itself
_ROUNDS = 400  # chosen: so many steps that only likeness tells is another network


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alignment:
    """`pairs` maps sites of the candidate to sites of the reference, `partner` back; `values` are the reference's on the sample.

    `seen` is what the candidate's stretch gives at each of its sites from the reference's values, `own` the shapes and types
    there (arrays without memory of their own). `order` are the paired sites of the reference, each behind all that it depends
    on in either graph. `refused` says by the places of the candidate's steps why they could not be run, and `unknown` are the
    places of all steps whose results are not known: these, and those that read such results. `unrunnable` says the former of the
    reference's steps.
    """

    reference: ReadGraph
    candidate: ReadGraph
    pairs: Mapping[str, str]
    partner: Mapping[str, str]
    values: Values
    own: Values
    seen: Values
    order: tuple[str, ...]
    refused: Mapping[int, str]
    unknown: frozenset[int]
    unrunnable: Mapping[int, str]


def align_graphs(
    reference: ReadGraph,
    candidate: ReadGraph,
    known: SideValues,
    fed: Values,
    sessions: Sessions,
) -> Alignment:
    """Aligns two graphs on one sample.

    Args:
        reference: The reference's graph.
        candidate: The candidate's graph.
        known: The reference's values on the sample.
        fed: The sample by the names of the candidate's inputs.
        sessions: Runs single steps.
    """
    work = _AligningWork(reference, candidate, known.values, fed, sessions)
    for place, name in enumerate(candidate.inputs):
        work.pair(name, name if name in reference.inputs else next(iter(reference.inputs[place : place + 1]), ""))
    work.forward()
    for place, name in enumerate(reference.outputs):
        other = candidate.outputs[place] if place < len(candidate.outputs) else ""
        work.pair_output(name if name in candidate.outputs else other, name)
    work.backward(list(work.pairs.items()))
    work.forward()
    for _ in range(_ROUNDS):
        found = work.likest()
        joined = work.unknown_namesake() if found is None else work.join(*found)
        if found is None and not joined:
            break
        work.backward(joined)
        work.forward()
    order = work.ordered()
    work.forward(pairing=False)
    return Alignment(
        reference=reference,
        candidate=candidate,
        pairs=work.pairs,
        partner=work.partner,
        values=known.values,
        own=work.own,
        seen=work.seen,
        order=order,
        refused={place: error.problem for place, error in work.refused.items()},
        unknown=frozenset(step.index for step in candidate.steps if work.is_unknown(*step.outputs)),
        unrunnable=known.refused,
    )


class _AligningWork:
    """What is paired so far."""

    def __init__(
        self, reference: ReadGraph, candidate: ReadGraph, values: Values, fed: Values, sessions: Sessions
    ) -> None:
        self.reference, self.candidate, self.values, self.fed = reference, candidate, values, fed
        self.own = outlines_of(fed)
        self.sessions = sessions
        self.pairs: dict[str, str] = {}
        self.partner: dict[str, str] = {}
        self.seen: dict[str, Any] = {}
        self.refused: dict[int, ParityError] = {}
        self._keeper = Keeper()
        self._typed: dict[tuple[int, np.dtype[Any]], tuple[np.ndarray, np.ndarray]] = {}
        self._ran: dict[int, tuple[list[Any], list[Any], dict[int, ParityError]]] = {}
        self._marks: dict[tuple[int, ...], tuple[list[str], np.ndarray]] = {}
        self._given_up: set[tuple[str, str]] = set()
        self._counted: set[str] = set()
        for step in reference.steps:
            if step.op_type in _COUNTS or self._counted.intersection(step.reads):
                self._counted.update(step.outputs)
        self._tried: set[tuple[int, int]] = set()
        self._contents: dict[int, tuple[np.ndarray, bytes]] = {}
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, value in values.items():
            if is_numeric(value):
                by_shape.setdefault(value.shape, []).append(name)
        for shape, sites in by_shape.items():
            marks = np.array([fingerprint_value(values[site]) for site in sites])
            order = np.argsort(marks[:, 0], kind="stable")
            self._marks[shape] = [sites[place] for place in order], marks[order]

    def pair(self, candidate: str, reference: str) -> bool:
        """Pairs two sites if both are free and of one shape, as far as that is known."""
        if candidate in self.pairs or reference in self.partner or (candidate, reference) in self._given_up:
            return False
        if not self._may_pair(candidate, reference):
            return False
        for outline in outlines_of({reference: self.values.get(reference)}).values():
            self.own.setdefault(candidate, outline)
        self.pairs[candidate], self.partner[reference] = reference, candidate
        return True

    def pair_output(self, candidate: str, reference: str) -> None:
        """Pairs two outputs, whatever else they were paired with."""
        if self._may_pair(candidate, reference):
            self.partner.pop(self.pairs.pop(candidate, ""), None)
            self.pairs.pop(self.partner.pop(reference, ""), None)
            self.pair(candidate, reference)

    def _may_pair(self, candidate: str, reference: str) -> bool:
        """Whether two sites may be one value; one of which nothing is known may be any."""
        mine = self.values.get(reference)
        if candidate not in self.own and candidate in self.candidate.makers and self.is_unknown(candidate):
            return is_numeric(mine)
        if mine is None and reference in self.reference.makers:
            return is_numeric(self.seen.get(candidate))
        return may_be_same(mine, self.own.get(candidate), counted=reference in self._counted)

    def is_unknown(self, *names: str) -> bool:
        """Whether the candidate's steps could not give one of these."""
        return any(name and self.seen.get(name) is None for name in names)

    def unknown_namesake(self) -> list[tuple[str, str]]:
        """The first pair of values of one name of which the candidate's is unknown."""
        names = (name for step in self.candidate.steps for name in step.outputs if name and self.is_unknown(name))
        found = next((name for name in names if name in self.reference.makers and self.pair(name, name)), "")
        return [(found, found)] if found else []

    def forward(self, *, pairing: bool = True) -> None:
        """Runs the candidate's steps on the reference's values as far as they are paired, and pairs what is equal."""
        for name in self.candidate.inputs:
            self.seen[name] = self.fed.get(name)
        for step in self.candidate.steps:
            twin = self._find_twin(step)
            if twin is not None and self._as_twin(step, twin, pairing=pairing):
                self.refused.pop(step.index, None)
                continue
            inputs = [self._look_up(name) if name else None for name in step.inputs]
            captured = [self._look_up(name) for name in step.captured]
            results = self._run_step(step, inputs, captured)
            for name, value in zip(step.outputs, results, strict=True):
                if name:
                    self.seen[name] = value
                    self.own.update(outlines_of({name: value}))
                    if pairing and name not in self.pairs and is_numeric(value):
                        self._pair_equal(name, value)
                        self._pair_namesake(step, name)

    def _as_twin(self, step: ProgramStep, twin: ProgramStep, *, pairing: bool) -> bool:
        """Takes a step's results from the one that does the same to the same, and tells whether all are paired with its."""
        outputs = [(name, mine) for name, mine in zip(step.outputs, twin.outputs, strict=True) if name]
        for name, mine in outputs:
            self.own.update(outlines_of({name: self.values.get(mine)}))
            if (pairing and self.pair(name, mine)) or self.pairs.get(name) == mine:
                self.seen[name] = self.values[mine]
        return all(self.pairs.get(name) == mine for name, mine in outputs)

    def _find_twin(self, step: ProgramStep) -> ProgramStep | None:
        """The step of the reference that does the same to the same, which need not be run again."""
        first = next((self.pairs[name] for name in step.inputs if name in self.pairs), None)
        for maker, _ in self.reference.readers.get(first, ()) if first is not None and not step.bodies else ():
            if (
                maker.kind == step.kind
                and len(maker.outputs) == len(step.outputs)
                and all(self._same_input(its, mine) for its, mine in zip(step.inputs, maker.inputs, strict=True))
                and all(name in self.values for name in maker.outputs if name)
            ):
                return maker
        return None

    def _same_input(self, candidate: str, reference: str) -> bool:
        if candidate in self.candidate.constants and reference in self.reference.constants:
            one, other = self.candidate.constants[candidate], self.reference.constants[reference]
            return one.shape == other.shape and self._content_key(one) == self._content_key(other)
        if not candidate or not reference:
            return candidate == reference
        # In another type the same step does something else.
        known = self.values.get(reference)
        return self.pairs.get(candidate) == reference and known is not None and self.own[candidate].dtype == known.dtype

    def _look_up(self, name: str) -> Any:
        reference = self.values.get(self.pairs.get(name, ""))
        if reference is not None:
            candidate = self.own[name]
            return reference if reference.dtype == candidate.dtype else self._as_type(reference, candidate.dtype)
        return self.seen[name] if name in self.seen else self.candidate.constants.get(name)

    def _as_type(self, value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        """A value in another type, the same array each time: what ran on it need not run again."""
        place = id(value), dtype
        if place not in self._typed:
            with np.errstate(all="ignore"):  # what a narrower type cannot hold becomes infinite, as in the candidate
                self._typed[place] = value, self._keeper.keep(value.astype(dtype))
        return self._typed[place][1]

    def _run_step(self, step: ProgramStep, inputs: list[Any], captured: list[Any]) -> list[Any]:
        nothing = [None] * len(step.outputs)
        given = [*inputs, *captured]
        self.refused.pop(step.index, None)
        if any(value is None for name, value in zip((*step.inputs, *step.captured), given, strict=True) if name):
            return nothing
        before = self._ran.get(step.index)
        if before is not None and all(one is other for one, other in zip(before[0], given, strict=True)):
            self.refused.update(before[2])
            return before[1]
        refused: dict[int, ParityError] = {}
        try:
            results = run_step(step, inputs, self.candidate.program, self.sessions, captured)
            found = [self._keeper.keep(value) for value in results]
        except ParityError as error:  # another shape or type than it is made for: a pair above it was none
            refused, found = {step.index: error}, nothing
        self.refused.update(refused)
        self._ran[step.index] = given, found, refused
        return found

    def _pair_equal(self, name: str, value: np.ndarray) -> None:
        sites, marks = self._marks.get(value.shape, ([], np.zeros((0, 3))))
        if not sites:
            return
        mark = fingerprint_value(value)
        bound = 10 * _SAME * max(mark[0], 1e-30)
        first, last = np.searchsorted(marks[:, 0], (mark[0] - bound, mark[0] + bound * (1 + 1e-9)))
        near = first + np.flatnonzero(np.abs(marks[first:last] - mark).max(1, initial=0.0) <= bound)
        found = [sites[place] for place in near if sites[place] not in self.partner]
        telling = value.size >= _FEW and value.dtype.kind == "f" and bool((value != value.reshape(-1)[0]).any())
        ranked = sorted(found, key=lambda site: -self._support_of_pair(name, site))
        for site in ranked:
            if self._support_of_pair(name, site) < (0 if telling else 1):
                break
            if relative_distance(self.values[site], value) <= _SAME and self.pair(name, site):
                break

    def _pair_namesake(self, step: ProgramStep, name: str) -> None:
        """Pairs what no value equals with what has its name, if one operator makes both of the same paired values.

        Whatever lies behind it is then computed from the reference's values at once.
        """
        maker = self.reference.makers.get(name)
        if name in self.pairs or maker is None or not have_same_operator(step, maker) or step.outputs != maker.outputs:
            return
        if len(step.inputs) == len(maker.inputs) and all(
            (its in self.candidate.constants and mine in self.reference.constants)
            or (self.pairs.get(its) == mine if its and mine else its == mine)
            for its, mine in zip(step.inputs, maker.inputs, strict=True)
        ):
            self.pair(name, name)

    def _support_of_pair(self, name: str, site: str) -> int:
        step, maker = self.candidate.makers.get(name), self.reference.makers.get(site)
        if step is None or maker is None:
            return 0
        above = {self.pairs[one] for one in step.reads if one in self.pairs} & set(maker.reads)
        return 2 * (operator_family(maker) == operator_family(step)) + (name == site) + bool(above)

    def backward(self, start: Iterable[tuple[str, str]]) -> None:
        """Pairs what steps read that give paired values and do the same."""
        queue = deque(start)
        while queue:
            candidate, reference = queue.popleft()
            step, maker = self._steps_that_meet(candidate, reference)
            if step is None or maker is None:
                continue
            for its, mine in self._pair_inputs(step, maker):
                if self.pair(its, mine):
                    queue.append((its, mine))

    def _steps_that_meet(self, candidate: str, reference: str) -> tuple[ProgramStep | None, ProgramStep | None]:
        """The steps of one family that two sites come from, on one side beneath steps that the other may have fused."""
        its = list(_chain_above(self.candidate, candidate, self.pairs))
        mine = list(_chain_above(self.reference, reference, self.partner))
        if its and mine and operator_family(its[0]) == operator_family(mine[0]):
            return its[0], mine[0]
        for step, maker in (*((its[0], one) for one in mine[1:] if its), *((one, mine[0]) for one in its[1:] if mine)):
            if operator_family(step) == operator_family(maker) and operator_family(step) in _FUSING:
                return step, maker
        return None, None

    def _pair_inputs(self, step: ProgramStep, maker: ProgramStep) -> Iterator[tuple[str, str]]:
        """Inputs that are read at the same places; where an operator may exchange them, those made alike."""
        candidate = [name for name in step.inputs if name in self.candidate.makers]
        reference = [name for name in maker.inputs if name in self.reference.makers]
        if operator_family(step) in {"Add", "Mul"} and len(candidate) == len(reference) == 2:
            crossed = sum(
                self._made_alike(one, other) for one, other in zip(candidate, reversed(reference), strict=True)
            )
            if crossed > sum(self._made_alike(one, other) for one, other in zip(candidate, reference, strict=True)):
                reference.reverse()
        if len(candidate) == len(reference):
            yield from zip(candidate, reference, strict=True)

    def _made_alike(self, candidate: str, reference: str) -> float:
        if candidate in self.pairs or reference in self.partner:
            return 4.0 * (self.pairs.get(candidate) == reference)
        return self._likeness(self.candidate.makers[candidate], self.reference.makers[reference])

    def likest(self) -> tuple[ProgramStep, ProgramStep] | None:
        """The steps left on both sides that are most alike, if any are alike enough."""
        candidate = [
            step for step in self.candidate.steps if any(name and name not in self.pairs for name in step.outputs)
        ]
        reference = [
            step for step in self.reference.steps if any(name and name not in self.partner for name in step.outputs)
        ]
        best: tuple[float, int, ProgramStep, ProgramStep] | None = None
        for step in candidate:
            for maker in reference:
                if operator_family(step) != operator_family(maker) or (step.index, maker.index) in self._tried:
                    continue
                score = self._likeness(step, maker)
                if score >= _LIKE and (best is None or score > best[0]):
                    best = score, step.index, step, maker
        return None if best is None else (best[2], best[3])

    def _likeness(self, step: ProgramStep, maker: ProgramStep) -> float:
        """How much speaks for two steps being the same: equal weights, attributes, paired neighbours, names."""
        if operator_family(step) != operator_family(maker):
            return 0.0
        score = 1.0 * (step.node.attributes.keys() == maker.node.attributes.keys())
        for candidate, reference in zip(step.inputs, maker.inputs, strict=False):
            if candidate in self.candidate.constants and reference in self.reference.constants:
                one, other = self.candidate.constants[candidate], self.reference.constants[reference]
                if one.shape == other.shape:
                    score += 0.5 + 3.0 * (one.size >= _FEW and self._content_key(one) == self._content_key(other))
            elif candidate in self.pairs and self.pairs[candidate] == reference:
                score += 2.0
        readers = {(self.pairs.get(one.key), place) for one, place in self.candidate.readers.get(step.key, ())}
        score += 2.0 * any((one.key, place) in readers for one, place in self.reference.readers.get(maker.key, ()))
        named = step.key == maker.key or bool(step.node.name and step.node.name == maker.node.name)
        return score + 2.0 * named

    def _content_key(self, array: np.ndarray) -> bytes:
        if id(array) not in self._contents:
            self._contents[id(array)] = array, content_of(array)
        return self._contents[id(array)][1]

    def join(self, step: ProgramStep, maker: ProgramStep) -> list[tuple[str, str]]:
        """Pairs what two like steps read, so that what they give is compared; where that is paired, what they give.

        What is called as another value of the reference is paired with that: a fold keeps the name of its last step.
        """
        found = [pair for pair in self._pair_inputs(step, maker) if self.pair(*pair)]
        if not found and have_same_operator(step, maker) and _have_same_arity(step, maker):
            outputs = [
                (its, its if its in self.reference.makers and its not in self.partner else mine)
                for its, mine in zip(step.outputs, maker.outputs, strict=False)
                if its and mine
            ]
            found = [pair for pair in outputs if self.pair(*pair)]
        if not found:
            self._tried.add((step.index, maker.index))
        return found

    def ordered(self) -> tuple[str, ...]:
        """The paired sites of the reference behind all that they depend on; pairs that would make a circle are given up."""
        while True:
            try:
                return tuple(
                    TopologicalSorter({site: self._sites_needed(site) for site in self.partner}).static_order()
                )
            except CycleError as error:
                circle = [site for site in error.args[1] if site in self.reference.makers]
                inner = [site for site in circle if site not in self.reference.outputs] or circle
                weakest = min(inner, key=lambda site: self._support_of_pair(self.partner[site], site))
                self._given_up.add((self.partner[weakest], weakest))
                del self.pairs[self.partner.pop(weakest)]

    def _sites_needed(self, site: str) -> set[str]:
        reference = borders_of_stretch(self.reference, site, self.partner.keys())[0]
        candidate = borders_of_stretch(self.candidate, self.partner[site], self.pairs.keys())[0]
        return set(reference) | {self.pairs[name] for name in candidate}


def _chain_above(graph: ReadGraph, site: str, paired: Mapping[str, str]) -> Iterator[ProgramStep]:
    """The step that makes a site, and those beneath it as long as each has one input that is no constant and is not paired."""
    for _ in range(_FUSED):
        step = graph.makers.get(site)
        if step is None:
            return
        yield step
        varying = [name for name in step.reads if name not in graph.constants]
        if len(varying) != 1 or varying[0] in paired:
            return
        site = varying[0]


def _have_same_arity(step: ProgramStep, maker: ProgramStep) -> bool:
    """Whether two steps are given the same inputs: a Conv without the bias that the other has is told with what is behind it."""
    return len([*filter(None, step.inputs)]) == len([*filter(None, maker.inputs)])


def have_same_operator(step: ProgramStep, maker: ProgramStep) -> bool:
    """Whether two steps are of one operator, and not of one family only."""
    return step.op_type == maker.op_type and step.node.domain == maker.node.domain


def borders_of_stretch(graph: ReadGraph, site: str, known: Any) -> tuple[tuple[str, ...], tuple[ProgramStep, ...]]:
    """What the stretch that ends in `site` reads of `known` sites, and its steps in order."""
    reads: dict[str, None] = {}
    steps: dict[int, ProgramStep] = {}
    queue = [graph.makers[site]] if site in graph.makers else []
    while queue:
        step = queue.pop()
        if step.index in steps:
            continue
        steps[step.index] = step
        for name in step.reads:
            if name in known:
                reads[name] = None
            elif name in graph.makers:
                queue.append(graph.makers[name])
    return tuple(reads), tuple(steps[index] for index in sorted(steps))
