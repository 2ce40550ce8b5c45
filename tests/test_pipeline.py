"""`parityscope pipeline`: of a chain of models the first stage that differs is named, whatever the later ones show.

The stages are small: y = tanh(x w), z = relu(y v). A fault in the first changes the outputs of both, and only the first may be
named; a fault in the glue between them is neither model's. The real chain is a text detector and a recogniser.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import exit_status, read_study
from parityscope.errors import ParityError
from parityscope.study import read_pipeline
from proving.models.fetching import Unavailable, model_path

if TYPE_CHECKING:
    from pathlib import Path

FIRST = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 6] y) {
    a = MatMul(x, w)  y = Tanh(a) }"""
SECOND = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 6] y, float[N, 8] x) => (float[N, 4] z) {
    b = MatMul(y, v)  c = Relu(b)  s = ReduceMean<axes = [1]>(x)  z = Add(c, s) }"""
FILE = """
inputs = "data.npz"
[[stage]]
name = "encode"
model = "first.onnx"
candidate = "ort?optimization=disabled{encode}"
[[stage]]
name = "decode"
model = "second.onnx"
candidate = "ort?optimization=disabled{decode}"
{more}
"""
GLUE = """
def straight(outputs, inputs):
    return {"y": outputs["encode"]["y"], "x": inputs["x"]}

def rows(outputs, inputs):
    y, x = outputs["encode"]["y"], inputs["x"]
    return [{"y": y[k : k + 1], "x": x[k : k + 1]} for k in range(len(y))]

def scaled(outputs, inputs):
    return {"y": outputs["encode"]["y"] * 2, "x": inputs["x"]}

def lacking(outputs, inputs):
    return {"y": outputs["encode"]["y"]}
