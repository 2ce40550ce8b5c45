"""Pairs of tensors as rows of the document: what its tables of outputs and of tensors hold.

What the report draws of a study: histograms of a few tensors, the graph, and what lies around the leading suspects.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.case.graph import consumers_of, node_name
from parityscope.comparison import to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.comparison import Statistics
    from parityscope.comparison.decisions import Decided
    from parityscope.records import Measurement, Pair, Suspect

_DRAWN = 3  # suspects that get histograms and a view of the graph
_REACH = 3  # nodes up and down from a suspect in its view
_VIEW_NODES = 18


def output_row(pair: Pair, reason: str) -> dict[str, Any]:
    """A pair of outputs with all its metrics; `reason` says why its verdict is what it is."""
    return {
        **_plain_numbers(pair),
        "samples": pair.samples,
        "rel_l2_finite": pair.value("rel_l2_finite"),
        "cosine": pair.value("cosine"),
        "snr_db": pair.value("snr_db"),
        "norm_ratio": pair.value("norm_ratio"),
        "verdict": pair.verdict,
        "worst_sample": pair.worst_sample,
        "measurements": {name: _plain_measurement(one) for name, one in pair.measurements.items()},
        "statistics": dict(pair.statistics),
        "reason": reason,
    }


_COUNTED = ("kind", "count", "changed", "new", "least", "reordered", "sequences", "sequences_changed")


def decisions_row(decided: Decided | None, pair: Pair | None = None) -> dict[str, Any] | None:
    """What an output decides, with what its declared arithmetic changes by itself and explains, where that is known."""
    if decided is None:
        return None
    found = {name: getattr(decided, name) for name in _COUNTED} | {"at": decided.at}
    if pair is not None and pair.usual_changes is not None:
        found |= {"usual_changed": pair.usual_changes[0], "usual_count": pair.usual_changes[1]}
    if pair is not None and pair.flip is not None:
        found["flip"] = {**asdict(pair.flip), "index": list(pair.flip.index), "explained": pair.flip.explained}
    return found


def tensor_rows(tensors: Mapping[str, Pair], suspects: tuple[Suspect, ...]) -> list[dict[str, Any]]:
    """Pairs by the reference's name, each with what the suspect of that name says of its error."""
    blamed = {suspect.site.tensor: suspect for suspect in suspects}
    rows = []
    for name, pair in tensors.items():
        suspect = blamed.get(name)
        channel = pair.measurements.get("worst_channel")
        rows.append(
            {
                **_plain_numbers(pair),
                "node": pair.site.node,
                "op_type": pair.site.op_type,
                "index": pair.site.index,
                "dtype": pair.dtype,
                "shape": list(pair.shape),
                "introduced": suspect.introduced if suspect else None,
                "inherited": suspect.inherited if suspect else None,
                "gain": suspect.gain if suspect else None,
                "floor": pair.expected.get("f32", suspect.floor if suspect else None),
                "worst_channel": None
                if channel is None
                else {
                    "index": channel.worst_index[0] if channel.worst_index else None,
                    "rel_l2": channel.value,
                    "ratio": pair.value("worst_channel_ratio"),
                },
                "ulp_mean": pair.value("ulp_mean"),
                "is_output": pair.is_output,
                "candidate_name": pair.candidate_name,
                "how": pair.how,
            }
        )
    return rows


def distance_of(pair: Pair) -> float:
    """Relative L2 distance; for integers, booleans and strings the share of unequal elements."""
    return pair.value("rel_l2") if "rel_l2" in pair.measurements else pair.value("mismatch_share")


def _plain_measurement(found: Measurement) -> dict[str, Any]:
    at = {} if found.worst_index is None else {"worst_index": found.worst_index}
    return {"value": found.value, "unit": found.unit, **at}


def _plain_numbers(pair: Pair) -> dict[str, Any]:
    found = pair.measurements
    worst = found["max_abs"].worst_index if "max_abs" in found else None
    return {
        "name": pair.site.tensor,
        "rel_l2": distance_of(pair),
        "max_abs": pair.value("max_abs"),
        "worst_index": worst,
        "nonfinite": {
            "reference": pair.nonfinite_reference,
            "candidate": pair.nonfinite_candidate,
            "agreeing": pair.nonfinite_agreeing,
        },
        "grade": pair.grade,
        "expected": dict(pair.expected),
    }


