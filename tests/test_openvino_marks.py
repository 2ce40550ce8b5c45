"""Captures survive what marking a tensor does to OpenVINO's compiler."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parityscope.backends.openvino_marks import death_of_compiling, find_bearable_marks
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from proving.faults.networks import NETWORKS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = [f"t{place}" for place in range(24)]


@given(bad=st.sets(st.sampled_from(NAMES), max_size=4))
def test_all_that_can_be_marked_is_kept(bad: set[str]) -> None:
    tried: list[list[str]] = []

    def survives(names: Sequence[str]) -> bool:
        tried.append(list(names))
        return not bad & set(names)

    kept, lost = find_bearable_marks(NAMES, survives)
    assert set(lost) == bad
    assert kept == [name for name in NAMES if name not in bad]
    # Each of k bad ones among n is reached by halving: two trials on each of log2(n) + 1 levels.
    assert len(tried) <= 1 + 2 * max(1, len(bad)) * 6


def test_tensors_that_crash_only_together_are_separated() -> None:
    kept, lost = find_bearable_marks(NAMES, lambda names: not {"t3", "t20"} <= set(names))
    assert (len(kept), lost) == (23, ["t20"])


def test_trials_come_to_an_end() -> None:
    count = 0

    def survives(_: Sequence[str]) -> bool:
        nonlocal count
        count += 1
        return False

    kept, lost = find_bearable_marks([f"u{place}" for place in range(1000)], survives)
    assert (kept, len(lost)) == ([], 1000)
    assert count <= 64


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with its layer normalization in single operators, and a sentence."""
    pytest.importorskip("openvino")
    folder = tmp_path_factory.mktemp("encoder")
    _, samples = NETWORKS["small-encoder"].make(folder, np.random.default_rng(0))
    write_npz(folder / "sentence.npz", dict(samples[0]))
    return folder


@pytest.mark.parametrize("target", ["openvino", "openvino:bf16", "openvino?observe=all"])
def test_an_encoder_is_captured_whatever_its_normalization_does(encoder: Path, tmp_path: Path, target: str) -> None:
    # OpenVINO 2026.4.1 dies by SIGSEGV where e1, the input of the normalization, is an output too.
    model = load_model(encoder / "model.onnx")
    inputs = load_inputs(model, encoder / "sentence.npz", spool=tmp_path / "spool")
    request = RecordingRequest(
        samples=(0,), tensors=tuple(observable_tensors(model)), folder=tmp_path / "tensors", label="candidate"
    )
    found = record_trace(model, inputs, parse_target(target), request)
    told = {skip.what: skip.reason for skip in found.absent}
    assert {"hidden", "n1", "q", "k", "v"} <= set(found.names)
    assert "e1" in found.names or "crashes (SIG" in told["tensor e1"]
    assert found.get(0, "n1").shape == (1, 16, 32)


@pytest.mark.skipif(sys.platform != "linux", reason="counts on signals of Linux")
def test_a_trial_tells_how_it_ended(encoder: Path) -> None:
    path = encoder / "model.onnx"
    assert death_of_compiling(path, {}, {"n1": "f32"}) == ""
    assert death_of_compiling(path, {}, {"e1": "f32"}) in {"", signal.SIGSEGV.name}
    # An error is no death: who opens the model in earnest says what it is.
    assert death_of_compiling(encoder / "nothing.onnx", {}, {"n1": "f32"}) == ""
