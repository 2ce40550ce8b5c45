"""Two steps that are each other's -> what they do not share: attributes, meanings, constants, inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.hypotheses.from_other_graph.constants import (
    VAGUE,
    ConstantChange,
    are_identical,
    change_of,
    have_same_elements,
)
from parityscope.hypotheses.from_other_graph.difference import GraphDifference
from parityscope.hypotheses.from_other_graph.reading import operator_family
from parityscope.hypotheses.schemas import default_of, describe_value, schema_of
from parityscope.operators import is_quantized, with_trait
from parityscope.spilling import note_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph

_ONNX = frozenset({"", "ai.onnx"})
_EITHER_WAY = with_trait("commutes")
# They pass their input on: another type shows in the result's.
PASSING = with_trait("passes on")
_USUAL = {"dilations": 1, "output_padding": 0, "pads": 0, "strides": 1}  # numbers that say nothing, where all are so
_LETTERS = 2  # a name of so few ("W") says nothing


def differences_of_steps(
    alignment: Alignment, site: str, step: ProgramStep, maker: ProgramStep, matched: Mapping[int, int]
) -> Iterator[GraphDifference]:
    """What a step of the candidate's does not share with its partner; `matched` tells whose partners are whose in the stretch."""
    common: Any = {"site": site, "node": name_of(maker), "step": step.index, "maker": maker.index}
    apart_in = False
    for name, before, after in _attribute_differences(alignment, maker, step):
        apart_in = True
        words = f"attribute {name} of {maker.op_type} {name_of(maker)}: {before} became {after}"
        group = f"attribute {maker.op_type} {name} {before} {after}"
        yield GraphDifference(kind="attribute", words=words, group=group, attribute=name, **common)
    if (
        not apart_in
        and step.op_type == maker.op_type
        and step.node.domain == maker.node.domain
        and meaning_of(alignment.reference, maker) != meaning_of(alignment.candidate, step)
    ):
        versions = [graph.program.opsets.get("", 0) for graph in (alignment.reference, alignment.candidate)]
        words = f"{maker.op_type} {name_of(maker)} is read by opset {versions[1]} instead of {versions[0]}"
        yield GraphDifference(kind="opset", words=words, group=f"opset {maker.op_type}", **common)
    if step.op_type == maker.op_type:  # what a runtime fused takes its inputs at other places
        yield from _input_differences(alignment, step, maker, matched, common)
    elif not is_quantized(step.op_type):
        yield from _constant_differences(alignment, step, maker, common)


def _constant_differences(
    alignment: Alignment, step: ProgramStep, maker: ProgramStep, common: Any
) -> Iterator[GraphDifference]:
    """Constants that are read at the same place and differ."""
    for place, (reference, candidate) in enumerate(zip(maker.inputs, step.inputs, strict=False)):
        before, after = alignment.reference.constants.get(reference), alignment.candidate.constants.get(candidate)
        if before is None or after is None or before is after:
            continue
        if are_identical(before, after):
            continue
        note_read(before.nbytes + after.nbytes)
        change = change_of(before, after, alignment.candidate.grids.get(candidate))
        sibling = (
            _find_sibling_constant(alignment.reference, reference, after) if change.words.startswith(VAGUE) else ""
        )
        if sibling:
            change = ConstantChange(words=f"that of {sibling} in its place")
        role = _input_role(alignment.reference, maker, place)
        said = f" ({role})" if len(role) > _LETTERS and role not in reference else ""
        words = f"constant {reference}{said} of {maker.op_type} {name_of(maker)}: {change.words}"
        group = change.group or f"constant {reference}"
        yield GraphDifference(
            kind="constant", words=words, group=group, place=place, declared=change.declared, **common
        )


def _find_sibling_constant(graph: ReadGraph, name: str, array: np.ndarray) -> str:
    """The other constant of the graph that has these elements; "" where none has."""
    others = (one for one, held in graph.constants.items() if one != name and have_same_elements(held, array))
    return next(others, "")


