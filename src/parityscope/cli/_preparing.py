"""`doctor --prepare`: byte code, and the machine code of loops, so that nobody waits for them in a first real command."""

from __future__ import annotations

import compileall
import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.languages import say_in_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_S = 600.0  # after which a command on a network of two nodes hangs; chosen
_NETWORK = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 64] y) {{ h = {} (x)  y = Mul (h, h) }}'
)


def prepare_machine() -> Iterator[str]:
    """Does each step, and tells it with the seconds that it took.

    Raises:
        ParityError: a diagnosis of a small network fails.
    """
    steps: dict[str, Callable[[], None]] = {
        "byte code of the package": _compile_package,
        "compiled loops": _compile_loops,
        "a first diagnosis": _diagnose_once,
    }
    for title, step in steps.items():
        began = time.monotonic()
        step()
        yield say_in_language(f"prepared: {say_in_language(title)}, {time.monotonic() - began:.1f} s")


def _compile_package() -> None:
    import parityscope

    compileall.compile_dir(Path(parityscope.__file__).parent, quiet=2)


def _compile_loops() -> None:
    """Every loop whose machine code is kept, for both types that others are widened to."""
    from parityscope.comparison import measure_pair, measure_replay
    from parityscope.evaluation.rounding import FloatRounding

    importlib.import_module("parityscope.compiling")  # from here on no loop is left to numpy
    for name in ("float32", "float64"):
        array = np.ones(8, name)
        measure_pair(array, array, channel_axis=None)
        measure_replay(array, array, array, channel_axis=None)
    FloatRounding("f16")(np.ones(8, np.float32))


def _diagnose_once() -> None:
    """What a user would start, on a network of two nodes and a copy that computes something else: it imports what commands do."""
    import onnx

    from parityscope.private_folders import scratch_folder

    with scratch_folder("prepare") as folder:
        paths = {kind: folder / f"{kind}.onnx" for kind in ("Tanh", "Sigmoid")}
        for kind, path in paths.items():
            onnx.save(onnx.parser.parse_model(_NETWORK.format(kind)), path)
        sides = [str(paths["Tanh"]), "--candidate", f"ort?model={paths['Sigmoid']}", "--study", str(folder / "study")]
        command = [sys.executable, "-m", "parityscope", "diagnose", *sides, "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S, check=False)
    if done.returncode != 1:
        raise ParityError(
            "a small network cannot be diagnosed here", where=done.stderr[-400:], fix="parityscope doctor"
        )
