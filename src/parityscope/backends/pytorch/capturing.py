"""Watches a network while it runs: results of modules by hooks, nodes of a program by interpreting its graph.

A module that runs more than once, gives something else than one tensor, or whose result an exporter folded into the node before
it is not taken for a value that it is not.

An exported graph -> which ONNX value is the result of which module of the network.

Two exporters, two ways of telling. The newer one (`dynamo=True`) writes `pkg.torch.onnx.name_scopes` into every node: the
module paths from the root to the operator. The older one puts the path into node names: `/layer1/layer1.0/conv/Conv`, in
which the child of a Sequential or ModuleList repeats its parent's name. A node belongs to the module that it names and to all
around it. The value that alone leaves the nodes of a module is its result.

What an exporter fused across modules is told apart: a BatchNormalization folded into the convolution before it has
no nodes of its own in the older exporter (`swallowed`), and in the newer one the fused node has its scope.

Source: PyTorch, torch/onnx/_internal/exporter/_core.py (name_scopes) and torch/onnx/utils.py (node names).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.backends.pytorch.loading import LoadedNetwork
    from parityscope.case import Model

_SCOPES = "pkg.torch.onnx.name_scopes"
_RULE = "pkg.onnxscript.rewriter.rule_name"
_FX_NODE = "pkg.torch.onnx.fx_node"
Runner = Callable[[list[Any], dict[str, Any]], tuple[Any, dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scopes:
    """`results` maps ONNX values to module paths; `named` are all modules that have nodes; `reasons` says why others do not."""

    results: Mapping[str, str]
    named: frozenset[str]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """`run` takes positional and keyword tensors and gives the network's result and tensors by ONNX name."""

    run: Runner
    absent: tuple[Skip, ...] = ()
    close: Callable[[], None] = lambda: None


def watch_network(loaded: LoadedNetwork, model: Model, names: Sequence[str]) -> Watched:
    """The network watched for the ONNX values `names`."""
    outputs = {value.name for value in model.outputs}
    inner = [name for name in names if name not in outputs]
    if not inner:
        return Watched(run=_run_unwatched(loaded))
    if loaded.compiled or loaded.kind == "script":
        why = "compile=on fuses over it" if loaded.compiled else "a TorchScript file shows its results only"
        return Watched(
            run=_run_unwatched(loaded), absent=_skips_of_absent(dict.fromkeys(inner, why), "use the eager module")
        )
    if loaded.kind == "program":
        return _watched_program(loaded, model, inner)
    return _watched_modules(loaded, model, inner)


