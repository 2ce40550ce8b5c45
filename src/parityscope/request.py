"""What the user asked, in the user's words: the command line, the Python API and the `question` of a study are this record."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, fields, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Inputs, Model
    from parityscope.case.sources import Stream
    from parityscope.records import Budget, Policy

# How far an examination goes: the outputs; all tensors side by side; what each layer introduces; causes, and what repairs them.
Depth = Literal["outputs", "tensors", "layers", "causes"]
DEPTHS: tuple[Depth, ...] = ("outputs", "tensors", "layers", "causes")
_LONGER = 8.0  # times the usual work of a search where somebody asked for all; chosen


def _refuse_text(asked: Data | Request) -> None:
    for one in fields(asked):
        given = getattr(asked, one.name)
        if isinstance(given, str) and not {"int", "float"}.isdisjoint(str(one.type).split(" | ")):
            fix = "give it as a number: memory in bytes (8 << 30), times in seconds, shares between 0 and 1"
            raise ParityError(f"{one.name} is a number, and not {given!r}", fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """DATA and how it is read, for what asks about a model alone; `memory` is in bytes. Empty and None say nothing.

    Up to the share `allow_skipped` of all samples may be damaged or hold a NaN without that anything is amiss.
    """

    inputs: str | Path | Stream | None = None
    preprocess: str = ""
    stacked: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    samples: int | None = None
    seed: int = 0
    memory: int = 512 << 20
    allow_skipped: float = 0.0

    def __post_init__(self) -> None:
        """Refuses text for numbers.

        Raises:
            ParityError: one is text.
        """
        _refuse_text(self)

    def load_samples(self, model: Model, spool: Path) -> Inputs:
        """The samples; those that are read once are kept in the folder `spool`.

        Raises:
            ParityError: they cannot be read, or do not fit the model.
        """
        from parityscope.case import load_inputs

        rest = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in {"inputs", "shapes"}}
        return load_inputs(model, self.inputs or None, spool=spool, shapes=self.shapes or None, **rest)

    def make_request(self, model: str | Path, candidate: str, **asked: Any) -> Request:
        """The request of a model and a candidate on this data; `asked` are other fields of it."""
        held = {one.name: getattr(self, one.name) for one in fields(self)}
        return Request(model=model, candidate=candidate, **held, **asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How outputs are held against each other, for every verb that compares some; as in `Request`."""

    policy: str | Path | Policy | None = None
    match: tuple[str, ...] = ()
    decide: Mapping[str, str | float] = field(default_factory=lambda: MappingProxyType({}))

    def override(self, policy: Policy) -> Policy:
        """The policy with what is said here in place of what it says about the same."""
        decides = {**dict(policy.decides), **{name: str(words) for name, words in self.decide.items()}}
        return replace(policy, matched=self.match or policy.matched, decides=tuple(decides.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model, two targets in the grammar of targets, DATA and how to read it, what counts as within, and how far to go.

    `declared`, `budgets` and `samples` take the place of what the policy says about the same; a policy is a file or a
    record. `match` names outputs whose rows have no order, `decide` says what outputs decide ({"scores": 0.3}), `images` is the
    folder of the images that samples were made from, `candidate_inputs` the recorded inputs of the deployment's own model.
    `mapping` renames tensors (reference -> candidate). `memory` is in bytes, `seconds` the time for experiments.

    `peer` is another target of the candidate's precision to hold it against ("": the simulation of that precision). `real` is
    DATA of real samples that the inputs are held against, read as `inputs` are. `states` are fed back (input -> output,
    or a line of `localization.next_inputs`) for `steps` calls; `drive` is a function (file.py:function) that does it instead.
    `thorough` goes on where the answer is known, and longer: layers of what is within FP32's noise, suspects that nothing is
    left for, experiments behind a cause that explains everything. Up to the share `allow_skipped`
    of the samples may be damaged or hold NaN without that the verdict is incomplete. Samples are drawn until it is sure at
    the confidence `until_sure` (0: all are taken) that samples like these keep their budgets or do not. `workers` share the
    samples: a number of processes, or a Ray cluster. Empty and None say nothing.
    """

    model: str | Path
    candidate: str
    reference: str = "ort"
    inputs: str | Path | Stream | None = None
    preprocess: str = ""
    stacked: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    samples: int | None = None
    seed: int = 0
    declared: str = ""
    budgets: tuple[Budget, ...] = ()
    policy: str | Path | Policy | None = None
    match: tuple[str, ...] = ()
    decide: Mapping[str, str | float] = field(default_factory=lambda: MappingProxyType({}))
    images: str | Path | None = None
    candidate_inputs: str | Path | None = None
    mapping: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    memory: int = 512 << 20
    depth: Depth = "causes"
    seconds: float = math.inf
    peer: str = ""
    real: str = ""
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    steps: int = 0
    drive: str = ""
    thorough: bool = False
    workers: str = ""
    allow_skipped: float = 0.0
    until_sure: float = 0.0

    def __post_init__(self) -> None:
        """As `Data` does."""
        _refuse_text(self)

    @property
    def looks_everywhere(self) -> bool:
        """Whether everything is looked at: where that is asked for, or layers are all that is."""
        return self.thorough or self.depth != "causes"

    @property
    def patience(self) -> float:
        """Times what a search for other functions may usually take."""
        return _LONGER if self.thorough else 1.0

    @property
    def judged(self) -> Judged:
        """How outputs are held against each other."""
        return Judged(policy=self.policy, match=self.match, decide=self.decide)

    def goes_to(self, depth: Depth) -> bool:
        """Whether this is asked for."""
        return DEPTHS.index(self.depth) >= DEPTHS.index(depth)
