"""Repairs that findings offer, applied to a copy of the file that is run, which the same candidate runs.

Of the copies the best one is kept: one that is within before all others, then the one that leaves least.

What keeps a node in FP32, said to other tools: the settings of each exporter, for every cause that offers it.

The nodes are those of the file that is deployed: the candidate's own where it has one, else the reference's.

Nodes that a format breaks, and what makes and reads their values, in FP32; everything else in that format.

A constant that vanishes or a value that overflows is put right where it stands, and what was broken in the same way before it
with it: the nodes that are kept are the broken ones, those that read what they give, and those that lead to them, `depth` steps
back.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.typed import HALF, typed_model
from parityscope.backends import backend_named
from parityscope.backends.opening import model_of
from parityscope.backends.sizing import tensor_shapes
from parityscope.backends.targets import with_option
from parityscope.case.graph import computing_nodes, node_name
from parityscope.case.model import load_model
from parityscope.checks.other_graph import PUT_BACK
from parityscope.comparison.distance import error_distance
from parityscope.diagnosis import SPENT
from parityscope.errors import ParityError
from parityscope.records import Skip, ToolLines, Trial
from parityscope.repairs import known_repairs
from parityscope.repairs.search.costs import flops_of
from parityscope.repairs.search.writing import typed_names
from parityscope.repairs.settings import known_exporters
from parityscope.study._document_rows import decisions_row
from parityscope.study._verdicts import judge_pair, pair_of
from parityscope.study.outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import onnx_ir as ir

    from parityscope.case import Model, Sample
    from parityscope.comparison import Statistics
    from parityscope.examination import Examination
    from parityscope.records import Diagnosis, Finding, OfferedRepair, Target, Verdict

_KEEP = "keep_in_fp32"
_KEPT = "keep_in_fp32"
_LOW = frozenset({"f16", "bf16", "int8"})
REPAIRED = "repaired.onnx"
_TRIED = "tried.onnx"
# Steps back from a node that is kept in FP32: what was flushed or overflowed before it is mended with it. Chosen: each is a run.
_DEPTHS = (0, 8, 64)


def _keep_around(
    model: Model, nodes: Collection[str], low: str, depth: int, sample: Sample
) -> tuple[ir.Model, str] | None:
    """A strongly typed copy, and how many nodes stay in FP32 and their share of the FLOPs that `sample` takes.

    Kept are `nodes`, what reads them, and what lies up to `depth` steps before them. None where none of them has a format of its
    own.

    Raises:
        ParityError: the model cannot be written in `low`.
    """
    graph = model.graph()
    names = {one: node_name(one, index) for index, one in enumerate(computing_nodes(graph))}
    deciding = typed_names(graph, low)
    front = {one for one, name in names.items() if name in nodes and name in deciding}
    if not front:
        return None
    held = front | {reader for one in front for value in one.outputs for reader, _ in value.uses()}
    for _ in range(depth):
        front = {
            made for one in front for value in one.inputs if value is not None and (made := value.producer())
        } - held
        held |= front
    kept = sorted({names[one] for one in held if one in names} & deciding)
    typed = typed_model(graph, low, dict.fromkeys(kept, "f32"), inside=True)
    shapes = tensor_shapes(model, sample, list(model.sites)) | {key: each.shape for key, each in sample.arrays.items()}
    work = {name: flops_of(one, shapes) for one, name in names.items()}
    whole = math.fsum(work.values())
    part = f", {100 * math.fsum(work[name] for name in kept) / whole:.3g} % of the FLOPs," if whole else ""
    return typed.model, f"{len(kept)} of its {len(names)} nodes{part} stay in FP32"


def try_repairs(examination: Examination) -> Diagnosis:
    """The diagnosis with the trial of every offered repair that can be applied to a copy, until the time is spent."""
    candidate, diagnosis = examination.candidate, examination.diagnosis
    if not backend_named(candidate.backend).tries_repairs:
        return diagnosis
    # In a file of the candidate's own only what differs is put back: other repairs are of the reference's.
    own = bool(candidate.option("model"))
    # A repair that changes the function is only offered: whether that is wanted is the reader's choice.
    known = {PUT_BACK} if own else {name for name, repair in known_repairs().items() if not repair.consent}
    skipped: list[Skip] = []
    findings = []
    done: dict[str, OfferedRepair] = {}  # all that differs is put back at once, whichever finding offers it
    best: Trial | None = None
    for finding in diagnosis.findings:
        offers = []
        for offer in finding.repairs:
            if finding.role == "cause" and offer.repair in known and time.monotonic() > examination.end:
                skipped.append(
                    Skip(what=f"trial of repair {offer.repair}", reason=SPENT, fix="raise --time", asked=True)
                )
                offers.append(offer)
            elif finding.role == "cause" and offer.repair in known:
                again = own and offer.repair in done
                tried = done[offer.repair] if again else _try_offer(examination, finding, offer, skipped)
                if not again:
                    best = _keep_better(examination.folder, best, tried.trial)
                done[offer.repair] = tried
                offers.append(replace(offer, trial=tried.trial))
            else:
                offers.append(offer)
        findings.append(replace(finding, repairs=tuple(offers)))
    if best is None or best.verdict != "within":
        findings, best = _try_keeping(examination, findings, best, skipped)
    told = tuple(_name_copy(finding, best) for finding in findings)
    return replace(diagnosis, findings=told, skipped=(*diagnosis.skipped, *skipped))


def _try_keeping(
    examination: Examination, findings: list[Finding], best: Trial | None, skipped: list[Skip]
) -> tuple[list[Finding], Trial | None]:
    """The findings with a trial of keeping in FP32 what the first proved cause names, and the best trial.

    One thing often goes wrong at several places: where it alone is not enough, what the other findings name is kept with it. Only
    where the candidate computes in the types of a file that is given to it: another would round what is kept.
    """
    declared = examination.case.policy.declared
    place = next((at for at, one in enumerate(findings) if one.role == "cause"), None)
    keeps = place is not None and any(offer.repair == _KEEP for offer in findings[place].repairs)
    if place is None or not keeps or declared not in HALF or not backend_named(examination.candidate.backend).simulates:
        return findings, best
    finding = findings[place]
    tried: Trial | None = None
    typed = replace(examination.candidate, precision="", options=())
    alone = {finding.site.node} if finding.site else set()
    every = alone | {
        one.site.node for one in findings if one.site and any(offer.repair == _KEEP for offer in one.repairs)
    }
    for depth, nodes in itertools.product(_DEPTHS, (alone, every) if every != alone else (alone,)):
        if time.monotonic() > examination.end or (tried is not None and tried.verdict == "within"):
            break
        try:
            made = _keep_around(examination.case.model, nodes, declared, depth, next(iter(examination.case.inputs)))
            trial = None if made is None else _try_copy(examination, *made, typed)
        except ParityError as error:
            skipped.append(Skip(what=f"trial of repair {_KEEP}", reason=error.problem, fix=error.fix))
            break
        if trial is None:
            break
        best = _keep_better(examination.folder, best, trial)
        if tried is None or _rank_of_trial(trial) < _rank_of_trial(tried):
            tried = trial
    if tried is None:
        return findings, best
    offers = tuple(replace(one, trial=tried) if one.repair == _KEEP else one for one in finding.repairs)
    return [*findings[:place], replace(finding, repairs=offers), *findings[place + 1 :]], best


def _keep_better(folder: Path, best: Trial | None, tried: Trial | None) -> Trial | None:
    """The better one of two trials, whose copy is the one that is kept; one that betters nothing is not."""
    if tried is None:
        return best
    copy = folder / _TRIED
    lessens = (
        tried.verdict == "within"
        or tried.after < tried.before
        or math.isfinite(tried.after) > math.isfinite(tried.before)
    )
    if lessens and (best is None or _rank_of_trial(tried) < _rank_of_trial(best)):
        copy.replace(folder / REPAIRED)
        return tried
    copy.unlink(missing_ok=True)
    return best


def _rank_of_trial(trial: Trial) -> tuple[bool, float]:
    return trial.verdict != "within", math.inf if math.isnan(trial.after) else trial.after


def _name_copy(finding: Finding, best: Trial | None) -> Finding:
    """The finding, in which the trial whose copy is kept names it."""
    offers = (
        replace(one, trial=replace(best, file=REPAIRED)) if best is not None and one.trial is best else one
        for one in finding.repairs
    )
    return replace(finding, repairs=tuple(offers))


def _try_offer(examination: Examination, finding: Finding, offer: OfferedRepair, skipped: list[Skip]) -> OfferedRepair:
    candidate = examination.candidate
    try:
        model, note = _put_back(examination) if offer.repair == PUT_BACK else _apply_offer(examination, finding, offer)
        if note is None:
            skipped.append(Skip(what=f"repair {offer.repair}", reason="it cannot be applied to this node"))
            return offer
        return replace(offer, trial=_try_copy(examination, model, note, candidate))
    except ParityError as error:
        skipped.append(Skip(what=f"trial of repair {offer.repair}", reason=error.problem, fix=error.fix))
        return offer


def _try_copy(examination: Examination, model: ir.Model, note: str, candidate: Target) -> Trial:
    """What a repaired copy leaves of the error when `candidate` runs it.

    Raises:
        ParityError: it cannot be run.
    """
    import onnx_ir as ir

    path = examination.folder / _TRIED
    ir.save(model, path)
    load_model(path)
    target = with_option(candidate, "model", str(path))
    run = run_outputs(replace(examination, candidate=target, names=_output_names(examination)))
    names = {pair.site.tensor for pair in examination.outputs}
    before, _ = _worst_error({name: one for name, one in examination.compared.statistics.items() if name in names})
    after, output = _worst_error(run.statistics)
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
            verdicts.add(judge_pair(again, statistics, examination.case.policy))
    verdict: Verdict = "beyond" if "beyond" in verdicts else "incomplete" if "incomplete" in verdicts else "within"
    decided = {name: decisions_row(held) for name, held in run.decisions.items()}
    return Trial(before=before, after=after, verdict=verdict, output=output, note=note, decisions=decided)


def _worst_error(found: Mapping[str, Statistics]) -> tuple[float, str]:
    """The largest error and the output that has it: of floats, and only where there are none the share of unequal elements."""
    floats = {name: one for name, one in found.items() if one.is_float}
    return max(((error_distance(one), name) for name, one in (floats or found).items()), default=(math.nan, ""))


def _output_names(examination: Examination) -> Mapping[str, str]:
    """What the copy calls the outputs of the reference, of which it is a copy, or of the candidate's own file."""
    if examination.candidate.option("model"):
        return examination.names
    return {value.name: value.name for value in examination.case.model.outputs}


