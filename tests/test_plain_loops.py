"""What is left to numpy as long as loading numba would not pay gives what the compiled loops give."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import astuple, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.comparison import Moments, blocks, measure_pair, measure_replay
from parityscope.evaluation import rounding
from strategies import FLOAT_DTYPES, pairs

if TYPE_CHECKING:
    from pathlib import Path

EVERY_KIND = np.array(
    [
        0,
        -0.0,
        1,
        -1,
        np.inf,
        -np.inf,
        np.nan,
        65504,
        65519.99,
        65520,
        -65520,
        2**-24,
        2**-25,
        1.5 * 2**-25,
        3e38,
        1e-45,
    ],
    np.float32,
)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda dtype: dtype.name)
def test_statistics_in_numpy_are_those_of_the_compiled_loop(dtype: np.dtype[Any]) -> None:
    @settings(deadline=None, max_examples=30)
    @given(pairs(dtype))
    def holds(pair: tuple[np.ndarray, np.ndarray]) -> None:
        axis = 0 if pair[0].ndim else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "pays_to_load", lambda _seconds: False)
            plain = measure_pair(*pair, channel_axis=axis)
            patch.setattr(blocks, "pays_to_load", lambda _seconds: True)
            assert_alike(plain, measure_pair(*pair, channel_axis=axis))

    holds()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda dtype: dtype.name)
def test_a_replay_in_numpy_is_that_of_the_compiled_loop(dtype: np.dtype[Any]) -> None:
    @settings(deadline=None, max_examples=30)
    @given(pairs(dtype), st.integers(0, 3))
    def holds(pair: tuple[np.ndarray, np.ndarray], shift: int) -> None:
        third = np.roll(pair[1], shift)
        axis = 0 if pair[0].ndim else None
        found = []
        with pytest.MonkeyPatch.context() as patch:
            for loaded in (False, True):
                patch.setattr(blocks, "pays_to_load", lambda _seconds, loaded=loaded: loaded)
                found.append(measure_replay(*pair, third, channel_axis=axis))
        plain, compiled = found
        size = max(compiled.introduced2, compiled.inherited2, compiled.total2)
        for name in ("introduced2", "inherited2", "product", "reference2", "total2"):
            assert getattr(plain, name) == pytest.approx(getattr(compiled, name), rel=1e-12, abs=1e-12 * size)
        sums = dict.fromkeys(("introduced2", "inherited2", "product", "reference2", "total2", "channels"))
        assert astuple(replace(plain, **sums)) == astuple(replace(compiled, **sums))
        assert_alike(plain.channels, compiled.channels)

    holds()


def test_statistics_in_numpy_over_several_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    reference = random.normal(size=(3, 7, 5000)).astype(np.float32)
    candidate = reference * np.float32(1.001)
    candidate[2, 3, 1000:1010], reference[0, 0, 5] = np.nan, np.inf
    found = []
    for loaded in (False, True):
        monkeypatch.setattr(blocks, "pays_to_load", lambda _seconds, loaded=loaded: loaded)
        found.append(measure_pair(reference, candidate, channel_axis=1))
    assert_alike(*found)


@pytest.mark.parametrize("number_format", sorted(name for name, one in FORMATS.items() if one.precision < 24))
@pytest.mark.parametrize("overflow", ["infinity", "saturate"])
def test_rounding_is_its_definition_to_the_last_bit(
    number_format: str, overflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 32, 70_000, dtype=np.uint32)
    values = np.concatenate([EVERY_KIND, bits.view(np.float32)])
    with np.errstate(all="ignore"):
        defined = round_to(values.astype(np.float64), FORMATS[number_format], overflow=overflow).astype(np.float32)
    for loaded in (False, True):
        monkeypatch.setattr(rounding, "pays_to_load", lambda _seconds, loaded=loaded: loaded)
        found = rounding.FloatRounding(number_format, overflow)(values)
        number = ~np.isnan(defined)
        assert np.array_equal(np.isnan(found), ~number)
        assert np.array_equal(found[number].view(np.uint32), defined[number].view(np.uint32))


def test_a_small_verdict_loads_neither_compiler_nor_symbols(tmp_path: Path) -> None:
    """Half of the time of a short command was the import of what it does not need."""
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, "n"] x) => (float[2, "n"] y) { z = Exp(x) y = Sin(z) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    model.graph.node[0].op_type = "Softsign"
    onnx.save(model, tmp_path / "other.onnx")
    np.savez(tmp_path / "x.npz", x=np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32))
    code = (
        "import sys\n"
        "from parityscope.cli import run_command\n"
        "status = run_command(['compare', *sys.argv[1:]])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules if name != 'sympy'}\n"
        "print('LOADED', status, sorted({'numba', 'sympy', 'torch'} & loaded), 'onnx_ir' in loaded)\n"
        "import parityscope.compiling, yaml\n"  # numba asks for YAML to read a file of settings that is hardly ever there
        "print('READ', 'numba' in sys.modules, 'yaml.reader' in sys.modules, yaml.safe_load('a: 1'))\n"
    )
    words = [str(tmp_path / "m.onnx"), "--candidate", f"ort?model={tmp_path / 'other.onnx'}"]
    words += ["--inputs", str(tmp_path / "x.npz"), "--study", str(tmp_path / "study")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert "LOADED 1 [] True" in done.stdout, done.stdout + done.stderr
    assert "READ True False {'a': 1}" in done.stdout, done.stdout + done.stderr


def assert_alike(plain: Any, compiled: Any) -> None:
    """Equal records, but for sums: these differ by float64 rounding."""
    if isinstance(plain, Moments):
        assert astuple(plain) == pytest.approx(astuple(compiled), rel=1e-12, abs=1e-12 * size_of(compiled))
    elif is_dataclass(plain):
        for one in fields(plain):
            assert_alike(getattr(plain, one.name), getattr(compiled, one.name))
    elif isinstance(plain, np.ndarray) and plain.dtype.kind != "f":
        assert np.array_equal(plain, compiled)
    elif isinstance(plain, np.ndarray | float):
        assert plain == pytest.approx(compiled, rel=1e-12, nan_ok=True)
    else:
        assert plain == compiled


def size_of(moments: Moments) -> float:
    """The sum of the magnitudes that the largest of these sums is made of: a bound of what can cancel in it."""
    squares = moments.reference2 + moments.candidate2
    return moments.abs_error + squares + math.sqrt(1e5 * squares)  # no tensor here has as many elements
