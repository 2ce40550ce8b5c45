"""Repairs that findings offer, applied to a copy of the model and run on the same candidate."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import backend
from parityscope.case.model import load_model
from parityscope.diagnosis import SPENT
from parityscope.errors import ParityError
from parityscope.records import Skip, Trial
from parityscope.repairs import repairs
from parityscope.study._outputs import run_outputs
from parityscope.study._verdicts import judge_pair, pair_of

if TYPE_CHECKING:
    from parityscope.examination import Examination
    from parityscope.records import Diagnosis, Finding, OfferedRepair, Verdict

__all__ = ["REPAIRED", "try_repairs"]

REPAIRED = "repaired.onnx"


def try_repairs(examination: Examination) -> Diagnosis:
    """The diagnosis with the trial of every offered repair that can be applied to a copy, until the time is spent."""
    candidate, diagnosis = examination.candidate, examination.diagnosis
    if not backend(candidate.backend).tries_repairs or candidate.option("model"):
        return diagnosis
    # A repair that changes the function is only offered: whether that is wanted is the reader's choice.
    known = {name for name, repair in repairs().items() if not repair.consent}
    skipped: list[Skip] = []
    findings = []
    for finding in diagnosis.findings:
        offers = []
        for offer in finding.repairs:
            if finding.role == "cause" and offer.repair in known and time.monotonic() > examination.end:
                skipped.append(
                    Skip(what=f"trial of repair {offer.repair}", reason=SPENT, fix="raise --time", asked=True)
                )
                offers.append(offer)
            elif finding.role == "cause" and offer.repair in known:
                offers.append(_try_offer(examination, finding, offer, skipped))
            else:
                offers.append(offer)
        findings.append(replace(finding, repairs=tuple(offers)))
    return replace(diagnosis, findings=tuple(findings), skipped=(*diagnosis.skipped, *skipped))


def _try_offer(examination: Examination, finding: Finding, offer: OfferedRepair, skipped: list[Skip]) -> OfferedRepair:
    import onnx_ir as ir

    case, candidate = examination.case, examination.candidate
    model = case.model.graph()
    note = repairs()[offer.repair].apply(model, finding)
    if note is None:
        skipped.append(Skip(what=f"repair {offer.repair}", reason="it cannot be applied to this node"))
        return offer
    path = examination.folder / REPAIRED
    try:
        ir.save(model, path)
        load_model(path)
        target = replace(candidate, options=tuple(sorted((*candidate.options, ("model", str(path))))))
        names = {value.name: value.name for value in case.model.outputs}
        run = run_outputs(replace(examination, candidate=target, names=names))
    except ParityError as error:
        skipped.append(Skip(what=f"trial of repair {offer.repair}", reason=error.problem, fix=error.fix))
        return offer
    before = max((pair.value("rel_l2") for pair in examination.outputs), default=math.nan)
    after = max((found.rel_l2 for found in run.statistics.values()), default=math.nan)
    verdicts: set[Verdict] = set()
    for pair in examination.outputs:
        statistics = run.statistics.get(pair.site.tensor)
        if statistics is not None:
            again = pair_of(
                pair.site,
                statistics,
                candidate_name="",
                how="name",
                expected=pair.expected,
                outside=run.outside.get(pair.site.tensor),
            )
            verdicts.add(judge_pair(again, statistics, case.policy))
    verdict: Verdict = "beyond" if "beyond" in verdicts else "incomplete" if "incomplete" in verdicts else "within"
    trial = Trial(before=before, after=after, verdict=verdict, note=f"{note}; the copy is {REPAIRED} in the study")
    return replace(offer, trial=trial)
