"""Differences put into a copy of the reference's graph, or put right in a copy of the candidate's, as nodes.

Each stretch that holds a chosen difference is written anew, by the steps that `steps_of` gives for it (mixtures run the same),
in front of whatever reads its result, which keeps its name. Whatever else there is stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.graphs import add_constant
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph.mixing import MixedStep, steps_of
from parityscope.hypotheses.from_other_graph.stating import meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch
    from parityscope.hypotheses.from_other_graph.mixing import Place
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph

_ONNX = frozenset({"", "ai.onnx"})


def transplant_differences(
    alignment: Alignment, stretches: Mapping[str, DifferingStretch], chosen: Collection[GraphDifference]
) -> Callable[[ir.Model], None]:
    """What puts the chosen differences into a copy of the reference's graph, whose tensors keep their names.

    The function that is given back raises ParityError where the graph cannot say it: an operator that its opset reads
    otherwise, or a tensor that it does not have.
    """
    active = frozenset(chosen)
    at = {one.site for one in active}

    def edit(model: ir.Model) -> None:
        work = _Writing(alignment, model, into_reference=True)
        for site in alignment.order:
            if site in at and site in stretches:
                made, place = steps_of(alignment, stretches[site], active)
                work.write(site, made, place)
        model.graph.sort()

    return edit


def put_back(
    alignment: Alignment, stretches: Mapping[str, DifferingStretch], chosen: Collection[GraphDifference]
) -> Callable[[ir.Model], None]:
    """What puts the reference's side of these differences into a copy of the candidate's graph; as `transplant_differences`."""
    at = {one.site for one in chosen}

    def edit(model: ir.Model) -> None:
        work = _Writing(alignment, model, into_reference=False)
        for site in alignment.order:
            if site in at and site in stretches:
                kept = [one for one in stretches[site].differences if one not in chosen]
                made, place = steps_of(alignment, stretches[site], kept)
                work.write(stretches[site].candidate, made, place)
        model.graph.sort()

    return edit


class _Writing:
    """A copy of one side's graph, and what its values are called."""

    def __init__(self, alignment: Alignment, model: ir.Model, *, into_reference: bool) -> None:
        self.alignment, self.model, self.into = alignment, model, into_reference
        self.values: dict[str, ir.Value] = {str(value.name): value for value in model.graph.inputs}
        self.values.update((str(name), value) for name, value in model.graph.initializers.items())
        self.values.update((str(value.name), value) for node in model.graph for value in node.outputs if value.name)
        self.again: dict[str, ir.Value] = {}
        self.count = 0

    def write(self, site: str, made: list[MixedStep], place: Place) -> None:
        """What is read as `site` is what these steps give at `place` from now on."""
        old, inside = self._known_value(site), dict[tuple[bool, str], ir.Value]()
        for one in made:
            inputs = [None if where is None else self._write_value(where, inside) for where in one.reads]
            node = self._write_node(one, inputs, inside)
            self.model.graph.append(node)
            for name, value in zip(one.step.outputs, node.outputs, strict=True):
                value.name = self._fresh_name(name or one.step.key)
                if isinstance(self._shapes_and_types(mine=one.mine).get(name), np.ndarray):
                    value.type = ir.TensorType(
                        ir.DataType.from_numpy(self._shapes_and_types(mine=one.mine)[name].dtype)
                    )
                inside[one.mine, name] = value
        new = self._write_value(place, inside)
        wanted = self._shapes_and_types(mine=self.into)[site].dtype
        if self._shapes_and_types(mine=place[0])[place[1]].dtype != wanted:
            new = self._pass_value_on(new, wanted)
        elif place not in inside:
            new = self._pass_value_on(new)
        new.type, new.shape, new.name, old.name = old.type, old.shape, site, self._fresh_name(site)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.values[site] = new

    def _computed_by_reference(self, name: str, inside: Mapping[Place, ir.Value]) -> ir.Value:
        """What the candidate's file does not compute any more, by the reference's steps; once."""
        if name not in self.again:
            step = self.alignment.reference.makers[name]
            one = MixedStep(step=step, mine=True, reads=tuple((True, each) if each else None for each in step.inputs))
            node = self._write_node(
                one, [None if where is None else self._write_value(where, inside) for where in one.reads], inside
            )
            self.model.graph.append(node)
            for each, value in zip(step.outputs, node.outputs, strict=True):
                value.name = self._fresh_name(each or step.key)
                self.again[each] = value
        return self.again[name]

    def _graph(self, *, mine: bool) -> ReadGraph:
        return self.alignment.reference if mine else self.alignment.candidate

    def _shapes_and_types(self, *, mine: bool) -> Mapping[str, Any]:
        """What stands for the values of a side: shapes and types."""
        return self.alignment.values if mine else self.alignment.own

    def _write_node(self, one: MixedStep, inputs: list[ir.Value | None], inside: Mapping[Place, ir.Value]) -> ir.Node:
        """The node of a step, with bodies of its own that read this graph's values."""
        step, graph = one.step, self._graph(mine=one.mine)
        domain = "" if step.node.domain in _ONNX else step.node.domain
        if one.mine != self.into:
            here = meaning_of(self._graph(mine=self.into), step)
            if domain == "" and here != meaning_of(graph, step):
                raise ParityError(f"{step.op_type} means something else in the opset of the file that it is put into")
            if domain and domain not in self.model.graph.opset_imports:
                self.model.graph.opset_imports[domain] = graph.program.opsets.get(domain, 1)
        outer = {name: self._write_value((one.mine, site), inside) for site, name in step.captured.items()}
        attributes = [
            ir.AttrGraph(name, _copy_body(attribute.as_graph(), outer))
            if attribute.type == ir.AttributeType.GRAPH
            else attribute
            for name, attribute in step.node.attributes.items()
        ]
        return ir.Node(
            domain,
            step.op_type,
            inputs,
            attributes,
            num_outputs=len(step.outputs),
            name=self._fresh_name(step.node.name or ""),
        )

    def _write_value(self, where: Place, inside: Mapping[Place, ir.Value]) -> ir.Value:
        if where in inside:
            return inside[where]
        mine, name = where
        if mine == self.into:
            return self._known_value(name)
        constant = self._graph(mine=mine).constants.get(name)
        if constant is not None:
            return self._write_constant(name, constant)
        other = (self.alignment.partner if mine else self.alignment.pairs).get(name)
        if other is None and mine and name in self.alignment.reference.makers:
            return self._computed_by_reference(name, inside)
        if other is None:
            raise ParityError(f"{name} is computed nowhere in this network")
        its_type, own_type = (
            self._shapes_and_types(mine=mine)[name].dtype,
            self._shapes_and_types(mine=self.into)[other].dtype,
        )
        found = self._known_value(other)
        return found if its_type == own_type else self._pass_value_on(found, its_type)

    def _write_constant(self, name: str, array: np.ndarray) -> ir.Value:
        return add_constant(self.model.graph, array, self._fresh_name(name))

    def _pass_value_on(self, value: ir.Value, wanted: np.dtype | None = None) -> ir.Value:
        """The value as the output of a node of its own, of the type that is wanted."""
        kind = [] if wanted is None else [ir.AttrInt64("to", int(ir.DataType.from_numpy(wanted)))]
        op_type = "Cast" if kind else "Identity"
        node = ir.Node("", op_type, [value], kind, num_outputs=1, name=self._fresh_name(op_type))
        self.model.graph.append(node)
        node.outputs[0].name = self._fresh_name(str(value.name))
        return node.outputs[0]

    def _known_value(self, name: str) -> ir.Value:
        if name not in self.values:
            raise ParityError(f"the file has no tensor {name} of its own")
        return self.values[name]

    def _fresh_name(self, name: str) -> str:
        self.count += 1
        return f"{name}::other{self.count}"


def _copy_body(graph: ir.Graph, outer: Mapping[str, ir.Value]) -> ir.Graph:
    """A copy of a body that reads `outer` values, by the names they have there."""
    found = graph.clone(allow_outer_scope_values=True)
    own = {str(value.name) for node in found.all_nodes() for value in node.outputs}
    own |= {
        str(value.name) for each in (found, *found.subgraphs()) for value in (*each.inputs, *each.initializers.values())
    }
    for node in found.all_nodes():
        for place, value in enumerate(node.inputs):
            if value is not None and value.name not in own and value.name in outer:
                node.replace_input_with(place, outer[str(value.name)])
    for each in (found, *found.subgraphs()):
        for place, value in enumerate(each.outputs):
            if value.name not in own and value.name in outer:
                each.outputs[place] = outer[str(value.name)]
    return found
