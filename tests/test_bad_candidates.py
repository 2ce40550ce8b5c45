"""Bad input gets a finding or a clear error, never a wrong cause: all from the command line, with real runtimes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

import parityscope
from command_line import exit_status, read_study
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_RNG = np.random.default_rng(8)
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,16,16] x) => (float[N,4] y, float[N,4] z) {
  f = Flatten(x)
  a = MatMul(f, w)
  y = Tanh(a)
  z = Relu(a)
}"""
_PREPARE = """
import numpy as np

calls = []


def good(image):
    return (np.asarray(image, np.float32) / 255).transpose(2, 0, 1)[None]


def raises(image):
    raise ValueError("no such colour space")


def third(image):
    calls.append(image)
    if len(calls) == 3:
        raise KeyError("box")
    return good(image)


def other_shape(image):
    return np.zeros((1, 3, 8, 8), np.float32)


def no_array(image):
    return "an image"


def bgr(image):
    return np.ascontiguousarray(good(image)[:, ::-1])
"""
_VARIES = """
import pathlib
import numpy as np


def read(path):
    with np.load(path) as held:
        return dict(held)


recorded = [read(one) for one in pathlib.Path({recorded!r}).glob("*.npz")]


def infer(feeds):
    found = next((one for one in recorded if np.array_equal(one["x"], feeds["x"])), recorded[0])
    noise = np.random.default_rng().normal(size=found["y"].shape)
    return {{"y": (0.001 * noise - found["y"]).astype(np.float32), "z": found["z"]}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A model of two outputs and four samples of two rows each."""
    model = onnx.parser.parse_model(_MODEL)
    weights = (_RNG.normal(size=(768, 4)) / 30).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "model.onnx")
    for number in range(4):
        write_npz(tmp_path / "inputs" / f"{number:06d}.npz", {"x": _RNG.normal(size=(2, 3, 16, 16)).astype(np.float32)})
    (tmp_path / "prepare.py").write_text(_PREPARE, encoding="utf-8")
    return tmp_path


def _answers(place: Path) -> list[dict[str, np.ndarray]]:
    run = open_session(load_model(place / "model.onnx").graph())
    return [dict(run(dict(np.load(file)))) for file in sorted((place / "inputs").glob("*.npz"))]


def _images(folder: Path, count: int = 4) -> Path:
    from PIL import Image

    folder.mkdir()
    for number in range(count):
        picture = _RNG.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / f"{number:06d}.png")
    return folder


def _diagnosed(place: Path, candidate: str, *words: str) -> int:
    given = words or ("--inputs", str(place / "inputs"))
    study = ("--study", str(place / "study"), "--format", "json", "--quiet")
    return exit_status("diagnose", str(place / "model.onnx"), "--candidate", candidate, *given, *study)


