"""The Python verbs that are not studies: `predict` and `verify`; and a verification read again from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

import parityscope
from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '<ir_version: 8, opset_import: ["" : 17]> net (float[2,4] x) => (float[2,4] y) {{ a = Mul(x, big) y = Mul(a, small) }}'


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    model = onnx.parser.parse_model(TEXT.replace("{{", "{").replace("}}", "}"))
    for name, value in (("big", 2.0**17), ("small", 2.0**-17)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    onnx.save(model, tmp_path / "net.onnx")
    write_npz(tmp_path / "x.npz", {"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    return tmp_path / "net.onnx", tmp_path / "x.npz"


def test_predict_says_which_format_loses_the_output(files: tuple[Path, Path]) -> None:
    model, inputs = files
    found = parityscope.predict(model, inputs=inputs, formats=["f16", "bf16"])
    # 2^17 is beyond FP16's 65,504 and a power of two, which BF16 holds exactly.
    assert {each.precision: each.lost for each in found.record.formats} == {"f16": True, "bf16": False}


def test_verify_sees_the_improvement(files: tuple[Path, Path]) -> None:
    model, inputs = files
    found = parityscope.verify(model, before="sim:f16", after="sim:bf16", inputs=inputs)
    # One sample shows which is better and proves nothing about others.
    assert found.verdict == "not proved"


def test_report_reads_a_verification_and_the_verbs_do_not_take_it_for_a_study(
    files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, inputs = files
    words = ["verify", str(model), "--before", "sim:f16", "--after", "sim:bf16", "--inputs", str(inputs), "--no-timing"]
    assert exit_status(*words, "--study", str(tmp_path / "v"), "--quiet") == 0  # better on the one sample tried
    capfd.readouterr()
    assert exit_status("report", str(tmp_path / "v"), "--format", "json") == 0
    assert json.loads(capfd.readouterr().out)["kind"] == "verification"
    with pytest.raises(ParityError, match="not a study"):
        parityscope.load_study(tmp_path / "v")
