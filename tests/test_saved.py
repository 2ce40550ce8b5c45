"""Outputs recorded elsewhere are given back as they were recorded, and nothing is matched loosely."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import ml_dtypes
import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from parityscope.backends import Capture, backend_named
from parityscope.backends.targets import check_target, parse_target
from parityscope.case import Sample, load_inputs, load_model
from parityscope.case.formats import polygraphy
from parityscope.errors import ParityError
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.backends import Session
    from parityscope.case import Model

COUNT = 3
OUTPUTS: list[dict[str, np.ndarray]] = [
    {"y": np.full((1, 4), index, np.float32), "z": np.array([index, -1], dtype=np.int64)} for index in range(COUNT)
]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[N, 4] x, int64[K] k) => (float[N, 4] y, int64[K] z) { h = Relu(x) y = Neg(h) z = Neg(k) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


def session_of(model: Model, text: str, *tensors: str, samples: int = 1) -> tuple[Session, list[dict[str, np.ndarray]]]:
    """The session and what it gives for the first samples."""
    saved = backend_named("saved")
    target = parse_target(text)
    check_target(target, saved)
    assert not saved.probe().problem
    with saved.open(model, target, Capture(tensors=tensors)) as session:
        return session, [dict(session.run(Sample(index=i, name=f"{i}", arrays={}))) for i in range(samples)]


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def npz_folder(folder: Path) -> Path:
    for index, outputs in enumerate(OUTPUTS):
        np.savez(folder / f"{index:06d}.npz", **outputs)
    return folder


def recording(folder: Path) -> Path:
    for part in ("inputs", "outputs"):
        (folder / part).mkdir()
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    npz_folder(folder / "outputs")
    return folder


def safetensors_folder(folder: Path) -> Path:
    for index, outputs in enumerate(OUTPUTS):
        save_file(outputs, folder / f"{index}.safetensors")
    return folder


def polygraphy_file(folder: Path) -> Path:
    polygraphy.write_outputs(folder / "o.json", "r", [(outputs, 0.1) for outputs in OUTPUTS])
    return folder / "o.json"


def polygraphy_folder(folder: Path) -> Path:
    polygraphy.write_outputs(folder / "o", "r", [(outputs, 0.1) for outputs in OUTPUTS])
    return folder / "o"


def raw_folder(folder: Path) -> Path:
    for index, outputs in enumerate(OUTPUTS):
        place = folder / f"{index:010d}"
        place.mkdir()
        outputs["y"].tofile(place / "y.output.1.4.fp32.raw")
        outputs["z"].tofile(place / "z.output.2.int64.raw")
        np.zeros(4, np.float32).tofile(place / "x.input.1.4.fp32.raw")
    return folder


def test_another_shape_is_left_as_it_is(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", y=np.zeros(5, np.float32), z=np.zeros((1, 2), np.int64))
    session, (found,) = session_of(model, f"saved?path={quote(str(tmp_path))}")
    assert (found["y"].shape, found["z"].shape) == ((5,), (1, 2))
    assert not session.absent


@pytest.mark.parametrize(
    "kind", [npz_folder, recording, safetensors_folder, polygraphy_file, polygraphy_folder, raw_folder]
)
def test_every_kind_gives_what_was_recorded(model: Model, tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    folder = tmp_path / "a folder, with % and ?"
    folder.mkdir()
    session, found = session_of(model, f"saved?path={quote(str(kind(folder)))}", samples=COUNT)
    for index, outputs in enumerate(OUTPUTS):
        assert_same(found[index], outputs)
    assert session.absent == ()
    with pytest.raises(ParityError, match="sample 3 was not recorded: the recording holds 3") as caught:
        session.run(Sample(index=3, name="3", arrays={}))
    assert "--samples 3" in caught.value.fix


def test_one_file_is_one_sample(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", **OUTPUTS[1])
    save_file(OUTPUTS[1], tmp_path / "o.safetensors")
    for name in ("o.npz", "o.safetensors"):
        _, found = session_of(model, f"saved:f16?path={tmp_path}/{name}")
        assert_same(found[0], OUTPUTS[1])


def test_trtexec_json_takes_the_models_dtypes(model: Model, tmp_path: Path) -> None:
    document = [
        {"name": "y", "dimensions": "1x4", "values": [1, 2, 3, 4.5]},
        {"name": "z", "dimensions": "2", "values": [3, -1]},
    ]
    (tmp_path / "o.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    session, found = session_of(model, f"saved?path={tmp_path}/o.json")
    assert_same(found[0], {"y": np.array([[1, 2, 3, 4.5]], np.float32), "z": np.array([3, -1])})
    assert "6 significant digits" in session.environment["recording"]


def test_plain_blobs_take_dtypes_from_the_model_and_shapes_from_the_target(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    for name, array in OUTPUTS[2].items():
        array.tofile(folder / f"{name}.bin")
    with pytest.raises(ParityError, match="raw bytes have no shape") as caught:
        session_of(model, f"saved?path={folder}")
    assert "&shapes=y:" in caught.value.fix
    _, found = session_of(model, f"saved?path={folder}&shapes=y:1x4,z:2")
    assert_same(found[0], OUTPUTS[2])
    with pytest.raises(ParityError, match="'y:1xq' is no shape"):
        session_of(model, f"saved?path={folder}&shapes=y:1xq")


def test_dtypes_and_shapes_are_given_back_as_recorded(model: Model, tmp_path: Path) -> None:
    other = {"y": np.zeros((4, 1), np.float16), "z": np.array([1.5, 2.5], ml_dtypes.bfloat16)}
    np.savez(tmp_path / "o.npz", **other)
    _, found = session_of(model, f"saved?path={tmp_path}/o.npz")
    assert_same(found[0], other)


def test_captured_tensors_come_behind_the_outputs(model: Model, tmp_path: Path) -> None:
    hidden = np.ones((1, 4), np.float32)
    np.savez(tmp_path / "o.npz", h=hidden, **OUTPUTS[0])
    path = f"saved?path={tmp_path}/o.npz"
    assert_same(session_of(model, path)[1][0], OUTPUTS[0])
    assert session_of(model, path)[0].absent == ()  # h is the model's: it was not asked for, and it is no stranger
    session, found = session_of(model, path, "h")
    assert_same(found[0], {**OUTPUTS[0], "h": hidden})
    assert session.absent == ()


def test_what_one_side_lacks_is_listed(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", y=OUTPUTS[0]["y"], Z=OUTPUTS[0]["z"], x=np.zeros(1))
    session, found = session_of(model, f"saved?path={tmp_path}/o.npz", "h")
    assert_same(found[0], {"y": OUTPUTS[0]["y"]})
    assert [(skip.what, skip.asked) for skip in session.absent] == [
        ("tensor z", True),  # an output that is not judged
        ("tensor h", False),
        ("tensor Z", False),
    ]
    assert all(skip.reason and "'saved?map=" in skip.fix for skip in session.absent)


def test_no_output_at_all_is_an_error(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", Y=OUTPUTS[0]["y"])
    with pytest.raises(ParityError, match=r"none of the model's outputs \(y, z\); it has Y") as caught:
        session_of(model, f"saved?path={tmp_path}/o.npz")
    assert caught.value.fix == f"say which is which, for example: 'saved?map=Y:y&path={tmp_path}/o.npz'"
    assert_same(session_of(model, f"saved?path={tmp_path}/o.npz&map=Y:y")[1][0], {"y": OUTPUTS[0]["y"]})


def test_shapes_tell_which_recorded_array_is_which_output(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", OUTPUTS[0]["z"], OUTPUTS[0]["y"])
    with pytest.raises(ParityError, match="none of the model's outputs") as caught:
        session_of(model, f"{tmp_path}/o.npz")
    said, _, typed = caught.value.fix.partition(": ")
    assert said == "their shapes tell which is which"
    assert_same(session_of(model, *shlex.split(typed))[1][0], OUTPUTS[0])
    assert_same(session_of(model, f"{tmp_path}/o.npz&map=arr_1:y,arr_0:z")[1][0], OUTPUTS[0])


def test_what_is_suggested_of_several_names_fits_by_shape(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y, float[4] a, float[4] b) {
      y = Neg(x) a = ReduceSum<keepdims = 0>(x, zero) b = Abs(a)
    }"""
    several = load_model(write_network(tmp_path / "model.onnx", text, {"zero": np.array([0])}))
    np.savez(tmp_path / "o.npz", past_a=np.ones(4, np.float32), past_b=np.ones(4, np.float32), out=OUTPUTS[0]["y"])
    with pytest.raises(ParityError, match="none of the model's outputs") as caught:
        session_of(several, f"saved?path={tmp_path}/o.npz")
    assert "say which is which, for example: 'saved?map=out:y,past_a:a,past_b:b&" in caught.value.fix


