"""An exported graph -> which ONNX value is the result of which module of the network.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

__all__ = ["Scopes", "fx_operators", "scopes_of"]

_SCOPES = "pkg.torch.onnx.name_scopes"
_RULE = "pkg.onnxscript.rewriter.rule_name"
_FX_NODE = "pkg.torch.onnx.fx_node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """`results` maps ONNX values to module paths; `named` are all modules that have nodes; `reasons` says why others do not."""

    results: Mapping[str, str]
    named: frozenset[str]
    reasons: Mapping[str, str]


def scopes_of(graph: ir.Model, modules: frozenset[str]) -> Scopes:
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
    return Scopes(results=results, named=frozenset(inside), reasons=reasons)


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
