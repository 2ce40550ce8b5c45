"""A sample of the ONNX standard's own tests, each diagnosed against itself; `proving.against_itself` does it to all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Operators, types that Python's interface lacks, strings, bodies, sequences inside and outside, optionals, NaN alone, outputs of
# no elements, chance.
_NAMES = (
    "test_ai_onnx_ml_label_encoder_string_int_no_default",
    "test_bernoulli_seed",
    "test_castlike_FLOAT_to_BFLOAT16",
    "test_isnan",
    "test_loop11",
    "test_optional_get_element_optional_tensor",
    "test_sequence_model8",
    "test_split_zero_size_splits_opset18",
)


def test_models_of_any_kind_are_themselves(tmp_path: Path) -> None:
    out = tmp_path / "ended.jsonl"
    command = [sys.executable, "-m", "proving.against_itself", "--processes", "2", "--out", str(out), "--only", *_NAMES]
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, cwd=root, env={**os.environ, "NO_COLOR": "1"}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(_NAMES)} of {len(_NAMES)} right" in ended.stdout