"""


def save(text: str, path: Path, scale: float = 1.0) -> None:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(74)
    for name, shape in {"w": (8, 6), "v": (6, 4)}.items():
        values = rng.normal(size=shape).astype(np.float32) * np.float32(scale)
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    save(FIRST, tmp_path / "first.onnx")
    save(SECOND, tmp_path / "second.onnx")
    save(FIRST.replace("Tanh", "Sigmoid"), tmp_path / "first-wrong.onnx")
    save(SECOND, tmp_path / "second-wrong.onnx", 1.25)
    (tmp_path / "glue.py").write_text(GLUE, encoding="utf-8")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(75).normal(size=(3, 8)).astype(np.float32))
    return tmp_path


def write(desk: Path, *, encode: str = "", decode: str = "", more: str = "") -> Path:
    path = desk / "chain.toml"
    path.write_text(FILE.format(encode=encode, decode=decode, more=more), encoding="utf-8")
    return path


def examined(desk: Path, capfd: pytest.CaptureFixture[str], expected: int, **parts: str) -> dict[str, Any]:
    file = write(desk, **parts)
    assert exit_status("pipeline", str(file), "--study", str(desk / "study"), "--format", "json", "--quiet") == expected
    printed: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert printed == json.loads((desk / "study" / "pipeline.json").read_text(encoding="utf-8"))
    return printed


def test_a_right_chain_is_within(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = examined(desk, capfd, 0)
    assert (found["verdict"], found["first"]) == ("within", "")
    assert [(stage["name"], stage["calls"]) for stage in found["stages"]] == [("encode", [1, 1]), ("decode", [1, 1])]
    assert not (desk / "study" / "study.json").exists()


def test_the_first_stage_is_named_and_examined(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = examined(desk, capfd, 1, encode="&model=first-wrong.onnx")
    assert found["first"] == "encode"
    encode, decode = found["stages"]
    assert encode["verdict"] == "beyond"
    # The second model is right on what it was given: all its error is inherited.
    assert decode["verdict"] == "within"
    (output,) = decode["outputs"]
    assert output["introduced"] < 1e-6
    assert output["inherited"] > 0.01
    assert output["inherited"] == pytest.approx(output["total"], rel=1e-5)
    study = read_study(desk / "study")
    assert study["verdict"] == "beyond"
    assert study["suspects"][0]["site"]["tensor"] == "y"


def test_a_later_stage_is_named_where_the_earlier_are_right(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = examined(desk, capfd, 1, decode="&model=second-wrong.onnx", more='glue = "glue.py:straight"')
    assert found["first"] == "decode"
    assert found["stages"][0]["verdict"] == "within"
    assert found["stages"][1]["outputs"][0]["inherited"] < 1e-6


def test_glue_is_told_from_models(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = 'glue = "glue.py:straight"\ncandidate_glue = "glue.py:scaled"'
    found = examined(desk, capfd, 1, more=more)
    assert found["first"] == "decode (glue)"
    # The deployment's glue doubles: |2y - y| / |y| = 1.
    assert found["stages"][1]["glue"] == pytest.approx(1.0, rel=1e-6)
    assert [stage["verdict"] for stage in found["stages"]] == ["within", "within"]


def test_a_stage_may_have_several_calls_a_sample(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = 'glue = "glue.py:rows"'
    assert examined(desk, capfd, 0, more=more)["stages"][1]["calls"] == [3, 3]
    (desk / "study").rename(desk / "before")
    more = 'glue = "glue.py:rows"\ncandidate_glue = "glue.py:straight"'
    found = examined(desk, capfd, 1, more=more)
    assert found["stages"][1]["calls"] == [3, 1]
    assert found["stages"][1]["glue"] == "Infinity"
    assert "3 calls of the reference and 1 of the candidate" in found["skipped"][0]["reason"]


def test_the_text_names_the_first_stage(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(desk, encode="&model=first-wrong.onnx")
    assert exit_status("pipeline", str(file), "--study", str(desk / "study")) == 1
    printed = capfd.readouterr()
    assert printed.out.startswith("The first stage that differs is encode.\n")
    assert "report.html" in printed.err


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"more": 'glue = "glue.py:lacking"'}, "the glue gave y"),
        ({"more": 'glue = "glue.py:none"'}, "no function 'none'"),
        ({"more": 'glue = "glue"'}, "not file.py:function"),
        ({"more": 'candidate_glue = "glue.py:rows"'}, "nothing to be held against"),
        ({"more": 'feeds = { y = "later.y" }'}, "names no earlier stage"),
        ({"more": 'feeds = { y = "encode.q" }'}, "gets no 'y'"),
        ({"more": 'speed = "fast"'}, "'speed' has no meaning"),
        ({"more": '[[stage]]\nname = "encode"\nmodel = "m"\ncandidate = "ort"'}, "two stages are called 'encode'"),
        ({"more": '[[stage]]\nname = "a.b"\nmodel = "m"\ncandidate = "ort"'}, "cannot be a stage's name"),
        ({"more": '[[stage]]\nname = "last"\nmodel = "gone.onnx"\ncandidate = "ort"'}, "where: stage last"),
        ({"more": '[[stage]]\nname = "last"\nmodel = "second.onnx"\ncandidate = "nope"'}, "no backend 'nope'"),
        ({"more": "[[stage]]\nname = 'last'"}, "has no model"),
        ({"encode": "&speed=1"}, "no option 'speed'"),
    ],
)
def test_what_cannot_be_examined_is_one_error(
    desk: Path, capfd: pytest.CaptureFixture[str], parts: dict[str, str], problem: str
) -> None:
    assert exit_status("pipeline", str(write(desk, **parts)), "--study", str(desk / "study")) == 2
    printed = capfd.readouterr()
    assert problem in printed.err
    assert "fix" in printed.err
    assert not (desk / "study").exists()


THIRD = "\n[[stage]]\nname = 'last'\nmodel = 'third.onnx'\ncandidate = 'command?run={}'\n"


def test_a_stage_that_cannot_run_is_named(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = THIRD.format("false") + 'feeds = { y = "encode.y" }'
    save(SECOND, desk / "third.onnx")
    assert exit_status("pipeline", str(write(desk, more=more)), "--study", str(desk / "study")) == 2
    printed = capfd.readouterr()
    assert "false failed with exit code 1" in printed.err
    assert "where: stage last" in printed.err


def test_a_stage_that_cannot_run_behind_one_that_differs_hides_nothing(
    desk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(SECOND, desk / "third.onnx")
    more = THIRD.format("false") + 'feeds = { y = "encode.y" }'
    more += "\n[[stage]]\nname = 'after'\nmodel = 'third.onnx'\ncandidate = 'ort'\nfeeds = { y = \"encode.y\" }"
    found = examined(desk, capfd, 1, encode="&model=first-wrong.onnx", more=more)
    assert found["first"] == "encode"
    assert [stage["verdict"] for stage in found["stages"]] == ["beyond", "within", "incomplete", "incomplete"]
    assert [skip["what"] for skip in found["skipped"]] == ["stage last", "stage after"]
    assert "false failed" in found["skipped"][0]["reason"]
    assert (desk / "study" / "report.html").exists()


def test_files_are_looked_for_beside_the_pipelines(desk: Path) -> None:
    read = read_pipeline(write(desk, encode="&model=first-wrong.onnx", more='feeds = { y = "encode.y" }'))
    assert read.inputs == str(desk / "data.npz")
    assert f"model={desk / 'first-wrong.onnx'}" in read.stages[0].candidate
    assert read.stages[1].feeds == {"y": ("encode", "y")}
    with pytest.raises(ParityError, match="there is no pipeline"):
        read_pipeline(desk / "none.toml")


OCR_GLUE = """
import numpy as np
from proving.models.ocr import ocr_rec_input

