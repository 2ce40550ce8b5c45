"""Two aligned graphs -> what differs, stretch by stretch.

A stretch is what lies between a pair of values and the pairs above it. Its steps are matched from the bottom up, then in their
order. Where both sides have the same steps, what matched steps do not share are differences of their own, which can be taken back
alone. Where one side has steps that the other has not, the stretch is one difference. Casts and quantization that the candidate
adds are steps that its file declares, and leave the others what they are.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from parityscope.hypotheses.from_other_graph.aligning import borders_of_stretch
from parityscope.hypotheses.from_other_graph.difference import GraphDifference
from parityscope.hypotheses.from_other_graph.likeness import relative_distance
from parityscope.hypotheses.from_other_graph.reading import is_training_step, operator_family
from parityscope.hypotheses.from_other_graph.stating import PASSING, differences_of_steps, name_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import is_quantized, with_trait
from parityscope.plain_numbers import list_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph

REWRITTEN = 1e-5  # relative L2 that FP32 may make of one function in other words, chosen: a hundred roundings
TRAINING = "training"  # the group of differences that are normalizations by the batch at hand
_QUANTIZER = "QuantizeLinear"
_CUT = 2.0  # of the end of a quantizer's range, chosen: calibration by percentiles or entropy seldom cuts off more
_SHOWN = 5  # steps that are told by name
# What a step of one number, its second input, does to a result.
_CHANGED_BY = {
    "Add": "its result plus {}",
    "Div": "its result divided by {}",
    "Max": "its result cut off below {}",
    "Min": "its result cut off at {}",
    "Mul": "its result times {}",
    "Sub": "its result minus {}",
}
_EITHER_WAY = with_trait("commutes")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DifferingStretch:
    """The steps of both sides that end in a pair, and in what they differ.

    `reads` are sites of each side that are paired; `matched` maps places of the candidate's steps to the reference's; `error` is
    the relative L2 distance of what the two give from the same values. `parts` are what matched steps do not share where the
    stretch is one difference. `unknown`: the candidate's steps cannot be run, and differences are those that the reference's can
    have. `unrunnable`: the reference's cannot be run.
    """

    site: str
    candidate: str
    steps: tuple[ProgramStep, ...]
    its_steps: tuple[ProgramStep, ...]
    reads: frozenset[str]
    its_reads: frozenset[str]
    matched: Mapping[int, int]
    differences: tuple[GraphDifference, ...]
    error: float
    parts: tuple[GraphDifference, ...] = ()
    unknown: bool = False
    unrunnable: bool = False


def stretches_of(alignment: Alignment) -> dict[str, DifferingStretch]:
    """The stretch of every paired value of the reference that a step gives, by its site."""
    partner = alignment.partner
    found = {}
    for site in alignment.order:
        other = partner[site]
        if site not in alignment.values:  # nothing is known of it
            continue
        if site not in alignment.reference.makers and other not in alignment.candidate.makers:
            continue
        reads, steps = borders_of_stretch(alignment.reference, site, partner.keys())
        its_reads, its_steps = borders_of_stretch(alignment.candidate, other, alignment.pairs.keys())
        matched = _match_steps(alignment, site, other, steps, its_steps)
        seen = alignment.seen.get(other)
        unknown = seen is None and any(step.index in alignment.unknown for step in its_steps)
        error = float("inf") if seen is None else relative_distance(alignment.values[site], seen)
        shared = _matched_differences(alignment, site, steps, its_steps, matched) if error else []
        if unknown:
            differences, parts = tuple(one for one in shared if one.kind != "inputs"), tuple[GraphDifference, ...]()
        else:
            differences, parts = _list_differences(alignment, (site, other), steps, its_steps, matched, error, shared)
        found[site] = DifferingStretch(
            site=site,
            candidate=other,
            steps=steps,
            its_steps=its_steps,
            reads=frozenset(reads),
            its_reads=frozenset(its_reads),
            matched=matched,
            differences=differences,
            error=error,
            parts=parts,
            unknown=unknown,
            unrunnable=any(step.index in alignment.unrunnable for step in steps),
        )
    return found


def _matched_differences(
    alignment: Alignment,
    site: str,
    steps: tuple[ProgramStep, ...],
    its_steps: tuple[ProgramStep, ...],
    matched: Mapping[int, int],
) -> list[GraphDifference]:
    """What the matched steps of a stretch do not share."""
    mine = {step.index: step for step in steps}
    return [
        one
        for step in its_steps
        if step.index in matched
        for one in differences_of_steps(alignment, site, step, mine[matched[step.index]], matched)
    ]


def _match_steps(
    alignment: Alignment, site: str, other: str, steps: tuple[ProgramStep, ...], its_steps: tuple[ProgramStep, ...]
) -> dict[int, int]:
    """Places of the candidate's steps -> places of the reference's: from the end upwards, then in order."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    inner = {step.index for step in steps}
    its_inner = {step.index for step in its_steps}
    queue = [(alignment.candidate.makers.get(other), alignment.reference.makers.get(site))]
    while queue:
        step, maker = queue.pop()
        if step is None or maker is None or step.index in found or maker.index in taken:
            continue
        if step.index not in its_inner or maker.index not in inner or operator_family(step) != operator_family(maker):
            continue
        found[step.index] = maker.index
        taken.add(maker.index)
        for candidate, reference in zip(step.inputs, maker.inputs, strict=False):
            if candidate not in alignment.pairs and reference not in alignment.partner:
                queue.append((alignment.candidate.makers.get(candidate), alignment.reference.makers.get(reference)))
    left = [step for step in its_steps if step.index not in found]
    mine_left = [step for step in steps if step.index not in taken]
    blocks = difflib.SequenceMatcher(
        None, [operator_family(step) for step in mine_left], [operator_family(step) for step in left], autojunk=False
    ).get_matching_blocks()
    for block in blocks:
        for offset in range(block.size):
            found[left[block.b + offset].index] = mine_left[block.a + offset].index
    return found


