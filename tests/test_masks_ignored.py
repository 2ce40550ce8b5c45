"""A deployment that ignores its mask is told by what it computes then, and a right one with padding is not blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import parityscope
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# One attention with its mask, and the mean over what the mask leaves in.
ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[N,S] ids, float[N,S] attention_mask) => (float[N,8] y) {
  e = Gather<axis = 0>(w, ids)
  q = MatMul(e, wq)
  k = MatMul(e, wk)
  v = MatMul(e, wv)
  kt = Transpose<perm = [0, 2, 1]>(k)
  s = MatMul(q, kt)
  left = Sub(whole, attention_mask)
  low = Mul(left, large)
  m = Unsqueeze(low, one)
  sm = Add(s, m)
  p = Softmax<axis = 2>(sm)
  a = MatMul(p, v)
  r = Add(a, e)
  in = Unsqueeze(attention_mask, last)
  kept = Mul(r, in)
  total = ReduceSum<keepdims = 0>(kept, one)
  count = ReduceSum<keepdims = 1>(attention_mask, one)
  y = Div(total, count)
}"""
DRAW = np.random.default_rng(72)
CONSTANTS: Mapping[str, np.ndarray] = {
    "w": DRAW.normal(size=(32, 8)).astype(np.float32),
    **{name: DRAW.normal(size=(8, 8)).astype(np.float32) / 2 for name in ("wq", "wk", "wv")},
    "whole": np.array(1, np.float32),
    "large": np.array(-1e4, np.float32),
    "one": np.array([1], np.int64),
    "last": np.array([2], np.int64),
}


def diagnose_recorded(folder: Path, deployed: str, *, ones: bool = False, half: bool = False) -> Any:
    """The diagnosis of what another network gives on sentences of 7, 9 and 5 words; outputs only."""
    model = write_network(folder / "model.onnx", ENCODER, CONSTANTS)
    run = open_session(load_model(write_network(folder / "deployed.onnx", deployed, CONSTANTS)).graph())
    for number, words in enumerate((7, 9, 5)):
        ids = DRAW.integers(1, 32, size=(1, 12))
        ids[:, words:] = 0
        mask = (np.arange(12) < words).astype(np.float32)[None]
        write_npz(folder / "x" / f"{number}.npz", {"ids": ids, "attention_mask": mask})
        answer = run({"ids": ids, "attention_mask": np.ones_like(mask) if ones else mask})["y"]
        write_npz(
            folder / "y" / f"{number}.npz", {"y": answer.astype(np.float16).astype(np.float32) if half else answer}
        )
    return parityscope.diagnose(
        model, candidate=f"saved?path={folder / 'y'}", inputs=folder / "x", declared="f16" if half else "f32"
    ).document


def test_padding_that_counts_everywhere_is_a_mask_of_ones(tmp_path: Path) -> None:
    found = diagnose_recorded(tmp_path, ENCODER, ones=True)["findings"][0]
    assert (found["code"], found["role"]) == ("FUS014", "cause")
    assert found["site"]["tensor"] == "attention_mask"
    assert "all ones" in found["claim"]


def test_padding_that_counts_in_the_attention_is_a_mask_left_out_there(tmp_path: Path) -> None:
    found = diagnose_recorded(tmp_path, ENCODER.replace("Add(s, m)", "Identity(s)"))["findings"][0]
    assert (found["code"], found["role"]) == ("FUS014", "cause")
    assert found["site"]["tensor"] == "sm"
    assert "left out" in found["claim"]


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize("half", [False, True])
def test_padding_that_does_not_count_is_not_blamed(tmp_path: Path, half: bool) -> None:
    study = diagnose_recorded(tmp_path, ENCODER, half=half)
    assert study["verdict"] == "within"
    assert [one for one in study["findings"] if one["role"] == "cause"] == []