def test_the_inputs_are_no_recording_of_outputs(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", x=np.zeros((1, 4), np.float32), k=np.zeros(2, np.int64))
    with pytest.raises(ParityError, match=r"holds the model's inputs \(k, x\) and none of its outputs") as caught:
        session_of(model, f"{tmp_path}/o.npz")
    assert "--inputs" in caught.value.fix


def test_map_renames_exchanges_and_reads_colons(model: Model, tmp_path: Path) -> None:
    a, b = np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32)
    np.savez(tmp_path / "o.npz", y=a, z=b)
    _, found = session_of(model, f"saved?path={tmp_path}/o.npz&map=y:z,z:y")
    assert_same(found[0], {"y": b, "z": a})
    np.savez(tmp_path / "tf.npz", **{"out:0": a, "out:1": b})
    _, found = session_of(model, f"saved?path={tmp_path}/tf.npz&map={quote('out:0:y,out:1:z')}")
    assert_same(found[0], {"y": a, "z": b})


@pytest.mark.parametrize(
    ("rename", "problem"),
    [
        ("q:y", "does not go from a recorded name"),
        ("y:q", "does not go from a recorded name"),
        ("y", "does not go from a recorded name"),
        ("y:h,y:z", "does not go from a recorded name"),
        ("y:z", "map= makes 'z' of both 'y' and 'z'"),
    ],
)
def test_map_that_is_wrong(model: Model, tmp_path: Path, rename: str, problem: str) -> None:
    np.savez(tmp_path / "o.npz", **OUTPUTS[0])
    with pytest.raises(ParityError, match=problem) as caught:
        session_of(model, f"saved?path={tmp_path}/o.npz&map={rename}")
    assert caught.value.fix