def _list_differences(
    alignment: Alignment,
    ends: tuple[str, str],
    steps: tuple[ProgramStep, ...],
    its_steps: tuple[ProgramStep, ...],
    matched: Mapping[int, int],
    error: float,
    found: list[GraphDifference],
) -> tuple[tuple[GraphDifference, ...], tuple[GraphDifference, ...]]:
    """The differences of a stretch, and its parts; `found` is what its matched steps do not share."""
    if error == 0:
        return (), ()
    site, other = ends
    structure = _structural_difference(alignment, site, steps, its_steps, matched)
    if error <= REWRITTEN:
        words = (
            structure.words if structure else "; ".join(one.words for one in found) or f"{site} is rounded otherwise"
        )
        return (GraphDifference(site=site, node=site, kind="structure", words=words, group="rewritten"),), ()
    if structure is not None and not structure.declared:
        return (structure,), tuple(found)
    types = [_type_of(side, name) for side, name in ((alignment.values, site), (alignment.own, other))]
    if types[0] != types[1]:
        words = f"computed in {types[1]}"
        found.append(
            GraphDifference(site=site, node=site, kind="type", words=words, group=f"types {types[1]}", declared=True)
        )
    if structure is not None:
        # Integers pass through other steps than floats: who reads what is part of it.
        integers = any(is_quantized(step.op_type) and not step.op_type.endswith("uantizeLinear") for step in its_steps)
        found = [*(one for one in found if one.kind != "inputs" or not integers), structure]
    return tuple(found) or (_passed_through(site, its_steps, matched),), ()


def _passed_through(site: str, its_steps: tuple[ProgramStep, ...], matched: Mapping[int, int]) -> GraphDifference:
    """What is left to say of a stretch whose steps are the same: it goes through another type, or calls other functions."""
    casts = [step for step in its_steps if step.index not in matched and step.op_type in PASSING]
    types = {ir.DataType(step.node.attributes.get_int("to")).name for step in casts if step.op_type == "Cast"}
    told = f" ({' and '.join(sorted(types))})" if types else ""
    words = f"{', '.join(f'{step.op_type} {name_of(step)}' for step in casts[:_SHOWN])}: another type{told} on the way to {site}"
    if casts:
        return GraphDifference(site=site, node=site, kind="structure", words=words, group="types casts", declared=True)
    words = f"{site} is computed otherwise by the same steps"
    return GraphDifference(site=site, node=site, kind="structure", words=words, group=f"otherwise {site}")


