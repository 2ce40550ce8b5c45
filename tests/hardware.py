"""What the machine that runs the tests can do: some of them need a format that not every processor computes in."""

from __future__ import annotations

from pathlib import Path

import pytest


def needs_bfloat16() -> None:
    """Skips the test where OpenVINO has no BF16 to compute in and takes FP32, whatever it is asked for."""
    _needs({"avx512_bf16", "amx_bf16"}, "BF16: OpenVINO computes in FP32 here")


def needs_int8_dot_products() -> None:
    """Skips the test where ONNX Runtime's sums of two products of 8 bits saturate at 16, which is an error of its own."""
    _needs({"avx512_vnni", "avx_vnni", "asimddp"}, "dot products of 8 bits: ONNX Runtime saturates sums here")


def needs_narrow_sums() -> None:
    """Skips the test where such sums do not saturate, or another instruction set adds them."""
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    if words & {"avx512_vnni", "avx_vnni"} or "avx2" not in words:
        pytest.skip("the processor adds products of 8 bits in 32 bits")


def _needs(features: set[str], what: str) -> None:
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    if not features & words:
        pytest.skip(f"the processor has no {what}")
