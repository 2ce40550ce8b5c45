"""Bugs that a released optimizer really had: each is named from the command line, with the node and what takes it away.

ONNX Runtime 1.22.1 runs in an environment of its own (requirements/old-onnxruntime.txt) through the `command` backend, with
the program that docs/case-old-runtimes.md shows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case.formats.npz import write_npz
from parityscope.checks.barriers import find_fewest_barriers, list_neighbour_tensors
from parityscope.testing.networks import write_network
from proving.old_runtimes import require_interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.backends.onnxruntime_running import Run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "case-old-runtimes.md"
UNOPTIMIZED = "ort?optimization=disabled"

# A feature map that is quantized, enlarged and quantized again. Linear interpolation in integers truncates.
RESIZE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,12,12] x) => (float[1,4,24,24] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w0)
  r = Relu(c)
  q = QuantizeLinear(r, scale, zero)
  d = DequantizeLinear(q, scale, zero)
  u = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(d, , , sizes)
  q2 = QuantizeLinear(u, scale, zero)
  d2 = DequantizeLinear(q2, scale, zero)
  y = Conv<pads = [1, 1, 1, 1]>(d2, w1)
}"""

# A Transpose that exchanges nothing, as exporters leave them behind, in front of a square product.
TRANSPOSE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[16,24] x) => (float[16,8] y) {
  m0 = MatMul(x, w0)
  h = Tanh(m0)
  t = Transpose<perm = [0, 1]>(h)
  m1 = MatMul(t, w1)
  a = Add(m1, b1)
  k = Sigmoid(a)
  y = MatMul(k, w2)
}"""

# Zeros around a map that is negative: a pooling of its own padding does not count them.
PADDED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,12,12] x) => (float[1,4,7,7] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w0, b0)
  p = Pad(c, pads, nought)
  m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(p)
  y = Conv<pads = [1, 1, 1, 1]>(m, w1)
}"""

