"""A runtime from outside is one file: the example of the documentation, found by its entry point and held to the contract."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import in_a_process
from parityscope.backends import arithmetic_of, backend_named, probe_backend
from parityscope.backends.contract import check_backend
from parityscope.case import Sample, load_model
from parityscope.installed import Machine
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "parityscope_mnn"
MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y, float[1,4] p) {
  c = Conv<pads=[1,1,1,1]>(x, w)  r = Relu(c)  y = Sigmoid(r)  q = GlobalAveragePool(r)  p = Flatten(q)
}"""
HERE = importlib.util.find_spec("MNN") is not None


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package installed, on the path of this process and of those that it starts."""
    folder = tmp_path / "site"
    info = folder / "parityscope_mnn-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parityscope-mnn\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[parityscope.backends]\nmnn = parityscope_mnn\n", encoding="utf-8")
    shutil.copy(EXAMPLE / "parityscope_mnn.py", folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder), *filter(None, sys.path)]))
    yield folder
    sys.modules.pop("parityscope_mnn", None)


def test_its_entry_point_is_the_one_that_is_tried() -> None:
    assert '"parityscope.backends"]\nmnn = "parityscope_mnn"' in (EXAMPLE / "pyproject.toml").read_text("utf-8")


def test_all_that_is_asked_of_a_runtime_is_in_its_file(site: Path) -> None:
    found = backend_named("mnn")
    assert (found.words, found.package) == ("MNN", "mnn")
    told = {one.target: one.computes for one in arithmetic_of(Machine(versions={}, backends=frozenset({"mnn"})))}
    assert told == {"mnn": "f32", "mnn:f16": "f32"}
    half = Target(backend="mnn", precision="f16", options=(("threads", "2"),))
    assert Target(backend="mnn", precision="f32", options=half.options) in found.switched(half)


def test_it_tells_how_to_get_it(site: Path) -> None:
    state = probe_backend(backend_named("mnn"))
    assert bool(state.version) == HERE
    assert state.fix == ("" if HERE else "pip install mnn")


@pytest.mark.skipif(not HERE, reason="MNN is not installed")
def test_it_keeps_the_contract_and_shows_what_is_left_inside(site: Path, tmp_path: Path) -> None:
    network = onnx.parser.parse_model(MODEL)
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((4, 3, 3, 3)).astype(np.float32)
    network.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(network, tmp_path / "model.onnx")
    x = generator.standard_normal((1, 3, 8, 8)).astype(np.float32)
    model = load_model(tmp_path / "model.onnx")
    check_backend(backend_named("mnn"), model, Sample(index=0, name="x", arrays={"x": x}), Target(backend="mnn"))
    np.savez(tmp_path / "x.npz", x=x)
    done = in_a_process(
        *("compare", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "x.npz"), "--candidate", "mnn"),
        *("--format", "json", "--study", str(tmp_path / "study")),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["candidate"]["version"] == backend_named("mnn").probe().version
