"""What `parityscope repair` keeps in FP32, beside other ways to choose it, on the same samples and the same simulation.

    python bench/repair.py [MODEL ...]        ocr-det, magika, minilm-i8, ocr-rec (all of them without a name)

Samples: crops of scikit-image's scanned page, files of Python's standard library, token numbers of one vocabulary, and
rendered text lines, all from fixed seeds. Each method sees the same search samples and is judged on the same held-out
ones by a faithful simulation ("worst": times the budget). Beside it:

* `float16`: onnxruntime.transformers.float16.convert_float_to_float16 with its default block list, de-typed;
* `prefix`: the first k nodes in FP32, bisected on k with one search sample, as Polygraphy's `debug precision` does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.simulation import detype
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import silent, tensor_shapes
from parityscope.backends.switching import Switchboard
from parityscope.case import load_inputs, load_model
from parityscope.errors import ParityError
from parityscope.records import Budget
from parityscope.repairs.search import Task, search
from parityscope.repairs.search.costs import flops_of
from parityscope.repairs.search.judging import excess
from parityscope.repairs.search.network import price
from parityscope.repairs.search.preparing import prepare
from parityscope.testing.models import model_path
from parityscope.testing.samples import library_files as files
from parityscope.testing.samples import page_crops as pages
from parityscope.testing.samples import text_lines as lines
from parityscope.testing.samples import token_sentences as sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from parityscope.case import Model, Sample
    from parityscope.repairs.search.preparing import Work

HELD_OUT = 59
# Of the others four. One line in a hundred is twenty times as sensitive as the median one: they have to be among these.
SEARCHED = {"ocr-rec": 200, "magika": 64}
SENSING = {"ocr-rec": 96}  # evaluations for sensitivities at most; a node each for the others
LIMITS = {"ocr-det": 1e-2, "magika": 1e-2, "minilm-i8": 1e-3, "ocr-rec": 3e-3}


def main() -> None:
    names = sys.argv[1:] or list(LIMITS)
    print(
        "| model, budget | method | kept | FLOPs in FP32 | Casts | evaluations | worst of search, held out | seconds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(name, Path(folder)):
                print(f"| {name} {LIMITS[name]:g} | " + " | ".join(row) + " |", flush=True)


def rows(name: str, folder: Path) -> Iterator[tuple[str, ...]]:
    write_samples(name, folder / "data")
    model = load_model(model_path(name))
    inputs = load_inputs(model, folder / "data", spool=folder / "spool")
    budget = Budget(output="", metric="rel_l2", limit=LIMITS[name], reason="bench")
    task = Task(
        model=model,
        inputs=inputs,
        low="f16",
        budgets=(budget,),
        threads=2,
        search_samples=SEARCHED.get(name, 4),
        sensing=SENSING.get(name, 0),
    )
    (folder / "a").mkdir()
    started = time.perf_counter()
    found = search(task, folder / "a", folder / "fixed.onnx")
    seconds = time.perf_counter() - started
    chosen = found.chosen
    repairs = f", {len(found.edits)} range repairs" if found.edits else ""
    proof = found.certificate
    yield (
        f"parityscope ({found.verdict})",
        f"{len(found.kept)} of {found.nodes}{repairs}",
        f"{chosen.flops:.1%}",
        str(found.casts_written),
        f"{found.evaluations} ({found.sensing} sensing; {found.runs / len(found.search_samples):.1f} runs a sample)",
        f"{chosen.excess:.2f}, {proof.worst:.2f}" if proof else "",
        f"{seconds:.1f}, certificate {found.seconds.get('certify', 0):.1f} of it",
    )
    (folder / "b").mkdir()
    work = prepare(replace(task, range_repairs=False), folder / "b", silent)
    yield converted(model, work, folder)
    yield prefix(work)


def converted(model: Model, work: Work, folder: Path) -> tuple[str, ...]:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    started = time.perf_counter()
    path = folder / "float16.onnx"
    onnx.save(convert_float_to_float16(onnx.load(model.path), keep_io_types=True), path)
    seconds = time.perf_counter() - started
    try:
        run = open_session(detype(load_model(path).graph()).model, threads=2)
        worst = [judged(work, samples, lambda sample: run(sample.arrays)) for samples in (work.search, work.held_out)]
    except ParityError as error:
        return ("float16, default block list", "", "", "", "1", f"does not run: {error.problem[:80]}", "")
    graph = ir.load(path)
    infer_types(graph)
    shapes = tensor_shapes(model, next(iter(work.search)), list(model.sites))
    made = [(flops_of(node, shapes), node.outputs[0].dtype) for node in graph.graph if node.outputs]
    full = sum(flops for flops, dtype in made if dtype == ir.DataType.FLOAT)
    casts = sum(node.op_type == "Cast" for node in graph.graph) - sum(n.op_type == "Cast" for n in model.graph().graph)
    share = full / max(1.0, sum(flops for flops, _ in made))
    return (
        "float16, default block list",
        "by operator",
        f"{share:.1%}",
        str(casts),
        "0",
        f"{worst[0]:.2f}, {worst[1]:.2f}",
        f"{seconds:.1f}",
    )


def prefix(work: Work) -> tuple[str, ...]:
    """The least k with which the first search sample meets the budget, if the answer were monotone in k."""
    oracle, started = work.finder.oracle, time.perf_counter()
    board = Switchboard(work.screened.model.graph(), work.task.low, threads=2)
    sample = next(iter(work.search))
    reference = work.reference(sample.arrays)
    count = len(oracle.names)
    low, high, runs = 0, count, 0
    while low < high:
        middle = (low + high) // 2
        runs += 1
        assignment = np.arange(count) >= middle
        if excess(work.held, reference, board.run(sample, assignment)) <= 1:
            high = middle
        else:
            low = middle + 1
    assignment = np.arange(count) >= high
    seconds = time.perf_counter() - started
    cost = price(work.finder.network, assignment)
    worst = [judged(work, samples, lambda one: board.run(one, assignment)) for samples in (work.search, work.held_out)]
    return (
        "prefix, bisected",
        f"{high} of {count}",
        f"{cost.flops:.1%}",
        f"{cost.casts} (modelled)",
        f"{runs} on one sample",
        f"{worst[0]:.2f}, {worst[1]:.2f}",
        f"{seconds:.1f}",
    )


def judged(work: Work, samples: Iterable[Sample], run: Callable[[Sample], Mapping[str, np.ndarray]]) -> float:
    return max(excess(work.held, work.reference(sample.arrays), run(sample)) for sample in samples)


def write_samples(name: str, folder: Path) -> None:
    folder.mkdir()
    made = {"ocr-det": pages, "magika": files, "minilm-i8": sentences, "ocr-rec": lines}[name](np.random.default_rng(5))
    for number, arrays in zip(range(HELD_OUT + SEARCHED.get(name, 4)), made, strict=False):
        np.savez(folder / f"{number:03d}.npz", **arrays)


if __name__ == "__main__":
    main()
