"""What is told while an examination goes on, as soon as it is known: the verdict, then the place, then causes with their repairs.

It goes the way of progress, as a line without steps. The document says the same, later and in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.study._judging import reason_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.recording import Progress
    from parityscope.records import Diagnosis, Pair, Policy, Verdict
    from parityscope.study._layers import Layers

__all__ = ["tell_causes", "tell_place", "tell_verdict"]


def tell_verdict(outputs: Sequence[Pair], verdict: Verdict, policy: Policy, progress: Progress) -> None:
    """The verdict on the outputs, with the reason of the first output that has it."""
    decisive = next((pair for pair in outputs if pair.verdict == verdict), None)
    reason = f": output {decisive.site.tensor}: {reason_for(decisive, policy)}" if decisive is not None else ""
    progress(f"outputs: {verdict}{reason}", 0, 0)


def tell_place(layers: Layers | None, verdict: Verdict, progress: Progress) -> None:
    """Where the error of a candidate that is beyond begins, if that was found."""
    if verdict != "beyond" or layers is None or not layers.localization.suspects:
        return
    worst = layers.localization.suspects[0]
    share = "" if worst.share is None else f", share of the output error {worst.share:.3g}"
    progress(
        f"where: {worst.site.tensor} introduces {worst.introduced:.3g} and inherits {worst.inherited:.3g}{share}", 0, 0
    )


def tell_causes(diagnosis: Diagnosis, progress: Progress) -> None:
    """Each cause, and the first repair that is offered for it."""
    for finding in diagnosis.findings:
        if finding.role == "cause":
            repair = f"; repair: {finding.repairs[0].command}" if finding.repairs else ""
            progress(f"why: {finding.title}{repair}", 0, 0)