def keep_wanted(captured: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Those of the captured tensors that were asked for."""
    return {name: captured[name] for name in names if name in captured}


def _run_unwatched(loaded: LoadedNetwork) -> Runner:
    return lambda positional, keyword: (loaded.call(*positional, **keyword), {})


def _skips_of_absent(reasons: Mapping[str, str], fix: str = "") -> tuple[Skip, ...]:
    return tuple(Skip(what=f"tensor {name}", reason=why, fix=fix) for name, why in reasons.items())


def _watched_modules(loaded: LoadedNetwork, model: Model, names: Sequence[str]) -> Watched:
    modules = dict(loaded.network.named_modules())
    scopes = scopes_of(model.graph(), frozenset(modules) - {""})
    places = {name: scopes.results[name] for name in names if name in scopes.results}
    seen: dict[str, list[tuple[Any, Any]]] = {}  # results in the order of calls: the very tensor, and a copy of it
    folded = _folded_normalizations(modules, scopes.named)

    def keep(path: str) -> Callable[..., None]:
        def hook(_module: Any, _given: Any, made: Any) -> None:
            # A copy, because an operator behind it may write into it (ReLU(inplace=True)).
            seen.setdefault(path, []).append((made, made.clone() if _is_tensor(made) else None))

        return hook

    def keep_folded(_module: Any, given: Any, made: Any) -> None:
        # The exporter folded this normalization into the node before it: that node's value is this module's result.
        for results in seen.values():
            if given and results and results[-1][0] is given[0]:
                results[-1] = (made, made.clone())

    handles = [modules[path].register_forward_hook(keep(path)) for path in dict.fromkeys(places.values())]
    handles += [module.register_forward_hook(keep_folded) for module in folded]

    def run(positional: list[Any], keyword: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        seen.clear()
        made = loaded.call(*positional, **keyword)
        once = {path: results[0][1] for path, results in seen.items() if len(results) == 1}
        return made, {name: once[path] for name, path in places.items() if _is_tensor(once.get(path))}

    def close() -> None:
        for handle in handles:
            handle.remove()

    told = {name: scopes.reasons.get(name, "no module's result") for name in names if name not in places}
    return Watched(run=run, absent=_skips_of_absent(told), close=close)


def _folded_normalizations(modules: Mapping[str, Any], named: frozenset[str]) -> list[Any]:
    """Normalizations over a batch that have no node in the graph."""
    return [
        module
        for path, module in modules.items()
        if hasattr(module, "running_mean") and hasattr(module, "eps") and path not in named
    ]


def _watched_program(loaded: LoadedNetwork, model: Model, names: Sequence[str]) -> Watched:
    import torch

    operators = fx_operators(model.graph())
    nodes = {node.name: str(node.target) for node in loaded.network.graph.nodes if node.op == "call_function"}
    shared = {name for name in names if name in nodes and operators.get(name) == nodes[name]}

    kept: dict[str, Any] = {}

    def run(positional: list[Any], keyword: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        kept.clear()
        interpreter = torch.fx.Interpreter(loaded.network)
        evaluate = interpreter.run_node

        def run_node(node: Any) -> Any:
            made = evaluate(node)
            if node.name in shared and _is_tensor(made):
                kept[node.name] = made.clone()  # an operator behind it may write into it
            return made

        interpreter.run_node = run_node
        return interpreter.run(*positional, *keyword.values()), dict(kept)

    why = "no node of the program has its name and operator"
    return Watched(run=run, absent=_skips_of_absent({name: why for name in names if name not in shared}))


def _is_tensor(made: Any) -> bool:
    return hasattr(made, "detach") and hasattr(made, "dtype")


def scopes_of(graph: ir.Model, modules: frozenset[str]) -> _Scopes:
    """Which values of the main graph are results of which of `modules` (paths as `named_modules` gives them)."""
    inside: dict[str, set[int]] = {}
    reasons: dict[str, str] = {}
    nodes = [node for node in graph.graph if node.op_type != "Constant"]
    for index, node in enumerate(nodes):
        path = _path_of(node, modules)
        if not path:
            said = "no scope in its node" if path is None else "computed outside of all modules but the network itself"
            reasons.update({str(value.name): said for value in node.outputs})
            continue
        while path:
            inside.setdefault(path, set()).add(index)
            path = path.rpartition(".")[0]
    places = {id(node): index for index, node in enumerate(nodes)}
    results: dict[str, str] = {}
    # The innermost module last, so that it is the one that is named.
    for path, members in sorted(inside.items(), key=lambda item: item[0].count(".")):
        leaving = {
            str(value.name): [user for user in value.consumers() if places.get(id(user)) not in members]
            for index in members
            for value in nodes[index].outputs
            if value.is_graph_output() or any(places.get(id(user)) not in members for user in value.consumers())
        }
        if len(leaving) == 1:
            ((value_name, users),) = leaving.items()
            if any(_may_be_rewritten(user) for user in users):
                reasons[value_name] = "the exporter may have moved a step of its module into the node behind it"
            else:
                results[value_name] = path
    for node in nodes:
        for value in node.outputs:
            if value.name not in results:
                reasons.setdefault(str(value.name), "inside a module, which gives only its result")
    return _Scopes(results=results, named=frozenset(inside), reasons=reasons)


def fx_operators(graph: ir.Model) -> dict[str, str]:
    """ONNX values that have the name of a node of the exported program, with that node's operator (`aten.gelu.default`)."""
    found = {}
    for node in graph.graph:
        written = node.metadata_props.get(_FX_NODE, "")
        name, _, rest = written.removeprefix("%").partition(" : ")
        _, target, operator = rest.partition("call_function[target=torch.ops.")
        if target and len(node.outputs) == 1 and node.outputs[0].name == name:
            found[name] = operator.partition("]")[0]
    return found


def _may_be_rewritten(node: ir.Node) -> bool:
    """Whether a node may do what the module before it did last: a transposition read by Gemm, or an optimizer's fusion.

    A BatchNormalization fused into a convolution changes nothing of what the convolution reads.
    """
    rule = node.metadata_props.get(_RULE, "")
    if rule and "BatchNorm" not in rule:
        return True
    return node.op_type == "FusedMatMul" or node.attributes.get_int("transA", 0) == 1


def _path_of(node: ir.Node, modules: frozenset[str]) -> str | None:
    """The path of the module that a node belongs to, "" for the network itself, None where nothing is told."""
    written = node.metadata_props.get(_SCOPES)
    if written is not None:
        try:
            scopes = ast.literal_eval(written)
        except (ValueError, SyntaxError):
            return None
        return next((path for path in reversed(scopes[:-1]) if path in modules), "") if scopes else None
    if not (node.name or "").startswith("/"):
        return None
    path = ""
    for part in (node.name or "").strip("/").split("/")[:-1]:
        found = _child_path(path, part, modules)
        if found is None:
            return None
        path = found
    return path


def _child_path(path: str, part: str, modules: frozenset[str]) -> str | None:
    """The module that the older exporter calls `part` inside `path`: a child, or one that repeats its parent's name."""
    own = f"{path}.{part}" if path else part
    # "layer1" / "layer1.0": the path of the child of a container starts with what the container was called.
    options = {own} if own in modules else set()
    ancestors = path.split(".") if path else []
    for keep in range(len(ancestors)):
        repeated = ".".join([*ancestors[:keep], part])
        if repeated in modules and repeated.startswith(f"{path}."):
            options.add(repeated)
    return options.pop() if len(options) == 1 else None