def test_a_sample_that_lacks_an_output_is_an_error(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    folder.mkdir()
    np.savez(folder / "0.npz", **OUTPUTS[0])
    np.savez(folder / "1.npz", y=OUTPUTS[1]["y"])
    with pytest.raises(ParityError, match=r"sample 1 \(1\.npz\) has no 'z', which 0\.npz has"):
        session_of(model, f"saved?path={folder}", samples=2)


def test_runner_is_chosen_exactly(model: Model, tmp_path: Path) -> None:
    documents = []
    for name in ("ort-N0-11/21/26", "trt"):
        polygraphy.write_outputs(tmp_path / "one.json", name, [(OUTPUTS[len(documents)], 0.1)])
        documents.append(json.loads((tmp_path / "one.json").read_text(encoding="utf-8")))
    documents[0]["lst"] += documents[1]["lst"]
    (tmp_path / "o.json").write_text(json.dumps(documents[0]), encoding="utf-8")
    path = f"saved?path={tmp_path}/o.json"
    with pytest.raises(ParityError, match="2 runners: ort-N0-11/21/26, trt"):
        session_of(model, path)
    assert_same(session_of(model, f"{path}&runner=trt")[1][0], OUTPUTS[1])
    assert_same(session_of(model, f"{path}&runner={quote('ort-N0-11/21/26', safe='')}")[1][0], OUTPUTS[0])


@pytest.mark.parametrize(
    ("name", "content", "options", "problem"),
    [
        ("gone.npz", None, "", "there is no"),
        ("o.npz", b"", "", "cannot be read"),
        ("o.json", b"[{", "", "no whole JSON"),
        ("o.json", b"\xff", "", "not text in UTF-8"),
        ("o.json", b"[]", "", "first sample, o.json, holds no arrays"),
        ("o.json", b'{"x": 3}', "", "not Polygraphy's saved outputs"),
        ("o.json", b'{"lst": [["r", []]], "polygraphy_class": "RunResults"}', "", "holds no samples"),
        ("o.json", b'{"lst": [3], "polygraphy_class": "RunResults"}', "", "cannot be read"),
        ("o.txt", b"", "", "no kind that outputs can be read from"),
        ("o.npz", b"", "&runner=r", "only Polygraphy's files have runners"),
        ("o.npz", b"", "&shapes=y:1", "only raw bytes need shapes"),
        ("o.npz", b"", "&nonsense=1", "saved has no option 'nonsense'"),
    ],
)
def test_what_cannot_be_read(
    model: Model, tmp_path: Path, *, name: str, content: bytes | None, options: str, problem: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ParityError, match=problem) as caught:
        session_of(model, f"saved?path={tmp_path / name}{options}")
    assert caught.value.fix


def test_path_is_needed(model: Model) -> None:
    with pytest.raises(ParityError, match="saved needs the recording"):
        session_of(model, "saved")


def test_bytes_of_unknown_meaning_are_refused(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", y=np.zeros((1, 4), ml_dtypes.float8_e4m3fn), z=OUTPUTS[0]["z"])
    with pytest.raises(ParityError, match=r"'y' was recorded as \|V1") as caught:
        session_of(model, f"saved?path={tmp_path}/o.npz")
    assert "float32" in caught.value.fix


def test_outputs_of_a_real_polygraphy_run_are_those_of_the_model(model: Model, tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("polygraphy"), "run", str(model.path), "--onnxrt", "--iterations", "2"]
    shapes = ["--input-shapes", "x:[2,4]", "k:[3]"]
    save = ["--save-inputs", "in.json", "--save-outputs", "out.json"]
    subprocess.run([*command, *shapes, *save], cwd=tmp_path, check=True, capture_output=True)
    inputs = load_inputs(model, tmp_path / "in.json", spool=tmp_path / "spool")
    assert len(inputs) == 2
    with backend_named("saved").open(model, parse_target(f"saved?path={tmp_path}/out.json"), Capture()) as session:
        for sample in inputs:
            wanted = {"y": -np.maximum(sample.arrays["x"], 0), "z": -sample.arrays["k"]}
            assert_same(dict(session.run(sample)), wanted)


def test_a_recording_without_arrays_says_what_to_write(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(ParityError, match="holds no arrays") as refused:
        session_of(model, f"saved?path={tmp_path / 'empty.npz'}")
    assert refused.value.fix == "write the outputs by their names: np.savez('empty.npz', **{'y': ARRAY})"