def _input_differences(
    alignment: Alignment, step: ProgramStep, maker: ProgramStep, matched: Mapping[int, int], common: Any
) -> Iterator[GraphDifference]:
    yield from _constant_differences(alignment, step, maker, common)
    reference, candidate = alignment.reference, alignment.candidate
    other: list[tuple[int, str, str]] = []
    for place in range(max(len(step.inputs), len(maker.inputs))):
        mine, its = (one.inputs[place] if place < len(one.inputs) else "" for one in (maker, step))
        both = mine in reference.constants and its in candidate.constants
        if not both and not _have_same_source(alignment, mine, its, matched):
            its = _origin_of(candidate, its, alignment.pairs.keys())
            other.append((place, mine, _names_in_reference(alignment, its, maker)))
    exchanged = len(other) > 1 and sorted(mine for _, mine, _ in other) == sorted(its for _, _, its in other)
    if exchanged and operator_family(maker) in _EITHER_WAY:
        return
    who = f"{maker.op_type} {name_of(maker)}"
    for place, mine, its in other:
        traced = mine in reference.makers and place < len(step.inputs) and step.inputs[place] in candidate.constants
        if traced and not exchanged:
            words = f"{mine} is a constant here, and is computed from the inputs in the reference: {who} reads it"
            yield GraphDifference(
                kind="inputs", words=words, group=f"constant for {mine}", place=place, at=mine, **common
            )
            continue
        if exchanged:
            words = f"{who} takes its inputs exchanged: {', '.join(its for _, _, its in other)}"
        elif not mine or not its:
            which = _input_role(reference, maker, place)
            held = reference.constants.get(mine)
            value = f", which is {held.reshape(-1)[0]:.6g}" if held is not None and held.size == 1 else ""
            words = f"{who} is given no {which}{value}" if mine else f"{who} is given {its} as {which}"
        else:
            above = reference.makers.get(mine)
            left_out = above is not None and its in above.reads
            words = f"{who} reads {its} in place of {mine}"
            if above is not None and left_out:
                words = f"{above.op_type} {name_of(above)} is left out: {words}"
        yield GraphDifference(kind="inputs", words=words, group=f"inputs {maker.key}", place=place, **common)


def _names_in_reference(alignment: Alignment, candidate: str, maker: ProgramStep) -> str:
    """The reference's name of what the candidate reads, where the reference has it."""
    held = alignment.candidate.constants.get(candidate)
    for reference in maker.inputs:
        array = alignment.reference.constants.get(reference)
        if held is not None and array is not None and array.dtype == held.dtype and np.array_equal(array, held):
            return reference
    return alignment.pairs.get(candidate, candidate)


def _have_same_source(alignment: Alignment, reference: str, candidate: str, matched: Mapping[int, int]) -> bool:
    """Whether two inputs come from a pair, from matched steps, or from steps that are told as added or gone."""
    if not reference or not candidate:
        return reference == candidate
    reference = _origin_of(alignment.reference, reference, alignment.pairs.values())
    candidate = _origin_of(alignment.candidate, candidate, alignment.pairs.keys())
    if candidate in alignment.pairs or reference in alignment.pairs.values():
        return alignment.pairs.get(candidate) == reference or _is_inside_stretch(alignment, reference, candidate)
    step, maker = alignment.candidate.makers.get(candidate), alignment.reference.makers.get(reference)
    if step is None or maker is None:
        return False
    return matched.get(step.index, maker.index) == maker.index


def _origin_of(graph: ReadGraph, name: str, paired: Collection[str]) -> str:
    """What a value is that steps only pass on."""
    while name not in paired and name in graph.makers and graph.makers[name].op_type in PASSING:
        name = graph.makers[name].inputs[0]
    return name


def _is_inside_stretch(alignment: Alignment, reference: str, candidate: str) -> bool:
    """Whether one of them is paired and the other made inside the stretch: something was put between, or left out."""
    free = candidate not in alignment.pairs and candidate in alignment.candidate.makers
    return free or (reference not in alignment.pairs.values() and reference in alignment.reference.makers)


