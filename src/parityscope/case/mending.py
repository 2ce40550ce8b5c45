"""What can be read of an ONNX file that is not whole: what is broken is taken out of its message, and said.

A tensor whose data is missing or wrong is left out. A node that reads such a one, or a value that nothing gives, or that
depends on itself, or whose body is broken, keeps its name, operator and what else it reads, in a domain of its own (`UNREAD`)
in which nothing runs it. Versions that are not known yet are read as the newest that are. What is left is a graph that passes
every check.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parityscope.case._weights import check_tensor, tensors_of_node
from parityscope.case._wiring import check_alone, check_functions, check_wiring
from parityscope.case.declaring import bodies_of
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx

UNREAD = "parityscope.unread"  # the domain of nodes that cannot be read


def mend_message(model: onnx.ModelProto, path: Path) -> tuple[str, ...]:
    """Takes out of the message of `path`, in place, what is broken, and says what that was."""
    told = [*_mend_versions(model), *_mend_functions(model, str(path)), *_mend_tensors(model, path)]
    told += _mend_nodes(model.graph, path)
    if any(node.domain == UNREAD for node in model.graph.node):
        model.opset_import.add(domain=UNREAD, version=1)
    return tuple(dict.fromkeys(told))


def _mend_versions(model: onnx.ModelProto) -> Iterator[str]:
    import onnx

    if model.ir_version > onnx.IR_VERSION:
        yield f"IR version {model.ir_version} is read as {onnx.IR_VERSION}, the newest that is known"
        model.ir_version = onnx.IR_VERSION
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in {"", "ai.onnx"} and not 1 <= entry.version <= newest:
            yield f"opset {entry.version} is read as {newest}, the newest that is known"
            entry.version = newest


def _mend_functions(model: onnx.ModelProto, where: str) -> Iterator[str]:
    """Without its functions, if these are broken: whatever calls one is a node that nothing here runs."""
    import onnx

    alone = onnx.ModelProto(functions=model.functions)
    for check in (check_functions, check_wiring):
        if problem := _problem_of(partial(check, alone, where)):
            yield problem
            del model.functions[:]
            return


def _mend_tensors(model: onnx.ModelProto, path: Path) -> Iterator[str]:
    """Without the initializers that cannot be read, or whose name another has."""
    graph, names = model.graph, set[str]()
    broken = []
    for place, tensor in enumerate(graph.initializer):
        again = f"two constants are called {tensor.name!r}" if tensor.name in names else ""
        if problem := again or _problem_of(partial(check_tensor, tensor, path)):
            broken.append(place)
            yield problem
        names.add(tensor.name)
    for place in reversed(broken):
        del graph.initializer[place]
    yield from (f"the constant {one.values.name!r} is stored as a sparse one" for one in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def _mend_nodes(graph: onnx.GraphProto, path: Path) -> Iterator[str]:
    given = {value.name for value in (*graph.input, *graph.initializer)}
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for place, name in enumerate(node.output):
            if name in makers or name in given:
                yield f"{_name_node(node, index)} gives {name!r}, which is there already"
                node.output[place] = ""
                node.domain = UNREAD
            elif name:
                makers[name] = index
    known = frozenset((*given, *makers))
    for index, node in enumerate(graph.node):
        problem = next(_problems_of_node(node, known, path), "")
        if problem:
            yield f"{_name_node(node, index)} cannot be read: {problem}"
            _make_unread(node, {*node.input} - known)
    yield from _mend_circles(graph, makers)


def _problems_of_node(node: onnx.NodeProto, known: frozenset[str], path: Path) -> Iterator[str]:
    yield from (f"nothing in the file gives {name!r}" for name in node.input if name and name not in known)
    yield from filter(None, (_problem_of(partial(check_tensor, one, path)) for one in tensors_of_node(node)))
    if any(True for _ in bodies_of(node)):
        yield from filter(None, [_problem_of(partial(check_alone, node, known, str(path)))])


def _mend_circles(graph: onnx.GraphProto, makers: dict[str, int]) -> Iterator[str]:
    """Nodes of a circle do not read what comes behind them in the file."""
    while stuck := _stuck_nodes(graph, makers):
        index = next(place for place in stuck if any(makers.get(name, -1) >= place for name in graph.node[place].input))
        node = graph.node[index]
        yield f"{_name_node(node, index)} depends on its own output, or on a node that does"
        _make_unread(node, {name for name in node.input if makers.get(name, -1) >= index})


def _stuck_nodes(graph: onnx.GraphProto, makers: dict[str, int]) -> list[int]:
    """The places of nodes that never have all that they read, in order."""
    waiting = [len({makers[name] for name in node.input if name in makers}) for node in graph.node]
    readers: dict[int, set[int]] = {}
    for index, node in enumerate(graph.node):
        for name in node.input:
            if name in makers:
                readers.setdefault(makers[name], set()).add(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        for reader in readers.get(ready.pop(), ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return [index for index, count in enumerate(waiting) if count]


def _make_unread(node: onnx.NodeProto, lost: set[str]) -> None:
    """Puts a node where nothing runs it, without what it cannot read."""
    node.domain = UNREAD
    node.input[:] = ["" if name in lost else name for name in node.input]
    for place, one in reversed([*enumerate(node.attribute)]):
        if one.HasField("t") or one.HasField("g") or one.tensors or one.graphs:
            del node.attribute[place]


def _problem_of(check: Callable[[], object]) -> str:
    try:
        check()
    except ParityError as error:
        return error.problem
    return ""


def _name_node(node: onnx.NodeProto, index: int) -> str:
    return f"node {node.name or f'{node.op_type}#{index}'!r}"
