"""Two steps that are each other's -> what they do not share: attributes, meanings, constants, inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.hypotheses.from_other_graph.constants import VAGUE, Change, change_of, same_elements
from parityscope.hypotheses.from_other_graph.difference import Difference
from parityscope.hypotheses.from_other_graph.reading import family, quantizes
from parityscope.hypotheses.schemas import default_of, schema_of, spoken
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from parityscope.evaluation.program import Step
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.reading import Graph

__all__ = ["PASSING", "differences_of_steps", "meaning_of", "name_of"]

_ONNX = frozenset({"", "ai.onnx"})
_EITHER_WAY = with_trait("commutes")
# They pass their input on: another type shows in the result's.
PASSING = with_trait("passes on")
_LETTERS = 2  # a name of so few ("W") says nothing


def differences_of_steps(
    alignment: Alignment, site: str, step: Step, maker: Step, matched: Mapping[int, int]
) -> Iterator[Difference]:
    """What a step of the candidate's does not share with its partner; `matched` tells whose partners are whose in the stretch."""
    common: Any = {"site": site, "node": name_of(maker), "step": step.index, "maker": maker.index}
    apart_in = False
    for name, before, after in _attributes(alignment, maker, step):
        apart_in = True
        words = f"attribute {name} of {maker.op_type} {name_of(maker)}: {before} became {after}"
        group = f"attribute {maker.op_type} {name} {before} {after}"
        yield Difference(kind="attribute", words=words, group=group, attribute=name, **common)
    if (
        not apart_in
        and step.op_type == maker.op_type
        and step.node.domain == maker.node.domain
        and meaning_of(alignment.reference, maker) != meaning_of(alignment.candidate, step)
    ):
        versions = [graph.program.opsets.get("", 0) for graph in (alignment.reference, alignment.candidate)]
        words = f"{maker.op_type} {name_of(maker)} is read by opset {versions[1]} instead of {versions[0]}"
        yield Difference(kind="opset", words=words, group=f"opset {maker.op_type}", **common)
    if step.op_type == maker.op_type:  # what a runtime fused takes its inputs at other places
        yield from _inputs(alignment, step, maker, matched, common)
    elif not quantizes(step):
        yield from _constants(alignment, step, maker, common)


def _constants(alignment: Alignment, step: Step, maker: Step, common: Any) -> Iterator[Difference]:
    """Constants that are read at the same place and differ."""
    for place, (mine, its) in enumerate(zip(maker.inputs, step.inputs, strict=False)):
        before, after = alignment.reference.constants.get(mine), alignment.candidate.constants.get(its)
        if before is None or after is None or before is after:
            continue
        if before.dtype == after.dtype and np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
            continue
        change = change_of(before, after, alignment.candidate.grids.get(its))
        sibling = _sibling(alignment.reference, mine, after) if change.words.startswith(VAGUE) else ""
        if sibling:
            change = Change(words=f"that of {sibling} in its place")
        role = _role(alignment.reference, maker, place)
        said = f" ({role})" if len(role) > _LETTERS and role not in mine else ""
        words = f"constant {mine}{said} of {maker.op_type} {name_of(maker)}: {change.words}"
        group = change.group or f"constant {mine}"
        yield Difference(kind="constant", words=words, group=group, place=place, declared=change.declared, **common)


def _sibling(graph: Graph, name: str, array: np.ndarray) -> str:
    """The other constant of the graph that has these elements; "" where none has."""
    others = (one for one, held in graph.constants.items() if one != name and same_elements(held, array))
    return next(others, "")


def _inputs(
    alignment: Alignment, step: Step, maker: Step, matched: Mapping[int, int], common: Any
) -> Iterator[Difference]:
    yield from _constants(alignment, step, maker, common)
    reference, candidate = alignment.reference, alignment.candidate
    other: list[tuple[int, str, str]] = []
    for place in range(max(len(step.inputs), len(maker.inputs))):
        mine, its = (one.inputs[place] if place < len(one.inputs) else "" for one in (maker, step))
        both = mine in reference.constants and its in candidate.constants
        if not both and not _same_source(alignment, mine, its, matched):
            its = _origin(candidate, its, alignment.pairs.keys())
            other.append((place, mine, _called_here(alignment, its, maker)))
    exchanged = len(other) > 1 and sorted(mine for _, mine, _ in other) == sorted(its for _, _, its in other)
    if exchanged and family(maker) in _EITHER_WAY:
        return
    who = f"{maker.op_type} {name_of(maker)}"
    for place, mine, its in other:
        traced = mine in reference.makers and place < len(step.inputs) and step.inputs[place] in candidate.constants
        if traced and not exchanged:
            words = f"{mine} is a constant here, and is computed from the inputs in the reference: {who} reads it"
            yield Difference(kind="inputs", words=words, group=f"constant for {mine}", place=place, at=mine, **common)
            continue
        if exchanged:
            words = f"{who} takes its inputs exchanged: {', '.join(its for _, _, its in other)}"
        elif not mine or not its:
            which = _role(reference, maker, place)
            held = reference.constants.get(mine)
            value = f", which is {held.reshape(-1)[0]:.6g}" if held is not None and held.size == 1 else ""
            words = f"{who} is given no {which}{value}" if mine else f"{who} is given {its} as {which}"
        else:
            above = reference.makers.get(mine)
            left_out = above is not None and its in above.reads
            words = f"{who} reads {its} in place of {mine}"
            if above is not None and left_out:
                words = f"{above.op_type} {name_of(above)} is left out: {words}"
        yield Difference(kind="inputs", words=words, group=f"inputs {maker.key}", place=place, **common)


