"""What a file's message declares is what its graph object says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from parityscope.case.declaring import message_sites
from parityscope.case.graph import sites_of_values
from parityscope.case.intake import read_message
from parityscope.case.model import load_model, read_graph
from parityscope.errors import ParityError
from proving.models.fetching import model_path

if TYPE_CHECKING:
    from pathlib import Path

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, int64 n, bool go) => (float[2] y, float[2] z) {
  w = Relu(x)
  y = Loop(n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool c_out, float[2] v_out) {
    c_out = Identity(c)
    s = Add(v, w)
    v_out = Neg(s)
  }>
  z = Neg(y)
}
"""


def _saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", ["ocr-det", "ocr-rec", "ocr-cls"])
def test_real_models_have_the_same_sites_in_the_same_order(name: str) -> None:
    path = model_path(name)
    message = read_message(path)
    found, expected = message_sites(message.graph), sites_of_values(read_graph(path))
    assert found is not None
    assert list(found.items()) == list(expected.items())
    assert load_model(path).nodes == max(site.index for site in found.values()) + 1


def test_values_of_bodies_are_no_sites_and_their_nodes_are_not_counted(tmp_path: Path) -> None:
    path = _saved(tmp_path, onnx.parser.parse_model(LOOP))
    model = load_model(path)
    assert list(model.sites) == ["w", "y", "z"]
    assert model.nodes == 3  # as places are counted: three more are in the body
    assert list(sites_of_values(read_graph(path))) == list(model.sites)


def test_a_file_whose_nodes_are_out_of_order_is_sorted_by_its_graph(tmp_path: Path) -> None:
    made = onnx.parser.parse_model(LOOP)
    nodes = list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend([nodes[1], nodes[0], nodes[2]])  # the loop, whose body captures w, before w
    path = _saved(tmp_path, made)
    assert message_sites(read_message(path).graph) is None
    assert [site.index for site in load_model(path).sites.values()] == [0, 1, 2]
    assert next(iter(load_model(path).sites)) == "w"


def test_sequences_are_no_sites(tmp_path: Path) -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) <seq(float[2]) s> { s = SequenceConstruct(x, x)
          i = Constant<value_int = 0>()
          y = SequenceAt(s, i) }
    """)
    path = _saved(tmp_path, made)
    assert list(load_model(path).sites) == list(sites_of_values(read_graph(path))) == ["y"]


def test_comparing_outputs_imports_no_graph_library(tmp_path: Path) -> None:
    """What takes longer to import than outputs take to compare stays out of `compare`."""
    path = _saved(
        tmp_path,
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
    )
    code = (
        "import sys\n"
        "words = ['--candidate', 'ort', '--inputs', sys.argv[2], '--all-tensors', '--study', sys.argv[3]]\n"
        "from parityscope.cli import run_command\n"
        "status = run_command(['compare', sys.argv[1], *words])\n"
        "print('LOADED', sorted({'onnx_ir', 'sympy', 'openvino', 'torch'} & set(sys.modules)))\n"
        "raise SystemExit(status)"
    )
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.float32))
    words = [sys.executable, "-c", code, str(path), str(tmp_path / "x.npz"), str(tmp_path / "study")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout


def test_a_network_of_pytorch_as_the_model_is_told_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"PK\x03\x04 not a graph of ONNX")
    with pytest.raises(ParityError) as caught:
        load_model(path)
    assert "torch?program=net.pt2" in caught.value.fix