def _causes(document: dict[str, Any]) -> list[str]:
    return [one["code"] for one in document["findings"] if one["role"] == "cause"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "preprocessing 000000.png failed: ValueError: no such colour space"),
        ("third", "preprocessing 000002.png failed: KeyError: 'box'"),
        ("other_shape", "found the shape [1, 3, 8, 8]"),
        ("no_array", "gave a str"),
    ],
)
def test_preprocessing_that_fails_is_an_error_of_its_own(
    place: Path, function: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    images = _images(place / "images")
    words = ("--inputs", str(images), "--preprocess", f"{place / 'prepare.py'}:{function}")
    assert _diagnosed(place, "ort", *words) == 2
    error = capfd.readouterr().err
    assert said in error
    assert "fix:" in error
    assert not (place / "study").exists()


def test_the_side_whose_preprocessing_raises_is_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    images = _images(place / "images")
    file = place / "prepare.py"
    assert exit_status("preprocessing", f"{file}:good", f"{file}:raises", "--images", str(images), "--quiet") == 2
    error = capfd.readouterr().err
    assert "no such colour space" in error
    assert "prepare.py:raises" in error


def test_an_image_that_cannot_be_read_is_left_out_and_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    images = _images(place / "images", 3)
    (images / "000003.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    words = ("--inputs", str(images), "--preprocess", f"{place / 'prepare.py'}:good")
    assert _diagnosed(place, "ort", *words) == 3
    document = json.loads(capfd.readouterr().out)
    (skip,) = [one for one in document["skipped"] if "000003.png" in one["what"] + one["reason"]]
    assert skip["asked"]
    assert "cannot be read" in skip["reason"]
    assert skip["fix"]
    assert [output["samples"] for output in document["outputs"]] == [3, 3]


def test_an_original_that_cannot_be_read_leaves_other_causes_to_be_found(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # The prepared inputs are there; only one of the images that they were made from is broken.
    images = _images(place / "images")
    for number, file in enumerate(sorted(images.glob("*.png"))):
        from PIL import Image

        with Image.open(file) as picture:
            x = (np.asarray(picture, np.float32) / 255).transpose(2, 0, 1)[None]
        write_npz(place / "inputs" / f"{number:06d}.npz", {"x": x})
        run = open_session(load_model(place / "model.onnx").graph())
        write_npz(place / "recorded" / f"{number:06d}.npz", run({"x": np.ascontiguousarray(x[:, ::-1])}))
    (images / "000001.png").write_bytes(b"no image")
    words = ("--inputs", str(place / "inputs"), "--images", str(images))
    code = _diagnosed(place, f"saved?path={place / 'recorded'}", *words)
    said = capfd.readouterr()
    if code == 2:
        assert "000001.png cannot be read" in said.err
        return
    document = json.loads(said.out)
    assert _causes(document) in ([], ["PRE001"])
    assert any("000001.png" in skip["reason"] for skip in document["skipped"]) or _causes(document)


def test_an_output_that_is_missing_is_listed_and_the_study_is_incomplete(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, found in enumerate(_answers(place)):
        write_npz(place / "recorded" / f"{number:06d}.npz", {"y": found["y"]})
    assert _diagnosed(place, f"saved?path={place / 'recorded'}") == 3
    document = json.loads(capfd.readouterr().out)
    skip = next(one for one in document["skipped"] if one["what"] == "output z")
    assert skip["asked"]
    assert "did not give 'z'" in skip["reason"]
    assert "--map z=ITS_NAME" in skip["fix"]
    assert _causes(document) == []


def test_a_sample_that_is_missing_is_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, found in enumerate(_answers(place)[:2]):
        write_npz(place / "recorded" / f"{number:06d}.npz", found)
    assert _diagnosed(place, f"saved?path={place / 'recorded'}") == 2
    error = capfd.readouterr().err
    assert "sample 000002.npz was not recorded" in error
    assert "--samples 2" in error


def test_an_output_that_only_some_samples_have_is_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, found in enumerate(_answers(place)):
        write_npz(place / "recorded" / f"{number:06d}.npz", found if number < 2 else {"y": found["y"]})
    assert _diagnosed(place, f"saved?path={place / 'recorded'}") == 2
    error = capfd.readouterr().err
    assert "sample 2" in error
    assert "'z'" in error


def test_a_program_that_answers_only_some_samples_is_told_with_the_sample(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = np.load(place / "inputs" / "000000.npz")["x"].sum()
    program = place / "some.py"
    program.write_text(
        "import pathlib, sys, numpy as np\n"
        "given, wanted = map(pathlib.Path, sys.argv[1:3])\n"
        "for file in given.glob('*.npz'):\n"
        "    x = np.load(file)['x']\n"
        f"    if abs(x.sum() - {float(first)!r}) < 1e-3:\n"
        "        np.savez(wanted / file.name, y=np.zeros((2, 4), np.float32), z=np.zeros((2, 4), np.float32))\n",
        encoding="utf-8",
    )
    assert _diagnosed(place, f"command?run={sys.executable} {program}") == 2
    error = capfd.readouterr().err
    assert "wrote no outputs" in error
    assert "sample 1 (000001.npz)" in error


def test_a_program_that_dies_on_a_sample_is_judged_on_the_others(
    place: Path,
) -> None:
    third = np.load(place / "inputs" / "000002.npz")["x"].sum()
    program = place / "dies.py"
    program.write_text(
        "import os, pathlib, sys, numpy as np\n"
        "given, wanted = map(pathlib.Path, sys.argv[1:3])\n"
        "for file in given.glob('*.npz'):\n"
        f"    if abs(np.load(file)['x'].sum() - {float(third)!r}) < 1e-3:\n"
        "        os.abort()\n"
        "    np.savez(wanted / file.name, y=np.zeros((2, 4), np.float32), z=np.zeros((2, 4), np.float32))\n",
        encoding="utf-8",
    )
    words = ("compare", str(place / "model.onnx"), "--inputs", str(place / "inputs"), "--study", str(place / "study"))
    assert exit_status(*words, "--candidate", f"command?run={sys.executable} {program}") == 1
    document = read_study(place / "study")
    assert [len(output["per_sample"]) for output in document["outputs"]] == [3, 3]
    (lost,) = [skip for skip in document["skipped"] if skip["what"] == "sample 000002.npz"]
    assert "was killed by SIGABRT" in lost["reason"]


@pytest.mark.parametrize("rows", [1, 3])
def test_outputs_of_another_batch_size_are_an_error(place: Path, rows: int, capfd: pytest.CaptureFixture[str]) -> None:
    for number, found in enumerate(_answers(place)):
        held = {name: np.concatenate([array, array])[:rows] for name, array in found.items()}
        write_npz(place / "recorded" / f"{number:06d}.npz", held)
    assert _diagnosed(place, f"saved?path={place / 'recorded'}") == 2
    error = capfd.readouterr().err
    assert f"its shape is [2, 4] in the reference and [{rows}, 4] in the candidate" in error
    assert "batch size of the samples" in error


def test_one_output_of_another_batch_size_is_listed_and_the_other_judged(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, found in enumerate(_answers(place)):
        write_npz(place / "recorded" / f"{number:06d}.npz", {"y": found["y"], "z": found["z"][:1]})
    assert _diagnosed(place, f"saved?path={place / 'recorded'}") == 3
    document = json.loads(capfd.readouterr().out)
    assert [one["name"] for one in document["outputs"]] == ["y"]
    skip = next(one for one in document["skipped"] if one["what"] == "output z")
    assert "batch size of the samples" in skip["fix"]
    assert _causes(document) == []


def test_an_output_of_another_shape_is_in_the_headline_and_no_matter_of_the_batch(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, found in enumerate(_answers(place)):
        held = {"y": found["y"], "z": np.concatenate([found["z"], found["z"][:, :1]], axis=1)}
        write_npz(place / "recorded" / f"{number:06d}.npz", held)
    words = ("compare", str(place / "model.onnx"), "--inputs", str(place / "inputs"), "--study", str(place / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={place / 'recorded'}") == 3
    headline, _, rest = " ".join(capfd.readouterr().out.split()).partition(" Missing ")
    assert "the shape of 'z' is [2, 4] in the reference and [2, 5] in the candidate" in headline
    assert "same output of the same model" in rest
    assert "batch" not in rest


def test_an_output_with_its_axes_in_another_order_is_told_how_to_turn_it(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, found in enumerate(_answers(place)):
        write_npz(place / "recorded" / f"{number:06d}.npz", {**found, "z": np.ascontiguousarray(found["z"].T)})
    words = ("compare", str(place / "model.onnx"), "--inputs", str(place / "inputs"), "--study", str(place / "study"))
    assert exit_status(*words, "--candidate", f"saved?path={place / 'recorded'}") == 3
    assert "with numpy z.transpose(1, 0)" in " ".join(capfd.readouterr().out.split())


def test_answers_that_vary_are_the_only_cause_if_they_explain_the_error(place: Path) -> None:
    run, noise = open_session(load_model(place / "model.onnx").graph()), np.random.default_rng(9)

    def vary(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = dict(run(arrays))
        return {**found, "y": found["y"] + np.float32(0.05) * noise.normal(size=found["y"].shape).astype(np.float32)}

    document = parityscope.diagnose(place / "model.onnx", candidate=vary, inputs=place / "inputs", samples=2).document
    assert _causes(document) == ["RUN001"]
    assert document["candidate"]["spread"] > 0.01


def _program(place: Path) -> str:
    for number, found in enumerate(_answers(place)):
        x = np.load(place / "inputs" / f"{number:06d}.npz")["x"]
        write_npz(place / "known" / f"{number:06d}.npz", {**found, "x": x})
    program = place / "varies.py"
    program.write_text(_VARIES.format(recorded=str(place / "known")), encoding="utf-8")
    return f"python?call={program}:infer"


def test_answers_that_vary_are_told_before_another_cause(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _diagnosed(place, _program(place)) == 1
    document = json.loads(capfd.readouterr().out)
    # The output is negated; what varies explains next to nothing of that.
    assert "RUN001" in [one["code"] for one in document["findings"]]
    assert "RUN001" not in _causes(document)
    assert exit_status("report", str(place / "study"), "--all") == 0
    text = capfd.readouterr().out
    # Before the section of the causes, whose titles the headline has.
    assert text.index("answers vary: two runs on one sample differ by") < text.index("\nCause")
    page = (place / "study" / "report.html").read_text(encoding="utf-8")
    assert "answers vary: two runs on one sample differ by" in page


def test_a_layer_that_draws_random_numbers_is_not_blamed_for_another_function(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,6] y) {
      p = MatMul(x, w)
      q = Identity(p)
      t = Tanh(q)
      y = MatMul(t, v)
    }"""
    noisy = text.replace("q = Identity(p)", "n = RandomNormalLike<scale = 0.3>(p)\n  q = Add(p, n)")
    constants = {
        "w": _RNG.normal(size=(8, 16)).astype(np.float32),
        "v": _RNG.normal(size=(16, 6)).astype(np.float32),
    }
    for name, source in (("model", text), ("noisy", noisy)):
        write_network(tmp_path / f"{name}.onnx", source, constants)
    for number in range(3):
        write_npz(tmp_path / "inputs" / f"{number:06d}.npz", {"x": _RNG.normal(size=(2, 8)).astype(np.float32)})
    assert _diagnosed(tmp_path, f"ort?model={tmp_path / 'noisy.onnx'}") == 1
    document = json.loads(capfd.readouterr().out)
    assert _causes(document) == ["RUN001"]
    assert document["findings"][0]["code"] == "RUN001"
    assert document["sequence"] is None
