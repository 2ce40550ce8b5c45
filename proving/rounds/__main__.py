"""`python -m proving.rounds make FOLDER [--round N] | run FOLDER --out FILE | judge FILE --truth FOLDER [--round N]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from proving.rounds.judging import print_cases, print_table
from proving.rounds.making import make_model
from proving.rounds.running import run_cases
from proving.rounds.tables import ROUNDS, tables_of


def main() -> None:
    """One of the three verbs."""
    parser = argparse.ArgumentParser(prog="python -m proving.rounds", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="download the models, make and measure all cases")
    making.add_argument("folder", type=Path)
    making.add_argument("--model", action="append", default=[])
    running = verbs.add_parser("run", help="run `parityscope diagnose` on each case that FILE does not have yet")
    running.add_argument("folder", type=Path)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--case", action="append", default=[])
    judging = verbs.add_parser("judge", help="the truth beside what was said; with --judged the table")
    judging.add_argument("file", type=Path)
    judging.add_argument("--truth", type=Path, required=True, help="FOLDER/truth")
    judging.add_argument("--judged", type=Path, help="judged.json: case -> cause | three | place | wrong | none")
    judging.add_argument("--case", action="append", default=[])
    for verb in (making, judging):
        verb.add_argument("--round", type=int, choices=ROUNDS, default=ROUNDS[-1], help="default: the newest")
    asked = parser.parse_args()
    if asked.verb == "make":
        tables = tables_of(asked.round)
        for model in tables.models:
            if not asked.model or model.name in asked.model:
                for line in make_model(asked.folder, model, tables):
                    print(line, flush=True)
    elif asked.verb == "run":
        run_cases(asked.folder.resolve(), asked.out, asked.processes, asked.case)
    else:
        names = [model.name for model in tables_of(asked.round).models]
        print_cases(asked.file, asked.truth, asked.case, names)
        if asked.judged:
            print_table(asked.file, asked.truth, asked.judged, names)


if __name__ == "__main__":
    main()
