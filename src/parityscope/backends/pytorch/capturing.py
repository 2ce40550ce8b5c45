"""Watches a network while it runs: results of modules by hooks, nodes of a program by interpreting its graph.

A module that runs more than once, gives something else than one tensor, or whose result an exporter folded into the node before
it is not taken for a value that it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parityscope.backends.pytorch.scopes import fx_operators, scopes_of
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends.pytorch.loading import LoadedNetwork
    from parityscope.case import Model

__all__ = ["Watched", "keep_wanted", "watch_network"]

Runner = Callable[[list[Any], dict[str, Any]], tuple[Any, dict[str, Any]]]


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
