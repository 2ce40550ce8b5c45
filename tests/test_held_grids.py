"""A file that holds constants in INT8 is expected to err as such grids make it, fitted to the reference's own constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime.quantization as ort_quantization
import pytest
from onnx import numpy_helper

from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_RNG = np.random.default_rng(5)
_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (int64[4,6] ids) => (float[4,6,24] y) {
  e = Gather(table, ids)
  a = MatMul(e, v)
  b = Tanh(a)
  y = MatMul(b, w)
}"""
# Channels of different sizes: one scale for all of them is another grid than one for each.
_CONSTANTS = {
    "table": (_RNG.normal(size=(50, 32)) * np.geomspace(0.1, 2.0, 32)).astype(np.float32),
    "v": (_RNG.normal(size=(32, 48)) / 8 * np.geomspace(0.05, 1.0, 48)).astype(np.float32),
    "w": (_RNG.normal(size=(48, 24)) / 7 * np.geomspace(0.05, 1.0, 24)).astype(np.float32),
}
# Neither lets the sums of a processor without instructions for them saturate.
_FORMS: dict[str, dict[str, Any]] = {
    "seven bits": {"reduce_range": True},
    "unsigned": {"weight_type": ort_quantization.QuantType.QUInt8},
    "by channel": {"reduce_range": True, "per_channel": True},
}


def _verdict(folder: Path, form: str, edit: Callable[[onnx.ModelProto], None] | None = None) -> int:
    """The exit code of `compare` for the dynamically quantized network, edited or as it was written."""
    reference, made = write_network(folder / "plain.onnx", _TEXT, _CONSTANTS), folder / "quantized.onnx"
    ort_quantization.quantize_dynamic(reference, made, **_FORMS[form])
    if edit is not None:
        model = onnx.load(made)
        edit(model)
        onnx.save(model, made)
    for number in range(3):
        ids = np.random.default_rng(number).integers(0, 50, size=(4, 6))
        write_npz(folder / "samples" / f"{number}.npz", {"ids": ids})
    line = ["compare", str(reference), "--candidate", str(made), "--inputs", str(folder / "samples"), "--quiet"]
    return exit_status(*line, "--study", str(folder / "study"))


def _changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[onnx.ModelProto], None]:
    def edit(model: onnx.ModelProto) -> None:
        held = next(one for one in model.graph.initializer if one.name == name)
        array = numpy_helper.to_array(held)
        held.CopyFrom(numpy_helper.from_array(change(array).astype(array.dtype), name))

    return edit


def _activation_moved(model: onnx.ModelProto) -> None:
    """The first product takes its activation's zero point for another than the one that it was quantized with."""
    product = next(node for node in model.graph.node if node.op_type == "MatMulInteger")
    model.graph.initializer.append(numpy_helper.from_array(np.array(100, np.uint8), "moved"))
    product.input[2] = "moved"


@pytest.mark.parametrize("form", _FORMS)
def test_an_honest_file_is_expected_to_err_as_its_grids_make_it(form: str, tmp_path: Path) -> None:
    assert _verdict(tmp_path, form) == 0


@pytest.mark.parametrize("form", ["seven bits", "unsigned"])
@pytest.mark.parametrize(
    "edit",
    [
        _changed("table_scale", lambda scale: scale * np.float32(1.3)),
        _changed("w_scale", lambda scale: scale * np.float32(1.3)),
        _changed("table_zero_point", lambda zero: zero + 6),
        _changed("v_zero_point", lambda zero: zero + 6),
        _activation_moved,
    ],
    ids=["table scale", "weight scale", "table zero point", "weight zero point", "activation zero point"],
)
def test_what_the_file_stores_wrongly_is_no_excuse_for_itself(
    form: str, edit: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    assert _verdict(tmp_path, form, edit) == 1
