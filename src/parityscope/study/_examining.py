"""One examination from the request to the document: is it different, where, why, what repairs it, and is it repaired.

Each stage takes the `Examination` and gives it back with a field more. What a stage behind the verdict cannot do takes nothing
with it that is known already: it becomes a `Skip`.

What is told while an examination goes on, as soon as it is known: the verdict, then the place, then causes with their repairs.

It goes the way of progress, as a line without steps. The document says the same, later and in full.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from parityscope.backends.command import parse_seconds
from parityscope.backends.onnxruntime_running import limited_runs
from parityscope.comparison.warming import warm_kernels
from parityscope.custom_operators import library_in_use
from parityscope.errors import ParityError
from parityscope.memory import allow_memory, with_room_for_calls
from parityscope.records import Skip
from parityscope.study._custom_operators import Bounds, bound_examination
from parityscope.study._verdicts import reason_for
from parityscope.study.difference import (
    NOT_LOOKED,
    call_repeatedly,
    can_layers_matter,
    compare_all_tensors,
    compare_outputs,
    grade_outputs,
    grade_suspicious_tensors,
    localize_error,
    pair_tensors,
    predict_errors,
)
from parityscope.study.document import document_of
from parityscope.study.tied_rows import pair_tied_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from parityscope.examination import Examination

_AGAIN = (
    "run the same command with the same --study again, the candidate in a process of its own: isolate=on in the target"
)


@with_room_for_calls
def examine_request(examination: Examination) -> dict[str, Any]:
    """Examines on the whole model, or on what of it both sides can run, and gives the study's document.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    if examination.request.goes_to("tensors") and examination.request.looks_everywhere:
        _warm(examination)  # of outputs alone there may be so little that nothing needs to be compiled
    bounds: Bounds | None = None
    with library_in_use(examination.reference.option("custom_ops")):
        while True:
            try:
                if bounds is None:
                    return document_of(answer_request(examination))
                return bounds.told(document_of(answer_request(bounds.reached)))
            except ParityError as refusal:
                further = bound_examination(refusal, examination, bounds)
                if further is None:
                    raise refusal if bounds is None else bounds.explained(refusal) from refusal
                bounds = further


def answer_request(examination: Examination) -> Examination:
    """Answers the five questions, as far as the request goes.

    Raises:
        ParityError: nothing could be compared.
    """
    request = examination.request
    examination = replace(examination, started=time.perf_counter())
    allow_memory(request.memory)
    # Is it different?
    timeout = examination.candidate.option("timeout")
    with limited_runs(parse_seconds(timeout, 0) if timeout else None):
        known = pair_tensors(examination).timed("pairing")
    known = pair_tied_rows(_judge_paired(known, ()), partial(_judge_paired, known))
    known = call_repeatedly(known).timed("calls")
    _tell_verdict(known)
    _keep_known(known, "the place, causes and repairs")
    # Where does the difference begin?
    if not request.looks_everywhere and can_layers_matter(known):
        _warm(examination)
    if request.goes_to("tensors"):
        known = find_place(known)
        _tell_place(known)
        _keep_known(known, "causes and repairs")
    # Why, what repairs it, and is it repaired?
    if request.goes_to("causes"):
        known = find_causes(known)
        _tell_causes(known)
    return known


def _warm(examination: Examination) -> None:
    """Makes ready what every tensor is measured with, taking each for as large as the largest input or output."""
    model = examination.case.model
    known = [[size for size in value.shape or () if isinstance(size, int)] for value in (*model.inputs, *model.outputs)]
    warm_kernels(len(examination.case.inputs) * model.nodes, max(map(math.prod, known), default=1))


def _keep_known(known: Examination, missing: str) -> None:
    """Keeps what is known of a candidate that is beyond, while what is `missing` is looked for."""
    if known.keep is None or known.verdict != "beyond" or not known.request.goes_to("causes"):
        return
    reason = "the process ended while they were looked for"
    known.keep(document_of(known.skipping(Skip(what=missing, reason=reason, fix=_AGAIN, asked=True))))


def _judge_paired(known: Examination, names: tuple[str, ...]) -> Examination:
    """With the outputs compared, predicted and judged, the rows of these paired before."""
    if names:
        known = replace(known, case=replace(known.case, policy=replace(known.case.policy, matched=names)))
    known = compare_outputs(known).timed("outputs")
    return grade_outputs(predict_errors(known).timed("prediction"))


def find_place(known: Examination) -> Examination:
    """With the intermediate tensors, as far as was asked and nothing is proved."""
    if not known.request.goes_to("layers"):
        return _take_stages(known, {"tensors": compare_all_tensors}, "localization", asked=True)
    if known.request.goes_to("causes"):
        from parityscope.study._file_proof import prove_from_file

        known = prove_from_file(known).timed("files")
    if not can_layers_matter(known):
        return known.skipping(NOT_LOOKED)
    stages = {"layers": localize_error, "grading tensors": grade_suspicious_tensors}
    return _take_stages(known, stages, "localization", asked=not known.request.goes_to("causes"))


def find_causes(known: Examination) -> Examination:
    """With what the suspects' errors are, with every experiment's outcome, and with the repairs that were tried."""
    from parityscope.study import causes

    stages = {
        "explaining": causes.explain_suspects,
        "peer": causes.hold_against_peer,
        "causes": causes.test_causes,
        "simulated": causes.simulate_nonfinite,
        "repairs": causes.test_repairs,
    }
    return _take_stages(known, stages, "causes", asked=known.verdict == "beyond")


def _take_stages(
    known: Examination, stages: Mapping[str, Callable[[Examination], Examination]], what: str, *, asked: bool
) -> Examination:
    """Takes the stages one after the other; the first that fails is the last, and what is known already stays."""
    for name, stage in stages.items():
        try:
            grown = stage(known)
        except ParityError as error:
            return known.skipping(Skip(what=what, reason=error.problem, fix=error.fix, asked=asked))
        known = grown if grown is known else grown.timed(name)
    return known


def _tell_verdict(known: Examination) -> None:
    """The verdict on the outputs, with the reason of the first output that has it."""
    decisive = next((pair for pair in known.outputs if pair.verdict == known.verdict), None)
    reason = (
        f": output {decisive.site.tensor}: {reason_for(decisive, known.case.policy)}" if decisive is not None else ""
    )
    known.progress(f"outputs: {known.verdict}{reason}", 0, 0)


def _tell_place(known: Examination) -> None:
    """Where the error of a candidate that is beyond begins, if that was found."""
    layers = known.layers
    if known.verdict != "beyond" or layers is None or not layers.localization.suspects:
        return
    worst = layers.localization.suspects[0]
    share = "" if worst.share is None else f", share of the output error {worst.share:.3g}"
    known.progress(
        f"where: {worst.site.tensor} introduces {worst.introduced:.3g} and inherits {worst.inherited:.3g}{share}", 0, 0
    )


def _tell_causes(known: Examination) -> None:
    """Each cause, and the first repair that is offered for it."""
    for finding in known.diagnosis.findings:
        if finding.role == "cause":
            command = finding.repairs[0].command if finding.repairs else ""
            repair = f"; repair: {command}" if command else ""
            known.progress(f"why: {finding.title}{repair}", 0, 0)
