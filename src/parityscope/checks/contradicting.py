"""Evidence that speaks against a finding: it is said with it, and never weighed into one number.

Four ways in which evidence about one claim disagrees: the same claim was refuted by another experiment; one change reproduces
the outputs at a place where the layers that were recorded are right; a layer that is blamed gives what the model says on samples
that are wrong; and the file that is named as the candidate's does not give what was recorded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import backend_named
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.examination import Examination
    from parityscope.records import Evidence, Finding, Pair, Suspect

_SILENT = 1e-3  # of what a layer introduces over all samples: what is less on one is nothing; chosen
_FROM_OUTPUTS, _FILE = "FUS014", "EXP005"
_OUTPUTS = "one change at {} gives all of the outputs, while the recorded layers are right there"
_FILE_APART = "the file that is named as the candidate's does not give what was recorded: which of the two is deployed?"
_OTHER_RUN = "layers and outputs are of different runs or builds; record both in one"


def with_contradictions(findings: Sequence[Finding], refuted: Sequence[Evidence], known: Examination) -> list[Finding]:
    """The findings, each with what speaks against it."""
    against = [(one, list(dict.fromkeys(_list_against(one, findings, refuted, known)))) for one in findings]
    return [replace(one, contradicted="; ".join(told)) if told else one for one, told in against]


def says_layers_are_right(known: Examination, tensor: str) -> bool:
    """Whether a tensor inside the network was recorded and is what the reference gives, as far as the arithmetic allows."""
    pair = known.tensors.get(tensor)
    return pair is not None and pair.value("rel_l2") <= max(_allowed(pair, known), margin_of("f32") * FLOAT32_ROUNDING)


def _list_against(
    one: Finding, findings: Sequence[Finding], refuted: Sequence[Evidence], known: Examination
) -> Iterator[str]:
    if one.role == "information":
        return
    claims = {evidence.experiment.claim for evidence in one.evidence if evidence.outcome == "supports"}
    for evidence in refuted:
        if (
            evidence.outcome == "refutes"
            and evidence.experiment.check == one.code
            and evidence.experiment.claim in claims
        ):
            yield f"another experiment refutes the same claim: {evidence.because}"
    yield from _list_of_layers(one, findings, known)
    yield from _list_of_samples(one, known)
    yield from _list_of_file(one, refuted, known)


def _list_of_layers(one: Finding, findings: Sequence[Finding], known: Examination) -> Iterator[str]:
    """Where the outputs name a place that the recorded layers clear, both findings are told so."""
    if known.localization is None:
        return
    for other in findings:
        site = other.site
        if other.code != _FROM_OUTPUTS or other.role != "cause" or site is None:
            continue
        if says_layers_are_right(known, site.tensor) and (one is other or one.site != site):
            yield f"{_OUTPUTS.format(site.node or site.tensor)}: {_OTHER_RUN}"


def _list_of_samples(one: Finding, known: Examination) -> Iterator[str]:
    """On which samples that are wrong the layer that is blamed introduces nothing."""
    found = known.localization
    suspect = next((each for each in found.suspects if each.site == one.site), None) if found else None
    if found is None or suspect is None or len(suspect.per_sample) != len(found.samples):
        return
    wrong = [place for place, sample in enumerate(found.samples) if _is_wrong(known, sample)]
    silent = [place for place in wrong if _is_silent(suspect, place)]
    if silent and len(silent) < len(wrong):
        named = ", ".join(str(found.samples[place]) for place in silent)
        of = f"{len(silent)} of {len(wrong)} that are wrong (number {named})"
        yield f"samples disagree: on {of} this layer gives what the model says"


def _list_of_file(one: Finding, refuted: Sequence[Evidence], known: Examination) -> Iterator[str]:
    """A recording that the file beside it does not give."""
    if one.role == "cause" and one.code == _FILE:
        return
    named = known.candidate.option("model") and backend_named(known.candidate.backend).recorded
    if named and any(each.experiment.check == _FILE and each.outcome == "refutes" for each in refuted):
        yield _FILE_APART


def _is_wrong(known: Examination, sample: int) -> bool:
    return any(
        sample < len(pair.per_sample) and pair.per_sample[sample] > _allowed(pair, known) for pair in known.outputs
    )


def _is_silent(suspect: Suspect, place: int) -> bool:
    least = _SILENT * suspect.introduced if math.isfinite(suspect.introduced) else 0.0
    return suspect.per_sample[place] <= max(suspect.floor, least)


def _allowed(pair: Pair, known: Examination) -> float:
    return margin_of(known.declared) * pair.expected.get(known.declared, 0.0)
