"""`parityscope repair` beside other people's tools and other methods of search: the table of docs/comparison.md.

    python bench/rivals.py --prepare                     makes the throwaway environment of the tools (pip, 0.6 GB)
    python bench/rivals.py [--methods A,B] [SUBJECT ...]  appends rows to rivals.jsonl, and prints them
    python bench/rivals.py --table                       the rows so far as Markdown

Every method gets the same model file (nodes named) and the same search samples; every model that comes out is judged on the
same samples that nobody has seen, freshly loaded and de-typed (`_rivals/judging.py`). A tool that cannot be had, refuses the
model or runs out of time is a row with the reason.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _rivals import ddmin, environment, halving, prefix, ranking
from _rivals.counting import counted
from _rivals.judging import THREADS, as_it_stands, faithful, judged
from _rivals.replaying import OutOfTime, Replay, write
from _rivals.subjects import SUBJECTS
from _rivals.subjects import write as write_subject
from _rivals.table import Row, against, keep, kept_rows, markdown, spending, tallied
from _rivals.timing import cpu_seconds, ratio

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask, search_repair
from parityscope.repairs.search.judging import Yardstick, make_yardstick
from parityscope.repairs.search.preparing import reference_of
from parityscope.repairs.search.splitting import split_samples
from parityscope.repairs.search.staging import stage_model
from proving.models.fetching import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _rivals.subjects import Subject

    from parityscope.case import Sample

    Pairs = Sequence[tuple[Sample, Mapping[str, np.ndarray]]]
    Method = Callable[["Bench", str], Row | None]

ROWS = Path("rivals.jsonl")
TOOL_S, REPLAY_S = 600.0, 120.0  # the most that a tool may take on the wall, and a replayed method of CPU
CALIBRATED = 8  # search samples that AutoCast is given at most: it holds every tensor of every one in memory
HERE = Path(__file__).parent / "_rivals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A subject laid out in a folder: what every method is given, and what judges them."""

    subject: Subject
    title: str
    folder: Path
    task: RepairTask
    held: Yardstick
    searched: Pairs
    fresh: Pairs
    simulated: float  # what a run of the switchable graph takes, in runs of the plain FP32 model

    @property
    def model(self) -> Path:
        return self.task.model.path

    def file(self, method: str) -> Path:
        return self.folder / f"{method.replace(' ', '-')}.onnx"

    def row(self, method: str) -> Row:
        return Row(subject=self.title, budget=f"{self.subject.low}, {self.subject.limit:g}", method=method)


def main() -> None:
    words = sys.argv[1:]
    if "--prepare" in words:
        sys.exit(environment.prepare() or None)
    if "--table" in words:
        subjects, methods = list(SUBJECTS), list(METHODS)
        rows = sorted(kept_rows(ROWS), key=lambda row: (subjects.index(row.subject), methods.index(row.method)))
        print("\n\n".join([tallied(rows), against(rows, OURS, TOOLS), spending(rows, OURS), markdown(rows)]))
        return
    methods = list(METHODS)
    if "--methods" in words:
        place = words.index("--methods")
        methods = words[place + 1].split(",")
        del words[place : place + 2]
    for title in words or SUBJECTS:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                bench = laid_out(title, Path(scratch))
            except Unavailable as error:
                print(f"{title}: skipped: {error}", flush=True)
                continue
            for method in methods:
                row = METHODS[method](bench, method)
                if row is not None:
                    keep(row, ROWS)
                    print(markdown([row]).splitlines()[-1], flush=True)


