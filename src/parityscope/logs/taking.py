"""One line of a log after another -> what was read so far.

Each line goes to the parser that knows its beginning; what none knows is looked at as a fact, a meaning, or a warning
that nothing is known about. Of each kind at most `MOST` entries are kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from parityscope.logs._fusing import layers_counted, made_for, parse_fusion, removed_layer
from parityscope.logs._noting import Notes
from parityscope.logs._parsing import network_tensor, refused_node
from parityscope.logs._weights import WeightLines
from parityscope.logs.facts import FACTS, parse_banner, parse_performance, profile_row
from parityscope.logs.layers import detailed_layer, io_tensor, plain_layer
from parityscope.logs.names import metadata_nodes
from parityscope.logs.records import MOST, BuilderFusion, IOTensor, LogLine, LogTiming, Unparsed

if TYPE_CHECKING:
    from parityscope.logs.records import EngineLayer

__all__ = ["MOST", "Read", "take_line"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_UNEXPLAINED = 20  # different warnings and errors without an explanation that are kept (chosen)


@dataclass(slots=True)
class Read:
    """What was read so far."""

    versions: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    tool: str = ""
    command: str = ""
    outcome: Literal["passed", "failed", "unknown"] = "unknown"
    runs: int = 0
    failed_runs: int = 0
    begun: bool = False
    severities: Counter[str] = field(default_factory=Counter)
    builds: int = 0
    finished: int = 0
    building: bool = False
    notes: Notes = field(default_factory=Notes)
    unexplained: dict[str, LogLine] = field(default_factory=dict)
    weights: WeightLines = field(default_factory=WeightLines)
    layers: dict[str, EngineLayer] = field(default_factory=dict)
    detailed: bool = False
    fusions: dict[BuilderFusion, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    layer_counts: list[tuple[str, int]] = field(default_factory=list)
    reformats: int = 0
    tactics: dict[str, str] = field(default_factory=dict)
    runner: str = ""
    tensors: dict[str, IOTensor] = field(default_factory=dict)
    parsed: dict[str, IOTensor] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: list[Unparsed] = field(default_factory=list)
    timings: list[LogTiming] = field(default_factory=list)
    layer_times: dict[str, float] = field(default_factory=dict)
    profile: str = ""
    number: int = 0
    known: int = 0
    capped: set[str] = field(default_factory=set)


def take_line(read: Read, severity: str, text: str) -> None:
    """Takes one line without its prefix."""
    if severity == "V" or not severity:
        if text.startswith("Name: ") and ", LayerType: " in text:
            _keep_layer(read, detailed_layer(text, read.number), detailed=True)
            return
        if text.startswith(" Name: ") and ", IOMode: " in text:
            _keep_tensor(read, read.tensors, io_tensor(text))
            return
        if text.startswith("  List of affected weights") or read.weights.lists_next:
            read.known += read.weights.add(text, read.number)
            return
        if _take_verbose(read, text):
            read.known += 1
            return
    if read.profile and _take_profile_row(read, text):
        return
    _take_remark(read, severity, text)


def _take_verbose(read: Read, text: str) -> bool:
    """Takes a line of the builder's or the parser's verbose output; False if it is none of the known ones."""
    if text.startswith("--------------- Timing Runner: "):
        read.runner = text[len("--------------- Timing Runner: ") :].rpartition(" (")[0]
    elif text.startswith(">>>>>>>>>>>>>>> Chose Runner Type: "):
        _put_within_limit(
            read, "tactics", read.tactics, read.runner, text[len(">>>>>>>>>>>>>>> Chose Runner Type: ") :]
        )
    elif text.startswith("Layer("):
        _keep_layer(read, plain_layer(text, read.number), detailed=False)
    elif text.startswith("Registering layer: "):
        made = made_for(text)
        if made is not None:
            _put_within_limit(read, "made", read.made, *made)
    elif text.startswith("Running: "):
        if "ConstShuffleFusion" in text:
            read.notes.add(text, read.number)
    elif "Fus" in text and (fusion := parse_fusion(text)) is not None:
        _put_within_limit(read, "fusions", read.fusions, fusion, None)
        if fusion.rule == "ConstShuffleFusion":
            read.notes.add(text, read.number)
    elif text.startswith(("Removing ", "Eliminating ")) and (name := removed_layer(text)):
        _put_within_limit(read, "removed", read.removed, name, None)
    elif (text.startswith(("After ", "Original: "))) and (count := layers_counted(text)) is not None:
        if count[0] == "original":
            read.builds += 1
            read.building = True
            read.layers.clear()
            read.tensors.clear()
            read.layer_counts.clear()
        _add_within_limit(read, "steps of the builder", read.layer_counts, count)
    elif text.startswith("ForeignNode ") and " metadata: " in text:
        name, _, metadata = text[len("ForeignNode ") :].partition(" metadata: ")
        _put_within_limit(read, "foreign", read.foreign, name, metadata_nodes(metadata))
    elif text.startswith(("Adding network input: ", "Marking ")) and (tensor := network_tensor(text)) is not None:
        _put_within_limit(read, "tensors", read.parsed, f"{tensor.mode} {tensor.name}", tensor)
    else:
        return False
    return True


def _take_remark(read: Read, severity: str, text: str) -> None:
    """Takes a line that may be a fact, a meaning, or a warning that nobody explained yet."""
    if read.weights.add(text, read.number):
        read.known += 1
        if "encountered issues" not in text:
            return
    if text.startswith("&&&&") and (found := parse_banner(text)) is not None:
        state, program, product, version, command = found
        read.tool, read.command = program, command
        read.versions[product] = version
        _end_run(read, state)
        read.known += 1
        return
    for fact in FACTS:
        if fact.hint in text and (match := fact.pattern.search(text)):
            held = read.versions if fact.version else read.facts
            held[fact.key] = next(group for group in match.groups() if group).strip()
            read.known += 1
            if fact.key in {"engine generated in", "engine built in"}:
                _finish_engine(read)
    if text.startswith("RUNNING | Command: "):
        read.tool, read.command = "polygraphy", text.partition("Command: ")[2]
        _end_run(read, text[:7])
        read.known += 1
    elif text.startswith(("PASSED | ", "FAILED | ")):
        _end_run(read, text[:6])
        read.known += 1
        return
    elif text.startswith("=== Profile ("):
        read.profile = "?"
    elif (found_times := parse_performance(text)) is not None:
        what, times = found_times
        for name, value in times.items():
            _add_within_limit(read, "times", read.timings, LogTiming(what=f"{what}, {name}", milliseconds=value))
    elif (tensor := network_tensor(text)) is not None:
        held_tensors = read.parsed if text.startswith(("Adding", "Marking")) else read.tensors
        _put_within_limit(read, "tensors", held_tensors, f"{tensor.mode} {tensor.name}", tensor)
    elif (refused := refused_node(text)) is not None and severity == "E":
        _add_within_limit(read, "refused nodes", read.refused, refused)
        read.known += 1
    explained = read.notes.add(text, read.number)
    read.known += explained
    if severity in {"W", "E"} and not explained:
        read.known += 1
        if len(read.unexplained) < _UNEXPLAINED and _shape_of(text) not in read.unexplained:
            read.unexplained[_shape_of(text)] = LogLine(number=read.number, severity=severity, text=text[:400])


def _shape_of(text: str) -> str:
    """A line without its numbers, so that the same warning with other numbers counts once."""
    return "".join("#" if letter.isdigit() else letter for letter in text[:200])


def _take_profile_row(read: Read, text: str) -> bool:
    """Takes a line of trtexec's per-layer profile; the table ends at the first line that is no row."""
    if "Layer" in text and "Time" in text:
        read.profile = "last" if text.strip().startswith("Layer") else "first"
        return True
    row = profile_row(text, name_first=read.profile == "last")
    if row is None or row[0] == "Total":
        read.profile = ""
        return row is not None
    _put_within_limit(read, "layer_times", read.layer_times, *row)
    return True


