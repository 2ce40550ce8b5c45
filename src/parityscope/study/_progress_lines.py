"""What is told while an examination goes on, as soon as it is known: the verdict, then the place, then causes with their repairs.

It goes the way of progress, as a line without steps. The document says the same, later and in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.study._verdicts import reason_for

if TYPE_CHECKING:
    from parityscope.examination import Examination

__all__ = ["tell_causes", "tell_place", "tell_verdict"]


def tell_verdict(known: Examination) -> None:
    """The verdict on the outputs, with the reason of the first output that has it."""
    decisive = next((pair for pair in known.outputs if pair.verdict == known.verdict), None)
    reason = (
        f": output {decisive.site.tensor}: {reason_for(decisive, known.case.policy)}" if decisive is not None else ""
    )
    known.progress(f"outputs: {known.verdict}{reason}", 0, 0)


def tell_place(known: Examination) -> None:
    """Where the error of a candidate that is beyond begins, if that was found."""
    layers = known.layers
    if known.verdict != "beyond" or layers is None or not layers.localization.suspects:
        return
    worst = layers.localization.suspects[0]
    share = "" if worst.share is None else f", share of the output error {worst.share:.3g}"
    known.progress(
        f"where: {worst.site.tensor} introduces {worst.introduced:.3g} and inherits {worst.inherited:.3g}{share}", 0, 0
    )


def tell_causes(known: Examination) -> None:
    """Each cause, and the first repair that is offered for it."""
    for finding in known.diagnosis.findings:
        if finding.role == "cause":
            command = finding.repairs[0].command if finding.repairs else ""
            repair = f"; repair: {command}" if command else ""
            known.progress(f"why: {finding.title}{repair}", 0, 0)