def laid_out(title: str, folder: Path) -> Bench:
    """The subject's files, its references, and the split into samples to search on and to hold out.

    Raises:
        Unavailable: the model cannot be had.
    """
    subject = SUBJECTS[title]
    write_subject(subject, folder)
    (folder / "staged").mkdir()
    model = stage_model(load_model(folder / "model.onnx"), (), folder / "staged", "model")
    budget = Budget(output="", metric="rel_l2", limit=subject.limit, reason="bench")
    shown, fresh = (load_inputs(model, folder / part, spool=folder / f"{part}-spool") for part in ("shown", "fresh"))
    task = RepairTask(
        model=model,
        inputs=shown,
        low=subject.low,
        policy=Policy(budgets=(budget,)),
        threads=THREADS,
        search_samples=subject.searched,
        sensing=subject.sensing,
    )
    reference = reference_of(task)
    pairs = [[(sample, reference(sample.arrays)) for sample in part] for part in (split_samples(task)[0], fresh)]
    for number, (sample, _) in enumerate(pairs[0][:CALIBRATED]):
        write_npz(folder / "searched" / f"{number:06d}.npz", sample.arrays)
    held = make_yardstick(task.policy, {}, [outputs for _, outputs in pairs[0]], None)
    return Bench(
        subject=subject,
        title=title,
        folder=folder,
        task=task,
        held=held,
        searched=pairs[0],
        fresh=pairs[1],
        simulated=_simulated(task, pairs[0][0][0]),
    )


def _simulated(task: RepairTask, sample: Sample) -> float:
    """CPU of a run with everything low over that of the plain model; both without ONNX Runtime's optimizer."""
    board = Switchboard(task.model.graph(), task.low, threads=THREADS)
    everything = np.ones(len(board.graph.nodes), np.bool_)
    plain = open_session(task.model.graph(), threads=THREADS, optimization="disabled", folder=task.model.path.parent)
    return ratio(lambda: board.run(sample, everything), lambda: plain(sample.arrays))


def finished(bench: Bench, row: Row, path: Path) -> Row:
    """The row with what is counted and measured in the file."""
    try:
        count = counted(path, bench.searched[0][0], bench.folder)
        seen = judged(bench.held, bench.fresh, faithful(path))
    except ParityError as error:
        return replace(row, problem=f"the file cannot be used: {error.problem[:160]}")
    except ValueError as error:  # protobuf or onnx refuse the file itself
        return replace(row, problem=f"the file is no valid model: {str(error)[:160]}")
    try:
        shown = judged(bench.held, bench.searched, as_it_stands(path)).worst
    except ParityError:
        shown = math.nan
    return replace(
        row,
        worst=seen.worst,
        misses=seen.misses,
        fresh=seen.count,
        onnxruntime=shown,
        full=count.full,
        nodes=count.nodes,
        flops=count.flops,
        casts=count.casts,
    )


def repaired(bench: Bench, method: str) -> Row:
    """`parityscope repair`."""
    work, path = bench.folder / "work", bench.file(method)
    work.mkdir()
    started = cpu_seconds()
    try:
        found = search_repair(bench.task, work, path)
    except ParityError as error:
        return replace(bench.row(method), problem=error.problem, seconds=cpu_seconds() - started)
    row = replace(
        bench.row(method),
        evaluations=found.evaluations,
        flagged=len(found.flags),
        passes=found.passes,
        excused=found.excused,
        inferences=found.passes * bench.simulated + found.screens,
        seconds=cpu_seconds() - started,
    )
    if found.verdict == "infeasible":
        return replace(row, problem="it says that none meets the budget")
    if found.verdict == "nothing":
        all_low(bench, path)
    if not path.exists():
        return replace(row, problem=found.statement[:160])
    claims = found.verdict in {"certified", "nothing"}
    edits = f", {len(found.edits)} range repair{'s' * (len(found.edits) != 1)}" if found.edits else ""
    share = found.certificate.share if found.certificate else 0.0
    said = f"certified ({share:.0%}){edits}" if claims else f"not certified{edits}"
    return finished(bench, replace(row, claims=claims, said=said), path)


def everything(bench: Bench, method: str) -> Row:
    """Everything low, as Parityscope's writer does it: what there is to repair."""
    started = cpu_seconds()
    all_low(bench, bench.file(method))
    return finished(bench, replace(bench.row(method), seconds=cpu_seconds() - started), bench.file(method))


