"""Puts a branch of an `If` in its place: the nodes keep their names, values that would clash get new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.case.declaring import bodies_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def inline_branch(graph: Any, node: Any, word: str) -> list[str]:
    """Replaces the `If` `node` of `graph` by its branch `word`; gives the names of the nodes of the other branch.

    Where an output of the branch is a value from outside of it, an Identity with the If's name gives it the If's name.
    """
    import onnx

    branches = {attribute.name: attribute.g for attribute in node.attribute}
    body = branches[word]
    left = [inner.name for name, other in branches.items() if name != word for inner in walk_nodes(other)]
    made = {name for inner in body.node for name in inner.output if name} | {each.name for each in body.initializer}
    renamed = {name: f"{node.name}/{name}" for name in made & _names_in_graph(graph, node)}
    handed, taken = [], set()
    for output, result in zip(node.output, body.output, strict=True):
        if result.name in made and result.name not in taken:
            renamed[result.name] = output
            taken.add(result.name)
        else:
            handed.append((result.name, output))
    place = list(graph.node).index(node)
    nodes = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in body.node]
    for inner in nodes:
        _rename_values(inner, renamed)
    initializers = [onnx.TensorProto.FromString(each.SerializeToString()) for each in body.initializer]
    for each in initializers:
        each.name = renamed.get(each.name, each.name)
    for number, (name, output) in enumerate(handed):
        title = node.name + (f".{number}" if number else "")
        source = renamed.get(name, name)
        nodes.append(onnx.NodeProto(op_type="Identity", name=title, input=[source], output=[output]))
    graph.initializer.extend(initializers)
    after = [onnx.NodeProto.FromString(each.SerializeToString()) for each in graph.node[place + 1 :]]
    del graph.node[place:]
    graph.node.extend((*nodes, *after))
    return left


def names_read_by(node: Any) -> Iterator[str]:
    """What a node reads, its bodies included: also values that its bodies make themselves."""
    yield from (name for name in node.input if name)
    for body in bodies_of(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from names_read_by(inner)


def walk_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of all bodies in it."""
    for node in graph.node:
        yield node
        for body in bodies_of(node):
            yield from walk_nodes(body)


def _names_in_graph(graph: Any, without: Any) -> set[str]:
    """The values of the main graph and of all bodies in it, but for those of one node's bodies."""
    found = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        found.update(node.output)
        if node.name != without.name:
            for body in bodies_of(node):
                for inner in walk_nodes(body):
                    found.update(inner.output)
                found.update(each.name for each in body.initializer)
    return found


def _rename_values(node: Any, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        for place, name in enumerate(field):
            if name in names:
                field[place] = names[name]
    for body in bodies_of(node):
        for inner in body.node:
            _rename_values(inner, names)
        for value in body.output:
            value.name = names.get(value.name, value.name)