def _called_here(alignment: Alignment, its: str, maker: Step) -> str:
    """The reference's name of what the candidate reads, where the reference has it."""
    held = alignment.candidate.constants.get(its)
    for mine in maker.inputs:
        array = alignment.reference.constants.get(mine)
        if held is not None and array is not None and array.dtype == held.dtype and np.array_equal(array, held):
            return mine
    return alignment.pairs.get(its, its)


def _same_source(alignment: Alignment, mine: str, its: str, matched: Mapping[int, int]) -> bool:
    """Whether two inputs come from a pair, from matched steps, or from steps that are told as added or gone."""
    if not mine or not its:
        return mine == its
    mine = _origin(alignment.reference, mine, alignment.pairs.values())
    its = _origin(alignment.candidate, its, alignment.pairs.keys())
    if its in alignment.pairs or mine in alignment.pairs.values():
        return alignment.pairs.get(its) == mine or _inside(alignment, mine, its)
    step, maker = alignment.candidate.makers.get(its), alignment.reference.makers.get(mine)
    if step is None or maker is None:
        return False
    return matched.get(step.index, maker.index) == maker.index


def _origin(graph: Graph, name: str, paired: Collection[str]) -> str:
    """What a value is that steps only pass on."""
    while name not in paired and name in graph.makers and graph.makers[name].op_type in PASSING:
        name = graph.makers[name].inputs[0]
    return name


def _inside(alignment: Alignment, mine: str, its: str) -> bool:
    """Whether one of them is paired and the other made inside the stretch: something was put between, or left out."""
    free = its not in alignment.pairs and its in alignment.candidate.makers
    return free or (mine not in alignment.pairs.values() and mine in alignment.reference.makers)


def _attributes(alignment: Alignment, maker: Step, step: Step) -> Iterator[tuple[str, str, str]]:
    """Name and both values of every attribute that both operators know and that differs, defaults told."""
    reference, candidate = alignment.reference, alignment.candidate
    mine, its = _valued(reference, maker, {}), _valued(candidate, step, _called_there(alignment, maker, step))
    for name in dict.fromkeys((*mine, *its)):
        before, after = mine.get(name), its.get(name)
        alike = step.op_type == maker.op_type and meaning_of(reference, maker) == meaning_of(candidate, step)
        if before != after and (alike or (before is not None and after is not None)):
            yield name, _said(before), _said(after)


def _valued(graph: Graph, step: Step, called: Mapping[str, str]) -> dict[str, Any]:
    schema, found = schema_of(_message(step), graph.program.opsets), {}
    for name in schema.attributes if schema else ():
        value = default_of(schema, name)
        if value is not None:
            found[name] = _plain(value, called)
    found.update((one.name, _plain(onnx.helper.get_attribute_value(one), called)) for one in _message(step).attribute)
    return found


def _called_there(alignment: Alignment, maker: Step, step: Step) -> dict[str, str]:
    """What the candidate's bodies read from outside, as the reference's call the same value: types on the way are told apart."""
    found = {}
    for site, name in step.captured.items():
        held = alignment.candidate.constants.get(site)
        same = alignment.pairs.get(_origin(alignment.candidate, site, alignment.pairs.keys()), "")
        if held is not None:
            constants = alignment.reference.constants
            same = next((one for one in maker.captured if one in constants and same_elements(constants[one], held)), "")
        if same in maker.captured:
            found[name] = maker.captured[same]
    return found


def _plain(value: Any, called: Mapping[str, str]) -> Any:
    if isinstance(value, onnx.GraphProto):
        renamed = onnx.GraphProto()
        renamed.CopyFrom(value)
        _rename(renamed, called)
        return renamed.SerializeToString(deterministic=True)
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString(deterministic=True)
    return tuple(value) if isinstance(value, list) else value


def _rename(graph: onnx.GraphProto, called: Mapping[str, str]) -> None:
    """What is read in a body, at any depth, under other names."""
    for node in graph.node:
        node.input[:] = [called.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, called)
    for value in graph.output:
        value.name = called.get(value.name, value.name)


def _said(value: Any) -> str:
    if isinstance(value, bytes) and not value.isascii():
        return "another body"
    return "nothing" if value is None else spoken(value)


def _message(step: Step) -> onnx.NodeProto:
    message: onnx.NodeProto = ir.serde.serialize_node(step.node)
    message.domain = "" if message.domain in _ONNX else message.domain
    return message


def meaning_of(graph: Graph, step: Step) -> int:
    """The version of its operator that a step is read by in a graph's opset; 0 where no schema is known."""
    schema = schema_of(_message(step), graph.program.opsets)
    return 0 if schema is None else int(schema.since_version)


def _role(graph: Graph, maker: Step, place: int) -> str:
    """What the standard calls an input."""
    schema = schema_of(_message(maker), graph.program.opsets)
    if schema is None or not schema.inputs:
        return f"input {place}"
    return str(schema.inputs[min(place, len(schema.inputs) - 1)].name)


def name_of(step: Step) -> str:
    """What a step is called."""
    return step.node.name or step.key
