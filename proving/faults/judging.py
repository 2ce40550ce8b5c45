"""Was the diagnosis right? Rules that look at the study's document as a reader does, and know nothing of how it was made.

* **Cause first**: the first finding has the expected code, or one of those that were said to be right too. Where the
  candidate runs a file of its own, what that file says (EXP005) is right too, at the place of the fault or, where the plant lies
  in no layer, in the words that the plant says the file's difference has to be told in. For a fault that is no
  cause (data that are no data, say) the first finding whose role is no cause has it, and nothing is called a cause.
* **Among three**: one of the first three findings has it.
* **Region first**: where the fault lies in a layer, the first finding's tensor is one at which it can be seen first; where that
  finding names none, the first suspect's is.
* **Repair first**: the repair that was stated is offered with the first finding. Where that is what the file says at the place of
  the fault, it is to put back what the original has, and was tried: with it the outputs are within.
* **Blamed**: in a clean twin, the codes of all findings of the role "cause", and "verdict" where it is not within.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proving.faults.records import Fault, Outcome, Plant

_FILE = "EXP005"  # the candidate's own graph says something else
_PUT_BACK = "put_back"
_KEPT = 8  # findings that an outcome holds


def judged(blank: Outcome, fault: Fault, plant: Plant, document: dict[str, Any], seconds: float) -> Outcome:
    """The outcome of a case whose study is `document`."""
    findings = [
        (str(one["code"]), str(one["role"]), str(one["site"]["tensor"]) if one.get("site") else "")
        for one in document["findings"]
    ]
    suspects = document["suspects"]
    outcome = replace(
        blank,
        verdict=str(document["verdict"]),
        findings=tuple(findings[:_KEPT]),
        suspect=str(suspects[0]["site"]["tensor"]) if suspects else "",
        sites=plant.sites,
        experiments=len(document["refuted"]) + sum(len(one.get("evidence", ())) for one in document["findings"]),
        seconds=round(seconds, 2),
    )
    if blank.case.clean:
        blamed = {code for code, role, _ in findings if role == "cause"}
        return replace(outcome, blamed=tuple(sorted(blamed | ({"verdict"} if outcome.verdict == "beyond" else set()))))
    right = {plant.expected} if plant.expected else set(blank.expected)
    told = _told(fault, findings)
    own = "model=" in plant.candidate

    def is_right(finding: tuple[str, str, str]) -> bool:
        code, _, tensor = finding
        said = bool(plant.said) and any(
            one["code"] == code and plant.said in one["claim"] for one in document["findings"]
        )
        return code in right or (own and code == _FILE and (tensor in plant.sites or said))

    return replace(
        outcome,
        first=bool(told) and is_right(told[0]),
        three=any(is_right(one) for one in told[:3]),
        region=_region(plant, told, outcome.suspect),
        repaired=_repaired(fault, document, by_file=own and is_right(told[0]) if told else False)
        if fault.repair
        else None,
    )


def _told(fault: Fault, findings: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The findings that count: what is no cause is no answer to "why", unless the fault is no cause either."""
    if fault.informs and any(role == "cause" and code not in _codes(fault) for code, role, _ in findings):
        return findings
    if fault.informs:
        return sorted(findings, key=lambda one: one[0] not in _codes(fault)) if _only_facts(findings) else findings
    return [one for one in findings if one[1] != "information"]


def _codes(fault: Fault) -> set[str]:
    return {fault.expected, *fault.accepted}


def _only_facts(findings: list[tuple[str, str, str]]) -> bool:
    """Whether nothing is called a cause: then facts stand beside each other, and none of them is first."""
    return all(role != "cause" for _, role, _ in findings)


def _region(plant: Plant, told: list[tuple[str, str, str]], suspect: str) -> bool | None:
    if not plant.sites:
        return None
    named = next((tensor for _, _, tensor in told[:1] if tensor), suspect)
    return named in plant.sites


def _repaired(fault: Fault, document: dict[str, Any], *, by_file: bool) -> bool:
    """Whether the known repair is offered with the first finding; what a file says is put back, and tried."""
    first = document["findings"][:1]
    offered = [one for each in first for one in each.get("repairs", ())]
    put_back = by_file and first[0]["code"] == _FILE
    if put_back:
        return any(
            one["repair"] == _PUT_BACK and (one.get("trial") or {}).get("verdict") == "within" for one in offered
        )
    return any(one["repair"] == fault.repair for one in offered)