MEAN, STD = np.array((0.485, 0.456, 0.406)), np.array((0.229, 0.224, 0.225))

def lines(outputs, inputs):
    '''Cuts the image where rows of the detector's map are text, and brings every cut to the recogniser's height.'''
    text = outputs["detect"]["MAP"][0, 0] > 0.3
    image = np.rint((inputs["x"][0].transpose(1, 2, 0) * STD + MEAN) * 255).clip(0, 255).astype(np.uint8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], text.any(1).astype(int), [0]))))
    found = []
    for top, bottom in zip(edges[::2], edges[1::2]):
        columns = np.flatnonzero(text[top:bottom].any(0))
        found.append(ocr_rec_input(image[max(top - 3, 0) : bottom + 3, max(columns[0] - 3, 0) : columns[-1] + 4]))
    return found
"""


@pytest.mark.model
@pytest.mark.story
def test_a_text_detector_and_a_recogniser(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        models = {"detect": model_path("ocr-det"), "read": model_path("ocr-rec")}
    except Unavailable as error:
        pytest.skip(error.problem)
    from parityscope.case import load_model
    from proving.models.ocr import ocr_det_input, rendered_line

    page = np.full((96, 128), 255, np.uint8)
    for row, text in enumerate(("twice", "once")):
        line = rendered_line(text, 24)
        page[4 + 46 * row : 4 + 46 * row + line.shape[0], 12 : 12 + line.shape[1]] = line
    np.savez(tmp_path / "page.npz", **ocr_det_input(page, (128, 96)))
    output = load_model(models["detect"]).outputs[0].name
    (tmp_path / "ocr.py").write_text(OCR_GLUE.replace("MAP", output), encoding="utf-8")
    (tmp_path / "ocr.toml").write_text(
        f"""inputs = "page.npz"
[[stage]]
name = "detect"
model = "{models["detect"]}"
candidate = "ort?model={planted(models["detect"], tmp_path)}"
[[stage]]
name = "read"
model = "{models["read"]}"
candidate = "ort?optimization=disabled"
glue = "ocr.py:lines"
""",
        encoding="utf-8",
    )
    arguments = ["pipeline", str(tmp_path / "ocr.toml"), "--study", str(tmp_path / "study"), "--time", "1s"]
    assert exit_status(*arguments, "--format", "json", "--quiet") == 1
    found = json.loads(capfd.readouterr().out)
    assert found["first"] == "detect"
    detect, read = found["stages"]
    assert (detect["verdict"], read["verdict"]) == ("beyond", "within")
    # The recogniser reads two lines; it is right on crops that the wrong detector cut.
    assert read["calls"] == [2, 2]


def planted(path: Path, folder: Path) -> Path:
    """The model with the weights of its first convolution three per cent too large."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    name = next(node.input[1] for node in model.graph.node if node.op_type == "Conv")
    tensor = weights.get(name) or constants[name]
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * np.float32(1.03), tensor.name))
    onnx.save(model, folder / f"planted-{path.name}")
    return folder / f"planted-{path.name}"
