"""What was said beside the truth, judged by place and words; a table with 95 % Wilson intervals."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from proving.rounds.judging import wilson_interval

_COUNTED = re.compile(
    r"[\d,]+ edits judged by derivative, .*?\)(, [\d,]+ left for want of budget)?"
)  # names kinds that were tried


def judge(file: Path, truth: Path) -> None:
    """Prints a line for each case of `file`, and the table.

    A fault is named where a cause of its place, or of a tensor one node away, is in words of its kind. *Cause first*: the first
    finding names one. *Both*: each of two is named by some cause. *Wrong and sure*: the first finding is a cause that names none.
    """
    counts: dict[str, Counter[str]] = {}
    for line in sorted(
        file.read_text("utf-8").splitlines(), key=lambda one: int(json.loads(one)["case"].split("-")[0])
    ):
        said = json.loads(line)
        known = json.loads((truth / f"{said['case'].split('-')[0]}.json").read_text("utf-8"))
        causes = [one for one in said["findings"] if one["role"] in {"cause", "contributing"}]
        named = [{n for n, fault in enumerate(known["faults"]) if _names(one, fault, known)} for one in causes]
        first = bool(named and named[0])
        both = len(set().union(*named[: len(known["faults"]) + 1])) == len(known["faults"])
        wrong = bool(causes) and causes[0]["role"] == "cause" and not first
        found = {"cause first": first, "all named": both, "wrong and sure": wrong, "no answer": not said["findings"]}
        counted = counts.setdefault(known["shown"], Counter())
        counted.update(["cases", *(name for name, holds in found.items() if holds)])
        verdict = "right" if first and both else "first" if first else "WRONG" if wrong else "missed"
        print(f"{said['case']} {known['model']} {known['shown']} {verdict} {said['processor_s']:.0f} s of processor")
        for fault in known["faults"]:
            print(f"    truth {fault['at']}: {fault['says']}")
        for one in said["findings"][:3]:
            print(f"    said  {one['role']} {one['code']} {one.get('share')} {one['claim'][:230]}")
    for shown, counted in counts.items():
        told = (
            f"{name} {_share(counted[name], counted['cases'])}"
            for name in ("cause first", "all named", "wrong and sure", "no answer")
        )
        print(f"{shown:13} {', '.join(told)}")


def _names(finding: dict[str, Any], fault: dict[str, Any], known: dict[str, Any]) -> bool:
    site = finding.get("site") or {}
    told = {site.get("tensor", ""), site.get("node", "")} if isinstance(site, dict) else {str(site)}
    places = {fault["at"], *known["beside"][fault["at"]]}
    claim = _COUNTED.sub("", finding["claim"])
    # What is done to the inputs as a whole has no tensor; its words say what was done.
    is_before = fault["kind"].startswith("input ") and finding["code"].startswith("PRE") and told <= {"", "None"}
    near = (
        is_before
        or bool(told & places)
        or any(re.search(rf"(?<![\w.]){re.escape(one)}(?![\w.])", claim) for one in places)
    )
    return near and re.search(fault["named"], claim) is not None


def _share(successes: int, trials: int) -> str:
    low, high = wilson_interval(successes, trials)
    return f"{successes} of {trials} ({100 * low:.0f} to {100 * high:.0f} %)"