def _structural_difference(
    alignment: Alignment,
    site: str,
    steps: tuple[ProgramStep, ...],
    its_steps: tuple[ProgramStep, ...],
    matched: Mapping[int, int],
) -> GraphDifference | None:
    """The steps that one side has alone, or under another name; None where there are none."""
    mine = {step.index: step for step in steps}
    gone = [step for step in steps if step.index not in matched.values() and step.op_type not in PASSING]
    added = [step for step in its_steps if step.index not in matched and step.op_type not in PASSING]
    pairs = [(mine[matched[step.index]], step) for step in its_steps if step.index in matched]
    renamed = [(maker, step) for maker, step in pairs if _operator_name(maker) != _operator_name(step)]
    if not (gone or added or renamed) and bool(steps) == bool(its_steps):
        return None
    if training := [step for step in added if is_training_step(step)]:
        words = f"{training[0].op_type} {name_of(training[0])} is in training mode, with the statistics of the batch at hand"
        return GraphDifference(site=site, node=name_of(training[0]), kind="structure", words=words, group=TRAINING)
    # Whatever became of steps that integers swallowed, how far they err tells whether that is right.
    quantized = any(is_quantized(step.op_type) for step in (*added, *(step for _, step in renamed)))
    before = [(step.op_type, _name_with_numbers(alignment.reference, step)) for step in gone]
    after = [(step.op_type, _name_with_numbers(alignment.candidate, step)) for step in added]
    for one in [one for maker, step in renamed for one in _steps_fused_in(maker, step)]:
        same = next((other for other in reversed(before) if other[0] == one[0]), None)
        if same is not None:
            before.remove(same)
        else:
            after.append(one)
    told = [(maker, step) for maker, step in renamed if not (before or after) or not list(_steps_fused_in(maker, step))]
    pattern = [*(kind for kind, _ in before), "->", *(kind for kind, _ in after)]
    pattern += [f"{_operator_name(maker)}={_operator_name(step)}" for maker, step in told]
    first = [*gone, *added, *(maker for maker, _ in renamed)]
    alone = not (gone or renamed)
    behind = _result_changed_behind(alignment, added) if alone else ""
    changed = _change_of_result(alignment.candidate, added) if alone else ""
    if changed and not behind and not any(set(added[0].outputs) & set(step.reads) for step in its_steps):
        behind = site
    handed = "" if added or renamed else _input_handed_on(alignment, gone, its_steps)
    words = _describe_cut(alignment, added) if quantized else ""
    words = words or "; ".join(_structure_words(before, after, told)) or f"{site} is passed on without a step"
    return GraphDifference(
        site=site,
        node=name_of(first[0]) if first else site,
        kind="structure",
        words=": ".join(filter(None, (f"{words} behind {behind}" if behind else words, changed or handed))),
        at=behind,
        group="quantized" if quantized else " ".join(("structure", *pattern)),
        declared=quantized,
    )


def _describe_cut(alignment: Alignment, added: list[ProgramStep]) -> str:
    """The quantizer whose range is too small for what the reference has there; "" where none cuts much off."""
    constants = alignment.candidate.constants
    for step in (one for one in added if one.op_type == _QUANTIZER):
        around = [step.inputs[0], *(one.outputs[0] for one in added if step.outputs[0] in one.inputs)]
        value = next((alignment.values.get(alignment.pairs[name]) for name in around if name in alignment.pairs), None)
        scale, zero = (constants.get(name) for name in (*step.inputs, "", "")[1:3])
        if value is None or scale is None or zero is None or scale.size != 1:
            continue
        if not value.size or zero.dtype.kind not in "iu":
            continue
        ends = [
            (end - int(zero.item())) * float(scale.item())
            for end in (np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max)
        ]
        for end, reached in zip(ends, (float(value.min()), float(value.max())), strict=True):
            if end and reached / end > _CUT:  # a range that ends at zero does what a Relu does
                return f"{_QUANTIZER} {name_of(step)}: its range ends at {end:.3g}, and what it reads reaches {reached:.3g}"
    return ""


