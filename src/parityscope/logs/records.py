"""What a log says, as plain records; nothing here reads or judges."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.records import Skip

Effect = Literal["harmful", "may harm", "harmless"]

MOST = 50_000  # entries of one kind that are kept (chosen): the largest networks have some ten thousand layers


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line: its number from 1, its severity ("V", "I", "W", "E", "" when it has none) and its text without prefix."""

    number: int
    severity: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A line worth explaining: how it is recognised, whether it harms, and why.

    `hint` is a literal part of the line, `pattern` a regular expression whose groups are the facts that are kept;
    `code` and `role` are those of the finding that it becomes ("" and "information" for a line that needs none).
    """

    name: str
    hint: str
    pattern: str
    effect: Effect
    means: str
    why: str
    code: str = ""
    role: Literal["cause", "contributing", "information"] = "information"
    fix: str = ""
    command: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A meaning that lines of the log have: how many, the first one's number and text, and different facts in them.

    `facts` holds at most `MOST_FACTS` of them (the names of layers, inputs, versions); `facts_left_out` counts the rest.
    """

    meaning: Meaning
    count: int
    line: int
    text: str
    facts: tuple[str, ...] = ()
    facts_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightIssue:
    """Weights outside a format's range: `kind` is "overflow", "underflow" or "subnormal".

    `count` is the number of weights that the log gives; `names` are those it lists (with verbose lines only).
    """

    kind: Literal["overflow", "underflow", "subnormal"]
    format: str
    count: int
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTensor:
    """A tensor of the engine: its name, its type as the log writes it ("Half") and its dimensions as text."""

    name: str
    dtype: str
    dimensions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLayer:
    """A layer of the engine, from "Engine Layer Information" (8 to 10) or "Layers:" (10.x detailed, 11 and RTX).

    `nodes` are the ONNX nodes in it: from its metadata if the log has it (`told` is then true), else from its name.
    """

    name: str
    kind: str
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    nodes: tuple[str, ...]
    told: bool
    tactic: str = ""
    line: int = 0

    @property
    def types(self) -> tuple[str, ...]:
        """The types it writes, each once."""
        return tuple(dict.fromkeys(tensor.dtype for tensor in self.outputs if tensor.dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderFusion:
    """Layers that the builder fused: the rule's name and the names of the parts, as the log writes them."""

    rule: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IOTensor:
    """An input or output of the engine, in the engine's order."""

    name: str
    mode: Literal["input", "output"]
    dtype: str = ""
    dimensions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTiming:
    """A time that the log gives; `what` is the log's own word for it ("GPU Compute Time, median")."""

    what: str
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed:
    """A node that the ONNX parser refused, with its reason."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Everything that was read from a log of one or several builds; layers are those of the last engine in it.

    `made` gives for each layer of the network the ONNX node that it was made for ("" for a helper of the parser), `foreign`
    the nodes of each region that was handed to another compiler, `tactics` the kernel that was chosen for each layer.
    `outcome` is the last run's of trtexec or Polygraphy; `runs` counts those that ended, `failed_runs` those that ended with
    FAILED. `finished` counts the `builds` that ended with an engine, `unfinished` says that the last
    one did not.
    """

    path: Path
    nbytes: int
    lines: int
    tool: str
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tf32: str = ""
    flags: tuple[str, ...] = ()
    command: str = ""
    outcome: Literal["passed", "failed", "unknown"] = "unknown"
    runs: int = 0
    failed_runs: int = 0
    severities: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    builds: int = 0
    finished: int = 0
    unfinished: bool = False
    noted: tuple[Noted, ...] = ()
    unexplained: tuple[LogLine, ...] = ()
    weights: tuple[WeightIssue, ...] = ()
    layers: tuple[EngineLayer, ...] = ()
    fusions: tuple[BuilderFusion, ...] = ()
    removed: tuple[str, ...] = ()
    layer_counts: tuple[tuple[str, int], ...] = ()
    reformats: int = 0
    tactics: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tensors: tuple[IOTensor, ...] = ()
    parsed: tuple[IOTensor, ...] = ()
    made: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    foreign: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    refused: tuple[Unparsed, ...] = ()
    timings: tuple[LogTiming, ...] = ()
    layer_times: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    skipped: tuple[Skip, ...] = ()

    @property
    def precision(self) -> str:
        """The types that the layers of the engine write, most frequent first; empty when the log does not tell."""
        counts: dict[str, int] = {}
        for layer in self.layers:
            for dtype in layer.types:
                counts[dtype] = counts.get(dtype, 0) + 1
        return ", ".join(sorted(counts, key=lambda dtype: -counts[dtype]))