# The statistics belong to the channels behind the Transpose, and are folded into the product as if they were its columns'.
NORMALIZED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[16,24] x) => (float[16,6] y) {
  m0 = MatMul(x, w0)
  t = Transpose<perm = [1, 0]>(m0)
  n = BatchNormalization(t, scale, shift, mean, variance)
  r = Relu(n)
  y = MatMul(r, w1)
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A model, its constants, the node that is to be named, and the tensors that keep the optimizer away from it."""

    text: str
    constants: Mapping[str, np.ndarray]
    shape: tuple[int, ...]
    node: str
    barriers: set[str]
    reference: str = "ort"


def drawn(*shape: int) -> np.ndarray:
    values = np.random.default_rng(shape).normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    return np.asarray(values, np.float32)


BUGS = {
    # github.com/microsoft/onnxruntime/issues/21319 and 28448, mended by pull request 28414.
    "qdq-resize": Bug(
        text=RESIZE,
        constants={
            "w0": drawn(4, 3, 3, 3),
            "w1": drawn(4, 4, 3, 3),
            "scale": np.array(0.05, np.float32),
            "zero": np.array(0, np.uint8),
            "sizes": np.array([1, 4, 24, 24]),
        },
        shape=(1, 3, 12, 12),
        node="Resize#4",
        barriers={"u"},
    ),
    # github.com/microsoft/onnxruntime/issues/32228.
    "identity-transpose": Bug(
        text=TRANSPOSE,
        constants={"w0": drawn(24, 16), "w1": drawn(16, 16), "b1": drawn(16), "w2": drawn(16, 8)},
        shape=(16, 24),
        node="MatMul#3",
        barriers={"t", "m1"},
    ),
    # Its Pad and AveragePool were issue 22177. The optimizer of the version that the tests run with has it too.
    "pad-maxpool": Bug(
        text=PADDED,
        constants={
            "w0": drawn(4, 3, 3, 3),
            "b0": np.full(4, -4, np.float32),
            "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
            "nought": np.array(0, np.float32),
            "w1": drawn(4, 4, 3, 3),
        },
        shape=(1, 3, 12, 12),
        node="MaxPool#2",
        barriers={"p"},
        reference=UNOPTIMIZED,
    ),
    "transposed-normalization": Bug(
        text=NORMALIZED,
        constants={
            "w0": drawn(24, 16),
            "w1": drawn(16, 6),
            "scale": drawn(16) + np.float32(1),
            "shift": drawn(16),
            "mean": drawn(16),
            "variance": np.square(drawn(16)) + np.float32(0.5),
        },
        shape=(16, 24),
        node="MatMul#0",
        barriers={"m0"},
        reference=UNOPTIMIZED,
    ),
}


def written(bug: Bug, folder: Path) -> None:
    write_network(folder / "model.onnx", bug.text, bug.constants)
    draw = np.random.default_rng(7)
    write_npz(folder / "x.npz", {"x": draw.normal(size=bug.shape).astype(np.float32)})


def diagnosed(folder: Path, capfd: pytest.CaptureFixture[str], *sides: str) -> tuple[int, dict[str, Any]]:
    line = ["diagnose", str(folder / "model.onnx"), "--inputs", str(folder / "x.npz"), *sides]
    code = exit_status(
        *line, "--format", "json", "--quiet", "--study", str(folder / f"study-{len(list(folder.iterdir()))}")
    )
    said = capfd.readouterr()
    assert code in {0, 1}, said.err
    return code, json.loads(said.out)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's program in the old version's environment, as a target."""
    python = require_interpreter(ROOT / "requirements" / "old-onnxruntime.txt")
    block = re.search(
        r"<!-- file: old_runtime\.py -->\n+```python\n(.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert block, "the page has no program"
    program = tmp_path_factory.mktemp("old") / "old_runtime.py"
    program.write_text(block[1], encoding="utf-8")
    return f"command?run={python} {program}"


@pytest.mark.parametrize("name", [name for name in BUGS if name != "pad-maxpool"])  # the reference has it too, below
def test_a_bug_of_an_old_optimizer_is_named(
    name: str, deployment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bug = BUGS[name]
    written(bug, tmp_path)
    sides = ["--reference", bug.reference, "--candidate", deployment]
    code, found = diagnosed(tmp_path, capfd, *sides)
    assert (code, found["verdict"]) == (1, "beyond")
    first = found["findings"][0]
    assert (first["code"], first["role"], first["site"]["node"]) == ("FUS011", "cause", bug.node)
    assert bug.barriers <= set(first["details"]["barriers"])
    assert first["details"]["optimizer_off"] < 1e-5
    assert [one["code"] for one in found["findings"] if one["role"] == "cause"][:1] == ["FUS011"]
    assert "1.22.1" in next(one["claim"] for one in found["findings"] if one["code"] == "ENV001")
    # The same deployment with its optimizer off.
    code, found = diagnosed(tmp_path, capfd, *sides[:-1], f"{deployment}&optimization=disabled")
    assert (code, found["verdict"]) == (0, "within")


def test_the_reference_has_an_optimizer_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A right candidate against a reference whose optimizer is wrong: no noise floor hides it, and the reference is named."""
    pytest.importorskip("openvino")
    bug = BUGS["pad-maxpool"]
    written(bug, tmp_path)
    x = dict(np.load(tmp_path / "x.npz"))
    one, other = (run(x)["y"] for run in map(opened(tmp_path / "model.onnx"), ("all", "disabled")))
    if np.allclose(one, other, atol=1e-4):
        pytest.skip("the installed ONNX Runtime does not have this bug any more")
    code, found = diagnosed(tmp_path, capfd, "--candidate", "openvino")
    assert (code, found["verdict"]) == (1, "beyond")
    assert (found["findings"][0]["code"], found["findings"][0]["role"]) == ("DAT009", "cause")
    assert any("optimizer moves it" in skip["reason"] for skip in found["skipped"])
    code, found = diagnosed(tmp_path, capfd, "--reference", UNOPTIMIZED, "--candidate", "openvino")
    assert (code, found["verdict"]) == (0, "within")
    code, found = diagnosed(tmp_path, capfd, "--reference", UNOPTIMIZED, "--candidate", "ort")
    assert (found["findings"][0]["code"], found["findings"][0]["site"]["node"]) == ("FUS011", "MaxPool#2")


def opened(path: Path) -> Callable[[str], Run]:
    """Opens the model at a level of ONNX Runtime's optimizer."""
    return lambda level: open_path(path, outputs=["y"], optimization=level)


NAMES = [f"t{place}" for place in range(100)]


@pytest.mark.parametrize("needed", [{"t0"}, {"t57"}, {"t99"}, {"t3", "t4"}, {"t10", "t80"}])
def test_the_fewest_barriers_are_found(needed: set[str]) -> None:
    found, used = find_fewest_barriers(NAMES, lambda names: needed <= set(names), 200)
    assert set(found) == needed
    if len(needed) == 1:
        assert used <= 2 * 7  # both halves on each of log2(100) levels


def test_the_search_for_barriers_keeps_to_its_runs() -> None:
    tried: list[Sequence[str]] = []

    def cures(names: Sequence[str]) -> bool:
        tried.append(names)
        return {"t10", "t80"} <= set(names)

    found, used = find_fewest_barriers(NAMES, cures, 5)
    assert used == len(tried) == 5
    assert {"t10", "t80"} <= set(found)  # less was found out, nothing wrong


def test_tensors_beside_a_barrier_come_nearest_first() -> None:
    import onnx_ir as ir

    model = onnx.parser.parse_model(PADDED)
    names = list_neighbour_tensors(ir.serde.deserialize_model(model), "m")
    assert set(names[:3]) == {"p", "y", "w1"}
    assert {"c", "pads", "nought"} == set(names[3:])
