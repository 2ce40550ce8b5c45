"""Names of studies: two in one second get two names, also when two processes ask at once; a name that was given stays."""

from __future__ import annotations

import datetime as dt
import multiprocessing
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from parityscope.cli import main
from parityscope.errors import ParityError
from parityscope.study import folder_of, prepare_folder

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
exponential (float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }"""


PROCESSES, TIMES = 3, 30


class Stopped(dt.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Stopped:
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


def write(folder: Path) -> None:
    for _ in range(TIMES):
        with prepare_folder(folder, numbered=True) as scratch:
            (scratch / "name").write_text(folder_of(scratch).name)


@pytest.mark.story
def test_processes_at_once_write_a_study_each(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write, args=(tmp_path / "s",)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    # No name was given twice, each is what its writer was told it would be, and no scratch folder is left.
    numbers = range(2, PROCESSES * TIMES + 1)
    assert {one.name for one in tmp_path.iterdir()} == {"s", *(f"s-{number}" for number in numbers)}
    assert all((one / "name").read_text() == one.name for one in tmp_path.iterdir())


def test_a_name_is_free_only_if_nobody_has_it_and_nobody_writes_it(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with prepare_folder(tmp_path / "s", numbered=True) as second:
        with prepare_folder(tmp_path / "s", numbered=True) as third:
            assert [folder_of(one).name for one in (second, third)] == ["s-2", "s-3"]
        assert not (tmp_path / ".s.part").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s", "s-2", "s-3"]


def test_a_name_that_was_given_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with pytest.raises(ParityError, match="exists already"), prepare_folder(tmp_path / "s"):
        pass


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ParityError, match="cannot be written"), prepare_folder(tmp_path / "file" / "s", numbered=True):
        pass


def test_two_commands_in_one_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 4), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("parityscope.times.datetime", Stopped)
    for name in ("parityscope-m-20260102T030405Z", "parityscope-m-20260102T030405Z-2"):
        with pytest.raises(SystemExit) as ended:
            main(["compare", "m.onnx", "--candidate", "ort", "--inputs", "x.npz"])
        assert ended.value.code == 0
        assert f"{name}/report.html" in capsys.readouterr().out
        assert (tmp_path / name / "study.json").is_file()
