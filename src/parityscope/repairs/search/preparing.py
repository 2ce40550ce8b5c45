"""What a search needs before it begins: samples, references, budgets, the repaired copy, its network and its oracle.

The Pareto front of error against cost, of every assignment that was evaluated.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.backends.sizing import tensor_shapes
from parityscope.case.equal_samples import repeats_of
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.light_dataclasses import dataclass, replace
from parityscope.memory import allowed_memory, relieve_memory
from parityscope.records import Skip
from parityscope.repairs.search.costs import H200, read_profile
from parityscope.repairs.search.finding import Finder
from parityscope.repairs.search.fp8 import product_scales, with_products
from parityscope.repairs.search.inside import sizes_within
from parityscope.repairs.search.journal import Journal
from parityscope.repairs.search.judging import make_yardstick
from parityscope.repairs.search.network import network_of
from parityscope.repairs.search.oracle import Oracle
from parityscope.repairs.search.ranging import apply_range_repairs, worst_all_low
from parityscope.repairs.search.records import RepairOutcome
from parityscope.repairs.search.reverse import Reverse
from parityscope.repairs.search.splitting import check_searchable, margin_of, split_samples
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.backends.recording import Progress
    from parityscope.case import Inputs, Model, Sample
    from parityscope.repairs.search.judging import Yardstick
    from parityscope.repairs.search.network import CutNetwork
    from parityscope.repairs.search.ranging import Screened
    from parityscope.repairs.search.records import Point, RepairTask, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWork:
    """What the steps share.

    `original` is the excess of the model with everything low before range repairs, NaN where there were none.
    """

    task: RepairTask
    folder: Path
    search: Inputs
    held_out: Inputs
    margin: float
    held: Yardstick
    reference: Run
    screened: Screened
    products: Mapping[str, Scalings]
    finder: Finder
    original: float
    skipped: tuple[Skip, ...]
    journal: Journal
    started: float
    seconds: dict[str, float]


def prepare_search(task: RepairTask, folder: Path, progress: Progress) -> SearchWork:
    """Screens the model, applies range repairs to a copy, and opens its switchable graph.

    Raises:
        ParityError: the model, the data or the options cannot be used.
    """
    started = time.monotonic()
    skipped = check_searchable(task)
    search, held_out, repeated = drop_repeated_samples(*split_samples(task))
    margin = margin_of(task, len(search))
    reference = reference_of(task)
    samples = list(search)
    references = [reference(sample.arrays) for sample in samples]
    held = make_yardstick(task.policy, task.functions, references, task.floor)
    screened = apply_range_repairs(task, search, references, margin, held, folder, progress)
    seconds = {"screen": time.monotonic() - started}
    products = _scale_products(task, screened.model, search, margin, progress)
    board = Switchboard(
        screened.model.graph(),
        task.labels.storage,
        threads=task.threads,
        products=products,
        full=task.labels.full,
        # A runtime that converts a file in FP32 has no settings for single nodes inside If, Loop and Scan.
        inside=task.typed,
    )
    names = [node.name for node in board.graph.nodes]
    network = _searched_network(task, screened.model, samples, names, products)
    digest = _digest_of_question(task, screened.model, search, held) if task.journal is not None else ""
    journal = Journal(task.journal, digest)
    oracle = Oracle(
        board,
        samples,
        references,
        held,
        evaluations=task.evaluations or None,
        deadline=started + task.seconds,
        journal=journal,
    )
    original = worst_all_low(task.model, task, search, references, held) if screened.edits else math.nan
    return SearchWork(
        task=task,
        folder=folder,
        search=search,
        held_out=held_out,
        margin=margin,
        held=held,
        reference=reference,
        screened=screened,
        products=products,
        finder=Finder(
            oracle=oracle,
            network=network,
            flags=screened.flags,
            progress=progress,
            sensing=task.sensing,
            reverse=_make_reverse(task, screened.model, held, products),
        ),
        original=original,
        skipped=(*skipped, *repeated, *board.graph.notes),
        journal=journal,
        started=started,
        seconds=seconds,
    )


def drop_repeated_samples(search: Inputs, held_out: Inputs) -> tuple[Inputs, Inputs, tuple[Skip, ...]]:
    """The held-out samples without those that repeat another's inputs, a search sample's or their own."""
    repeats = repeats_of((*search, *held_out))
    again = [index for index in held_out.indices if index in repeats]
    if not again:
        return search, held_out, ()
    kept = replace(held_out, indices=tuple(index for index in held_out.indices if index not in repeats))
    skip = Skip(
        what=f"{len(again)} held-out sample{'s' * (len(again) != 1)}, as {held_out.sample(again[0]).name}",
        reason="the same inputs as another sample's: counted twice they would prove nothing more",
        fix="give other samples",
    )
    return search, kept, (skip,)


def reference_of(task: RepairTask) -> Run:
    """The reference: the model's own file in ONNX Runtime; a large one is open only while it runs."""
    outputs = [value.name for value in task.model.outputs]
    opened = partial(open_path, task.model.path, outputs=outputs, threads=task.threads)
    if task.model.nbytes <= allowed_memory():
        return opened()

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = opened()(arrays)
        relieve_memory(task.model.nbytes)
        return found

    return run


