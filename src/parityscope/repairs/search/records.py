"""What a search takes and gives: frozen records of plain numbers."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.light_dataclasses import dataclass, field
from parityscope.records import Budget, Policy
from parityscope.repairs.search.labels import labels_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Inputs, Model
    from parityscope.case.formats.loader import UserFunction
    from parityscope.records import Skip
    from parityscope.repairs.search.labels import FormatLabels

Blame = Literal["parameter", "activation", "operator"]
# nothing: pure low precision meets the budget. certified: proved on held-out samples. unproved: too few of them, or one
# failed. infeasible: no assignment with anything low meets it.
Verdict = Literal["nothing", "certified", "unproved", "infeasible"]

_NO_FUNCTIONS: Mapping[str, UserFunction] = MappingProxyType({})
# Chosen: a hundredth of the output's energy norm, what the documentation calls repaired.
DEFAULT_BUDGET = Budget(output="", metric="rel_l2", limit=1e-2, reason="the default of this command")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTask:
    """What is asked.

    `low` is the format: "f16", "bf16", "f8e4m3", or several of them ("f8e4m3,f16"); `functions` are metrics of the user's
    by name; `policy` says what outputs are held against, and how;
    `margin` divides every budget while searching (0: 1.3 with
    several search samples, 1.5 with fewer than three); `search_samples` and `held_out` count samples (0: chosen);
    `sensing` bounds the evaluations for sensitivities (0: as many as nodes); `seconds` and
    `evaluations` end the search early; `pick` takes that row of the Pareto
    front (0: the cheapest that passes); `typed` writes types and Casts into the model, else it stays in FP32 for a
    runtime that converts by itself; `consents` names repairs that change the function and were agreed to; `profile` is a
    file of measured node times; `journal` is where measurements are written down while the search lasts, and read by one
    that goes on after it was interrupted.
    """

    model: Model
    inputs: Inputs
    low: str
    policy: Policy
    functions: Mapping[str, UserFunction] = field(default_factory=lambda: _NO_FUNCTIONS)
    floor: float | None = None
    search_samples: int = 0
    held_out: int = 0
    margin: float = 0.0
    evaluations: int = 0
    sensing: int = 0
    seconds: float = math.inf
    pick: int = 0
    seed: int = 0
    typed: bool = True
    range_repairs: bool = True
    consents: tuple[str, ...] = ()
    profile: Path | None = None
    journal: Path | None = None
    memory: int = 512 << 20
    threads: int = 0

    @property
    def labels(self) -> FormatLabels:
        """What `low` means.

        Raises:
            ParityError: it means nothing that can be searched.
        """
        return labels_of(self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A node that must not be low, and what is to blame: a parameter, an activation, or the operator's own schema.

    `tensor` is the parameter or tensor and `value` its decisive magnitude. `overflows` says that the value is beyond
    the range as it stands, and not only within the margin of it.
    """

    node: str
    op_type: str
    blame: Blame
    text: str
    tensor: str = ""
    value: float = math.nan
    overflows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeEdit:
    """A range repair that was applied: the plug-in, the finding's code, the node, and what it said that it did.

    `details` are the finding's (plain strings, numbers and lists), so that a plan can apply it again.
    """

    repair: str
    code: str
    node: str
    note: str
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNode:
    """A node kept out of the low format. `sensitivity` is its squared error in units of the budget, NaN if unmeasured.

    `format` is what it is kept in: FP32, or BF16 where that is another choice.
    """

    node: str
    op_type: str
    reason: str
    sensitivity: float = math.nan
    format: str = "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An assignment that was evaluated.

    `excess` is the worst measured error in units of the budget: over all search samples for the one that is chosen, over
    the hardest of them for others, of which those that miss the budget (above 1) are not run on any more;
    `seconds` the modelled time of one inference; `flops` the share of multiply-accumulates left in full precision;
    `casts` the Casts that the graph needs.
    """

    step: str
    kept: tuple[str, ...]
    excess: float
    seconds: float
    flops: float
    casts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What held-out samples say about the written model.

    `excess` holds the worst of each sample's draws, in units of the budget. `attempts` is how many assignments were
    tried on these samples: the union bound over them weakens `confidence`, the one that at least `share` of such
    samples meet the budget. `statement` says it in words.
    """

    excess: tuple[float, ...]
    draws: int
    attempts: int
    failures: int
    worst: float
    p95: float
    share: float
    confidence: float
    certified: bool
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcome:
    """What a search found. `front` is the Pareto front of `trail`, cheapest first; `chosen` one of them.

    `scales` are those of the computed operands of what is in FP8, by product and input.
    `runs` counts runs on one sample (of the switchable graph, of an assignment with BF16, of backward passes), `resumed`
    those that an interrupted search had made before.
    `passes` is what all of them cost, in evaluations of all search samples (an assignment is not run on a sample that
    decides nothing), and `excused` what of it went into sensitivities and flagged nodes; `screens` counts FP32 runs over
    all search samples: the reference, and a screen for each range repair that was tried.
    """

    verdict: Verdict
    statement: str
    low: str
    margin: float
    typed: bool
    nodes: int
    flags: tuple[Flag, ...] = ()
    edits: tuple[RangeEdit, ...] = ()
    kept: tuple[KeptNode, ...] = ()
    chosen: Point | None = None
    front: tuple[Point, ...] = ()
    trail: tuple[Point, ...] = ()
    all_low: float = math.nan
    certificate: Certificate | None = None
    search_samples: tuple[int, ...] = ()
    held_out: tuple[int, ...] = ()
    evaluations: int = 0
    sensing: int = 0
    runs: int = 0
    resumed: int = 0
    passes: float = 0.0
    excused: float = 0.0
    screens: int = 0
    casts_written: int | None = None
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    blocks: tuple[str, ...] = ()
    skipped: tuple[Skip, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
