"""Two builds of one model with the times of their layers -> the time of each ONNX node in both, for the search of repairs.

A layer's time is shared out evenly among its nodes, so that the sum over nodes is the sum over layers; a node that lies in
several layers has its part of each. Layers of no node (reformats, copies) are told apart and charged to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.logs.comparing import LogPair
    from parityscope.logs.records import Log

_FORMATS = {"Half": "f16", "BFloat16": "bf16", "BF16": "bf16", "FP8": "f8e4m3", "Fp8": "f8e4m3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """Seconds by node: (reference's, candidate's); the candidate's `format`; seconds of layers of no node, on both sides."""

    format: str
    nodes: Mapping[str, tuple[float, float]]
    unattributed: tuple[float, float]


def node_times(pair: LogPair) -> NodeTimes:
    """The times of the nodes that both builds have.

    Raises:
        ParityError: a build has no times or no nodes, or the second is in no narrower type than FP32.
    """
    reference, candidate = _times_by_node(pair.reference), _times_by_node(pair.candidate)
    found = next((_FORMATS[word] for word in pair.candidate.precision.split(", ") if word in _FORMATS), "")
    if not found:
        raise ParityError(
            f"{pair.candidate.path.name} has no layer in FP16, BF16 or FP8",
            fix="give the build in FP32 first, and the one in the narrower type second",
        )
    both = {name: (seconds, candidate[0][name]) for name, seconds in reference[0].items() if name in candidate[0]}
    return NodeTimes(format=found, nodes=both, unattributed=(reference[1], candidate[1]))


def _times_by_node(log: Log) -> tuple[dict[str, float], float]:
    found: dict[str, float] = {}
    left = 0.0
    for layer in log.layers:
        seconds = log.layer_times.get(layer.name, 0.0) / 1000
        if not layer.nodes:
            left += seconds
        for node in layer.nodes if layer.name in log.layer_times else ():
            found[node] = found.get(node, 0.0) + seconds / len(layer.nodes)
    if not found:
        raise ParityError(
            f"{log.path.name} has no times of layers",
            where=str(log.path),
            fix="trtexec --loadEngine=model.plan --dumpProfile --separateProfileRun --exportProfile=profile.json, then --profile",
        )
    return found, left