def _attribute_differences(
    alignment: Alignment, maker: ProgramStep, step: ProgramStep
) -> Iterator[tuple[str, str, str]]:
    """Name and both values of every attribute that both operators know and that differs, defaults told."""
    reference, candidate = alignment.reference, alignment.candidate
    mine, its = (
        _attribute_values(reference, maker, {}),
        _attribute_values(candidate, step, _names_in_candidate(alignment, maker, step)),
    )
    for name in dict.fromkeys((*mine, *its)):
        before, after = mine.get(name), its.get(name)
        alike = step.op_type == maker.op_type and meaning_of(reference, maker) == meaning_of(candidate, step)
        if None in (before, after) and _is_usual(name, before if after is None else after):
            continue
        if before != after and (alike or (before is not None and after is not None)):
            yield name, _describe_value(before), _describe_value(after)


def _is_usual(name: str, value: Any) -> bool:
    """Whether an attribute says what its absence does: the weight's own shape, no padding, steps of one."""
    usual = _USUAL.get(name)
    return name == "kernel_shape" or (usual is not None and isinstance(value, tuple) and {*value} <= {usual})


def _attribute_values(graph: ReadGraph, step: ProgramStep, called: Mapping[str, str]) -> dict[str, Any]:
    schema, found = schema_of(_node_message(step), graph.program.opsets), {}
    for name in schema.attributes if schema else ():
        value = default_of(schema, name)
        if value is not None:
            found[name] = _plain_value(value, called)
    found.update(
        (one.name, _plain_value(onnx.helper.get_attribute_value(one), called)) for one in _node_message(step).attribute
    )
    return found


def _names_in_candidate(alignment: Alignment, maker: ProgramStep, step: ProgramStep) -> dict[str, str]:
    """What the candidate's bodies read from outside, as the reference's call the same value: types on the way are told apart."""
    found = {}
    for site, name in step.captured.items():
        held = alignment.candidate.constants.get(site)
        same = alignment.pairs.get(_origin_of(alignment.candidate, site, alignment.pairs.keys()), "")
        if held is not None:
            constants = alignment.reference.constants
            same = next(
                (one for one in maker.captured if one in constants and have_same_elements(constants[one], held)), ""
            )
        if same in maker.captured:
            found[name] = maker.captured[same]
    return found


def _plain_value(value: Any, called: Mapping[str, str]) -> Any:
    if isinstance(value, onnx.GraphProto):
        renamed = onnx.GraphProto()
        renamed.CopyFrom(value)
        _rename_in_body(renamed, called)
        return renamed.SerializeToString(deterministic=True)
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString(deterministic=True)
    return tuple(value) if isinstance(value, list) else value


def _rename_in_body(graph: onnx.GraphProto, called: Mapping[str, str]) -> None:
    """What is read in a body, at any depth, under other names."""
    for node in graph.node:
        node.input[:] = [called.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_in_body(attribute.g, called)
    for value in graph.output:
        value.name = called.get(value.name, value.name)


def _describe_value(value: Any) -> str:
    if isinstance(value, bytes) and not value.isascii():
        return "another body"
    return "nothing" if value is None else describe_value(value)


def _node_message(step: ProgramStep) -> onnx.NodeProto:
    message: onnx.NodeProto = ir.serde.serialize_node(step.node)
    message.domain = "" if message.domain in _ONNX else message.domain
    return message


def meaning_of(graph: ReadGraph, step: ProgramStep) -> int:
    """The version of its operator that a step is read by in a graph's opset; 0 where no schema is known."""
    schema = schema_of(_node_message(step), graph.program.opsets)
    return 0 if schema is None else int(schema.since_version)


def _input_role(graph: ReadGraph, maker: ProgramStep, place: int) -> str:
    """What the standard calls an input."""
    schema = schema_of(_node_message(maker), graph.program.opsets)
    if schema is None or not schema.inputs:
        return f"input {place}"
    return str(schema.inputs[min(place, len(schema.inputs) - 1)].name)


def name_of(step: ProgramStep) -> str:
    """What a step is called."""
    return step.node.name or step.key
