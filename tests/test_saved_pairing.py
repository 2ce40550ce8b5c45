"""A recording is paired with its sample by name: a missing file is reported and shifts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import in_this_process
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_inputs, load_model
from parityscope.case.formats.polygraphy import write_outputs
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from parityscope.case import Model

COUNT = 5


@pytest.fixture
def model(tmp_path: Path) -> Model:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { y = Neg(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


def array(number: int) -> np.ndarray:
    """The input that every place can be told by."""
    return np.full((1, 4), number, np.float32)


def npz(folder: Path, name: str, number: int) -> None:
    np.savez(folder / f"{name}.npz", y=-array(number))


def polygraphy(folder: Path, name: str, number: int) -> None:
    write_outputs(folder / f"{name}.json", "trt", [({"y": -array(number)}, 0.1)])


def blobs(folder: Path, name: str, number: int) -> None:
    (folder / name).mkdir()
    (-array(number)).tofile(folder / name / "y.bin")


def inputs_in(folder: Path, names: list[str]) -> Path:
    folder.mkdir()
    for number, name in enumerate(names):
        np.savez(folder / f"{name}.npz", x=array(number))
    return folder


def paired(model: Model, data: Path | str, target: str, folder: Path) -> dict[int, int | str]:
    """Which recording each sample gets: what its input says -> what its output says, or the problem."""
    inputs = load_inputs(model, data, spool=folder / "spool", stacked=str(data).endswith("stacked.npz"))
    found: dict[int, int | str] = {}
    with open_target(model, parse_target(target), Capture()) as session:
        for sample in inputs:
            number = int(sample.arrays["x"][0, 0])
            try:
                found[number] = int(-session.run(sample)["y"][0, 0])
            except ParityError as error:
                found[number] = error.problem if error.fix else f"{error.problem}, and no fix"
    return found


NUMBERS = [f"{number:06d}" for number in range(COUNT)]
WORDS = ["cat", "dog", "eel", "fox", "gnu"]


@pytest.mark.parametrize(
    ("write", "names"), [(npz, NUMBERS), (npz, WORDS), (polygraphy, NUMBERS), (polygraphy, WORDS), (blobs, NUMBERS)]
)
def test_a_missing_recording_is_reported_and_shifts_nothing(
    model: Model, tmp_path: Path, write: Callable[[Path, str, int], None], names: list[str]
) -> None:
    data, recorded = inputs_in(tmp_path / "in", names), tmp_path / "out"
    recorded.mkdir()
    for number, name in enumerate(names):
        if number != 2:
            write(recorded, name, number)
    found = paired(model, data, f"saved?path={recorded}", tmp_path)
    problem = found.pop(2)
    assert found == {0: 0, 1: 1, 3: 3, 4: 4}
    assert str(problem).startswith(f"sample {names[2]}.npz was not recorded: the recording holds 4")
    assert names[2] in str(problem).partition("called")[2]


@pytest.mark.parametrize("names", [NUMBERS, WORDS])
def test_a_missing_input_shifts_nothing(model: Model, tmp_path: Path, names: list[str]) -> None:
    data, recorded = inputs_in(tmp_path / "in", names), tmp_path / "out"
    recorded.mkdir()
    for number, name in enumerate(names):
        npz(recorded, name, number)
    (data / f"{names[2]}.npz").unlink()
    assert paired(model, data, f"saved?path={recorded}", tmp_path) == {0: 0, 1: 1, 3: 3, 4: 4}


def test_numbers_are_compared_as_numbers(model: Model, tmp_path: Path) -> None:
    # In the order of the names as text, 10 stands before 9.
    data = inputs_in(tmp_path / "in", [f"{number:06d}" for number in range(11)])
    (tmp_path / "out").mkdir()
    for number in range(11):
        npz(tmp_path / "out", str(number), number)
    found = paired(model, data, f"saved?path={tmp_path}/out", tmp_path)
    assert found == {number: number for number in range(11)}


def test_a_numbered_recording_counts_samples_that_have_no_number(model: Model, tmp_path: Path) -> None:
    recorded = tmp_path / "out"
    recorded.mkdir()
    for number in (0, 1, 3, 4):
        npz(recorded, f"{number:06d}", number)
    np.savez(tmp_path / "stacked.npz", x=np.concatenate([array(number) for number in range(COUNT)]))
    for data in (inputs_in(tmp_path / "in", WORDS), tmp_path / "stacked.npz"):
        found = paired(model, data, f"saved?path={recorded}", tmp_path)
        assert "none of its files is called '000002'" in str(found.pop(2))
        assert found == {0: 0, 1: 1, 3: 3, 4: 4}


def test_other_names_are_no_guess_but_the_order_can_be_asked_for(model: Model, tmp_path: Path) -> None:
    data, recorded = inputs_in(tmp_path / "in", WORDS), tmp_path / "out"
    recorded.mkdir()
    for number, name in enumerate(WORDS):
        npz(recorded, f"answer to {name}", number)
    found = paired(model, data, f"saved?path={recorded}", tmp_path)
    assert all("none of its files is called" in str(problem) for problem in found.values())
    assert len(found) == COUNT
    found = paired(model, data, f"saved?path={recorded}&pair=order", tmp_path)
    assert found == {number: number for number in range(COUNT)}
    with pytest.raises(ParityError, match="pair='loose' is not known"):
        paired(model, data, f"saved?path={recorded}&pair=loose", tmp_path)


def test_two_samples_never_share_a_recording(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    npz(folder, "cat", 0)
    with open_target(model, parse_target(f"saved?path={folder}"), Capture()) as session:
        for _ in range(2):  # the same sample may be read again
            session.run(Sample(index=0, name="cat.jpg", arrays={}))
        with pytest.raises(ParityError, match=r"samples cat\.jpg and cat\.png both belong to the recording cat\.npz"):
            session.run(Sample(index=1, name="cat.png", arrays={}))


def test_one_file_of_many_samples_is_paired_by_position_and_counted(model: Model, tmp_path: Path) -> None:
    data = inputs_in(tmp_path / "in", WORDS)
    write_outputs(tmp_path / "o.json", "trt", [({"y": -array(number)}, 0.1) for number in range(COUNT - 1)])
    found = paired(model, data, f"saved?path={tmp_path}/o.json", tmp_path)
    assert found.pop(4) == "sample gnu.npz was not recorded: the recording holds 4"
    assert found == {0: 0, 1: 1, 2: 2, 3: 3}


def test_the_command_line_names_the_missing_file(model: Model, tmp_path: Path) -> None:
    data, recorded = inputs_in(tmp_path / "in", NUMBERS), tmp_path / "out"
    recorded.mkdir()
    for number, name in enumerate(NUMBERS):
        npz(recorded, name, number)
    words = ["compare", str(model.path), "--inputs", str(data), "--candidate", f"saved?path={recorded}"]
    done = in_this_process(*words, "--study", "whole", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (recorded / "000002.npz").unlink()
    done = in_this_process(*words, "--study", "cut", folder=tmp_path)
    assert done.returncode == 2
    assert "sample 000002.npz was not recorded" in done.stderr
    assert not (tmp_path / "cut").exists()


def test_one_file_of_rows_is_parted_when_that_is_said(model: Model, tmp_path: Path) -> None:
    data = inputs_in(tmp_path / "in", WORDS)
    np.savez(tmp_path / "o.npz", y=np.concatenate([-array(number) for number in range(COUNT - 1)]))
    with (
        open_target(model, parse_target(f"saved?path={tmp_path}/o.npz"), Capture()) as session,
        pytest.raises(ParityError) as caught,
    ):
        session.run(Sample(index=1, name="dog", arrays={"x": array(1)}))
    assert "add &pair=rows" in caught.value.fix
    found = paired(model, data, f"saved?path={tmp_path}/o.npz&pair=rows", tmp_path)
    assert found.pop(4) == "sample gnu.npz has no rows in an array of the shape [4, 4]"
    assert found == {0: 0, 1: 1, 2: 2, 3: 3}
    with pytest.raises(ParityError, match="reads samples from the rows of one recording, and there are 5"):
        paired(model, data, f"saved?path={data}&pair=rows", tmp_path)


def test_outputs_of_other_shapes_whose_names_are_exchanged_are_told_with_the_pair(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y, float[1] z, float[4, 1] t) '
    text += "{ y = Neg(x) z = ReduceSum<keepdims = 0, axes = [1]>(x) t = Transpose(y) }"
    onnx.save(onnx.parser.parse_model(text.replace("17", "11")), tmp_path / "m.onnx")
    inputs_in(tmp_path / "in", ["a"])
    np.savez(tmp_path / "o.npz", y=np.zeros(1, np.float32), z=-array(0), t=-array(0).T)
    words = ("compare", "m.onnx", "--inputs", "in", "--candidate", "o.npz")
    told = in_this_process(*words, folder=tmp_path)
    assert told.returncode == 3
    assert "--map y=z --map z=y" in " ".join(told.stdout.split())
    assert in_this_process(*words, "--map", "y=z", "--map", "z=y", folder=tmp_path).returncode == 0
