"""`parityscope open`: each viewer is told what was found in the way that it documents, and the report where none is installed."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from command_line import exit_status, read_study
from golden import documents
from parityscope.report.as_html import render_html
from parityscope.study import prepare_folder, write_study

TEXT = """<ir_version: 10, opset_import: ["" : 17]> g (float[1,200] x) => (float[1,200] y) {
  [first] a = Relu(x)  [second] b = MatMul(a, w)  [third] y = Add(b, x)
}"""
NAMES = {"conv2d_0.tmp_0": "a", "batch_norm_0.tmp_3": "b"}
# What the viewers are asked, told to a file: their real servers run until they are interrupted.
EXPLORER = """import json
from pathlib import Path
class Config:
    def __init__(self): self.told = []
    def add_model_from_path(self, path, adapterId=""): self.told.append(["model", path]); return self
    def add_node_data_from_path(self, path): self.told.append(["data", json.loads(Path(path).read_text())]); return self
def config(): return Config()
def visualize_from_config(config, extensions=[], no_open_in_browser=False):
    Path("told.json").write_text(json.dumps([config.told, extensions, no_open_in_browser]))
"""
NETRON = """import json, shutil
from pathlib import Path
def start(file, address=None, browse=True):
    shutil.copy(file, "shown.onnx")
    Path("told.json").write_text(json.dumps(browse))
    return ("localhost", 8080)
def wait(): pass
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of g.onnx, whose second node is the cause."""
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "g.onnx")
    text = json.dumps(documents.detector(16))
    for name, other in NAMES.items():
        text = text.replace(name, other)
    document: dict[str, Any] = json.loads(text)
    document["model"]["path"] = "g.onnx"
    with prepare_folder(Path("study")) as scratch:
        write_study(scratch, document, render_html)
    return tmp_path / "study"


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((200, 200), np.float32), "w"))
    return model


def test_without_a_viewer_the_report_is_opened(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("parityscope.cli.open.find_spec", lambda _: None)
    address = (study / "report.html").as_uri()
    assert exit_status("open", "study") == 0
    found = capsys.readouterr()
    assert found.out.strip() == address
    assert "no browser could be started" in found.err
    assert opened == [address]
    assert exit_status("open", "study/study.json", "--no-browser") == 0
    assert opened == [address]
    for words, said in (
        (("--in", "netron"), "pip install netron"),
        (("--in", "paper"), "model-explorer, netron, browser"),
        (("--model", "other.onnx"), "there is no model other.onnx"),
    ):
        assert exit_status("open", "study", *words) == 2
        assert said in capsys.readouterr().err
    (study / "report.html").unlink()
    assert exit_status("open", "study") == 2
    assert "parityscope report study -o " in capsys.readouterr().err


def test_a_model_that_is_damaged_or_no_study_is_one_error(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study.parent / "installed"
    folder.mkdir()
    (folder / "netron.py").write_text(NETRON)
    monkeypatch.syspath_prepend(folder)
    Path("cut.onnx").write_bytes(Path("g.onnx").read_bytes()[:300])
    assert exit_status("open", "study", "--in", "netron", "--model", "cut.onnx") == 2
    said = capsys.readouterr().err
    assert "cut.onnx" in said
    assert "fix:" in said
    assert not Path("told.json").exists()
    assert exit_status("open", "g.onnx") == 2
    assert "g.onnx is a model, and `open` shows a study" in capsys.readouterr().err


def test_model_explorer_gets_the_model_and_both_overlays(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = study.parent / "installed"
    folder.mkdir()
    (folder / "model_explorer.py").write_text(EXPLORER)
    (folder / "model_explorer_onnx.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    assert exit_status("open", "study", "--no-browser") == 0
    (shown, *overlays), extensions, without = json.loads(Path("told.json").read_text())
    assert shown == ["model", str(study.parent / "g.onnx")]
    assert [overlay["name"].split(" of ")[0] for _, overlay in overlays] == [
        "Parityscope: introduced error (relative L2)",
        "Parityscope: total error (relative L2)",
    ]
    assert overlays[0][1]["results"]["p2o.BatchNormalization.1"]["value"] == 20.9
    assert extensions == ["model_explorer_onnx"]
    assert without


def test_netron_gets_a_light_copy_whose_nodes_say_what_was_found(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study.parent / "installed"
    folder.mkdir()
    (folder / "netron.py").write_text(NETRON)
    monkeypatch.syspath_prepend(folder)
    assert exit_status("open", "study", "--in", "netron") == 0
    assert json.loads(Path("told.json").read_text()) is True
    assert capsys.readouterr().out == "http://localhost:8080\n"
    shown = onnx.load("shown.onnx", load_external_data=False)
    assert [node.name for node in shown.graph.node] == ["first", "second", "third"]
    told = {prop.key: prop.value for prop in shown.graph.node[1].metadata_props}
    assert told["parityscope: introduced error"] == "20.9"
    assert "97,903,600" in told["parityscope: cause RNG001"]
    assert Path("shown.onnx").stat().st_size < 5000  # the weight has 160,000 bytes
    assert list(shown.graph.initializer[0].dims) == [200, 200]
    Path("g.onnx").unlink()
    assert exit_status("open", "study", "--in", "netron") == 2
    assert "--model MODEL.onnx" in capsys.readouterr().err


def test_a_small_weight_stays_and_nodes_that_were_not_compared_say_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = study.parent / "installed"
    folder.mkdir()
    (folder / "netron.py").write_text(NETRON)
    monkeypatch.syspath_prepend(folder)
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, "small.onnx")
    document = {**read_study(study), "tensors": [], "findings": []}
    with prepare_folder(Path("outputs")) as scratch:
        write_study(scratch, document, render_html)
    assert exit_status("open", "outputs", "--in", "netron", "--model", "small.onnx") == 0
    found = onnx.load("shown.onnx")
    assert not any(node.metadata_props for node in found.graph.node)
    assert onnx.numpy_helper.to_array(found.graph.initializer[0]).tolist() == [1.0, 1.0]


def test_the_terminal_names_the_study_whose_experiments_can_be_run_again(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = read_study(study)
    document["findings"][0]["evidence"][0]["experiment"]["identity"] = "RNG001-1"
    with prepare_folder(Path("my study")) as scratch:
        write_study(scratch, document, render_html)
    assert exit_status("report", "my study", "--all") == 0
    assert "parityscope experiment 'my study' NAME runs one of them again" in capsys.readouterr().out