def _keep_layer(read: Read, layer: EngineLayer | None, *, detailed: bool) -> None:
    """Keeps a layer. An engine may be printed twice (--verbose and --dumpLayerInfo): the last and the detailed list counts."""
    if layer is None:
        return
    read.known += 1
    first = next(iter(read.layers.values()), layer)
    again = first is not layer and (first.name, first.kind) == (layer.name, layer.kind)
    if again or detailed != read.detailed:
        read.layers.clear()
        read.reformats = 0
    read.detailed = detailed
    read.reformats += layer.kind == "Reformat"
    _put_within_limit(read, "layers", read.layers, f"{layer.name}#{len(read.layers)}", layer)


def _keep_tensor(read: Read, held: dict[str, IOTensor], tensor: IOTensor | None) -> None:
    if tensor is not None:
        _put_within_limit(read, "tensors", held, f"{tensor.mode} {tensor.name}", tensor)
        read.known += 1


def _put_within_limit(read: Read, kind: str, held: dict[_K, _V], key: _K, value: _V) -> None:
    if len(held) < MOST or key in held:
        held[key] = value
    else:
        read.capped.add(kind)


def _add_within_limit(read: Read, kind: str, held: list[_V], value: _V) -> None:
    if len(held) < MOST:
        held.append(value)
    else:
        read.capped.add(kind)


def _finish_engine(read: Read) -> None:
    """An engine is there. Without verbose lines no build's beginning is told, and tools say in two lines that one is done."""
    if read.building or not read.finished:
        read.finished += 1
    read.building = False


def _end_run(read: Read, state: str) -> None:
    """A run begins, or ends: what an earlier run in the same file came to says nothing about a later one."""
    if state == "RUNNING":
        read.begun, read.outcome = True, "unknown"
        return
    read.runs += 1
    read.failed_runs += state == "FAILED"
    read.outcome = "failed" if state == "FAILED" else "passed"
