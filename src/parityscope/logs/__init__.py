"""What a log of TensorRT says without a run: reads `trtexec --verbose`, Polygraphy and the TensorRT logger, 8 to 11 and RTX.

`read_log` gives the facts (versions, GPU, TF32, types, weights outside a format's range, fusions, the engine's layers with
their ONNX nodes, inputs and outputs in the engine's order, times), `MEANINGS` explains every line that matters,
`compare_logs` holds two builds against each other node by node, and `find_in_log` makes findings of it all.

Findings are counted from 201 in the checks' families. A finding is a *cause* only if the log alone shows that numbers were
changed or that nothing was built; else *contributing* or *information*.
"""

from __future__ import annotations

from parityscope.logs._reading import read_log
from parityscope.logs.comparing import LogPair, NodePair, compare_logs, layer_of
from parityscope.logs.finding import find_between, find_in_log, find_pair
from parityscope.logs.meanings import MEANINGS, explain_line
from parityscope.logs.records import (
    BuilderFusion,
    EngineLayer,
    IOTensor,
    Log,
    LogLine,
    LogTiming,
    Meaning,
    Noted,
    WeightIssue,
)
from parityscope.logs.timing import NodeTimes, node_times

__all__ = [
    "MEANINGS",
    "BuilderFusion",
    "EngineLayer",
    "IOTensor",
    "Log",
    "LogLine",
    "LogPair",
    "LogTiming",
    "Meaning",
    "NodePair",
    "NodeTimes",
    "Noted",
    "WeightIssue",
    "compare_logs",
    "explain_line",
    "find_between",
    "find_in_log",
    "find_pair",
    "layer_of",
    "node_times",
    "read_log",
]