def all_low(bench: Bench, path: Path) -> None:
    write(bench.task.model, bench.subject.low, (), np.zeros(0, np.bool_), path)


def tool(name: str, words: Callable[[Bench, Path], list[str]], *, formats: tuple[str, ...], says: str) -> Method:
    """A method that is somebody's tool; `says` is what it claims of what it writes, empty where it claims nothing."""

    def method(bench: Bench, label: str) -> Row | None:
        if bench.subject.low not in formats:
            return None
        path, row = bench.file(label), bench.row(label)
        if reason := environment.missing():
            return replace(row, problem=reason, seconds=0.0)
        ran = environment.python(HERE / f"{name}.py", words(bench, path), limit_s=TOOL_S)
        row = replace(row, seconds=ran.seconds, evaluations=ran.text.count("Running attempt"))
        if ran.problem:
            return replace(row, problem=ran.problem)
        return finished(bench, replace(row, claims=bool(says), said=says), path)

    return method


def replayed(choose: Callable[[Replay], np.ndarray | None], *, alone: bool = False) -> Method:
    """A method of search on the simulation; `alone`: on the first search sample only."""

    def method(bench: Bench, label: str) -> Row:
        started = cpu_seconds()
        row, low_format = bench.row(label), bench.subject.low
        board = Switchboard(bench.task.model.graph(), low_format, threads=THREADS)
        pairs = bench.searched[:1] if alone else bench.searched
        asked = Replay(
            board=board,
            samples=[sample for sample, _ in pairs],
            references=[outputs for _, outputs in pairs],
            held=bench.held,
            deadline=started + REPLAY_S,
        )
        said = "passes one sample" if len(pairs) == 1 else f"passes {len(pairs)} samples"
        try:
            low = choose(asked)
        except OutOfTime:
            low, said = asked.best, f"{said}, stopped"
        passes = asked.runs / len(pairs)
        row = replace(
            row,
            evaluations=asked.evaluations,
            passes=passes,
            inferences=passes * bench.simulated + 1,
            seconds=cpu_seconds() - started,
        )
        if low is None:
            return replace(row, problem="found no assignment that passes")
        write(bench.task.model, low_format, [node.name for node in board.graph.nodes], low, bench.file(label))
        return finished(bench, replace(row, claims=True, said=said), bench.file(label))

    return method


def validated(bench: Bench, path: Path) -> list[str]:
    """The words for onnxconverter.py: the model, one sample, the output, and the budget with the floors of outputs."""
    asked = bench.folder / "asked.json"
    floors = [bench.held.floors.get(value.name, 0.0) for value in bench.task.model.outputs]
    asked.write_text(json.dumps({"limit": bench.subject.limit, "floors": floors}), encoding="utf-8")
    return [str(bench.model), str(bench.folder / "searched" / "000000.npz"), str(path), str(asked)]


def calibrated(bench: Bench, path: Path) -> list[str]:
    """The words for autocast.py."""
    low = {"f16": "fp16", "bf16": "bf16"}[bench.subject.low]
    return [str(bench.model), str(bench.folder / "searched"), str(path), low]


OURS, TOOLS = "parityscope repair", ("AutoCast", "float16", "auto mixed precision", "prefix")
METHODS: dict[str, Method] = {
    "everything low": everything,
    OURS: repaired,
    "AutoCast": tool("autocast", calibrated, formats=("f16", "bf16"), says=""),
    "float16": tool("ort_float16", lambda bench, path: [str(bench.model), str(path)], formats=("f16",), says=""),
    "auto mixed precision": tool("onnxconverter", validated, formats=("f16",), says="validated"),
    "prefix": replayed(prefix.choose),
    "ddmin": replayed(ddmin.choose),
    "halving": replayed(halving.choose),
    "ddmin (one sample)": replayed(ddmin.choose, alone=True),
    "halving (one sample)": replayed(halving.choose, alone=True),
    "ranking (one sample)": replayed(ranking.choose, alone=True),
}


if __name__ == "__main__":
    main()
