"""One examination: the chain, on the whole model or on what of it both sides can run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.backends.recording import Progress, silent
from parityscope.comparison.warming import warm_kernels
from parityscope.custom_operators import library_in_use
from parityscope.errors import ParityError
from parityscope.study._cut import Bounds, bound
from parityscope.study._steps import Asked, chain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from parityscope.case import Case
    from parityscope.records import Target

__all__ = ["Settings", "examine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How far to go.

    `layers` compares intermediate tensors, `localize` tells what each introduces, `causes` tests hypotheses and tries
    repairs.
    `memory` is in bytes, `seconds` the time for experiments, `mapping` renames tensors (reference -> candidate).
    `peer` is another target of the candidate's precision to hold it against (None: the simulation of that precision).
    `real` is DATA of real samples that the inputs are held against, read with `stacked` and `preprocess`.
    `states` are fed back (input -> output) for `steps` calls. `question` is what was asked, as plain data that the study keeps.
    With `only`, just the experiments that a study calls so are run. `thorough` goes on where the answer is known: layers of what
    is within FP32's noise, suspects that nothing is left for, experiments behind a cause that explains everything.
    """

    layers: bool = True
    localize: bool = True
    causes: bool = True
    memory: int = 512 << 20
    seconds: float = math.inf
    mapping: Mapping[str, str] | None = None
    peer: Target | None = None
    command: str = ""
    real: str = ""
    stacked: bool = False
    preprocess: str = ""
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    steps: int = 0
    question: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] | None = None
    thorough: bool = False

    @property
    def looks_everywhere(self) -> bool:
        """Whether everything is looked at: where that is asked for, or layers are all that is."""
        return self.thorough or not self.causes


def examine(
    case: Case,
    reference: Target,
    candidate: Target,
    *,
    folder: Path,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Runs the chain and gives the study's document; `folder` holds spilled tensors and repaired copies.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    settings = settings or Settings()
    mapping = settings.mapping or {}
    asked = Asked(
        case=case, reference=reference, candidate=candidate, folder=folder, settings=settings, progress=progress
    )
    bounds: Bounds | None = None
    if settings.layers:  # of outputs alone there may be so little that nothing needs to be compiled
        warm_kernels()
    with library_in_use(reference.option("custom_ops")):
        while True:
            try:
                if bounds is None:
                    return chain(asked)
                chosen = replace(settings, mapping=bounds.mapping)
                reached = replace(asked, case=bounds.case, candidate=bounds.candidate, settings=chosen)
                return bounds.told(chain(reached, bounds.skipped), case, candidate)
            except ParityError as refusal:
                further = bound(refusal, case, reference, candidate, mapping, folder, bounds)
                if further is None:
                    if bounds is None:
                        raise
                    raise bounds.explained(refusal) from refusal
                bounds = further
