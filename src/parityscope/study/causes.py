"""Why the sides disagree, and what repairs it: explanations, an honest peer, experiments, trials on copies.

What only a candidate needs that is beyond (the search on copies, the repairs) is imported where one is.

The first sample on the model as it stands, where both sides may share an optimizer: agreement of two such sides says little.

It costs one session and one inference, with the optimizer off. Sides that cannot share one are not asked: another
runtime that agrees is a second reference itself.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import Capture, backend_named, optimizes_as_onnxruntime
from parityscope.backends.opening import open_target
from parityscope.diagnosis import SPENT, TimeSpentError, identity_of, run_experiments
from parityscope.errors import ParityError
from parityscope.examination import Answers
from parityscope.records import Skip
from parityscope.study.bench import open_bench
from parityscope.study.neighbour_targets import unoptimized_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.bench import Bench
    from parityscope.diagnosis import Tested
    from parityscope.examination import Examination
    from parityscope.records import Diagnosis, Target, Trial

    Arrays = Mapping[str, np.ndarray]

_PEER_SAMPLES = 4  # chosen: what a format costs varies less between samples than the margins of the grades


def explain_suspects(known: Examination) -> Examination:
    """With what the error of each leading suspect is; what the candidate's own file was proved to say is read, not fitted."""
    if known.layers is None:
        return known
    if known.proof is not None:
        what, fix = "what else these layers may compute", "look all the same: --thorough"
        return known.skipping(Skip(what=what, reason=known.proof.reason, fix=fix))
    from parityscope.study.layers import explain_layers

    found = explain_layers(known, known.layers)
    # Single hypotheses that could not be computed; what there was no time for is told with what was ruled out.
    told = (skip for one in found.values() for skip in one.skipped if "hypothes" in skip.what and ": " in skip.what)
    return replace(known.skipping(*told), explanations=found)


def hold_against_peer(known: Examination) -> Examination:
    """With the distances to the target that was named, else to the simulation of the candidate's precision."""
    if all(pair.grade == "f32" for pair in known.outputs):
        return known
    from parityscope.study.triangle import measure_triangle, peer_of

    peer = known.peer or peer_of(known.candidate, known.computes)
    if peer is None:
        return known
    triangles, absent = measure_triangle(known, peer, known.case.inputs.indices[:_PEER_SAMPLES])
    return replace(known, triangles=triangles).skipping(*absent)


def test_causes(known: Examination) -> Examination:
    """With the diagnosis of all experiments, and with the causes that show once others are put right in a copy."""
    seconds, beyond = known.request.seconds, known.verdict == "beyond"
    known = replace(known, answers=known.answers or Answers(), end=time.monotonic() + seconds)
    with open_bench(known, end=known.end, folder=known.folder) as bench:
        asked = replace(known, bench=bench) if beyond else replace(known, twice=second_run(known))
        tested = run_experiments(_with_lab(asked))
        known = replace(known, diagnosis=tested.diagnosis).timed("causes")
        # One experiment alone needs no other round than the first, unless the study says so.
        if not beyond or (known.only is not None and len(known.only) == 1):
            return known
        return _correct_causes(known, tested, bench).timed("further causes")


def _with_lab(known: Examination) -> Examination:
    """With experiments inside the network, where its layers were looked at."""
    if known.layers is None:
        return known
    from parityscope.study._lab import open_lab

    return replace(known, lab=open_lab(known))


def _correct_causes(known: Examination, tested: Tested, bench: Bench) -> Examination:
    """With the causes that show once others are put right; where all is proved, only what proves it is.

    Of one proved cause the trial of its repair tells the same as a copy with it: whether anything is left.
    """
    if known.proof is not None:
        causes = {identity_of(one) for one in tested.diagnosis.findings if one.role == "cause"}
        proved = {name: one for name, one in tested.corrections.items() if name in causes and not one.declared}
        tested = replace(tested, corrections=proved, nearest=())
        if len(proved) == len(causes) == 1:
            from parityscope.study._repair_trials import try_repairs

            tried = try_repairs(known)
            within = next((trial for trial in _trials_of(tried) if trial.verdict == "within"), None)
            if within is not None:
                left = (within.after / within.before) ** 2 if within.before else 0.0
                return replace(
                    known,
                    diagnosis=replace(tried, unexplained=left if tried.unexplained is None else tried.unexplained),
                )
    if not tested.corrections and not tested.nearest:
        return known
    from parityscope.study._cause_search import search_causes
    from parityscope.study._copy import first_copy
    from parityscope.study._merged_diagnosis import merge_rounds

    folder = known.folder / "copies"
    try:
        found = search_causes(known, first_copy(known, bench, folder), tested)
    except (ParityError, TimeSpentError) as error:
        reason = error.problem if isinstance(error, ParityError) else SPENT
        skip = Skip(what="causes beside the first", reason=reason, fix="raise --time" if reason == SPENT else "")
        return known.skipping(skip)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found is None:
        return known
    return replace(known, diagnosis=merge_rounds(known.diagnosis, found), sequence=found.sequence)


def simulate_nonfinite(known: Examination) -> Examination:
    """With where NaN and Inf of a recording of outputs begin in a simulation that has them too."""
    if known.only is not None:
        return known
    from parityscope.study._simulated_nonfinite import add_simulated

    return replace(known, diagnosis=add_simulated(known))


def test_repairs(known: Examination) -> Examination:
    """With the offered repairs tried on copies of the model, each run on the same candidate and judged."""
    if known.verdict == "within" or known.only is not None:
        return known
    from parityscope.study._repair_trials import tell_tools, try_repairs

    diagnosis = known.diagnosis if _trials_of(known.diagnosis) else try_repairs(known)
    return replace(known, diagnosis=tell_tools(known, diagnosis))


def _trials_of(diagnosis: Diagnosis) -> list[Trial]:
    return [offer.trial for finding in diagnosis.findings for offer in finding.repairs if offer.trial is not None]


def second_run(examination: Examination) -> Callable[[], tuple[Arrays, Arrays]] | None:
    """What gives the outputs of the reference (if they were not kept, by a run) and of the unoptimized model on the first sample.

    None where the sides cannot share an optimizer, or where other rounding is what users want of one: in half-precision models,
    whose operators ONNX Runtime computes in FP32 on a CPU, and in quantized ones, which it computes in integers.
    """
    model, inputs, reference = examination.case.model, examination.case.inputs, examination.reference
    if not _may_share(reference, examination.candidate) or model.formats:
        return None

    def run() -> tuple[Arrays, Arrays]:
        sample = inputs.sample(inputs.indices[0])
        ours = examination.run.kept.get(sample.index) if examination.run is not None else None
        if ours is None:
            with open_target(model, reference, Capture()) as session:
                ours = session.run(sample)
        with open_target(model, unoptimized_target(reference), Capture()) as session:
            return ours, session.run(sample)

    return run


def _may_share(reference: Target, candidate: Target) -> bool:
    """Whether both may run what one optimizer made; a reference on another device rounds in ways of its own."""
    return (
        optimizes_as_onnxruntime(reference)
        and not reference.precision
        and not (reference.option("device") or reference.option("provider"))
        and reference.option("optimization") != "disabled"
        and (optimizes_as_onnxruntime(candidate) or backend_named(candidate.backend).onnxruntime == "perhaps")
        and candidate.option("optimization") != "disabled"
    )