def outcome_of(work: SearchWork, verdict: Verdict, statement: str) -> RepairOutcome:
    """The outcome with everything that is known whatever was chosen."""
    trail = (*work.finder.trail, *work.finder.offers)
    sensed = work.finder.sensed
    before = work.screened.evaluations + (not math.isnan(work.original))
    first = next((point.excess for point in trail if point.step == "all low"), math.nan)
    return RepairOutcome(
        verdict=verdict,
        statement=statement,
        low=work.task.low,
        margin=work.margin,
        typed=work.task.typed,
        nodes=len(work.finder.oracle.names),
        flags=work.screened.first,
        edits=work.screened.edits,
        front=pareto_front(trail),
        trail=trail,
        all_low=first if math.isnan(work.original) else work.original,
        search_samples=work.search.indices,
        held_out=work.held_out.indices,
        evaluations=work.finder.oracle.count + before,
        sensing=sensed.evaluations if sensed else 0,
        runs=work.finder.oracle.runs,
        resumed=work.finder.oracle.resumed,
        passes=work.finder.oracle.passes + before,
        excused=work.finder.excused,
        screens=1 + work.screened.screens,
        skipped=(*work.skipped, *work.screened.skipped),
        seconds={**work.seconds, "total": time.monotonic() - work.started},
    )


def _make_reverse(task: RepairTask, model: Model, held: Yardstick, products: Mapping[str, Scalings]) -> Reverse:
    return Reverse(
        graph=model.graph,
        low=task.labels.storage,
        held=held,
        threads=task.threads,
        seed=task.seed,
        products=products,
    )


def _scale_products(
    task: RepairTask, model: Model, search: Inputs, margin: float, progress: Progress
) -> dict[str, Scalings]:
    """The scales of the products that may be in FP8; none where none is asked for.

    Raises:
        ParityError: it is asked for, and there is no product that could be.
    """
    if not task.labels.eighths:
        return {}
    found = product_scales(model, search, margin, max(1, task.threads or 2), progress)
    if not found and task.labels.storage == "f32":
        raise ParityError(
            "no product of this model can be in FP8: kernels take sums and results whose lengths are multiples of 16",
            where=str(task.model.path),
            fix="use --low f16 or --low bf16",
        )
    return found


def _digest_of_question(task: RepairTask, model: Model, search: Inputs, held: Yardstick) -> str:
    """The digest of everything that a measured error depends on."""
    import onnxruntime

    files = [Path(one.text.rpartition(":")[0]) for one in task.functions.values()]
    facts = {
        "versions": [__version__, onnxruntime.__version__, platform.machine()],
        "model": [task.model.sha256, model.sha256, task.low, task.typed, task.threads],
        "inputs": [search.sha256, list(search.indices)],
        "scaled": margin_of(task, len(search)).hex() if task.labels.eighths else "",
        "budgets": [[one.output, one.metric, one.limit.hex()] for one in task.policy.budgets],
        "matched": list(task.policy.matched),
        **({"decides": [list(one) for one in task.policy.decides]} if task.policy.decides else {}),
        "floors": {name: floor.hex() for name, floor in held.floors.items()},
        "metrics": [one.text for one in task.functions.values()],
        "functions": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _searched_network(
    task: RepairTask, model: Model, samples: list[Sample], everything: list[str], products: Mapping[str, Scalings]
) -> CutNetwork:
    graph, sample = model.graph(), samples[0]
    decisions = [name for name in everything if not (name.endswith(IN_FP8) and name.removesuffix(IN_FP8) in products)]
    names = {node.name for node in graph.graph.all_nodes()}
    unknown = [name for name in decisions if name not in names]
    if unknown:
        raise ParityError(
            f"{unknown[0]!r} appears only when the model is converted to a newer opset",
            where=str(task.model.path),
            fix="convert the file first (onnx.version_converter.convert_version) and give that one",
        )
    shapes = tensor_shapes(model, sample, list(model.sites))
    shapes |= {name: array.shape for name, array in sample.arrays.items()}
    hardware = H200 if task.labels.full == "f32" else replace(H200, full=H200.tf32)
    measured = read_profile(task.profile, task.labels.storage) if task.profile is not None else {}
    sizes = sizes_within(model, samples, task.threads) if task.typed else {}
    network = network_of(graph, decisions, shapes, hardware, measured, sizes)
    if not products:
        return network
    places = {name: place for place, name in enumerate(everything)}
    return with_products(network, products, places, shapes, model.graph(), hardware)


def pareto_front(points: Iterable[Point]) -> tuple[Point, ...]:
    """Those that no other one beats in both modelled seconds and excess, cheapest first; of equals the first found."""
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.seconds, one.excess)):
        if point.excess != point.excess:  # NaN compares with nothing
            continue
        if not found or point.excess < found[-1].excess:
            found.append(point)
    return tuple(found)
