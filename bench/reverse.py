"""Sensitivities of all nodes by backward passes, beside direct ones, a node at a time, on the same samples.

    python bench/reverse.py [MODEL ...]        ocr-det, ocr-rec, magika, encoder (all of them without a name)

Two samples each, FP16. "Ratio" is estimated over direct error of a node (root of the squared sensitivities), of the nodes
that make a thousandth of the largest error and more; "ranks" Spearman's correlation; "sum" the ratio of the roots of both
sums; "cost" the time of one run with four passes in plain runs of the switchable graph, the least of eight, interleaved.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from encoder import TOKENS, WIDTH
from encoder import model as encoder
from parityscope.arithmetic.projecting import SEEDS

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import silent
from parityscope.case import load_inputs, load_model
from parityscope.evaluation.switching import Switchboard
from parityscope.records import Budget
from parityscope.repairs.search import Task
from parityscope.repairs.search.preparing import prepare
from parityscope.testing.models import model_path
from parityscope.testing.samples import library_files, page_crops, text_lines

if TYPE_CHECKING:
    from parityscope.repairs.search.preparing import Work

MODELS = ("ocr-det", "ocr-rec", "magika", "encoder")
SOURCES = {"ocr-det": page_crops, "magika": library_files, "ocr-rec": text_lines}
SAMPLES, PART, ROUNDS = 2, 1e-3, 8


def main() -> None:
    print("| model | nodes | without an estimate | ratio: 10 %, median, 90 % | ranks | sum | cost |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {name} | " + " | ".join(row(name, Path(folder))) + " |", flush=True)


def row(name: str, folder: Path) -> list[str]:
    work = opened(name, folder)
    oracle, reverse = work.finder.oracle, work.finder.reverse
    if reverse is None:
        raise ValueError("the search was prepared without backward passes")
    estimate = oracle.estimated(reverse)
    known = {} if estimate is None else estimate.squared
    places = [place for place, one in enumerate(oracle.names) if one in known]
    direct = np.array([oracle.squared(oracle.only([place])) for place in places])
    found = np.array([known[oracle.names[place]] for place in places])
    counted = np.isfinite(direct) & (direct > PART**2 * direct[np.isfinite(direct)].max())
    ratios = np.sqrt(found[counted] / direct[counted])
    low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    return [
        str(len(oracle.names)),
        str(len(oracle.names) - len(known)),
        f"{low:.2f}, {middle:.2f}, {high:.2f}",
        f"{np.corrcoef(ranks(found[counted]), ranks(direct[counted]))[0, 1]:.2f}",
        f"{np.sqrt(found[counted].sum() / direct[counted].sum()):.2f}",
        f"{cost(work):.1f}",
    ]


def ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


def cost(work: Work) -> float:
    """Seconds of a run with passes over those of a plain run."""
    reverse = work.finder.reverse
    if reverse is None:
        raise ValueError("the search was prepared without backward passes")
    sample = next(iter(work.search))
    made = reverse.opened(sample)
    run = open_session(made.model, threads=2, optimization="basic", folder=reverse.folder)
    outputs = work.reference(sample.arrays)
    seeds = {f"{SEEDS}{one}": np.ones((reverse.passes, *outputs[one].shape), np.float32) for one in made.seeds}
    board = Switchboard(reverse.graph(), reverse.low, threads=2, folder=reverse.folder)
    nothing = np.zeros(len(board.graph.nodes), np.bool_)
    plain, passes = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        board.run(sample, nothing)
        plain.append(time.perf_counter() - started)
        started = time.perf_counter()
        run({**sample.arrays, **seeds})
        passes.append(time.perf_counter() - started)
    return min(passes) / min(plain)


def opened(name: str, folder: Path) -> Work:
    """The search over `SAMPLES` samples, prepared; LayerNormalization of the encoder is put together by its range repairs."""
    if name == "encoder":
        draw = np.random.default_rng(3)
        path = folder / "encoder.onnx"
        onnx.save(encoder(draw), path)
        (folder / "data").mkdir()
        for number in range(SAMPLES):
            x = draw.normal(size=(1, TOKENS, WIDTH)).astype(np.float32)
            np.savez(folder / "data" / f"{number}.npz", x=x)
    else:
        path = model_path(name)
        (folder / "data").mkdir()
        for number, arrays in zip(range(SAMPLES), SOURCES[name](np.random.default_rng(5)), strict=False):
            np.savez(folder / "data" / f"{number}.npz", **arrays)
    model = load_model(path)
    inputs = load_inputs(model, folder / "data", spool=folder / "spool")
    budget = Budget(output="", metric="rel_l2", limit=1e-2, reason="bench")
    task = Task(model=model, inputs=inputs, low="f16", budgets=(budget,), threads=2, search_samples=SAMPLES)
    (folder / "work").mkdir()
    return prepare(task, folder / "work", silent)


if __name__ == "__main__":
    main()
