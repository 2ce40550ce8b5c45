"""Runs the planted-fault suite and writes docs/faults.md: figures with intervals, and what was taken for what.

    python bench/faults.py results.jsonl [--sample N] [--processes N] [--page]

N cases of every fault, each with its clean twin; outcomes are added to the file as they come, and what it holds is not run again.
With --page the tables are written anew from all outcomes in the file, however many there are. What stands before and behind them
was written by hand and is kept, with the line that says at which commit and on what machine they were made.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proving.faults import FAMILIES, faults
from proving.faults.cases import cases
from proving.faults.results import read_outcomes, run_all
from proving.faults.subjects import SUBJECTS
from proving.faults.tables import PARTS, Share, figures, matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proving.faults import Fault, Outcome

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
FIGURES, ROUNDS = "## Figures\n", "## Rounds on fresh models\n"
ROWS = {
    "first": "right cause first",
    "three": "right cause among the first three",
    "region": "right region first, where there is one",
    "repair": "the known repair offered first, where there is one",
    "false causes": "clean twins blamed for a cause",
    "false verdicts": "clean twins blamed, or called beyond",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    known = faults()
    if arguments.sample:
        chosen = list(cases(known, arguments.sample))
        run_all(chosen, known, path=arguments.results, processes=arguments.processes, told=_tell)
    if arguments.page:
        # The rounds on fresh models are no outcomes of this suite: their section is kept.
        head, begun, tables = PAGE.read_text(encoding="utf-8").partition(FIGURES)
        rounds = "".join(tables.partition(ROUNDS)[1:])
        if not (begun and rounds):
            raise SystemExit(f"{PAGE} has no line {FIGURES!r} or no line {ROUNDS!r}: put them back")
        text = "\n".join(page(read_outcomes(arguments.results), known))
        PAGE.write_text(f"{head}{text}\n\n{rounds}", encoding="utf-8")


def page(outcomes: Sequence[Outcome], known: Mapping[str, Fault]) -> Iterator[str]:
    """The lines of the page's tables."""
    yield from _figures(figures(outcomes))
    yield from _families(outcomes)
    yield from _matrix(outcomes, known)
    yield from _missed(outcomes)
    yield from _blamed(outcomes)
    yield from _left_out(outcomes)


def _figures(found: Mapping[str, Any]) -> Iterator[str]:
    yield FIGURES
    yield f"|  | {' | '.join(PARTS)} |"
    yield "| --- |" + " --- |" * len(PARTS)
    counts = [f"{found[part]['faulty']} and {found[part]['clean']}" for part in PARTS]
    yield f"| faulty and clean cases | {' | '.join(counts)} |"
    for key, words in ROWS.items():
        yield f"| {words} | {' | '.join(_share(found[part][key]) for part in PARTS)} |"
    yield f"| seconds: median, ninth decile, most | {' | '.join(_three(found[part]['seconds']) for part in PARTS)} |"
    yield f"| experiments: median, ninth decile, most | {' | '.join(_three(found[part]['experiments']) for part in PARTS)} |"
    yield "\nShares with 95 % Wilson intervals. Seconds are of one diagnosis in one process.\n"


def _share(share: Share) -> str:
    if not share.count:
        return "-"
    words = f"{share.hits} of {share.count}: {100 * share.hits / share.count:.1f} %"
    return f"{words} ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _three(values: tuple[float, float, float]) -> str:
    return ", ".join(f"{value:.0f}" if value >= 10 else f"{value:.1f}" for value in values)


def _families(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "## By family and by model\n"
    yield "| family | faults | cause first | region first |\n| --- | --- | --- | --- |"
    for family in FAMILIES:
        chosen = [one for one in outcomes if one.family == family and not one.error and not one.case.clean]
        row = figures(chosen)["all"]
        count = len({one.case.fault for one in chosen})
        yield f"| {family} | {count} | {_share(row['first'])} | {_share(row['region'])} |"
    yield "\n| model | cause first | clean twins blamed |\n| --- | --- | --- |"
    for name in SUBJECTS:
        row = figures([one for one in outcomes if one.case.subject == name])["all"]
        if row["faulty"] or row["clean"]:
            yield f"| {name} | {_share(row['first'])} | {_share(row['false verdicts'])} |"
    yield ""


def _matrix(outcomes: Sequence[Outcome], known: Mapping[str, Fault]) -> Iterator[str]:
    """One row a fault: expected, and what came first how often."""
    yield "## What was taken for what\n"
    yield "| fault | expected (also right) | first finding |\n| --- | --- | --- |"
    found = matrix(outcomes)
    for name in sorted(found, key=lambda one: (FAMILIES.index(known[one].family), one)):
        fault, row = known[name], found[name]
        also = f" ({', '.join(fault.accepted)})" if fault.accepted else ""
        said = ", ".join(f"{code} {count}" for code, count in row.most_common())
        yield f"| {fault.title} | {fault.expected}{also} | {said} |"
    yield ""


def _missed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Every case whose cause, region or repair did not come first: it can be run alone by its name."""
    wrong = [one for one in outcomes if not one.error and False in {one.first, one.region, one.repaired}]
    if wrong:
        yield "## What was missed\n"
        for one in wrong:
            judged = {"cause": one.first, "region": one.region, "repair": one.repaired}
            missed = " and ".join(word for word, right in judged.items() if right is False)
            said = ", ".join(f"{code} ({role})" for code, role, _ in one.findings[:3]) or "nothing"
            part = f", kept apart ({one.case.held})" if one.case.held else ""
            yield f"* `{one.case.key}`{part}: {one.words}; expected {one.expected[0]}, said {said}: the {missed}"
        yield ""


def _blamed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    blamed = [one for one in outcomes if one.case.clean and one.blamed]
    if blamed:
        yield "## Clean twins that were blamed\n"
        for one in blamed:
            yield f"* `{one.case.key}` ({one.words}): {', '.join(one.blamed)}"
        yield ""


def _left_out(outcomes: Sequence[Outcome]) -> Iterator[str]:
    reasons = Counter(one.error for one in outcomes if one.error)
    if reasons:
        yield "## Not examined\n"
        for reason, count in reasons.most_common():
            yield f"* {count}: {reason}"


def _tell(outcome: Outcome) -> None:
    print(
        outcome.case.key,
        outcome.first if not outcome.case.clean else outcome.blamed,
        f"{outcome.seconds:.1f} s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
