"""What a search needs before it begins: samples, references, budgets, the repaired copy, its network and its oracle."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.arithmetic.simulation import simulate
from parityscope.backends._onnxruntime import open_path, open_session
from parityscope.backends.recording import tensor_shapes
from parityscope.backends.switching import Switchboard
from parityscope.errors import ParityError
from parityscope.repairs.search.costs import H200, read_profile
from parityscope.repairs.search.finding import Finder
from parityscope.repairs.search.front import pareto
from parityscope.repairs.search.journal import Journal
from parityscope.repairs.search.judging import excess, yardstick
from parityscope.repairs.search.network import network_of
from parityscope.repairs.search.oracle import Oracle
from parityscope.repairs.search.ranging import repaired
from parityscope.repairs.search.records import Outcome
from parityscope.repairs.search.splitting import check, margin_of, split

if TYPE_CHECKING:
    import numpy as np

    from parityscope.backends._onnxruntime import Run
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model, Sample
    from parityscope.records import Skip
    from parityscope.repairs.search.judging import Yardstick
    from parityscope.repairs.search.network import Network
    from parityscope.repairs.search.ranging import Screened
    from parityscope.repairs.search.records import Task, Verdict

__all__ = ["Work", "outcome_of", "prepare", "reference_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the steps share.

    `original` is the excess of the model with everything low before range repairs, NaN where there were none.
    """

    task: Task
    folder: Path
    search: Inputs
    held_out: Inputs
    margin: float
    held: Yardstick
    reference: Run
    screened: Screened
    finder: Finder
    original: float
    skipped: tuple[Skip, ...]
    journal: Journal | None
    started: float
    seconds: dict[str, float]


def prepare(task: Task, folder: Path, progress: Progress) -> Work:
    """Screens the model, applies range repairs to a copy, and opens its switchable graph.

    Raises:
        ParityError: the model, the data or the options cannot be used.
    """
    started = time.monotonic()
    skipped = check(task)
    search, held_out = split(task)
    margin = margin_of(task, len(search))
    reference = reference_of(task)
    samples = list(search)
    references = [reference(sample.arrays) for sample in samples]
    held = yardstick(task.budgets, task.functions, references, task.floor)
    screened = repaired(task, search, references, margin, folder, progress)
    seconds = {"screen": time.monotonic() - started}
    board = Switchboard(screened.model.graph(), task.low, threads=task.threads, folder=screened.model.path.parent)
    names = [node.name for node in board.graph.nodes]
    network = _network(task, screened.model, samples[0], names)
    journal = None if task.journal is None else Journal(task.journal, _described(task, screened.model, search, held))
    oracle = Oracle(
        board,
        samples,
        references,
        held,
        evaluations=task.evaluations or None,
        deadline=started + task.seconds,
        journal=journal,
    )
    original = _before(task, samples, references, held) if screened.edits else math.nan
    return Work(
        task=task,
        folder=folder,
        search=search,
        held_out=held_out,
        margin=margin,
        held=held,
        reference=reference,
        screened=screened,
        finder=Finder(oracle=oracle, network=network, flags=screened.flags, progress=progress, sensing=task.sensing),
        original=original,
        skipped=(*skipped, *board.graph.notes),
        journal=journal,
        started=started,
        seconds=seconds,
    )


def reference_of(task: Task) -> Run:
    """The reference: the model's own file in ONNX Runtime."""
    return open_path(task.model.path, outputs=[value.name for value in task.model.outputs], threads=task.threads)


def outcome_of(work: Work, verdict: Verdict, statement: str) -> Outcome:
    """The outcome with everything that is known whatever was chosen."""
    trail = tuple(work.finder.trail)
    sensed = work.finder.sensed
    first = next((point.excess for point in trail if point.step == "all low"), math.nan)
    return Outcome(
        verdict=verdict,
        statement=statement,
        low=work.task.low,
        margin=work.margin,
        typed=work.task.typed,
        nodes=len(work.finder.oracle.names),
        flags=work.screened.first,
        edits=work.screened.edits,
        front=pareto(trail),
        trail=trail,
        all_low=first if math.isnan(work.original) else work.original,
        search_samples=work.search.indices,
        held_out=work.held_out.indices,
        evaluations=work.finder.oracle.count + (not math.isnan(work.original)),
        sensing=sensed.evaluations if sensed else 0,
        runs=work.finder.oracle.runs,
        resumed=work.finder.oracle.resumed,
        skipped=(*work.skipped, *work.screened.skipped),
        seconds={**work.seconds, "total": time.monotonic() - work.started},
    )


def _described(task: Task, model: Model, search: Inputs, held: Yardstick) -> str:
    """The digest of everything that a measured error depends on."""
    import onnxruntime

    # Not imported: the package as a whole stands above this layer.
    version = str(sys.modules[__name__.partition(".")[0]].__version__)
    files = [Path(one.text.rpartition(":")[0]) for one in task.functions.values()]
    facts = {
        "versions": [version, onnxruntime.__version__, platform.machine()],
        "model": [task.model.sha256, model.sha256, task.low, task.threads],
        "inputs": [search.sha256, list(search.indices)],
        "budgets": [[one.output, one.metric, one.limit.hex()] for one in task.budgets],
        "floors": {name: floor.hex() for name, floor in held.floors.items()},
        "functions": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _network(task: Task, model: Model, sample: Sample, decisions: list[str]) -> Network:
    graph = model.graph()
    names = {node.name for node in graph.graph}
    unknown = [name for name in decisions if name not in names]
    if unknown:
        raise ParityError(
            f"{unknown[0]!r} appears only when the model is converted to a newer opset",
            where=str(task.model.path),
            fix="convert the file first (onnx.version_converter.convert_version) and give that one",
        )
    shapes = tensor_shapes(model, sample, list(model.sites))
    shapes |= {name: array.shape for name, array in sample.arrays.items()}
    measured = read_profile(task.profile, task.low) if task.profile is not None else {}
    return network_of(graph, decisions, shapes, H200, measured)


def _before(task: Task, samples: list[Sample], references: list[dict[str, np.ndarray]], held: Yardstick) -> float:
    """The worst excess of the model as it is given, with everything low."""
    simulated = simulate(task.model.graph(), task.low)
    run = open_session(simulated.model, threads=task.threads, optimization="disabled", folder=task.model.path.parent)
    return max(
        excess(held, reference, run(sample.arrays)) for sample, reference in zip(samples, references, strict=True)
    )
