"""A search that is interrupted goes on from what it measured; of many samples the hardest decide."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from parityscope.backends._onnxruntime import open_session
from parityscope.backends.switching import Switchboard
from parityscope.case import load_inputs, load_model
from parityscope.cli import main
from parityscope.errors import ParityError
from parityscope.records import Budget
from parityscope.repairs.search import Task, search
from parityscope.repairs.search.journal import Journal
from parityscope.repairs.search.judging import yardstick
from parityscope.repairs.search.oracle import ACTIVE, Oracle
from parityscope.repairs.search.splitting import split

if TYPE_CHECKING:
    from pathlib import Path

# Differences of nearly equal numbers: see test_search.py.
TEXT = """<ir_version: 9, opset_import: ["" : 19]> g (float[1,32] x) => (float[1,32] y) {
    t = Mul(x, small)  p = Add(t, one)  d = Sub(p, one)  u = Div(d, small)  v = MatMul(u, w1)  r = Relu(v)
    y = MatMul(r, w2) }"""


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def task_of(folder: Path, count: int) -> Task:
    proto = onnx.parser.parse_model(TEXT)
    weights = {"small": np.float32([1e-3]), "one": np.float32([1]), "w1": normal(1, 32, 32), "w2": normal(2, 32, 32)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    (folder / "data").mkdir(parents=True)
    onnx.save(proto, folder / "model.onnx")
    for number in range(count):
        np.savez(folder / "data" / f"{number:03d}.npz", x=normal(100 + number, 1, 32))
    model = load_model(folder / "model.onnx")
    inputs = load_inputs(model, folder / "data", spool=folder / "spool")
    budget = Budget(output="", metric="rel_l2", limit=5e-3, reason="a test")
    return Task(model=model, inputs=inputs, low="f16", budgets=(budget,), threads=1)


def searched(task: Task, folder: Path, progress: Any = None) -> Any:
    folder.mkdir()
    output = folder / "fixed.onnx"
    return search(task, folder, output) if progress is None else search(task, folder, output, progress)


class Interrupted(Exception):  # noqa: N818 - stands for a signal
    pass


def interrupted_at(step: int) -> Any:
    def progress(what: str, at: int, steps: int) -> None:
        if what == "measuring sensitivities" and at >= step:
            raise Interrupted

    return progress


def test_an_interrupted_search_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    plain = task_of(tmp_path, 6)
    task = replace(plain, journal=tmp_path / "record.jsonl")
    whole = searched(plain, tmp_path / "whole")
    with pytest.raises(Interrupted):
        searched(task, tmp_path / "first", interrupted_at(3))
    held = (tmp_path / "record.jsonl").read_text()
    made = held.count('"excess"')
    assert made >= 3
    # As the process may end in the middle of a line.
    (tmp_path / "record.jsonl").write_text(held + '{"low": "ff", "sam')
    again = searched(task, tmp_path / "second")
    assert again.resumed == made
    assert again.runs == whole.runs - made
    assert (again.trail, again.kept, again.evaluations) == (whole.trail, whole.kept, whole.evaluations)
    assert again.certificate == whole.certificate
    fixed = [(tmp_path / name / "fixed.onnx").read_bytes() for name in ("whole", "second")]
    assert fixed[0] == fixed[1]
    assert not (tmp_path / "record.jsonl").exists()


def test_another_search_does_not_use_the_record_and_leaves_it(tmp_path: Path) -> None:
    task = replace(task_of(tmp_path, 6), journal=tmp_path / "record.jsonl", evaluations=4)
    first = searched(task, tmp_path / "first")
    assert first.verdict == "unproved"
    kept = (tmp_path / "record.jsonl").read_text()  # a search that ran out of evaluations can go on
    assert kept
    stricter = replace(task, budgets=(replace(task.budgets[0], limit=4e-3),))
    assert searched(stricter, tmp_path / "other").resumed == 0
    assert (tmp_path / "record.jsonl").read_text().startswith(kept)
    more = searched(replace(task, evaluations=0), tmp_path / "more")
    assert more.resumed > 0
    assert more.evaluations > 4


def test_the_command_goes_on_from_its_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task_of(tmp_path, 6)
    words = ["repair", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "data"), "--budget", "rel_l2=5e-3"]
    words += ["-o", str(tmp_path / "fixed.onnx"), "--threads", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--evaluations", "3"])
    assert ended.value.code == 3
    assert (tmp_path / "fixed.search.jsonl").exists()
    assert not (tmp_path / "fixed.onnx").exists()
    assert "taken over" not in capfd.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 3  # certified on too few samples, but written
    assert (tmp_path / "fixed.onnx").exists()
    assert not (tmp_path / "fixed.search.jsonl").exists()
    assert "runs of an interrupted search were taken over" in capfd.readouterr().err


def test_a_record_is_exact_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    record = Journal(path, "a")
    numbers = [(0.1, None), (float("inf"), 1 / 3), (0.0, 0.0)]
    for place, each in enumerate(numbers):
        record.add(b"\x01", place, each)
    record.close()
    again = Journal(path, "a")
    assert [again.get(b"\x01", place) for place in range(3)] == numbers
    assert again.get(b"\x02", 0) is None
    assert len(Journal(path, "b")) == 0
    path.write_text(json.dumps({"low": "01"}) + "\n")
    with pytest.raises(ParityError, match="no record of a search"):
        Journal(path, "a")


def oracle_of(task: Task) -> Oracle:
    run = open_session(task.model.graph(), threads=1)
    samples = list(task.inputs)
    references = [run(sample.arrays) for sample in samples]
    held = yardstick(task.budgets, {}, references, None)
    return Oracle(Switchboard(task.model.graph(), "f16", threads=1), samples, references, held)


def test_of_many_samples_only_the_hardest_are_run_until_an_assignment_is_chosen(tmp_path: Path) -> None:
    count = 3 * ACTIVE
    oracle = oracle_of(task_of(tmp_path, count))
    everything = np.ones(len(oracle.names), np.bool_)
    all_low = oracle.evaluate(everything, probe=True)
    assert len(all_low.excess) == oracle.runs == count
    hardest = sorted(all_low.excess, key=lambda place: -all_low.excess[place])[:ACTIVE]
    # Keeping the first node alone leaves the cancellation low, which misses the budget by far: nobody else is asked.
    missing = everything.copy()
    missing[0] = False
    reading = oracle.evaluate(missing)
    assert reading.worst > 1
    assert set(reading.excess) == {hardest[0]}
    # With nothing low every sample meets the budget: all of them are run before that is said.
    assert set(oracle.evaluate(~everything).excess) == set(hardest)
    passing = oracle.confirm(~everything, 1.0)
    assert passing.worst <= 1
    assert len(passing.excess) == count
    before = oracle.runs
    oracle.squared(oracle.only([0]))
    assert oracle.runs - before == ACTIVE
    assert oracle.passes == oracle.runs / count == (count + 1 + count + ACTIVE) / count


def test_what_misses_when_it_is_confirmed_is_tried_first_from_then_on(tmp_path: Path) -> None:
    """The one that is beyond the limit is none of the eight on which the probe makes the largest errors."""
    task = task_of(tmp_path, 4 * ACTIVE)
    oracle, other = oracle_of(task), oracle_of(task)
    low = oracle.only([5])  # the last product
    every = other.confirm(low, math.inf).excess
    probed = oracle.evaluate(oracle.only([]), probe=True).excess
    hardest = sorted(probed, key=lambda place: (-probed[place], place))[:ACTIVE]
    limit = max(every[place] for place in hardest)
    beyond = [place for place in every if every[place] > limit]
    assert beyond
    assert oracle.confirm(low, limit).worst == every[beyond[0]]
    assert oracle.active == ACTIVE + 1
    missing = oracle.evaluate(~low)  # the cancellation is low: the first sample that is asked misses
    assert list(missing.excess) == [beyond[0]]


def test_what_is_left_beside_the_certificate_is_searched_on(tmp_path: Path) -> None:
    """59 samples are kept for it; of the others at most 64 are searched on where they abound, and four where they do not."""
    task = task_of(tmp_path, 1)

    def sizes(count: int) -> tuple[int, int]:
        inputs = replace(task.inputs, indices=tuple(range(count)))
        searched, held = split(replace(task, inputs=inputs))
        return len(searched.indices), len(held.indices)

    assert [sizes(count) for count in (63, 100, 500)] == [(4, 59), (41, 59), (64, 436)]
    assert [sizes(count) for count in (26, 40, 3)] == [(4, 22), (4, 36), (1, 2)]
