"""The records of the suite: subjects, faults, plants, cases and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.records import Budget

    Arrays = Mapping[str, np.ndarray]

FAMILIES = (
    "bindings",
    "preprocessing",
    "data",
    "arithmetic",
    "fusion",
    "batch",
    "types",
    "export",
    "sequence",
    "range",
)


class NoEffectError(Exception):
    """A plant that changes the outputs by less than its arithmetic does: nobody could find it, and it is drawn again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model with fitting inputs. `make(folder, draw)` writes the model and gives its path and samples.

    `shape` says what it is good for: "image" (input x, NCHW in the `normal` named), "tokens", "two inputs", ...
    `halves` tells whether FP16 holds everything that it computes: if not, an FP16 deployment of it is no clean one.
    `openvino` tells whether OpenVINO in FP32 is an honest deployment of it, and survives that its tensors are observed.
    """

    name: str
    trained: bool
    shape: str
    make: Callable[[Path, np.random.Generator], tuple[Path, Sequence[Arrays]]]
    normal: str = ""
    halves: bool = True
    openvino: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """Where a fault is planted: the subject, its model and samples (input arrays by name), a folder, and a generator."""

    subject: Subject
    path: Path
    samples: Sequence[Arrays]
    folder: Path
    draw: np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A deployment with a fault, in the words of the command line, and what only the planter knows.

    `candidate` and `reference` are targets; `samples` is what is given as DATA, if not the bed's (None), `given=False` that
    nothing is. `images`, `own`, `real`, `budgets`, `states` and `steps` are the options of those names. `sites` are
    the tensors at which the fault can be seen first (none: it lies in no layer); `expected`, if any, takes the place of the
    fault's own code, where the parameter drawn decides it. `said` are words that what the candidate's own file says has to hold,
    where the fault lies in no layer but is a difference of that file ("": it is none).
    """

    words: str
    candidate: str
    declared: str = ""
    reference: str = "ort"
    samples: Sequence[Arrays] | None = None
    given: bool = True
    budgets: tuple[Budget, ...] = ()
    real: Sequence[Arrays] | None = None
    images: Path | None = None
    own: Sequence[Arrays] | None = None
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    steps: int = 0
    sites: tuple[str, ...] = ()
    expected: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its family, the code that has to come first, others that are right too, and how it is planted.

    `informs` says that the right answer is no cause but a fact told beside others: then the code has to come first among
    the findings of the role "information" where no cause is told. `repair` is what has to be offered with the finding
    ("" where nothing particular is). `subjects` are names.
    """

    title: str
    family: str
    expected: str
    plant: Callable[[Bed], Plant]
    subjects: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    repair: str = ""
    informs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault on a subject, or its clean twin. `number` tells apart those of one fault; `held` is why it is kept apart."""

    fault: str
    subject: str
    number: int
    clean: bool
    held: str = ""

    @property
    def key(self) -> str:
        """What identifies the case in a file of results."""
        return f"{self.fault}/{self.subject}/{self.number}" + ("/clean" if self.clean else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was planted in a case, what the diagnosis said of it, and what that cost.

    `findings` are (code, role, tensor) in their order; `first`, `three` and `region` the judgements (None: does not apply);
    `blamed` the codes called causes in a clean twin. `error` is what kept the case from being examined.
    """

    case: Case
    family: str
    expected: tuple[str, ...]
    words: str = ""
    sites: tuple[str, ...] = ()
    verdict: str = ""
    findings: tuple[tuple[str, str, str], ...] = ()
    suspect: str = ""
    first: bool | None = None
    three: bool | None = None
    region: bool | None = None
    repaired: bool | None = None
    blamed: tuple[str, ...] = ()
    experiments: int = 0
    seconds: float = 0.0
    error: str = ""