def _apply_offer(examination: Examination, finding: Finding, offer: OfferedRepair) -> tuple[ir.Model, str | None]:
    model = examination.case.model.graph()
    return model, known_repairs()[offer.repair].apply(model, finding)


def _put_back(examination: Examination) -> tuple[ir.Model, str | None]:
    """A copy of the candidate's file in which the differences that were named are what the reference has.

    Raises:
        ParityError: its graph cannot say that.
    """
    from parityscope.hypotheses.from_other_graph import put_back

    compared = examination.answers.graphs if examination.answers is not None else None
    model = model_of(examination.case.model, examination.candidate).graph()
    if compared is None or isinstance(compared, ParityError):
        return model, None
    chosen = [one for unit, _ in compared.decision.causes if not unit.declared for one in unit.differences]
    if not chosen:
        return model, None
    put_back(compared.alignment, compared.stretches, chosen)(model)
    places = len({one.site for one in chosen})
    return model, f"what differs is put back at {places} place{'' if places == 1 else 's'} of the candidate's file"


def tell_tools(examination: Examination, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis whose offers to keep a node in FP32 say how, in the tools that take settings by the names of nodes."""
    low = examination.case.policy.declared
    wanted = [one for one in diagnosis.findings if _node_kept(one)]
    if not wanted or low not in _LOW:
        return diagnosis
    graph = model_of(examination.case.model, examination.candidate).graph()
    findings = (_told_finding(one, graph, low) if one in wanted else one for one in diagnosis.findings)
    return replace(diagnosis, findings=tuple(findings))


def _node_kept(finding: Finding) -> str:
    offers = any(one.repair == _KEPT for one in finding.repairs)
    return finding.site.node if offers and finding.role == "cause" and finding.site is not None else ""


def _told_finding(finding: Finding, graph: ir.Model, low: str) -> Finding:
    lines = tuple(_lines_of(_node_kept(finding), graph, low))
    offers: list[OfferedRepair] = [replace(one, tools=lines) if one.repair == _KEPT else one for one in finding.repairs]
    return replace(finding, repairs=tuple(offers))


def _lines_of(node: str, graph: ir.Model, low: str) -> list[ToolLines]:
    """One entry a tool that has this low format and takes this node; a tool that cannot is left out."""
    found = []
    for name, exporter in sorted(known_exporters().items()):
        if low not in exporter.formats:
            continue
        try:
            written = exporter.write({node: "f32"}, graph, low)
        except ParityError:
            continue
        if written.brief and not written.notes:
            found.append(ToolLines(tool=name, title=exporter.title, lines=written.brief))
    return found
