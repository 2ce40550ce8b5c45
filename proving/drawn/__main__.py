"""`python -m proving.drawn make FOLDER FIRST LAST | run FOLDER --out FILE | judge FILE --truth FOLDER`; see the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from proving.drawn.judging import judge
from proving.drawn.making import make_case
from proving.rounds.running import run_cases


def main() -> None:
    """One of the three verbs."""
    parser = argparse.ArgumentParser(prog="python -m proving.drawn", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="draw the cases of seeds FIRST to LAST - 1")
    making.add_argument("folder", type=Path)
    making.add_argument("seeds", type=int, nargs=2)
    running = verbs.add_parser("run", help="run `parityscope diagnose` on each case that FILE does not have yet")
    running.add_argument("folder", type=Path)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--case", action="append", default=[])
    judging = verbs.add_parser("judge", help="the truth beside what was said, and the table")
    judging.add_argument("file", type=Path)
    judging.add_argument("--truth", type=Path, required=True, help="FOLDER/truth")
    asked = parser.parse_args()
    if asked.verb == "make":
        for seed in range(*asked.seeds):
            print(make_case(asked.folder, seed), flush=True)
    elif asked.verb == "run":
        run_cases(asked.folder.resolve(), asked.out, asked.processes, asked.case)
    else:
        judge(asked.file, asked.truth)


if __name__ == "__main__":
    main()