def plots_of(
    outputs: Mapping[str, Statistics], tensors: Mapping[str, Statistics], suspects: tuple[Suspect, ...]
) -> dict[str, Any]:
    """Histograms of the outputs and of the leading suspects, by tensor."""
    leading = [suspect.site.tensor for suspect in suspects[:_DRAWN] if suspect.site.tensor in tensors]
    chosen = {**outputs, **{name: tensors[name] for name in leading}}
    return {name: _plot_of(statistics) for name, statistics in chosen.items() if statistics.is_float}


def _plot_of(statistics: Statistics) -> dict[str, Any]:
    plain = to_plain(statistics)
    channels = plain.get("channels") or {"worst": []}
    return {
        "reference": _values_of(plain["reference_values"]),
        "candidate": _values_of(plain["candidate_values"]),
        "error": _octaves_of(plain["error_octaves"]),
        "channels": channels["worst"],
    }


def _values_of(histogram: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "negative": _octaves_of(histogram["negative"]),
        "zero": histogram["zero"],
        "positive": _octaves_of(histogram["positive"]),
    }


def _octaves_of(dense: Mapping[str, Any]) -> list[list[int]]:
    return [[int(dense["first"]) + place, int(count)] for place, count in enumerate(dense["counts"]) if count]


def graph_views(model: Model, suspects: tuple[Suspect, ...]) -> dict[str, Any]:
    """The graph around each leading suspect, by tensor."""
    if not suspects:
        return {}
    graph = model.shared_graph()
    computing = [node for node in graph.graph if node.op_type != "Constant"]
    order = {id(node): index for index, node in enumerate(computing)}
    by_tensor = {suspect.site.tensor: suspect for suspect in suspects}
    return {
        suspect.site.tensor: _view_around(suspect, computing, order, by_tensor)
        for suspect in suspects[:_DRAWN]
        if 0 <= suspect.site.index < len(computing)
    }


def _view_around(
    suspect: Suspect, computing: list[ir.Node], order: Mapping[int, int], by_tensor: Mapping[str, Suspect]
) -> dict[str, Any]:
    near = {order[id(node)]: node for node in _neighbours_of(computing[suspect.site.index], order)}
    nodes, edges = [], []
    for index, node in sorted(near.items()):
        mine = next((by_tensor[str(value.name)] for value in node.outputs if value.name in by_tensor), None)
        nodes.append(
            {
                "id": node_name(node, index),
                "label": node.name or node.op_type,
                "op_type": node.op_type,
                "introduced": mine.introduced if mine else None,
                "inherited": mine.inherited if mine else None,
                "is_suspect": index == suspect.site.index,
            }
        )
        for value in node.inputs:
            before = None if value is None else value.producer()
            if value is not None and before is not None and order.get(id(before), -1) in near:
                edges.append([node_name(before, order[id(before)]), node_name(node, index), value.name])
    return {"nodes": nodes, "edges": edges}


def _neighbours_of(center: ir.Node, order: Mapping[int, int]) -> list[ir.Node]:
    """Nodes within `_REACH` steps of `center`, nearest first, at most `_VIEW_NODES`."""
    found: dict[int, ir.Node] = {id(center): center}
    edge = [center]
    for _ in range(_REACH):
        ahead = []
        for node in edge:
            before = [value.producer() for value in node.inputs if value is not None]
            behind = [user for value in node.outputs for user in consumers_of(value)]
            for other in (*before, *behind):
                if other is not None and id(other) in order and id(other) not in found and len(found) < _VIEW_NODES:
                    found[id(other)] = other
                    ahead.append(other)
        edge = ahead
    return list(found.values())


def graph_wiring(model: Model) -> dict[str, Any]:
    """The whole graph for a map of it: of each node in order its name, its operator, and the nodes that it reads."""
    graph = model.shared_graph()
    computing = [node for node in graph.graph if node.op_type != "Constant"]
    order = {id(node): index for index, node in enumerate(computing)}
    reads = [
        sorted({order[id(before)] for value in node.inputs if (before := _producer_of(value)) and id(before) in order})
        for node in computing
    ]
    return {
        "names": [node_name(node, index) for index, node in enumerate(computing)],
        "operators": [node.op_type for node in computing],
        "reads": reads,
    }


def _producer_of(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()