def _result_changed_behind(alignment: Alignment, added: list[ProgramStep]) -> str:
    """The one result of the reference that the candidate's added steps change; "" where they read several, or an input."""
    made = {name for step in added for name in step.outputs}
    read = {name for step in added for name in step.reads if name not in made} - alignment.candidate.constants.keys()
    found = {alignment.pairs.get(name, "") for name in read}
    behind = next(iter(found)) if len(found) == 1 else ""
    return behind if behind in alignment.reference.makers else ""


def _input_handed_on(alignment: Alignment, gone: list[ProgramStep], its_steps: tuple[ProgramStep, ...]) -> str:
    """Which of several inputs of one step that is left out the candidate hands on in place of its result; else ""."""
    if len(gone) != 1:
        return ""
    read = {name for step in its_steps for name in step.reads}
    real = [name for name in dict.fromkeys(gone[0].inputs) if name and name not in alignment.reference.constants]
    handed = [name for name in real if alignment.partner.get(name) in read]
    return f"{handed[0]} is handed on" if len(handed) == 1 < len(real) else ""


def _change_of_result(graph: ReadGraph, added: list[ProgramStep]) -> str:
    """What one added step does to the result that it reads, where that takes one number; else ""."""
    if len(added) != 1:
        return ""
    (step,) = added
    held = {place: graph.constants[name] for place, name in enumerate(step.inputs) if name in graph.constants}
    if len(step.inputs) != len(held) + 1 or len(held) != 1 or any(array.size != 1 for array in held.values()):
        return ""
    ((place, array),) = held.items()
    changes = _CHANGED_BY if place else {kind: says for kind, says in _CHANGED_BY.items() if kind in _EITHER_WAY}
    return changes.get(step.op_type, "").format(f"{float(array.reshape(-1)[0]):.6g}")


def _name_with_numbers(graph: ReadGraph, step: ProgramStep) -> str:
    """A step's name, with the numbers that it takes where they are few."""
    held = [graph.constants[name].reshape(-1) for name in step.inputs if name in graph.constants]
    few = [array for array in held if array.size == 1 and array.dtype.kind in "fiu"]
    return name_of(step) + (f" ({', '.join(f'{array[0]:.6g}' for array in few)})" if few else "")


def _steps_fused_in(maker: ProgramStep, step: ProgramStep) -> Iterator[tuple[str, str]]:
    """Operator and name of what a fused step does besides what `maker` does."""
    attributes = step.node.attributes
    if "activation" in attributes:
        yield attributes.get_string("activation"), f"in {step.op_type} {name_of(step)}"
    for place in range(2, min(4, len(step.inputs))):
        if step.inputs[place] and (place >= len(maker.inputs) or not maker.inputs[place]):
            yield "Add", f"in {step.op_type} {name_of(step)}"


def _structure_words(
    gone: list[tuple[str, str]], added: list[tuple[str, str]], renamed: list[tuple[ProgramStep, ProgramStep]]
) -> Iterator[str]:
    if gone and added:
        again = sorted(kind for kind, _ in gone) == sorted(kind for kind, _ in added)
        yield (
            f"{_list_steps(gone)} in another order"
            if again
            else f"{_list_steps(added)} in place of {_list_steps(gone)}"
        )
    elif gone or added:
        told = _list_steps(gone or added)
        if len(gone or added) > 1:
            yield f"{told} are left out" if gone else f"{told} are added"
        else:
            yield f"{told} is left out" if gone else f"{told} is added"
    yield from (f"{maker.op_type} {name_of(maker)} is {_operator_name(step)}" for maker, step in renamed[:_SHOWN])


def _list_steps(steps: list[tuple[str, str]]) -> str:
    return list_first(map(" ".join, steps), _SHOWN)


def _operator_name(step: ProgramStep) -> str:
    domain = step.node.domain.removeprefix("ai.onnx")
    return f"{domain}.{step.op_type}" if domain else step.op_type


def _type_of(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return str(value.dtype) if isinstance(value, np.ndarray) else ""
