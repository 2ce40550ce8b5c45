"""Nothing is sent anywhere: neither by Parityscope nor by the runtimes that it imports."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }'
# Names every attempt on the way, also of what only a child process of the command does.
WATCHED = """
import sys
sys.addaudithook(lambda event, args: event.startswith("socket.") and print("SENT", event, args, flush=True))
from parityscope.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("candidate", ["openvino:f32", "sim:f16"])
def test_no_runtime_tells_its_maker(candidate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CI", "TF_BUILD", "JENKINS_URL"):  # a runtime may be silent there alone
        monkeypatch.delenv(name, raising=False)
    words = ("compare", "m.onnx", "--candidate", candidate, "--inputs", "x.npz")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in {0, 1}, done.stderr
    assert "SENT" not in done.stdout
    assert not (home / "intel").exists()
