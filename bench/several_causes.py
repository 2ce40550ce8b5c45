"""Several causes at once: how often each is named, and nothing else, over random weights and inputs.

    python bench/several_causes.py [SEEDS]

Plants every kind of `proving.several_causes` with so many seeds (default 10, from 2 on: seed 1 is that of the tests)
and diagnoses each from the command line. Prints the table in docs/several-causes.md: of each kind how often the causes named
are those planted, how often one of them was missing, how often another was blamed, and the processor time of a diagnosis.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from proving.several_causes import Planted, cases, planted

FIRST = 2
ENDED = (0, 1)  # exit codes: within, beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One diagnosis: what was missing of the causes, what else was blamed, and how long it took."""

    missing: bool
    blamed: bool
    seconds: float


def diagnosed(case: Planted) -> Row:
    """Diagnoses one planted case in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["diagnose", *planted(case, Path(folder)), "--study", f"{folder}/study", "--format", "json", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "parityscope", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PARITYSCOPE_NO_FORK": "1"},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ENDED:
        raise SystemExit(f"exit code {done.returncode}: {done.stderr}")
    causes = {one["code"] for one in json.loads(done.stdout)["findings"] if one["role"] == "cause"}
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(missing=bool(case.named - causes), blamed=bool(causes - case.named), seconds=seconds)


def main() -> None:
    """Prints the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rows: dict[str, list[Row]] = {}
    for seed in range(FIRST, FIRST + seeds):
        for name, case in cases(seed).items():
            rows.setdefault(name, []).append(diagnosed(case))
            last = rows[name][-1]
            print(f"{seed} {name}: {'missing ' * last.missing}{'blamed' * last.blamed}", file=sys.stderr, flush=True)
    print("| planted | diagnoses | all named and nothing else | one missing | another blamed | CPU seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, found in rows.items():
        right = sum(not one.missing and not one.blamed for one in found)
        missing, blamed = sum(one.missing for one in found), sum(one.blamed for one in found)
        seconds = sorted(one.seconds for one in found)[len(found) // 2]
        print(f"| {name} | {len(found)} | {right} | {missing} | {blamed} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
