"""Files that are right, which fuzzing begins with."""

from __future__ import annotations

import base64
import io
import json
import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = b"""&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
[08/20/2024-20:57:40] [I] Precision: FP32+FP16
[08/20/2024-20:57:50] [W] [TRT] - 111 weights are affected by this issue: Detected subnormal FP16 values.
[08/20/2024-20:57:50] [V] [TRT]   List of affected weights: batch_norm_0.w_2
[08/20/2024-20:57:51] [V] [TRT] Engine Layer Information:
Layer(CaskConvolution): Conv_0 + Relu_1, Tactic: 0x1, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]
[08/20/2024-20:57:52] [I] [TRT] Engine generation completed in 9.5 seconds.
&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
"""


def _npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def _packed(files: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(struct.pack("<HB", len(body), len(name) - 1) + name + body for name, body in files)


def seeds_of(kind: str) -> list[bytes]:
    """Files that are right, to begin with."""
    x, y = _npy(np.ones((1, 8), np.float32)), _npy(np.ones((1, 4), np.float32))
    held = io.BytesIO()
    np.savez(held, x=np.ones((1, 8), np.float32), y=np.ones((1, 4), np.float32))
    array = {"array": base64.b64encode(x).decode(), "polygraphy_class": "ndarray"}
    iteration = {
        "outputs": {"y": {"values": array, "polygraphy_class": "LazyArray"}},
        "runtime": 0.1,
        "runner_name": "a",
    }
    runs = {"lst": [["a", [iteration | {"polygraphy_class": "IterationResult"}]]], "polygraphy_class": "RunResults"}
    layer = {"Name": "Conv_0", "LayerType": "Conv", "Inputs": [], "Outputs": [], "Metadata": "[ONNX Layer: Conv_0]"}
    exported = [{"name": "y", "dimensions": "1x4", "values": [1, 2, 3, 4]}]
    manifest = json.dumps(
        {"outputs": {"y": {"dtype": "float32", "shape": [1, 4]}}, "widened_to_float32": ["y"]}
    ).encode()
    files = [(b"inputs/000000.npz", b"A" + x), (b"outputs/000000.npz", b"A" + y), (b"manifest.json", manifest)]
    raw = [
        (b"outputs/y.bin", b"\0" * 16),
        (b"inputs/x.input.1.8.Float.raw", b"\0" * 32),
        (b"environment.json", b'{"facts": {"gpu": "a"}}'),
    ]
    seeds = {
        "log": [
            _LOG,
            json.dumps({"Layers": [layer]}).encode(),
            _LOG.decode().encode("utf-16"),
            b"[I] Loaded model: a.onnx\n" + _LOG[60:],
        ],
        "json": [
            b"A" + x,
            json.dumps([{"x": array}]).encode(),
            json.dumps(runs).encode(),
            json.dumps(exported).encode(),
        ],
        "npz": [b"A" + x, b"A" + y, held.getvalue()],
        "recording": [_packed(files), _packed(raw), _packed([*files, *raw])],
    }
    return seeds[kind]
