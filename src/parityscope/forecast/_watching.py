"""Puts the operators that measure (`observing`) behind the tensors of a joined graph, and f(c_in) beside them.

What f(c_in) is, is found out node by node: where the simulation computes with the reference's own weights on what it stored,
its result before it is rounded; else the reference's node stands in the graph once more (`replay::<name>`), at
some positions only where that is enough (`_thinning`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._graphs import bodies, feed
from parityscope.arithmetic._switching import inner_nodes
from parityscope.arithmetic.domain import DOMAIN
from parityscope.forecast._thinning import thinning
from parityscope.forecast.observing import OBSERVE, WATCH
from parityscope.forecast.observing import THIN as THIN_OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ASKED", "FIRST", "NONE", "OWN", "REFERENCE", "SAME", "THIN", "THIRD", "Watching"]

REFERENCE, _REPLAY = "reference::", "replay::"
# What f(c_in) is: not wanted, e, an input of its own, c, at some positions an input of another operator, r.
NONE, OWN, THIRD, SAME, THIN, FIRST = range(6)
# What an operator is asked to take for it: nothing, e, its third input; or to note the shape alone.
ASKED = {NONE: 0, OWN: 1, THIRD: 2, SAME: 0, THIN: 1, FIRST: 0}
_NOTHING = -1
# Operators whose output holds the elements of their first input in the same order.
_RESHAPES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(slots=True, kw_only=True)
class Watching:
    """The graph while it is edited: the reference's values and those that the simulation stores, by their names."""

    model: ir.Model
    reference: dict[str, ir.Value]
    stored: dict[str, ir.Value]
    names: dict[ir.Value, str]
    replays: dict[ir.Node, ir.Node]
    last: list[ir.Value]
    shapes: Mapping[str, tuple[int, ...]]
    measured: set[str] = field(default_factory=set)
    copied: dict[str, str] = field(default_factory=dict)

    def watch(self, name: str, row: int, further: int, *, introduced: bool) -> int:
        """Lets an operator measure a tensor; says what f(c_in) is."""
        r, c = self.reference[name], self.stored[name]
        producer = c.producer()
        rounding = (
            producer if producer is not None and producer.domain == DOMAIN and producer.op_type == "Round" else None
        )
        e = rounding.inputs[0] if rounding is not None else c
        if e is None:
            raise ValueError(f"{name} is rounded of nothing")
        readers = {value: [use for use in value.uses() if use[0] is not rounding] for value in (r, c)}
        kind = self._kind(r, e, rounding=rounding is not None) if introduced else NONE
        third = self._thin(r, e, rounding, further) if kind == THIRD else None
        if third is not None:
            kind = THIN
        elif kind == THIRD:
            third = self._replay(r)
            kind = NONE if third is None else kind
        source = self._source(r, c) if kind in {NONE, SAME} and rounding is None else None
        if source is not None:
            self.copied[name] = source
        node = self._operator(r, e, third, rounding, (_NOTHING if source is not None else ASKED[kind], row))
        kept, passed = node.outputs
        for made, value in ((kept, c), (passed, r)):
            made.type, made.shape = value.type, value.shape
            feed(readers[value], made)
            self.names[made] = name
        passed.name = f"{r.name}::measured"
        if rounding is None:
            kept.name = f"{c.name}::measured"
        else:
            self.model.graph.remove(rounding, safe=False)
            kept.name = c.name
        self.stored[name] = kept
        self.last = [kept]
        self.measured.add(name)
        return kind

    def _source(self, r: ir.Value, c: ir.Value) -> str | None:
        """The tensor whose elements, in their order, both sides hold; None if this is not just another shape of one."""
        node, twin = r.producer(), c.producer()
        if node is None or twin is None or node.op_type not in _RESHAPES or node.domain:
            return None
        name = None if node.inputs[0] is None else self.names.get(node.inputs[0])
        same = name in self.measured and node.op_type == twin.op_type and twin.inputs[0] is self.stored.get(str(name))
        return name if same else None

    def _operator(
        self,
        r: ir.Value,
        e: ir.Value,
        third: ir.Value | None,
        rounding: ir.Node | None,
        state: tuple[int, int],
    ) -> ir.Node:
        """The operator that measures r and e; it waits for `third`, which is f(c_in) if the first of `state` says so."""
        attributes = [
            ir.AttrInt64("f", state[0]),
            ir.AttrInt64("row", state[1]),
            *_rounding_of(rounding),
        ]
        title = (OBSERVE if rounding is not None else WATCH) + ("" if third is None else "3")
        inputs = [r, e] if third is None else [r, e, third]
        node = ir.Node(DOMAIN, title, inputs, attributes, num_outputs=2, name=f"parityscope::watch::{e.name}")
        for value, title in zip(node.outputs, ("stored", "passed"), strict=True):
            value.name, value.type = f"{e.name}::{title}", ir.TensorType(ir.DataType.FLOAT)
        self.model.graph.append(node)
        return node

    def _thin(self, r: ir.Value, e: ir.Value, rounding: ir.Node | None, row: int) -> ir.Value | None:
        """Measures at some positions and gives what is there when that is done; None for nodes computed again whole."""
        node = r.producer()
        opset = self.model.opset_imports.get("", 1)
        found = None if node is None else thinning(node, self.shapes.get(self.names[r]), opset)
        if node is None or found is None or any(name not in self.stored for name in self._reads(node)):
            return None
        again = found.node(node, [self._as_stored(value) for value in node.inputs], self.model)
        attributes = [
            ir.AttrInt64("row", row),
            ir.AttrInt64("step", found.step),
            ir.AttrInt64("axes", sum(1 << found.rank - axis for axis in found.axes)),
            *_rounding_of(rounding),
        ]
        measured = ir.Node(DOMAIN, THIN_OPERATOR, [r, e, again.outputs[0]], attributes, num_outputs=1)
        measured.outputs[0].name = f"{e.name}::thin"
        measured.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        self.model.graph.append(measured)
        return measured.outputs[0]

    def _reads(self, node: ir.Node) -> list[str]:
        """The computed tensors that a node and its bodies read."""
        inner = [value for each in inner_nodes(node) for value in each.inputs]
        return [self.names[value] for value in (*node.inputs, *inner) if value is not None and value in self.names]

    def given(self, name: str, *, introduced: bool) -> tuple[ir.Value | None, ...]:
        """r, c and f(c_in) of a tensor that no operator measures."""
        r, c = self.reference[name], self.stored[name]
        kind = self._kind(r, c, rounding=False) if introduced else NONE
        known = {SAME: c, FIRST: r}
        return r, c, self._replay(r) if kind == THIRD else known.get(kind)

    def _kind(self, r: ir.Value, e: ir.Value, *, rounding: bool) -> int:
        node, twin = r.producer(), e.producer()
        if node is not None and not self._reads(node):
            return FIRST
        if node is None or twin is None or not self._is_twin(node, twin):
            return THIRD
        return OWN if rounding else SAME

    def _is_twin(self, node: ir.Node, twin: ir.Node) -> bool:
        """Whether `twin` computes what `node` does, of what the simulation stored of its inputs."""
        if (node.op_type, node.domain) != (twin.op_type, twin.domain) or bodies(node):
            return False
        if len(node.inputs) != len(twin.inputs) or _settings(node) != _settings(twin):
            return False
        pairs = zip(node.inputs, twin.inputs, strict=True)
        return all(other is self._as_stored(value) for value, other in pairs)

    def _as_stored(self, value: ir.Value | None) -> ir.Value | None:
        """What the replay reads for a value of the reference."""
        name = None if value is None else self.names.get(value)
        return value if name is None else self.stored.get(name, value)

    def _replay(self, r: ir.Value) -> ir.Value | None:
        """The reference's tensor of what the simulation stored; None where it lacks an input."""
        node = r.producer()
        if node is None:
            return None
        if node not in self.replays:
            if any(name not in self.stored for name in self._reads(node)):
                return None
            copy = ir.Node(
                node.domain,
                node.op_type,
                [self._as_stored(value) for value in node.inputs],
                [_cloned(attribute) for attribute in node.attributes.values()],
                overload=node.overload,
                num_outputs=len(node.outputs),
                name=_REPLAY + node.name if node.name else "",
            )
            for value, output in zip(node.outputs, copy.outputs, strict=True):
                output.name = _REPLAY + str(value.name).removeprefix(REFERENCE) if value.name else ""
                output.type, output.shape = value.type, value.shape
            for each in inner_nodes(copy):
                for index, read in enumerate(each.inputs):
                    if read is not None and read in self.names:
                        each.replace_input_with(index, self._as_stored(read))
            self.model.graph.append(copy)
            self.replays[node] = copy
        return self.replays[node].outputs[list(node.outputs).index(r)]


def _rounding_of(rounding: ir.Node | None) -> list[ir.Attr]:
    """What says an operator how to round."""
    return [
        ir.AttrInt64("rounds", int(rounding is not None)),
        *([] if rounding is None else rounding.attributes.values()),
    ]


def _settings(node: ir.Node) -> dict[str, object]:
    """The attributes of a node, to be compared."""
    return {
        name: tuple(held.value) if isinstance(held.value, (list, tuple)) else held.value
        for name, held in node.attributes.items()
    }


def _cloned(attribute: ir.Attr) -> ir.Attr:
    if attribute.type == ir.AttributeType.GRAPH:
        return ir.AttrGraph(attribute.name, attribute.as_graph().clone(allow_outer_scope_values=True))
    return attribute
