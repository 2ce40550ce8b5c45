"""A search that is interrupted goes on from what it measured; of many samples the hardest decide."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_inputs, load_model
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.records import Budget, Policy
from parityscope.repairs.search import RepairTask, search_repair
from parityscope.repairs.search.journal import Journal
from parityscope.repairs.search.judging import make_yardstick
from parityscope.repairs.search.oracle import ACTIVE, Oracle
from parityscope.repairs.search.reverse import Reverse
from parityscope.repairs.search.splitting import split_samples

if TYPE_CHECKING:
    from pathlib import Path

# Differences of nearly equal numbers: see test_search.py.
TEXT = """<ir_version: 9, opset_import: ["" : 19]> g (float[1,32] x) => (float[1,32] y) {
    t = Mul(x, small)  p = Add(t, one)  d = Sub(p, one)  u = Div(d, small)  v = MatMul(u, w1)  r = Relu(v)
    y = MatMul(r, w2) }"""


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def task_of(folder: Path, count: int) -> RepairTask:
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
    return RepairTask(model=model, inputs=inputs, low="f16", policy=Policy(budgets=(budget,)), threads=1)


def searched(task: RepairTask, folder: Path, progress: Any = None) -> Any:
    folder.mkdir()
    output = folder / "fixed.onnx"
    return search_repair(task, folder, output) if progress is None else search_repair(task, folder, output, progress)


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
    held = (tmp_path / "record.jsonl").read_text(encoding="utf-8")
    made = held.count('"excess"')
    assert made >= 3
    # As the process may end in the middle of a line.
    (tmp_path / "record.jsonl").write_text(held + '{"asked": {"low": "ff", "sam', encoding="utf-8")
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
    kept = (tmp_path / "record.jsonl").read_text(encoding="utf-8")  # a search that ran out of evaluations can go on
    assert kept
    stricter = replace(task, policy=Policy(budgets=(replace(task.policy.budgets[0], limit=4e-3),)))
    assert searched(stricter, tmp_path / "other").resumed == 0
    assert (tmp_path / "record.jsonl").read_text(encoding="utf-8").startswith(kept)
    more = searched(replace(task, evaluations=0), tmp_path / "more")
    assert more.resumed > 0
    assert more.evaluations > 4


def test_the_command_goes_on_from_its_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task_of(tmp_path, 6)
    words = ["repair", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "data"), "--budget", "rel_l2=5e-3"]
    words += ["-o", str(tmp_path / "fixed.onnx"), "--threads", "1"]
    assert exit_status(*words, "--evaluations", "3") == 3
    assert (tmp_path / "fixed.search.jsonl").exists()
    assert not (tmp_path / "fixed.onnx").exists()
    assert "taken over" not in capfd.readouterr().err
    assert exit_status(*words) == 0  # certified on too few samples, but within on each
    assert (tmp_path / "fixed.onnx").exists()
    assert not (tmp_path / "fixed.search.jsonl").exists()
    assert "runs of an interrupted search were taken over" in capfd.readouterr().err


def test_a_record_is_exact_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    record = Journal(path, "a")
    numbers = [[0.1, None], [float("inf"), 1 / 3], [0.0, 5e-324]]
    for place, each in enumerate(numbers):
        record.add({"low": "01", "sample": place}, {"excess": each})
    record.close()
    again = Journal(path, "a")
    assert [again.get({"sample": place, "low": "01"}) for place in range(3)] == [{"excess": each} for each in numbers]
    assert again.get({"low": "02", "sample": 0}) is None
    assert Journal(path, "b").get({"low": "01", "sample": 0}) is None
    path.write_text(json.dumps({"low": "01"}) + "\n", encoding="utf-8")
    with pytest.raises(ParityError, match="no record of a search"):
        Journal(path, "a")


# Of sixteen nodes all can be measured by backward passes; two cancel, and two overflow in FP16, where BF16 is fine enough.
MIXED = """<ir_version: 8, opset_import: ["" : 17]> g (float[16,32] x) => (float[16,32] y) {
    v0 = MatMul(x, w0)  h0 = Tanh(v0)  t = Mul(h0, small)  p = Add(t, one)  d = Sub(p, one)  u = Div(d, small)
    v1 = MatMul(u, w1)  h1 = Tanh(v1)  v2 = MatMul(h1, w2)  h2 = Tanh(v2)  v3 = MatMul(h2, w3)  h3 = Tanh(v3)
    c = MatMul(h3, wide)  e = Relu(c)  f = MatMul(e, narrow)  g = Tanh(f)  y = MatMul(g, w4) }"""
MIXED_KINDS = ('"estimate"', '"labels"')


def mixed_case(folder: Path) -> None:
    """A model for which a search with --low f16,bf16 runs backward passes and assignments of three labels."""
    proto = onnx.parser.parse_model(MIXED)
    weights = {f"w{number}": 0.3 * normal(number, 32, 32) for number in range(5)}
    weights |= {"small": np.float32([1 / 16]), "one": np.float32([1])}
    weights |= {"wide": 3e4 * normal(5, 32, 32), "narrow": 1e-6 * normal(6, 32, 32)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    for node in proto.graph.node:
        node.name = node.output[0]
    (folder / "data").mkdir(parents=True)
    onnx.save(proto, folder / "model.onnx")
    for number in range(6):
        np.savez(folder / "data" / f"{number:03d}.npz", x=normal(100 + number, 16, 32))
    times = {node.name: {"f32": 4e-6, "f16": 1e-6} for node in proto.graph.node}  # as for products of useful size
    (folder / "times.json").write_text(json.dumps({"nodes": times}), encoding="utf-8")


def mixed_task(folder: Path) -> RepairTask:
    mixed_case(folder)
    model = load_model(folder / "model.onnx")
    inputs = load_inputs(model, folder / "data", spool=folder / "spool")
    budget = Budget(output="", metric="rel_l2", limit=8e-3, reason="a test")
    asked = RepairTask(
        model=model, inputs=inputs, low="f16,bf16", policy=Policy(budgets=(budget,)), threads=1, range_repairs=False
    )
    return replace(asked, profile=folder / "times.json")


def test_everything_that_a_search_runs_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is given the record of a whole one runs nothing, and counts and gives what that one did."""
    task = replace(mixed_task(tmp_path), journal=tmp_path / "record.jsonl")
    monkeypatch.setattr(Journal, "remove", Journal.close)
    whole = searched(task, tmp_path / "whole")
    assert {one.format for one in whole.kept} == {"f32", "bf16"}
    held = (tmp_path / "record.jsonl").read_text(encoding="utf-8")
    assert all(kind in held for kind in MIXED_KINDS)

    def never(*_: Any) -> None:
        raise AssertionError("backward passes were computed again")

    monkeypatch.setattr(Reverse, "estimate", never)
    again = searched(task, tmp_path / "again")
    assert again.runs == 0
    assert again.resumed == whole.runs
    assert (again.evaluations, again.passes, again.excused) == (whole.evaluations, whole.passes, whole.excused)
    assert (again.trail, again.kept, again.certificate) == (whole.trail, whole.kept, whole.certificate)
    assert (tmp_path / "whole" / "fixed.onnx").read_bytes() == (tmp_path / "again" / "fixed.onnx").read_bytes()


