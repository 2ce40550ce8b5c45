"""What is known -> claims; their tests -> what they showed: one hypothesis per file.

A check is a value of plain functions (the last line of its file). `propose` names what it wants to know as its parameters:
fields of the `Scene`, `suspects` (the leading ones) or the whole `scene`; it is not asked where one of them is not known, unless
that parameter has a default. It gives claims, each with its prediction written down and a `test` that gives what it `Shown`.
The engine (asking.py, diagnosis.py) runs cheap and decisive ones first, and writes experiments, evidence and findings under the
check's code and title. A check's module docstring is its page in the documentation: `parityscope explain RNG001` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.case import Inputs, Model
    from parityscope.case.own import OwnInputs
    from parityscope.explanation import Explanation
    from parityscope.hypotheses.from_other_graph import Compared
    from parityscope.localization.calls import Growth
    from parityscope.records import (
        Budget,
        ExecutedGraph,
        Localization,
        Outcome,
        Pair,
        Policy,
        Role,
        Runs,
        Site,
        Target,
        Verdict,
    )

    # A repair that is offered: its name, what it says, and a command where one exists.
    Offer = tuple[str, str] | tuple[str, str, str]
    # Inputs by name -> outputs by the reference's names.
    Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
    # (place of a sample, its inputs, those of the sample before) -> its inputs as a deployment's model saw them.
    Put = Callable[[int, Mapping[str, np.ndarray], Mapping[str, np.ndarray] | None], Mapping[str, np.ndarray]]
    # (the reference's outputs, the candidate's) -> the candidate's put right.
    Right = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

__all__ = [
    "Bench",
    "Check",
    "Claim",
    "Correction",
    "Example",
    "Lab",
    "NearMiss",
    "Prediction",
    "Scene",
    "Shown",
    "check_page",
    "known_checks",
]

_NO_FACTS: Mapping[str, str] = MappingProxyType({})
_NO_DETAILS: Mapping[str, Any] = MappingProxyType({})

# What outside checks of an older form import -> what they write now (plugins.py tells them).
_NOW = (
    "propose Claim(words, predicts, test, site), whose test gives Shown(because, share, correction): "
    "`parityscope new check NAME` writes one"
)
FORMER: Mapping[str, str] = MappingProxyType(dict.fromkeys(("Nearest", "Proposal", "Result"), _NOW))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What a check may run; each call is one experiment on one sample of the reference's graph.

    `reference` and `candidate` give a tensor's two values. `replay(tensor, constants)` gives f(c_in): what the
    reference arithmetic makes of `tensor` from the candidate's own inputs, with the named constants (initializers
    or outputs of Constant nodes) replaced first; with none it is the plain severed replay. `forward(tensor, constants)`
    is the reference from its own inputs with only those constants replaced.
    """

    reference: Callable[[str], np.ndarray]
    candidate: Callable[[str], np.ndarray]
    replay: Callable[[str, Mapping[str, np.ndarray]], np.ndarray]
    forward: Callable[[str, Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a check may run where only outputs can be had: the reference on changed inputs, one run each.

    `outputs(inputs)` gives the reference's outputs on the given inputs; it raises ParityError where the model refuses
    them. `samples` are the places of the first few samples in the data set, in their order; `inputs(i)`, `reference(i)` and
    `candidate(i)` are the input and both sides' outputs of sample i, all by the reference's names. The candidate may lack
    an output or give it in another shape.

    `answers(inputs)` gives the candidate's outputs on other inputs; None where it is a recording. `peers` are other ways to
    run the model that ought to agree with the reference, and `switched` the candidate with one switch thrown, by target:
    each gives outputs on any inputs. All raise ParityError where a side cannot run. `given(i)` are the outputs that the
    verdict was made with where those are a recording's, which `reference(i)` are not; None otherwise.

    `origin` is the network before its conversion, by target, where a side is one: as it was given (in FP32) first, then in its
    other modes. `converted` is then the ONNX model as it stands, run by ONNX Runtime with its optimizer off.

    `honest` gives what an honest deployment of the declared arithmetic would, on any inputs.

    `kept` holds what earlier runs on changed inputs measured, by what each was: where it outlives the process, a search that
    was cut off goes on where it was.

    `graphs()` compares the candidate's own file with the reference's, once; None where it has none.

    `watched(i, tensors)` is `candidate(i)` while it also has to give back the intermediate tensors named, by the reference's
    names; None where nothing can be asked of it.
    """

    outputs: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
    samples: tuple[int, ...]
    inputs: Callable[[int], Mapping[str, np.ndarray]]
    reference: Callable[[int], Mapping[str, np.ndarray]]
    candidate: Callable[[int], Mapping[str, np.ndarray]]
    answers: Run | None = None
    peers: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    switched: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    given: Callable[[int], Mapping[str, np.ndarray]] | None = None
    origin: Mapping[str, Run] = field(default_factory=lambda: MappingProxyType({}))
    converted: Run | None = None
    honest: Run | None = None
    watched: Callable[[int, Sequence[str]], Mapping[str, np.ndarray]] | None = None
    kept: MutableMapping[str, tuple[float, float, float] | None] = field(default_factory=dict)
    graphs: Callable[[], Compared] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known when the checks are asked: plain facts, the `lab` where tensors were captured, and the `bench`.

    The `bench` is there when the verdict is beyond.

    `declared` is the arithmetic that the candidate says it computes in, `executed` the format that it was seen to
    execute ("" when nobody can see), `storage` the format whose range its tensors have as far as is known.
    `tensors` holds the compared tensors by name; `graph` is the reference's, to be read only. `explanations` says of the
    leading suspects which arithmetic or which other function their introduced error is, by tensor.

    `spread` is how far two runs of the candidate on one sample are apart, `changing` the part of the squared error (0 to 1)
    that differs from run to run.

    `policy` is what the verdict was made by (None: nothing is known of it), `environments` what the reference's and the
    candidate's runtimes said of themselves, `real` real samples to hold the inputs against, where the user gave some.
    `sequence` is how the error grew over repeated calls, where both sides were called so. `own` is what the deployment
    gave its model for the same samples, where that was recorded. `proved` says what makes all of the error, if that was proved
    before layers were looked at. `twice` gives the outputs of the reference and of the model
    without any optimizer on the first sample, where the sides agree and may share one; it raises ParityError as `bench` does.
    `number` counts the rounds of a search for several causes, of which each later one looks at a copy.
    """

    model: Model
    graph: ir.Model
    places: Mapping[str, Site]
    inputs: Inputs
    candidate: Target
    declared: str
    executed: str
    storage: Format
    verdict: Verdict
    outputs: tuple[Pair, ...]
    tensors: Mapping[str, Pair] = field(default_factory=lambda: MappingProxyType({}))
    localization: Localization | None = None
    explanations: Mapping[str, Explanation] = field(default_factory=lambda: MappingProxyType({}))
    executed_graph: ExecutedGraph | None = None
    spread: float = 0.0
    changing: float = 0.0
    disturbance: float = 0.0
    lab: Lab | None = None
    bench: Bench | None = None
    policy: Policy | None = None
    environments: tuple[Mapping[str, str], Mapping[str, str]] = (_NO_FACTS, _NO_FACTS)
    real: Inputs | None = None
    sequence: Growth | None = None
    own: OwnInputs | None = None
    proved: str = ""
    twice: Callable[[], tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] | None = None
    number: int = 1


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
    together with it, each a finding of its own, all put right by that correction. `nearest` comes with what refutes.
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
