"""Sessions that are kept for the next who asks, and processes that were forked."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx

from one_sample import one_sample
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import load_model

if TYPE_CHECKING:
    from pathlib import Path

LATE = 300.0  # seconds; what hangs never ends


def answer(path: Path, number: int) -> None:
    """Runs a network of its own on ONNX Runtime, whose session is kept."""
    graph = f"g (float[64,64] x) => (float[64,64] y{number}) {{ y{number} = MatMul (x, x) }}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> {graph}'
    onnx.save(onnx.parser.parse_model(text), path)
    with open_target(load_model(path), parse_target("ort"), Capture()) as session:
        session.run(one_sample({"x": np.ones((64, 64), np.float32)}).sample(0))


def test_a_forked_process_ends_none_of_its_parents_sessions(tmp_path: Path) -> None:
    for number in range(4):
        answer(tmp_path / f"{number}.onnx", number)
    child = os.fork()
    if not child:
        status = 1
        try:
            for number in range(4, 10):
                answer(tmp_path / f"{number}.onnx", number)
            status = 0
        finally:
            os._exit(status)
    late = time.monotonic() + LATE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < late:
        time.sleep(0.05)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
