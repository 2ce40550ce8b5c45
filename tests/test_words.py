"""What people call runtimes and formats is understood: names of other tools, a format alone, the path of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import exit_status
from parityscope.backends import known_backends
from parityscope.backends.targets import format_target, parse_target
from parityscope.errors import ParityError
from parityscope.records import Target

if TYPE_CHECKING:
    from pathlib import Path

MODEL = '<ir_version: 8, opset_import: ["" : 17]> network (float[1, 4] x) => (float[1, 4] y) { h = Exp(x)  y = Neg(h) }'


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *((word, "sim:f16") for word in ("fp16", "FP16", "half", "float16", "f16")),
        ("bfloat16", "sim:bf16"),
        ("TF32", "sim:tf32"),
        ("fp8_e4m3", "sim:f8e4m3"),
        ("tensorrt", "trt"),
        ("TensorRT:FP16", "trt:f16"),
        ("onnxruntime?threads=1", "ort?threads=1"),
        ("openvino:half", "openvino:f16"),
        ("deployed.onnx", "ort?model=deployed.onnx"),
        ("build/m.engine", "trt?engine=build/m.engine"),
        ("m.PLAN", "trt?engine=m.PLAN"),
        ("outputs.json", "saved?path=outputs.json"),
        ("outputs.npz", "saved?path=outputs.npz"),
        ("network.pt2", "torch?program=network.pt2"),
        ("fp8", "sim:fp8"),
        ("int8", "sim:int8"),
        ("FP32", "ort:f32"),
    ],
)
def test_words_of_other_tools_and_paths_are_targets(typed: str, meant: str) -> None:
    assert parse_target(typed) == parse_target(meant)
    assert format_target(parse_target(typed)) == meant


def test_a_folder_is_a_recording(tmp_path: Path) -> None:
    assert parse_target(str(tmp_path)) == Target(backend="saved", options=(("path", str(tmp_path)),))


def test_a_folder_needs_no_slash_and_a_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night").mkdir()
    assert parse_target("night") == parse_target("saved?path=night/")
    (tmp_path / "ort").mkdir()
    assert parse_target("ort") == Target(backend="ort")
    (tmp_path / "night" / "study.json").write_text("{}")
    with pytest.raises(ParityError, match="night is a study, and no deployment"):
        parse_target("night")


@given(st.sampled_from(sorted(known_backends())), st.sampled_from(["", "f16", "bf16", "f32"]))
def test_our_own_words_stay_what_they_are(name: str, precision: str) -> None:
    target = Target(backend=name, precision=precision)
    assert parse_target(format_target(target)) == target


def test_no_two_backends_share_a_name_or_an_ending() -> None:
    every = list(known_backends().values())
    names = [word for one in every for word in (one.name, *one.called)]
    endings = [ending for one in every for ending in one.opens]
    assert len(names) == len(set(names))
    assert len(endings) == len(set(endings))
    assert all(option in one.options or option == "model" for one in every for option in one.opens.values())


def test_the_verbs_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    onnx.save(onnx.parser.parse_model(MODEL.replace("Exp", "Abs")), "other.onnx")
    np.savez("x.npz", x=np.float32([[1, 2, -3, 4]]))
    asked = ("m.onnx", "--inputs", "x.npz", "--quiet")
    assert exit_status("compare", *asked, "--candidate", "half", "--declared", "FP16") == 0
    assert "FP16" in capsys.readouterr().out
    assert exit_status("compare", *asked, "--candidate", "other.onnx") == 1
    capsys.readouterr()
    assert exit_status("predict", *asked, "--formats", "FP16, bfloat16", "--format", "json") == 0
    assert [one["precision"] for one in json.loads(capsys.readouterr().out)["formats"]] == ["f16", "bf16"]
