"""What a search from the outputs alone may cost beside one with the tensors inside: work that is counted, and what that takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.explanation import ExplanationOptions
from parityscope.hypotheses.from_outputs.searching import KnownOutputs, search_outputs
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[6,20] x) => (float[6,16] y) {
  a = Gemm(x, w1, b1)
  h = Tanh(a)
  y = Gemm(h, w2, b2)
}"""
_SUSPECTS = 8  # that are explained with the tensors inside, each within its budget (docs/explanations.md)
_TIMES = 5
_RUNS = 400
_SLACK = 20.0  # chosen: a step is priced with all that is done about its session's call, which was six times that call


@pytest.mark.search_of(1.0)
def test_a_search_in_vain_costs_at_most_five_times_what_one_with_layers_may(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    sizes = {"w1": (20, 14), "b1": (14,), "w2": (14, 16), "b2": (16,)}
    weights = {name: draw.normal(size=size).astype(np.float32) / 4 for name, size in sizes.items()}
    noisy = weights | {"w1": weights["w1"] + draw.normal(size=(20, 14)).astype(np.float32) / 40}
    model = write_network(tmp_path / "model.onnx", _TEXT, weights)
    run = open_session(load_model(write_network(tmp_path / "other.onnx", _TEXT, noisy)).graph())
    feeds = [{"x": draw.normal(size=(6, 20)).astype(np.float32)} for _ in range(2)]
    begun = time.process_time()
    found = search_outputs(
        KnownOutputs(model=model, feeds=feeds, candidate=[run(one) for one in feeds], noise={"y": 1e-6})
    )
    taken = time.process_time() - begun
    assert not found.holds
    spent = found.reference.meter.spent
    assert spent <= _TIMES * _SUSPECTS * ExplanationOptions().seconds
    # What is counted is what it takes: processor seconds follow it, by what the steps of the network itself take beside it.
    reference = found.reference
    begun = time.process_time()
    for _ in range(_RUNS):
        for step in reference.live:
            inputs = [reference.value(0, name) if name else None for name in step.inputs]
            reference.sessions.run(step, inputs, reference.program, [])
    unit = (time.process_time() - begun) / (_RUNS * sum(reference.seconds.values()))
    assert taken <= _SLACK * unit * spent
