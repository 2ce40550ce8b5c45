"""That inputs were generated is a finding of every verb that draws a conclusion from them, on its page and in its document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status

if TYPE_CHECKING:
    from pathlib import Path

SMALL = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { h = Tanh(x)  y = Mul(h, x) }'
VERBS = {
    "compare": ("--candidate", "ort?optimization=disabled", "--study", "study"),
    "localize": ("--candidate", "ort?optimization=disabled", "--study", "study"),
    "diagnose": ("--candidate", "ort?optimization=disabled", "--study", "study"),
    "predict": ("--formats", "f16"),
    "repair": ("--budget", "rel_l2=0.1"),
    "verify": ("--before", "sim:f16", "--after", "ort?optimization=disabled", "--no-timing", "--study", "study"),
}


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("given", [False, True])
def test_generated_inputs_are_a_finding(
    verb: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(SMALL), "small.onnx")
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    words = (verb, "small.onnx", *VERBS[verb], *(("--inputs", "x.npz") if given else ()), "--format", "json", "--quiet")
    assert exit_status(*words) in {0, 1, 3}
    codes = [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert ("DAT001" in codes) is not given
    assert codes.count("DAT001") <= 1


@pytest.mark.parametrize("verb", list(VERBS))
def test_it_is_said_on_the_first_screen(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(SMALL), "small.onnx")
    assert exit_status(verb, "small.onnx", *VERBS[verb], "--quiet") in {0, 1, 3}
    told = capsys.readouterr().out
    assert "The inputs were generated, not real" in told
    assert "DAT001" in told
