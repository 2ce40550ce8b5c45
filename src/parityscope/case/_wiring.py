"""Whether the nodes of a message can be put together: what they read is given once, by something that does not need them.

Functions of the model may call others, but not themselves, and written out at every call they must stay few enough nodes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from parityscope.case._scanning import MOST_NODES
from parityscope.case.declaring import bodies_of
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import onnx

_EXPORT = "export the model again"
_DENSE = "store it as an ordinary initializer, with its zeros"
_Key = tuple[str, str, str]


def check_wiring(model: onnx.ModelProto, where: str) -> None:
    """Checks the graph, the bodies in it, and the functions.

    Raises:
        ParityError: a name is given twice or by nothing, a node depends on its own output, or a constant is sparse.
    """
    _check_graph(model.graph, frozenset(), where)
    for function in model.functions:
        place = f"{where}, function {function.name!r}"
        _check_once(function.input, "input", place)
        given = {*function.input}
        _check_nodes(function.node, given, frozenset(), place)
        _check_given(function.output, {*given, *_names_given(function.node)}, "the function gives", place)


def check_functions(model: onnx.ModelProto, where: str) -> None:
    """Checks how functions call one another.

    Raises:
        ParityError: one is defined twice, calls itself, or they are too many nodes if each call is written out.
    """
    keys = [(one.domain, one.name, one.overload) for one in model.functions]
    for key, count in Counter(keys).items():
        if count > 1:
            raise ParityError(f"the function {_name_function(key)} is defined {count} times", where=where, fix=_EXPORT)
    known = dict(zip(keys, model.functions, strict=True))
    sizes: dict[_Key, int] = {}
    for key in keys:
        _measure_function(key, known, sizes, where)
    total = _written_out(_all_nodes(model.graph.node), sizes)
    if total > MOST_NODES:
        raise ParityError(
            f"the model's functions, written out where they are called, are {total:.3g} nodes, more than the {MOST_NODES} "
            "that can be examined",
            where=where,
            fix="export it without functions that call others so often",
        )


def check_alone(node: onnx.NodeProto, known: Collection[str], where: str) -> None:
    """Checks a node with the bodies in it, where the names `known` are given.

    Raises:
        ParityError: as `check_wiring`.
    """
    _check_nodes([node], {*known} - {*node.output}, frozenset(), where)


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str], where: str) -> set[str]:
    """Checks a graph whose nodes may read the names `outer` too; gives those of them that it reads."""
    names = [value.name for value in graph.input]
    _check_once(names, "input", where)
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ParityError(
            f"the constant {name!r} is stored as a sparse one, which is not read", where=where, fix=_DENSE
        )
    held = [tensor.name for tensor in graph.initializer]
    _check_once(held, "initializer", where)
    given = {*names, *held}
    captured = _check_nodes(graph.node, given, outer, where)
    results = [value.name for value in graph.output]
    every = {*given, *_names_given(graph.node)}
    _check_given(results, every | outer, "the graph gives", where)
    return captured | {name for name in results if name not in every}


def _check_nodes(nodes: Sequence[onnx.NodeProto], given: set[str], outer: frozenset[str], where: str) -> set[str]:
    """Checks nodes beside which the names `given` are known; gives the names of `outer` that they read."""
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise ParityError(
                    f"two things are called {name!r}, and one of them is an output of {_name_node(node, index)}",
                    where=where,
                    fix=_EXPORT,
                )
            makers[name] = index
    known = frozenset((*makers, *given, *outer))
    needs: list[set[int]] = []
    captured: set[str] = set()
    for index, node in enumerate(nodes):
        read = {*filter(None, node.input)}
        if missing := read - known:
            raise ParityError(
                f"{_name_node(node, index)} reads {min(missing)!r}, which nothing in the model gives",
                where=where,
                fix=_EXPORT,
            )
        for body in bodies_of(node):
            read |= _check_graph(body, known, f"{where}, in {_name_node(node, index)}")
        needs.append({makers[name] for name in read if name in makers})
        captured |= {name for name in read if name not in makers and name not in given}
    _check_order(nodes, needs, where)
    return captured


def _check_order(nodes: Sequence[onnx.NodeProto], needs: Sequence[Collection[int]], where: str) -> None:
    """Checks that nodes can run one after the other, in whatever order."""
    if all(max(one, default=-1) < index for index, one in enumerate(needs)):
        return
    waiting = [len(one) for one in needs]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, one in enumerate(needs):
        for maker in one:
            readers[maker].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        for reader in readers[ready.pop()]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    stuck = next((index for index, count in enumerate(waiting) if count), None)
    if stuck is not None:
        raise ParityError(
            f"the graph has a cycle: {_name_node(nodes[stuck], stuck)} depends on its own output, or on a node that does",
            where=where,
            fix=_EXPORT,
        )


def _measure_function(
    start: _Key, known: Mapping[_Key, onnx.FunctionProto], sizes: dict[_Key, int], where: str
) -> None:
    """Notes how many nodes a function is, and each that it calls, with all calls written out."""
    path: list[tuple[_Key, Iterator[_Key]]] = []
    open_now: set[_Key] = set()

    def enter(key: _Key) -> None:
        open_now.add(key)
        path.append((key, iter({call for call in map(_function_key, _all_nodes(known[key].node)) if call in known})))

    if start not in sizes:
        enter(start)
    while path:
        key, calls = path[-1]
        call = next((one for one in calls if one not in sizes), None)
        if call is None:
            path.pop()
            open_now.discard(key)
            sizes[key] = _written_out(_all_nodes(known[key].node), sizes)
        elif call in open_now:
            raise ParityError(f"the function {_name_function(call)} calls itself", where=where, fix=_EXPORT)
        else:
            enter(call)


def _written_out(nodes: Iterable[onnx.NodeProto], sizes: Mapping[_Key, int]) -> int:
    return sum(sizes.get(_function_key(node), 1) for node in nodes)


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the bodies in them."""
    stack = [iter(nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        stack.extend(iter(body.node) for body in bodies_of(node))


def _check_once(names: Iterable[str], what: str, where: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ParityError(f"{count} {what}s are called {name!r}", where=where, fix=_EXPORT)


def _check_given(names: Iterable[str], known: Collection[str], what: str, where: str) -> None:
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise ParityError(f"{what} {missing!r}, which nothing in it computes", where=where, fix=_EXPORT)


def _names_given(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    return (name for node in nodes for name in node.output if name)


def _name_node(node: onnx.NodeProto, index: int) -> str:
    return f"node {node.name or f'{node.op_type}#{index}'!r}"


def _function_key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload


def _name_function(key: _Key) -> str:
    return repr("::".join(part for part in key[:2] if part))
