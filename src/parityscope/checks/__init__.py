"""What is known -> claims; their tests -> what they showed: one hypothesis per file.

A check is a value of plain functions (the last line of its file). `propose` names what it wants to know as its parameters:
what an `Examination` tells, `suspects` (the leading ones) or the whole of it (`known`); it is not asked where one of them is not
known, unless that parameter has a default. It gives claims, each with its prediction written down and a `test` that gives what
it `Shown`. The engine (asking.py, diagnosis.py) runs cheap and decisive ones first, and writes experiments, evidence and findings
under the check's code and title. A check's module docstring is its page: `parityscope explain RNG001` prints it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass, field
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.records import Budget, ExecutedGraph, OfferedRepair, Outcome, Role, RuledOut, Runs, Site, Skip

    # A repair that is offered: its name, what it says, and a command where one exists; a record where it was tried.
    Offer = tuple[str, str] | tuple[str, str, str] | OfferedRepair
    # (place of a sample, its inputs, those of the sample before) -> its inputs as a deployment's model saw them.
    Put = Callable[[int, Mapping[str, np.ndarray], Mapping[str, np.ndarray] | None], Mapping[str, np.ndarray]]
    # (the reference's outputs, the candidate's) -> the candidate's put right.
    Right = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

_NO_DETAILS: Mapping[str, Any] = MappingProxyType({})

# What outside checks of an older form import -> what they write now (plugins.py tells them).
_NOW = (
    "propose Claim(words, predicts, test, site), whose test gives Shown(because, share, correction): "
    "`parityscope new check NAME` writes one"
)
_ELSEWHERE = (
    "import Bench and Lab from parityscope.bench; what is known is parityscope.examination.Examination (`known`)"
)
FORMER: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("Nearest", "Proposal", "Result"), _NOW) | dict.fromkeys(("Bench", "Lab", "Scene"), _ELSEWHERE)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How a copy of the reference is made to do what a finding says that the deployment does.

    What is left of the error then has other causes. `words` complete "the reference ...". `inputs(index, arrays,
    previous)` gives the inputs of the sample at that place of the data set as the deployment's model saw them, `previous`
    being those of the sample before (None: there was none). `model` edits a copy of the reference's graph and leaves
    names of tensors as they are. `outputs(reference, candidate)` gives the candidate's outputs put right, as far as they
    can be. `declared` is an arithmetic that the candidate is granted. `rough`: what is left may be the correction's own,
    so that nothing more can be said of it. `parts` counts the changes that it makes.
    """

    words: str
    inputs: Put | None = None
    model: Callable[[ir.Model], None] | None = None
    outputs: Right | None = None
    declared: str = ""
    rough: bool = False
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is changed, what is measured, and what that is expected to be if the claim is true and if it is false."""

    measure: str
    if_true: str
    if_false: str
    change: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What may be wrong, at which place (None: no single one), what follows from it, and how that is tested.

    `words` are a clause: "input b did not arrive as it is". `runs` says what the test has to run (records.Experiment), and
    `cost_s` about how long that takes. The test raises ParityError where a side cannot run: then the claim was not examined.
    """

    words: str
    predicts: Prediction
    test: Callable[[], Shown]
    site: Site | None = None
    cost_s: float = 0.0
    runs: Runs = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a test showed, `because` of what was measured: `before` and `after` the change, in the prediction's measure.

    What supports the claim becomes a finding. Its `sentence` is, if none is given, the claim with its `because`; where one is
    given, it is told whatever the outcome is. `share` is the part of the output error that it explains (None: that has no
    meaning), and its confidence (in [0, 1]) where no other is given. `site`, `title`: others than the claim's and the check's.

    `correction` is how it is put right in a copy, None where that cannot be done. `further` are other causes that were proved
    together with it, each a finding of its own, all put right by that correction. `nearest` comes with what refutes. `skipped` is
    what the test itself had to leave out, `ruled_out` what it tried in vain.
    """

    because: str
    outcome: Outcome = "supports"
    before: float = 0.0
    after: float = 1.0
    sentence: str = ""
    share: float | None = None
    confidence: float | None = None
    confidence_from: str = ""
    role: Role = "cause"
    site: Site | None = None
    title: str = ""
    repairs: Sequence[Offer] = ()
    details: Mapping[str, Any] = field(default_factory=lambda: _NO_DETAILS)
    correction: Correction | None = None
    further: tuple[Shown, ...] = ()
    nearest: NearMiss | None = None
    skipped: tuple[Skip, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A claim that a test refutes as the only cause, and that comes so near that it may be one of several.

    `shown` is what would be told of it, with its correction. `tried` counts the claims that it is the nearest of. `distinct`
    says that nothing lies between it and the others, as between two orders of inputs: then coming near is evidence even if what
    is left is not explained. An input that is zero is also near to one that is small.
    """

    shown: Shown
    tried: int = 1
    distinct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A smallest case for a check: an ONNX model as text, its inputs, and the candidate that is diagnosed.

    `fault`, if any, is planted into the reference's own run: tensor name and what happens to its value; the
    candidate is then what was recorded of that run. `site` is the tensor that must be named, if one must.

    `inputs_fault` plants into the data path instead: it takes the inputs of all samples in their order and gives those
    that the candidate computed on. `outputs_fault` takes and gives the outputs of all samples likewise; both may be set.
    With `records_inputs` what the candidate computed on was recorded too.
    `reference_fault` does to the reference what that does to the candidate, which is then what is recorded as the reference.

    `candidate_model` is another model as text that the candidate runs. `budgets` are what it is judged by, `real` other,
    real samples, `states` what is fed back (input -> output) for `steps` calls. `environment` is what is recorded beside a
    planted fault of the place where it was recorded.

    `network` is the Python text of the network before its conversion, whose function `make` returns the torch.nn.Module; it
    stands for `{network}` in `candidate` and `reference`, and takes PyTorch.

    `executed` is what a candidate that takes other hardware tells of the graph that it executes: nothing is run then, and the
    check alone is asked.
    """

    model: str
    inputs: Mapping[str, np.ndarray] | None
    candidate: str = ""
    fault: tuple[str, Callable[[np.ndarray], np.ndarray]] | None = None
    inputs_fault: Callable[[Sequence[Mapping[str, np.ndarray]]], Sequence[Mapping[str, np.ndarray]]] | None = None
    outputs_fault: Callable[[Sequence[Mapping[str, np.ndarray]]], Sequence[Mapping[str, np.ndarray]]] | None = None
    reference_fault: Callable[[Sequence[Mapping[str, np.ndarray]]], Sequence[Mapping[str, np.ndarray]]] | None = None
    candidate_model: str = ""
    budgets: tuple[Budget, ...] = ()
    real: Mapping[str, np.ndarray] | None = None
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    steps: int = 0
    environment: Mapping[str, str] | None = None
    records_inputs: bool = False
    network: str = ""
    executed: ExecutedGraph | None = None
    reference: str = "ort"
    declared: str = ""
    site: str = ""
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One hypothesis about why a deployment disagrees.

    `holds` are examples in which it must be found, `holds_not` those in which it must not.
    """

    code: str
    title: str
    propose: Callable[..., Iterable[Claim]]
    holds: tuple[Example, ...]
    holds_not: tuple[Example, ...]


def known_checks() -> dict[str, Check]:
    """Every check there is, by code."""
    return {found.code: found for found, _ in discover_plugins("parityscope.checks", "CHECK", Check).values()}


def check_page(code: str) -> str:
    """The documentation page of a check; KeyError if there is none of that code."""
    pages = {found.code: module.__doc__ or "" for found, module in discover_plugins(__name__, "CHECK", Check).values()}
    return pages[code].strip()
