"""One line of a log after another -> what was read so far.

Each line goes to the parser that knows its beginning; what none knows is looked at as a fact, a meaning, or a warning
that nothing is known about. Of each kind at most `MOST` entries are kept.

What a verbose log says about fusion: which layers became one, which were removed, and how many were left.

Counts the lines that have a meaning, and keeps the different facts in them (names of layers, inputs, versions).

What a log says about inputs, outputs and refused nodes: lines of the ONNX parser and of trtexec.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeVar

from parityscope.light_dataclasses import dataclass, field
from parityscope.logs._weights import WeightLines
from parityscope.logs.facts import FACTS, parse_banner, parse_performance, profile_row
from parityscope.logs.layers import detailed_layer, io_tensor, plain_layer
from parityscope.logs.meanings import explain_line
from parityscope.logs.names import metadata_nodes
from parityscope.logs.records import MOST, BuilderFusion, IOTensor, LogLine, LogTiming, Meaning, Noted, Unparsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.logs.records import EngineLayer

__all__ = ["MOST", "Read", "take_line"]

_ADDED = re.compile(r"Adding network input: (.+?) with dtype: (\w+), dimensions: \(([^()]*)\)")
_MARKED = re.compile(r"Marking (?:.+?) as output: (.+)$")
_BINDING = re.compile(
    r"^(?>.*?(input|output) binding for )(.+?) with dimensions (\S+?)(?: is created\.?)?$", re.IGNORECASE
)
_IN_NODE = re.compile(r"^(?>.*?In node (\d+))(?: with name: (.*?) and operator: (\S+))? \((\w+)\): (\w+): (.*)$")
_ASSERTED = re.compile(r"ModelImporter\.cpp:\d+: (?:--- End node|ERROR: )(.*)$|While parsing node number (\d+) \[(\S+)")
_MOST_FACTS = 10_000  # different facts of one meaning that are kept (chosen); the rest is counted
_LONGEST = 400  # characters of a line that are shown (chosen)
_RULE = re.compile(r"(\w*Fusion): Fusing (.+?)(?: with (.+))?$")
_BARE = re.compile(r"Fusing (?:convolution weights from )?(.+?) with (?:scale )?(.+)$")
_COUNT = re.compile(r"(?:(Original): |(After .+?): )(\d{1,9}) layers")
_REMOVED = re.compile(r"(?:Removing|Eliminating) (\S.*?)$")
_REGISTERED = re.compile(r"Registering layer: (.*) for ONNX node: (.*)$")
_HELPING = re.compile(r"Registering layer: (.*) required by ONNX-TRT$")
_K = TypeVar("_K")
_V = TypeVar("_V")
_UNEXPLAINED = 20  # different warnings and errors without an explanation that are kept (chosen)


@dataclass(slots=True)
class _Note:
    meaning: Meaning
    line: int
    text: str
    count: int = 0
    facts: dict[str, None] = field(default_factory=dict)
    left_out: int = 0


@dataclass(slots=True)
class _Notes:
    """What was noted so far, by the name of the meaning."""

    held: dict[str, _Note] = field(default_factory=dict)

    def add(self, text: str, number: int) -> bool:
        """Notes a line without its prefix; False if no meaning is known for it."""
        explained = explain_line(text)
        if explained is None:
            return False
        meaning, fact = explained
        note = self.held.setdefault(meaning.name, _Note(meaning=meaning, line=number, text=text[:_LONGEST]))
        note.count += 1
        for name in fact.split(", ") if fact else ():
            if len(note.facts) < _MOST_FACTS:
                note.facts[name] = None
            elif name not in note.facts:
                note.left_out += 1
        return True

    def noted(self) -> Iterator[Noted]:
        """What was noted, in the order of its first lines."""
        for note in sorted(self.held.values(), key=lambda each: each.line):
            yield Noted(
                meaning=note.meaning,
                count=note.count,
                line=note.line,
                text=note.text,
                facts=tuple(note.facts),
                facts_left_out=note.left_out,
            )


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
    notes: _Notes = field(default_factory=_Notes)
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
        made = _made_for(text)
        if made is not None:
            _put_within_limit(read, "made", read.made, *made)
    elif text.startswith("Running: "):
        if "ConstShuffleFusion" in text:
            read.notes.add(text, read.number)
    elif "Fus" in text and (fusion := _parse_fusion(text)) is not None:
        _put_within_limit(read, "fusions", read.fusions, fusion, None)
        if fusion.rule == "ConstShuffleFusion":
            read.notes.add(text, read.number)
    elif text.startswith(("Removing ", "Eliminating ")) and (name := _removed_layer(text)):
        _put_within_limit(read, "removed", read.removed, name, None)
    elif (text.startswith(("After ", "Original: "))) and (count := _layers_counted(text)) is not None:
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
    elif text.startswith(("Adding network input: ", "Marking ")) and (tensor := _network_tensor(text)) is not None:
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
    elif (tensor := _network_tensor(text)) is not None:
        held_tensors = read.parsed if text.startswith(("Adding", "Marking")) else read.tensors
        _put_within_limit(read, "tensors", held_tensors, f"{tensor.mode} {tensor.name}", tensor)
    elif (refused := _refused_node(text)) is not None and severity == "E":
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


def _parse_fusion(text: str) -> BuilderFusion | None:
    """The fusion of a line such as `ConvReluFusion: Fusing a with b`; None if it is no such line."""
    found = _RULE.match(text)
    if found is not None:
        return BuilderFusion(rule=found[1], parts=tuple(part for part in (found[2], found[3]) if part))
    found = _BARE.match(text)
    if found is not None:
        rule = "ScaleFusion" if "convolution weights from" in text else "Fusion"
        return BuilderFusion(rule=rule, parts=(found[1], found[2]))
    return None


def _removed_layer(text: str) -> str:
    """The layer that a line `Removing X` names; empty if it is no such line."""
    found = _REMOVED.match(text)
    return found[1] if found else ""


def _layers_counted(text: str) -> tuple[str, int] | None:
    """(step, layers left) of a line such as `After vertical fusions: 29 layers`."""
    found = _COUNT.match(text)
    return ((found[1] or found[2]).lower(), int(found[3])) if found else None


def _made_for(text: str) -> tuple[str, str] | None:
    """(layer, ONNX node) of a line `Registering layer: X for ONNX node: Y`; the node is "" for a helper layer."""
    found = _REGISTERED.match(text)
    if found is not None:
        return found[1], found[2]
    found = _HELPING.match(text)
    return (found[1], "") if found else None


def _network_tensor(text: str) -> IOTensor | None:
    """The input or output that a line names; None if it names none."""
    if "binding for " in text and (found := _BINDING.search(text)) is not None:
        mode: Literal["input", "output"] = "input" if found[1].lower() == "input" else "output"
        return IOTensor(name=found[2], mode=mode, dimensions=found[3])
    if text.startswith("Adding network input: ") and (found := _ADDED.match(text)) is not None:
        return IOTensor(name=found[1], mode="input", dtype=found[2], dimensions=found[3])
    if text.startswith("Marking ") and (found := _MARKED.match(text)) is not None:
        return IOTensor(name=found[1], mode="output")
    return None


def _refused_node(text: str) -> Unparsed | None:
    """The node that the parser refused; None for other lines.

    For example `In node 3 with name: n and operator: Foo (importer): UNSUPPORTED_NODE: why`.
    """
    if found := _IN_NODE.search(text):
        return Unparsed(node=found[2] or f"node {found[1]}", operator=found[3] or "", reason=f"{found[5]}: {found[6]}")
    if (found := _ASSERTED.search(text)) and found[2]:
        return Unparsed(node=f"node {found[2]}", operator=found[3], reason="refused by the parser")
    return None
