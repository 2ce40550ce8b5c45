"""Proposals for facts that need no experiment: they are known when the checks are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks import Proposal, Result
from parityscope.records import Evidence, Experiment

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.checks import Correction
    from parityscope.records import Finding

__all__ = ["fact"]


def fact(
    experiment: Experiment,
    because: str,
    finding: Callable[[Evidence], Finding],
    correction: Correction | None = None,
) -> Proposal:
    """A proposal whose outcome is already known to support its claim, because of `because`."""
    evidence = Evidence(experiment=experiment, outcome="supports", before=0.0, after=1.0, because=because)
    return Proposal(
        experiment=experiment,
        test=lambda: Result(evidence=evidence, finding=finding(evidence), correction=correction),
    )
