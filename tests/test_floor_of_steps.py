"""What FP32's rounding makes of a quantized network: an error of whole steps, in the few elements that cross an edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAYER = """a{n} = MatMul({x}, w{n})
  s{n} = {sum}
  t{n} = Tanh(s{n})
  q{n}, k{n}, z{n} = DynamicQuantizeLinear(t{n})
  p{n} = MatMulInteger(q{n}, v{n}, z{n})
  c{n} = Cast<to = 1>(p{n})
  y{n} = Mul(c{n}, k{n})"""


def network(*, noisy: bool) -> str:
    """Three layers; the noisy one is given what rounding may make of each sum."""
    given = "".join(f", float[4,96] e{n}" for n in range(3)) if noisy else ""
    body = "\n  ".join(
        LAYER.format(n=n, x=f"y{n - 1}" if n else "x", sum=f"Mul(a{n}, e{n})" if noisy else f"Identity(a{n})")
        for n in range(3)
    )
    return f'<ir_version: 8, opset_import: ["" : 17]> g (float[4,96] x{given}) => (float[4,96] y2) {{\n  {body}\n}}'


def compared(folder: Path, samples: int, noise_of: Callable[[np.random.Generator, int], np.ndarray]) -> int:
    """The exit code of `compare` where the sums of layer n are times what `noise_of` draws."""
    draw = np.random.default_rng(6)
    constants = {f"w{n}": draw.normal(size=(96, 96)).astype(np.float32) / np.float32(9) for n in range(3)}
    constants |= {f"v{n}": draw.integers(-40, 40, (96, 96), np.int8) for n in range(3)}
    model = write_network(folder / "m.onnx", network(noisy=False), constants)
    run = open_path(write_network(folder / "noisy.onnx", network(noisy=True), constants), outputs=["y2"])
    for number in range(samples):
        x = {"x": draw.normal(size=(4, 96)).astype(np.float32)}
        write_npz(folder / "x" / f"{number}.npz", x)
        noise = {f"e{n}": noise_of(draw, n).astype(np.float32) for n in range(3)}
        write_npz(folder / "y" / f"{number}.npz", run({**x, **noise}))
    line = ["compare", str(model), "--inputs", str(folder / "x"), "--candidate", f"saved?path={folder / 'y'}"]
    return exit_status(*line, "--study", str(folder / "study"), "--quiet")


def test_steps_that_rounding_crosses_are_expected(tmp_path: Path) -> None:
    # Sums of 96 products in another order are a few units in the last place apart.
    assert compared(tmp_path, 8, lambda draw, _: 1 + 1.5e-7 * draw.normal(size=(4, 96))) == 0


def test_a_layer_that_is_two_percent_too_large_is_beyond(tmp_path: Path) -> None:
    assert compared(tmp_path, 2, lambda _, n: np.full((4, 96), 1.02 if n == 1 else 1.0)) == 1
