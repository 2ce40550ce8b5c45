"""Work that many share: the same document as in one process, nothing lost with a worker, nothing done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from command_line import read_study
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.records import Skip
from parityscope.study.answering import IN_A_ROW, Failure
from parityscope.study.sample_tasks import Found
from parityscope.workers import Do, Job, group_samples
from parityscope.workers.choosing import check_workers
from parityscope.workers.finishing import finish_tasks, finished_tasks
from parityscope.workers.packing import is_whole, pack_record, unpack_record
from parityscope.workers.processes import MOST_DEATHS, run_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

SAMPLES = 300  # more than there are tasks: two samples each
TIMES = {"created", "command", "timings"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case")
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x) => (float[1,8] y, int64[1] best) '
        "{ h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) best = ArgMax<axis = 1, keepdims = 0>(y) }"
    )
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(3)
    for name, shape in (("w", (16, 32)), ("v", (32, 8))):
        values = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path / "m.onnx")
    rows = generator.standard_normal((SAMPLES, 16)).astype(np.float32)
    rows[11] *= 1e3
    write_npz(path / "x.npz", {"x": rows})
    return path


def command(study: str, *more: str) -> list[str]:
    case = ["m.onnx", "--candidate", "sim:f16", "--inputs", "x.npz", "--stacked", "--study", study, "--quiet"]
    return [sys.executable, "-m", "parityscope", "compare", *case, *more]


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    document = {key: held for key, held in document.items() if key not in TIMES}
    for side in ("reference", "candidate"):
        del document[side]["seconds"]
    return document


def document_of(folder: Path, study: str) -> dict[str, Any]:
    return without_times(read_study(folder / study))


@pytest.mark.story
def test_workers_come_to_the_document_of_one_process_also_where_the_driver_was_killed(folder: Path) -> None:
    driver = subprocess.Popen(command("shared", "--workers", "2"), cwd=folder, start_new_session=True)
    scratch = folder / ".shared.part" / "tensors"
    until(lambda: len(list(scratch.glob("tasks-*/*[0-9]"))) > 5, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    written = {path: path.stat().st_mtime_ns for path in scratch.glob("tasks-*/*[0-9]")}
    assert len(written) > 5
    torn = min(written)
    torn.write_bytes(torn.read_bytes()[:-1])  # as a power cut leaves a file
    resumed = subprocess.run(
        command("shared", "--workers", "2"), cwd=folder, capture_output=True, text=True, check=False
    )
    assert resumed.returncode in {0, 1}, resumed.stderr
    shared = document_of(folder, "shared")
    assert shared["outputs"][0]["samples"] == SAMPLES
    assert not (folder / "shared" / "tensors").exists()
    # A process of its own, like the others': what the tests before have loaded stands in a document too.
    alone = subprocess.run(command("alone"), cwd=folder, capture_output=True, text=True, check=False)
    assert alone.returncode == resumed.returncode, alone.stderr
    assert document_of(folder, "alone") == shared


def until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not is_so():
        assert process.poll() is None, "it ended before"
        time.sleep(0.001)


def given(number: int) -> list[int]:
    return [number]


def squares(log: Path, killed: frozenset[int] = frozenset()) -> Job:
    """Tasks that square their number, and note that they did; of `killed` ones the first worker ends."""

    @contextlib.contextmanager
    def opened() -> Iterator[Do]:
        def square(number: int, given: Iterable[int]) -> bytes:
            assert list(given) == [number]
            if number in killed:
                with contextlib.suppress(FileExistsError):
                    (log / f"killed-{number}").touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)
            with (log / "done").open("a") as file:
                file.write(f"{number}\n")
            return pack_record(number**2)

        yield square

    return Job(count=40, read=given, open=opened)


def values(job: Job, workers: int, folder: Path | None, told: list[int] | None = None) -> list[int]:
    def run(numbers: Any) -> Iterator[tuple[int, bytes | ParityError]]:
        return run_in_processes(job, numbers, workers)

    tell = (lambda _: None) if told is None else told.append
    return [unpack_record(content, ()) for content in finish_tasks(run, job.count, folder, tell)]


def test_a_lost_worker_loses_no_task_and_none_counts_twice(tmp_path: Path) -> None:
    killed = frozenset(range(0, 40, 2))
    told: list[int] = []
    assert values(squares(tmp_path, killed), 3, tmp_path / "tasks", told) == [number**2 for number in range(40)]
    assert len(list(tmp_path.glob("killed-*"))) == len(killed)
    assert sorted(map(int, (tmp_path / "done").read_text().split())) == list(range(40))
    assert told == list(range(41))  # progress, task by task


def test_a_lost_worker_is_replaced_also_where_its_child_lives_on(tmp_path: Path) -> None:
    waited, ends = os.pipe()
    late = []

    def end_child(*_: object) -> None:
        late.append(True)
        os.close(ends)

    @contextlib.contextmanager
    def opened() -> Iterator[Do]:
        def do(number: int, _: Iterable[int]) -> bytes:
            if number == 1 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                if os.fork() == 0:  # has its parent's pipes, as the processes of a pool do
                    os.close(ends)
                    os.read(waited, 1)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            return pack_record(number)

        yield do

    before = signal.signal(signal.SIGALRM, end_child)
    signal.alarm(120)  # whoever waits for the child's end waits until then
    try:
        job = Job(count=3, read=lambda _: (), open=opened)
        assert values(job, 1, None) == [0, 1, 2]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        os.close(waited)
        if not late:
            os.close(ends)
    assert not late


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    job = squares(tmp_path)
    tasks = tmp_path / "tasks"
    values(job, 2, tasks)
    (tasks / f"{7:09d}").unlink()
    (tasks / f"{9:09d}").write_bytes(b"torn")
    (tmp_path / "done").unlink()
    assert values(job, 2, tasks) == [number**2 for number in range(40)]
    assert sorted((tmp_path / "done").read_text().split()) == ["7", "9"]
    assert finished_tasks(tasks) == set(range(40))


def test_a_task_that_ends_every_worker_is_given_up_behind_those_before_it(tmp_path: Path) -> None:
    @contextlib.contextmanager
    def opened() -> Iterator[Do]:
        def die(number: int, _: Iterable[int]) -> bytes:
            if number == 3:
                with (tmp_path / "deaths").open("a") as file:
                    file.write("x")
                os._exit(9)
            return pack_record(number)

        yield die

    job = Job(count=5, read=given, open=opened)
    answers = finish_tasks(lambda numbers: run_in_processes(job, numbers, 2), 5, None, lambda _: None)
    assert [unpack_record(next(answers), ()) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ParityError, match="workers in a row ended") as caught:
        next(answers)
    assert "isolate=on" in caught.value.fix
    assert len((tmp_path / "deaths").read_text()) == MOST_DEATHS


def test_an_error_in_a_worker_is_the_error_of_the_command_and_a_bug_stays_one() -> None:
    @contextlib.contextmanager
    def refusing() -> Iterator[Do]:
        raise ParityError("no runtime", fix="install it")
        yield

    @contextlib.contextmanager
    def broken() -> Iterator[Do]:
        yield lambda number, _: bytes(number // 0)

    with pytest.raises(ParityError, match="no runtime"):
        values(Job(count=3, read=given, open=refusing), 2, None)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        values(Job(count=3, read=given, open=broken), 2, None)


def test_records_come_back_as_they_were() -> None:
    skip = Skip(what="a", reason="b", fix="c", asked=True)
    arrays = (np.array([np.nan, -0.0, np.inf], np.float32), np.array(3, np.int64), np.zeros((2, 0), np.uint8))
    half = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    held = (1, 0.1 + 0.2, float("inf"), None, True, "ü\ud800", {3: skip, "x": [half, *arrays]}, frozenset({(1, 2)}))
    back = unpack_record(pack_record(held), (Skip,))
    assert back[:6] == held[:6]
    assert back[6][3] == skip
    assert back[7] == held[7]
    for given, found in zip([half, *arrays], back[6]["x"], strict=True):
        assert found.dtype == given.dtype
        assert found.tobytes() == given.tobytes()
        assert found.shape == given.shape
    with pytest.raises(ValueError, match="no record"):
        unpack_record(pack_record(skip), ())
    assert not is_whole(pack_record(held)[:-1])
    with pytest.raises(ParityError, match="cannot be sent"):
        pack_record(object())


def failing(*indices: int, over: bool = False) -> list[Failure]:
    return [Failure(sample=f"s{one}", index=one, problem="p", where="", fix="", over=over) for one in indices]


def test_three_failures_in_a_row_end_the_candidate_also_where_two_tasks_share_them() -> None:
    assert IN_A_ROW == 3
    found = Found()
    found.add(Found(compared=[0], failed=failing(1, 2), in_a_row=2))
    found.add(Found(compared=[4, 5], failed=failing(3), leading=1))
    assert found.over
    assert found.compared == [0]
    assert [one.index for one in found.failed] == [1, 2, 3]
    apart = Found()
    apart.add(Found(compared=[0], failed=failing(1, 2), in_a_row=2))
    apart.add(Found(compared=[3], failed=failing(4), in_a_row=1))
    assert not apart.over
    assert apart.in_a_row == 1


def test_the_grouping_depends_on_the_number_of_samples_alone() -> None:
    assert group_samples((4, 7, 9)) == [(4,), (7,), (9,)]
    groups = group_samples(tuple(range(10_000)))
    assert sum(groups, ()) == tuple(range(10_000))
    assert len(groups) == 250
    assert max(map(len, group_samples(tuple(range(100_000))))) == 256


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9999", "ray://", "http://host:1"])
def test_what_is_no_number_of_processes_is_refused(text: str) -> None:
    with pytest.raises(ParityError, match="--workers"):
        check_workers(text)
