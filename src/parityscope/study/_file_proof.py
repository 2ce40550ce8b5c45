"""What is proved before any layer is looked at; everything is asked in the order of what it can still change.

The verdict comes first, and an exact one ends the search. Then comes the candidate's own file, where it has one: what that says
is read and not fitted. Where the reference's graph with what the file says otherwise gives what the candidate gave, as nearly as
the declared arithmetic allows, on every sample looked at, no layer elsewhere can have a part in the error. So only the tensors at
the place are looked at, nothing is fitted to what the layer there computes, and experiments elsewhere are left out (`diagnosis`).
A place that reads the model's inputs or gives its outputs has rivals in how inputs are prepared and outputs are read: these are
asked all the same. Where another input is read there, or nothing is proved so, every layer is looked at; and so it is where NaN
or Inf came out, which may be born elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.diagnosis import TimeSpentError
from parityscope.errors import ParityError
from parityscope.examination import Answers, Proof
from parityscope.expectation.grades import margin_of
from parityscope.study.bench import open_bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.examination import Examination
    from parityscope.hypotheses.from_other_graph import Compared
    from parityscope.records import Pair

_REASON = "the candidate's own file was proved to say what makes all of the error"


def prove_from_file(examination: Examination) -> Examination:
    """With the place where the candidate's own file makes all of the error, if it does, and with what was run for it."""
    request, outputs = examination.request, examination.outputs
    everything = request.looks_everywhere or examination.only is not None or request.states
    if examination.verdict != "beyond" or everything or not examination.candidate.option("model"):
        return examination
    asked = replace(examination, answers=Answers())
    end = time.monotonic() + request.seconds
    examination.progress("comparing files", 0, 1)
    try:
        with open_bench(asked, end=end) as bench:
            compared = bench.graphs() if bench.graphs is not None else None
    except (ParityError, TimeSpentError):  # the check says so when it is its turn
        return asked
    declared = examination.case.policy.declared
    if compared is None or not _is_proved(compared, outputs, declared):
        return asked
    inside = _is_inside(compared)
    if not inside and not _is_of_layers(compared):
        return asked  # inputs that are read otherwise may be bound otherwise
    if any(pair.nonfinite_candidate > pair.nonfinite_agreeing for pair in outputs):
        return asked  # where NaN and Inf are born is told first, and may lie above
    pairing = _proved_places(compared) | {pair.site.tensor: pair.candidate_name for pair in outputs}
    return replace(asked, proof=Proof(pairing=pairing, reason=_REASON, rivals=not inside))


def _is_proved(compared: Compared, outputs: Sequence[Pair], declared: str) -> bool:
    """Whether what the causes leave is no more than the declared arithmetic makes, and none of them is declared itself."""
    allowed = sum((margin_of(declared) * pair.expected.get(declared, 0.0)) ** 2 for pair in outputs)
    units = [unit for unit, _ in compared.decision.causes]
    return bool(units) and not any(unit.declared for unit in units) and 0.0 <= compared.remaining <= allowed


def _is_inside(compared: Compared) -> bool:
    """Whether no cause reads the model's inputs or gives its outputs."""
    graph = compared.alignment.reference
    ends = {*graph.inputs, *graph.outputs}
    causes = [one.site for unit, _ in compared.decision.causes for one in unit.differences]
    return all(ends.isdisjoint({site, *compared.stretches[site].reads}) for site in causes)


def _is_of_layers(compared: Compared) -> bool:
    """Whether every cause is what a layer itself says, which reads what it should."""
    from parityscope.checks.other_graph import OF_LAYERS

    return all(one.kind in OF_LAYERS for unit, _ in compared.decision.causes for one in unit.differences)


def _proved_places(compared: Compared) -> dict[str, str]:
    """The results of the stretches that the causes are in, and what these read, by the reference's names."""
    found: dict[str, None] = {}
    for unit, _ in compared.decision.causes:
        for one in unit.differences:
            stretch = compared.stretches[one.site]
            its_reads = (compared.alignment.pairs[name] for name in stretch.its_reads)
            found.update(dict.fromkeys((*stretch.reads, *its_reads, one.site)))
    return {site: compared.alignment.partner[site] for site in found}
