"""The networks that FP16 breaks by themselves, repaired: the task done before and after, and what stays in FP32.

    python bench/failing_models.py [magika] [pitch] [ocr-det]        all three without a name

Each is repaired by `parityscope repair`'s search with a budget on the task (decisions, notes, boxes against those of FP32),
and the file that it writes is loaded again and run by a faithful simulation, as is the model with everything in FP16.

* magika, which tells file types: the 427 files of `proving.models.labelled_files`, pinned by package and digest, of 39
  types; accuracy on their labels. Searched on 64 of them, drawn with a fixed seed; accuracy on the others is printed too.
* Basic Pitch, which hears notes: melodies of `proving.models.notes`, synthesised from fixed seeds with a known score; F1
  of notes by the package's own thresholds, against the score and against the notes of FP32.
* the PP-OCRv4 text detector: pages of `proving.models.pages`; F1 of text boxes against those of FP32.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.loader import find_function
from parityscope.evaluation.simulating import open_simulation
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask, search_repair
from parityscope.verification import TaskAnswer, chosen_metric
from proving.models.fetching import model_path
from proving.models.labelled_files import file_tokens, labelled_files, magika_labels
from proving.models.notes import heard, melody, note_f1
from proving.models.pages import page_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.repairs.search import RepairOutcome
    from proving.models.notes import Note

    Arrays = Mapping[str, np.ndarray]
    Scores = Callable[[Sequence[Arrays], Sequence[Arrays]], str]

THREADS = 2
MELODIES, PAGES = 69, 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """Samples, the task that the budget is about (a function below) and its limit, and how outputs are scored in words."""

    samples: Sequence[Arrays]
    budget: Budget
    search: int
    score: Scores


def main() -> None:
    names = sys.argv[1:] or ["magika", "pitch", "ocr-det"]
    print("| model | FP32 | everything in FP16 | repaired | kept in FP32 | range repairs | evaluations | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        subject = {"magika": files, "pitch": melodies, "ocr-det": pages}[name]()
        with tempfile.TemporaryDirectory() as folder:
            row(name, subject, Path(folder))


def row(name: str, subject: Subject, folder: Path) -> None:
    path, fixed = model_path(name), folder / "fixed.onnx"
    started = time.perf_counter()
    found = repaired(path, subject, folder, fixed)
    seconds = time.perf_counter() - started
    model = load_model(path)
    runs = [open_session(model.graph(), threads=2), open_simulation(arrange_precision(model.graph(), "f16"), threads=2)]
    if fixed.exists():
        runs.append(open_simulation(arrange_precision(load_model(fixed).graph(), None), threads=2))
    outputs = [[run(sample) for sample in subject.samples] for run in runs]
    scores = [subject.score(outputs[0], each) for each in outputs]
    edits = "; ".join(f"{edit.repair} ({edit.note})" for edit in found.edits) or "none"
    cells = [name, *scores, *["no file"] * (3 - len(scores)), f"{len(found.kept)} of {found.nodes}", edits]
    print(f"| {' | '.join(cells)} | {found.evaluations} | {seconds:.0f} |")
    print(f"\n{name}: {found.verdict}. {found.statement}\n", flush=True)


def repaired(path: Path, subject: Subject, folder: Path, fixed: Path) -> RepairOutcome:
    data, scratch = folder / "data", folder / "scratch"
    data.mkdir()
    scratch.mkdir()
    for number, arrays in enumerate(subject.samples):
        np.savez(data / f"{number:04d}.npz", **arrays)
    model = load_model(path)
    own = subject.budget.metric in globals()
    task = RepairTask(
        model=model,
        inputs=load_inputs(model, data, spool=folder / "spool"),
        low="f16",
        policy=Policy(budgets=(subject.budget,)),
        functions={subject.budget.metric: find_function(f"{__file__}:{subject.budget.metric}")} if own else {},
        search_samples=subject.search,
        threads=THREADS,
    )
    return search_repair(task, scratch, fixed)


def files() -> Subject:
    labels, listed = magika_labels(), labelled_files()
    right = np.array([labels[one.label] for one in listed])

    def score(reference: Sequence[Arrays], candidate: Sequence[Arrays]) -> str:
        (name,) = reference[0]
        chosen, held = (np.array([outputs[name][0].argmax() for outputs in each]) for each in (candidate, reference))
        finite = np.array([np.isfinite(outputs[name]).all() for outputs in candidate])
        accuracy, agreement = np.mean(finite & (chosen == right)), np.mean(finite & (chosen == held))
        return f"accuracy {accuracy:.4f}, {agreement:.1%} as FP32"

    return Subject(
        samples=[{"bytes": file_tokens(one.path.read_bytes())} for one in listed],
        budget=Budget(output="", metric="top1_agreement", limit=1.0, reason="the type that FP32 says"),
        search=64,
        score=score,
    )


def melodies() -> Subject:
    made = [melody(seed) for seed in range(MELODIES)]

    def score(reference: Sequence[Arrays], candidate: Sequence[Arrays]) -> str:
        known = [notes for _, notes in made]
        agreement = [note_f1(heard(one), heard(other)) for one, other in zip(reference, candidate, strict=True)]
        right = [note_f1(notes, heard(outputs)) for notes, outputs in zip(known, candidate, strict=True)]
        finite = sum(all(np.isfinite(array).all() for array in outputs.values()) for outputs in candidate)
        return (
            f"F1 {np.mean(right):.4f} against the score, {np.mean(agreement):.4f} against FP32, "
            f"{finite} of {len(made)} finite"
        )

    return Subject(
        samples=[arrays for arrays, _ in made],
        budget=Budget(output="", metric="notes", limit=0.75, reason="the notes that FP32 hears, but for one in four"),
        search=10,
        score=score,
    )


def pages() -> Subject:
    made = [arrays for _, arrays in page_samples(PAGES)]

    def score(reference: Sequence[Arrays], candidate: Sequence[Arrays]) -> str:
        counts = [_boxes(one, other) for one, other in zip(reference, candidate, strict=True)]
        pairs, right, found = np.sum(counts, axis=0)
        return f"F1 {2 * pairs / (right + found):.4f} against FP32's boxes"

    return Subject(
        samples=made,
        budget=Budget(output="", metric="boxes", limit=0.75, reason="the boxes that FP32 finds, but for one in four"),
        search=5,
        score=score,
    )


def notes(reference: Arrays, candidate: Arrays) -> float:
    """F1 of the notes in the candidate's outputs against those in the reference's."""
    right: list[Note] = heard(reference)
    return note_f1(right, heard(candidate))


def boxes(reference: Arrays, candidate: Arrays) -> float:
    """F1 of the candidate's text boxes against the reference's."""
    pairs, right, found = _boxes(reference, candidate)
    return 2 * pairs / (right + found) if right + found else 1.0


def _boxes(reference: Arrays, candidate: Arrays) -> tuple[float, ...]:
    answer = TaskAnswer(name="", outputs=candidate, reference=reference, labels=None)
    metric = chosen_metric("text_boxes")
    return tuple(metric.metric.score([answer], metric.options)[0])


if __name__ == "__main__":
    main()
