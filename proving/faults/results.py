"""Outcomes in a file that only grows: one JSON object a line, so that a long suite can be stopped and taken up again.

`run_all` runs the cases that the file does not have yet, in several processes if asked. A line is written when its case is
done; a file that was cut off in the middle of a line loses that line only.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from proving.faults.records import Case, Outcome
from proving.faults.running import run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from proving.faults.records import Fault

SCHEMA = "parityscope-faults/1"
_TUPLES = ("expected", "sites", "blamed")


def run_all(
    cases: Sequence[Case],
    faults: Mapping[str, Fault],
    *,
    path: Path | None,
    processes: int,
    told: Callable[[Outcome], None],
) -> list[Outcome]:
    """The outcomes of `cases`, those that `path` already has and the others, in the order of the cases."""
    done = {one.case.key: one for one in read_outcomes(path)} if path is not None else {}
    missing = [case for case in cases if case.key not in done]
    for outcome in _run(missing, faults, processes):
        done[outcome.case.key] = outcome
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"schema": SCHEMA, **asdict(outcome)}, sort_keys=True) + "\n")
        told(outcome)
    return [done[case.key] for case in cases]


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes in a file of results; none if there is no file."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        if record.pop("schema", "") == SCHEMA:
            found.append(_outcome(record))
    return found


def _outcome(record: dict[str, Any]) -> Outcome:
    for name in _TUPLES:
        record[name] = tuple(record[name])
    record["findings"] = tuple((code, role, tensor) for code, role, tensor in record["findings"])
    return Outcome(**{**record, "case": Case(**record["case"])})


def _run(cases: Sequence[Case], faults: Mapping[str, Fault], processes: int) -> Iterator[Outcome]:
    if processes <= 1:
        for case in cases:
            yield run_case(case, faults[case.fault])
        return
    left = list(cases)
    while left:
        done = []
        for case, outcome in _together(left, faults, processes):
            done.append(case)
            yield outcome
        left = [case for case in left if case not in done]
        # A runtime took a process with it: it was one of those at work, which are the first that are left.
        for case in left[:processes]:
            yield next((outcome for _, outcome in _together([case], faults, 1)), _died(case, faults[case.fault]))
        left = left[processes:]


def _together(cases: Sequence[Case], faults: Mapping[str, Fault], processes: int) -> Iterator[tuple[Case, Outcome]]:
    """Cases and their outcomes as they are done; those that are at work when a process dies, and all behind, are missing."""
    # Runtimes have threads of their own, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    begun = context.Value("i", 0)
    with concurrent.futures.ProcessPoolExecutor(processes, context, _pin, (begun, processes)) as pool:
        waiting = {pool.submit(run_case, case, faults[case.fault]): case for case in cases}
        for future in concurrent.futures.as_completed(waiting):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                return


def _pin(begun: Any, processes: int) -> None:
    """Gives this process its share of the processors: runtimes of several processes else start a thread for each of them."""
    allowed = sorted(os.sched_getaffinity(0))
    share = len(allowed) // processes
    with begun.get_lock():
        place, begun.value = begun.value % processes, begun.value + 1
    if share:
        os.sched_setaffinity(0, allowed[place * share : (place + 1) * share])


def _died(case: Case, fault: Fault) -> Outcome:
    """A diagnosis that took its process with it: wrong, like one that crashes."""
    blank = Outcome(case=case, family=fault.family, expected=(fault.expected, *fault.accepted), verdict="crashed")
    return replace(blank, blamed=("crash",)) if case.clean else replace(blank, first=False, three=False)
