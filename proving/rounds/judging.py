"""The truth beside what was said, for a person to judge; and the table of what that person judged."""

from __future__ import annotations

import json
from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = {
    "graph": "graph at hand",
    "outputs": "outputs alone",
    "around": "before or behind the network",
    "two": "two at once",
    "right": "right deployments",
}
# A cause that is first is also among three, and has its place: each verdict counts in the columns it stands for.
_COLUMNS = {
    "cause first": ("cause",),
    "among three": ("cause", "three"),
    "place": ("cause", "three", "place"),
    "wrong cause": ("wrong",),
}


def print_cases(file: Path, truth: Path, wanted: list[str], models: list[str]) -> None:
    """Of each case of `file` and one of `models`: what is wrong, and what was said."""
    truths = _truths(truth)
    for said in _lines(file, models):
        if wanted and said["case"] not in wanted:
            continue
        known = truths[said["case"]]
        print(
            f"\n=== {said['case']} ({_KINDS[known['kind']]}, {known['at hand']}) exit {said['exit']}, {said['wall_s']:.0f} s"
        )
        print(f"truth: {known['says']}\n also: {known['also']}\nplace: {', '.join(known['place'])}")
        print(f" said: {said['verdict']}: {said['headline']}")
        for one in said["findings"]:
            site = one.get("site") or {}
            place = site.get("tensor", "") if isinstance(site, dict) else site
            rest = " ".join(f"{key} {one[key]}" for key in ("confidence", "share", "claim") if one.get(key) is not None)
            print(f"  {one.get('role', ''):10} {one.get('code', '')} {one.get('title', '')} [{place}] {rest}")


def print_table(file: Path, truth: Path, judged: Path, models: list[str]) -> None:
    """By kind: how many have the cause first, among three, the place, a wrong cause; 95 % Wilson intervals. Right: untouched."""
    truths, verdicts = _truths(truth), json.loads(judged.read_text(encoding="utf-8"))
    exits = {said["case"]: said["exit"] for said in _lines(file, models)}
    for kind, words in _KINDS.items():
        cases = [case for case in exits if truths[case]["kind"] == kind]
        if kind == "right":
            passed = sum(exits[case] in {0, 3} for case in cases)
            print(f"{words:30} within {_share(passed, len(cases))}")
            continue
        counted = Counter(verdicts.get(case, "unjudged") for case in cases)
        columns = (
            f"{name} {_share(sum(counted[one] for one in which), len(cases))}" for name, which in _COLUMNS.items()
        )
        print(f"{words:30} {'  '.join(columns)}  unjudged {counted['unjudged']}")


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a proportion; (0, 1) of no trials. Source: E. B. Wilson, JASA 22 (1927) 209-212."""
    if not trials:
        return 0.0, 1.0
    share, square = successes / trials, z * z / trials
    middle, half = share + square / 2, z * sqrt(share * (1 - share) / trials + square / (4 * trials))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def _share(successes: int, trials: int) -> str:
    low, high = wilson_interval(successes, trials)
    return f"{successes}/{trials} [{low:.0%}, {high:.0%}]"


def _lines(file: Path, models: list[str]) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return sorted((one for one in lines if one["case"].rsplit("-", 1)[0] in models), key=lambda one: str(one["case"]))


def _truths(folder: Path) -> dict[str, Any]:
    return {
        name: one for path in sorted(folder.glob("*.json")) for name, one in json.loads(path.read_text("utf-8")).items()
    }