def test_bf16_is_offered_within_the_evaluations_and_its_points_can_be_picked(tmp_path: Path) -> None:
    task = mixed_task(tmp_path)
    whole = searched(task, tmp_path / "whole")
    row = 1 + next(place for place, point in enumerate(whole.front) if point.step == "with BF16")
    assert whole.front[row - 1] == whole.chosen
    short = searched(replace(task, evaluations=whole.evaluations - 1), tmp_path / "short")
    assert short.evaluations < whole.evaluations
    assert {one.format for one in short.kept} == {"f32"}
    picked = searched(replace(task, pick=row), tmp_path / "picked")
    assert (picked.front, picked.chosen, picked.kept) == (whole.front, whole.chosen, whole.kept)
    slower = searched(replace(task, pick=row + 1), tmp_path / "slower")
    assert slower.chosen == whole.front[row]
    assert {one.format for one in slower.kept} == {"f32"}


HOLDING = """import pathlib, time
FOLDER = pathlib.Path(__file__).parent
def still(reference, candidate):
    hold, record = FOLDER / "hold", FOLDER / "fixed.search.jsonl"
    if hold.exists() and record.exists() and hold.read_text() in record.read_text():
        (FOLDER / "held").touch()
        time.sleep(600)
    return 1.0
"""


def mixed_command(folder: Path) -> list[str]:
    words = [sys.executable, "-m", "parityscope", "repair", "model.onnx", "--inputs", "data", "--low", "f16,bf16"]
    words += ["--threads", "1", "--no-range-repairs", "--profile", "times.json", "--budget", "rel_l2=8e-3"]
    metric = ["--metric", str(folder / "metric.py:still"), "--budget", "still=1"]
    return [*words, *metric, "-o", "fixed.onnx", "--format", "json"]


def killed(folder: Path, kind: str) -> None:
    """Runs the command until its record holds a line of this kind, and the next run is under way, and kills it."""
    (folder / "hold").write_text(kind, encoding="utf-8")
    process = subprocess.Popen(mixed_command(folder), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while not (folder / "held").exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
    (folder / "held").unlink()
    (folder / "hold").unlink()


@pytest.mark.story
def test_a_killed_command_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Killed behind backward passes, and again between assignments with BF16: same files, same counts."""
    mixed_case(tmp_path / "one")
    (tmp_path / "one" / "metric.py").write_text(HOLDING, encoding="utf-8")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    documents = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        for kind in MIXED_KINDS if folder.name == "other" else ():
            killed(folder, kind)
            record = (folder / "fixed.search.jsonl").read_text(encoding="utf-8")
            assert kind in record
        done = subprocess.run(mixed_command(folder), cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr  # within budget on every sample, too few to certify more
        assert json.loads(done.stdout)["certificate"]["failures"] == 0
        assert ("taken over" in done.stderr) == (folder.name == "other")
        assert not (folder / "fixed.search.jsonl").exists()
        document = json.loads(done.stdout)
        documents.append({key: document[key] for key in document if key not in {"command", "created", "seconds"}})
    assert documents[0] == documents[1]
    for name in ("fixed.onnx", "fixed.plan.toml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def oracle_of(task: RepairTask) -> Oracle:
    run = open_session(task.model.graph(), threads=1)
    samples = list(task.inputs)
    references = [run(sample.arrays) for sample in samples]
    held = make_yardstick(task.policy, {}, references, None)
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
        searched, held = split_samples(replace(task, inputs=inputs))
        return len(searched.indices), len(held.indices)

    assert [sizes(count) for count in (63, 100, 500)] == [(4, 59), (41, 59), (64, 436)]
    assert [sizes(count) for count in (26, 40, 3)] == [(4, 22), (4, 36), (1, 2)]
