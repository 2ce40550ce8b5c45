"""Two builds held against each other, layer by layer: FP32 against FP16, one version against another.

Layers are paired through the ONNX nodes in them, because their names change with every fusion. A node without a layer
of its own name is looked up in the metadata; layers that no node is known for (reformats, kernels of the compiler) are
counted and not paired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.logs.records import EngineLayer, Log

# What differs between any two builds and says nothing about numbers.
_UNREMARKABLE = frozenset({"engine generated in", "engine built in", "throughput", "GPU memory"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifference:
    """A fact that the two logs tell differently ("" where one does not tell it)."""

    what: str
    reference: str
    candidate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePair:
    """An ONNX node in both engines: the layer it is in, the types that it writes, its kernel, and its neighbours there.

    `retyped`: the layers write other types. `regrouped`: other nodes are in the layer with it. `rekerneled`: another tactic.
    """

    node: str
    reference: EngineLayer
    candidate: EngineLayer

    @property
    def retyped(self) -> bool:
        """Whether the two layers write other types."""
        return self.reference.types != self.candidate.types

    @property
    def regrouped(self) -> bool:
        """Whether the node was fused with other nodes."""
        return set(self.reference.nodes) != set(self.candidate.nodes)

    @property
    def rekerneled(self) -> bool:
        """Whether both tell their kernel, and not the same."""
        kernels = (self.reference.tactic, self.candidate.tactic)
        return all(kernels) and kernels[0] != kernels[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPair:
    """Two logs and how they differ; nodes are in the order of the reference's engine."""

    reference: Log
    candidate: Log
    differences: tuple[LogDifference, ...]
    nodes: tuple[NodePair, ...]
    only_reference: tuple[str, ...]
    only_candidate: tuple[str, ...]
    skipped: tuple[Skip, ...]


def compare_logs(reference: Log, candidate: Log) -> LogPair:
    """What differs between two builds, in facts and in each node's layer."""
    ours, theirs = layer_of(reference), layer_of(candidate)
    return LogPair(
        reference=reference,
        candidate=candidate,
        differences=tuple(_list_differences(reference, candidate)),
        nodes=tuple(
            NodePair(node=node, reference=layer, candidate=theirs[node])
            for node, layer in ours.items()
            if node in theirs
        ),
        only_reference=tuple(node for node in ours if node not in theirs),
        only_candidate=tuple(node for node in theirs if node not in ours),
        skipped=tuple(_skips_of_pair(reference, candidate, ours, theirs)),
    )


def layer_of(log: Log) -> dict[str, EngineLayer]:
    """The layer that each ONNX node is in; the last one, where a node was split over several."""
    return {node: layer for layer in log.layers for node in layer.nodes}


def _list_differences(reference: Log, candidate: Log) -> Iterator[LogDifference]:
    def told(log: Log) -> dict[str, str]:
        facts = {key: value for key, value in log.facts.items() if key not in _UNREMARKABLE}
        return {
            **log.versions,
            **facts,
            "TF32": log.tf32,
            "options": " ".join(sorted(log.flags)),
            "inputs in engine order": _names_in_order(log, "input"),
            "outputs in engine order": _names_in_order(log, "output"),
            "types that layers write": log.precision,
            "layers": str(len(log.layers)) if log.layers else "",
            "reformats": str(log.reformats) if log.layers else "",
            **{each.what: f"{each.milliseconds:g} ms" for each in log.timings if each.what.endswith("median")},
            **{f"weights: {issue.kind} in {issue.format}": str(issue.count) for issue in log.weights},
            **{f"line: {noted.meaning.name}": str(noted.count) for noted in log.noted},
        }

    ours, theirs = told(reference), told(candidate)
    for key in dict.fromkeys((*ours, *theirs)):
        pair = ours.get(key, ""), theirs.get(key, "")
        if pair[0] != pair[1]:
            yield LogDifference(what=key, reference=pair[0], candidate=pair[1])


def _names_in_order(log: Log, mode: str) -> str:
    tensors = log.tensors or log.parsed
    return ", ".join(tensor.name for tensor in tensors if tensor.mode == mode)


def _skips_of_pair(
    reference: Log, candidate: Log, ours: Mapping[str, EngineLayer], theirs: Mapping[str, EngineLayer]
) -> Iterator[Skip]:
    for side, log, layers in (("reference", reference, ours), ("candidate", candidate, theirs)):
        if not log.layers:
            yield Skip(
                what="layer by layer",
                reason=f"the {side}'s log has no engine layers",
                fix="build both with verbose output and detailed profiling verbosity",
                asked=True,
            )
        elif unnamed := sum(not layer.nodes for layer in log.layers):
            yield Skip(
                what=f"{unnamed} of the {side}'s {len(log.layers)} layers",
                reason="no ONNX node is known for them (changes of layout, signals between streams, kernels of the compiler)",
            )
        elif not layers:
            yield Skip(what="layer by layer", reason=f"no layer of the {side}'s log names an ONNX node", asked=True)
