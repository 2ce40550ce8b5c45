"""The smallest proof of planted faults, beside Polygraphy's `debug reduce` on the same: prints the table of docs/reduce.md.

    PYTHONPATH=. python bench/reduce.py --results reduce.jsonl > table.md

Polygraphy needs onnx-graphsurgeon, which is not one of our own dependencies: `pip install onnx-graphsurgeon`.

**Which faults.** Every planted fault that lies in a layer and that some draw deploys live (a recording cannot be run again, by
neither tool), each once: of its first cases (five numbers) the live one on the largest model, the first of those that are alike.

**What is counted.** Nodes without Constants. Runs of both sides: each examination of a smaller model here, each run of the
check there. The study that comes before is not counted here, as the run that saw the failure is not there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench._reduce.polygraphy import Deployed, examine_part, reduce_by_polygraphy
from parityscope.backends.recording import RecordingRequest as Recorded
from parityscope.backends.recording import observable_tensors, record_trace
from parityscope.case import load_model
from parityscope.case.graph import computing_nodes
from parityscope.errors import ParityError
from parityscope.records import Target
from parityscope.study import Request, examine_request, open_request
from parityscope.study.difference import pair_tensors
from parityscope.study.reduction import reduce_examination
from parityscope.study.reduction.pattern import pattern_of, what_shows
from proving.faults import faults
from proving.faults.cases import cases
from proving.faults.planting import write_samples
from proving.faults.records import Case, NoEffectError
from proving.faults.running import plant_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.examination import Examination
    from parityscope.study.reduction import FindingPattern
    from proving.faults.records import Bed, Plant

_NUMBERS = 5
_REFERENCE = Target(backend="ort")


def chosen_cases() -> list[Case]:
    """One case of each fault that lies in a layer and can be run again."""
    known = faults()
    best: dict[str, tuple[int, Case]] = {}
    for case in cases(known, _NUMBERS, clean=False):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                bed, plant = plant_case(case, known[case.fault], Path(scratch))
            except (NoEffectError, ParityError):
                continue
            if not plant.sites or plant.candidate.startswith(("saved", "command")):
                continue
            size = len(computing_nodes(load_model(bed.path).graph()))
        if size > best.get(case.fault, (0, case))[0]:
            best[case.fault] = size, case
            print(f"{case.key}: {size} nodes", file=sys.stderr)
    return [case for _, case in best.values()]


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Both tools on one case."""
    bed, plant = plant_case(case, faults()[case.fault], folder)
    data = write_samples(bed.samples if plant.samples is None else plant.samples, folder / "data")
    request = Request(model=bed.path, candidate=plant.candidate, inputs=data, declared=plant.declared)
    row: dict[str, Any] = {"key": case.key, "held": case.held, "candidate": plant.candidate.partition("?")[0]}
    with open_request(request) as asked:
        known = replace(asked, folder=folder / "study")
        document = examine_request(known)
        pattern = pattern_of(document)
        start = time.perf_counter()
        found = reduce_examination(known, document, folder / "reduce")
        shows = [one.shows for one in found.attempts if one.shows == "the same"]
        row |= {
            "code": pattern.code,
            "nodes": found.whole,
            "left": found.piece.nodes,
            "elements": found.elements,
            "runs": found.runs,
            "runs_for_nodes": sum(one.runs for one in found.attempts if one.stage == "region"),
            "same": bool(shows),
            "seconds": round(time.perf_counter() - start, 1),
        }
        deployed = _deployed(known, bed, plant, folder)
    return row | _by_polygraphy(deployed, pattern, folder / "polygraphy")


def _deployed(known: Examination, bed: Bed, plant: Plant, folder: Path) -> Deployed:
    names = dict(pair_tensors(known).names)
    model, inputs = known.case.model, known.case.inputs
    samples = inputs.indices[:3]
    wanted = Recorded(samples=samples, tensors=tuple(observable_tensors(model)), folder=folder / "values")
    trace = record_trace(model, inputs, _REFERENCE, wanted)
    values = [
        {**{name: np.array(trace.get(place, name)) for name in trace.names}, **inputs.sample(place).arrays}
        for place in samples
    ]
    return Deployed(
        model=bed.path, candidate=plant.candidate, declared=plant.declared or "f32", names=names, values=values
    )


def _by_polygraphy(deployed: Deployed, pattern: FindingPattern, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    found = reduce_by_polygraphy(deployed, folder)
    row = {
        "their_left": found.nodes,
        "their_runs": found.runs,
        "their_seconds": round(time.perf_counter() - start, 1),
    }
    if found.path is None:
        return row | {"theirs": "no model", "their_words": found.said}
    try:
        shown, words = what_shows(examine_part(deployed, found.path, folder / "after", whole=True), pattern)
    except (ParityError, KeyError) as error:
        shown, words = "not run", str(error)
    return row | {"theirs": shown, "their_words": words}


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows as Markdown, and the sums below them."""
    yield "| fault, model | cause | nodes | left | runs (for the nodes) | same cause | Polygraphy: left | runs | same cause |"
    yield "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- |"
    for row in rows:
        theirs = "yes" if row["theirs"] == "the same" else f"no: {row['theirs']}" + _words(row)
        yield (
            f"| {row['key']} | {row['code']} | {row['nodes']} | {row['left']} | {row['runs']} ({row['runs_for_nodes']}) | "
            f"{'yes' if row['same'] else 'no'} | {row['their_left'] or '-'} | {row['their_runs']} | {theirs} |"
        )
    left = statistics.median(row["left"] / row["nodes"] for row in rows)
    gave = [row["their_left"] / row["nodes"] for row in rows if row["their_left"]]
    theirs = f"{statistics.median(gave):.1%}" if gave else "gave no model"
    more = max((row["runs"] / row["their_runs"] for row in rows if row["their_runs"]), default=0.0)
    yield ""
    yield f"{len(rows)} faults; nodes left at the median {left:.1%}, Polygraphy {theirs}"
    ours, other = (statistics.median(row[name] for row in rows) for name in ("runs", "their_runs"))
    yield f"runs at the median {ours:g}, Polygraphy {other:g}; at most {more:.2f} times Polygraphy's"
    same, also = sum(row["same"] for row in rows), sum(row["theirs"] == "the same" for row in rows)
    yield f"the same cause in {same} of {len(rows)}, Polygraphy {also} of {len(rows)}"


def _words(row: Mapping[str, Any]) -> str:
    return f" ({row['their_words'][:60]})" if row["theirs"] == "another finding" else ""


def main() -> None:
    """Runs what the file of results does not have yet, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="a file that rows are added to, and resumed from")
    parser.add_argument(
        "--only", nargs="*", default=(), help="keys of cases (fault/model/number) in place of the choice"
    )
    asked = parser.parse_args()
    lines = asked.results.read_text(encoding="utf-8").splitlines() if asked.results.exists() else []
    done = {row["key"]: row for row in map(json.loads, lines)}
    every = {case.key: case for case in cases(faults(), _NUMBERS, clean=False)}
    chosen = [every[key] for key in asked.only] or chosen_cases()
    for case in chosen:
        if case.key in done:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                done[case.key] = measure(case, Path(scratch))
            except ParityError as error:
                print(f"{case.key}: {error}", file=sys.stderr)
                continue
        print(json.dumps(done[case.key]), file=sys.stderr, flush=True)
        with asked.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[case.key]) + "\n")
    print("\n".join(table([done[case.key] for case in chosen if case.key in done])))


if __name__ == "__main__":
    main()
