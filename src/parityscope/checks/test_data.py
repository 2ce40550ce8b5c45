"""The inputs are real files that hold nothing real: a constant, random numbers, token ids 0 and 1.

What goes wrong: a tool was given what was at hand, `np.zeros`, `np.random.rand`, ids drawn from {0, 1}. A network answers such
inputs from outside the range it was trained for: its errors there may be much larger than on real data, or hide a
failure that only real data reaches.

How it shows: an error whose size means nothing; a network that agrees in the test and not in use.

How we test for it: no run. Every input of the first samples is one constant; or an input of at least 1,024 elements follows a
generator's distribution (uniform, normal; nothing fitted) with no correlation between neighbours; or an input that looks
rows of a table up never asks for any but the first two.

What it is confused with: a mask of ones, segment numbers of zero, a state that starts at zero: only a sample all of whose
inputs are constant is named. Noise that is the real input (the start of a diffusion) is named and is no fault.

How to repair: give real, preprocessed samples: `--inputs samples/`, or images with `--preprocess file.py:function`; hold
what you have against real ones with `--real DATA`.

Sources: NVIDIA/TensorRT issues 4361 and 2895 (random inputs), 4647 (values of 100 into an attention); Polygraphy's
default inputs are uniform in [0, 1) and 0 or 1 for integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.generated import table_rows
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks.statistics import is_constant, noise_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

_LOOKED_AT = 4  # samples: a script that makes one makes all
# A table of fewer rows is no vocabulary: segments, flags, classes.
_VOCABULARY = 100
_FEW_IDS = 8  # ids: sixteen that are all 0 or 1 by chance, of a hundred rows, happen once in 10^13
_OTHERS = ("mask", "segment", "token_type", "position")


def _propose_claims(known: Examination) -> Iterator[Claim]:
    if known.inputs.generated:
        return  # DAT001 says that
    samples = [known.inputs.sample(index).arrays for index in known.inputs.indices[:_LOOKED_AT]]
    told = [*_describe_constant_inputs(samples), *_describe_noise_inputs(samples), *_narrow_ids(known, samples)]
    if not told:
        return
    yield Claim(
        words="the samples are made up",
        predicts=Prediction(
            measure="values of the inputs: constants, distribution, correlation of neighbours, ids",
            if_true="a constant, a generator's noise, or ids 0 and 1 only",
            if_false="they vary as real data does",
        ),
        test=lambda: _show_finding(told, "; ".join(told)),
    )


def _describe_constant_inputs(samples: Samples) -> Iterator[str]:
    if all(is_constant(array) or array.size < 2 for sample in samples for array in sample.values()) and any(
        array.size > 1 for array in samples[0].values()
    ):
        values = sorted(
            {float(array.reshape(-1)[0]) for array in samples[0].values() if array.size and array.dtype.kind in "fiu"}
        )
        yield f"every input is constant ({', '.join(f'{value:g}' for value in values)})"


def _describe_noise_inputs(samples: Samples) -> Iterator[str]:
    for name in samples[0]:
        words = {noise_of(sample[name]) for sample in samples}
        if len(words) == 1 and (word := words.pop()):
            yield f"{name} is {word}"


def _narrow_ids(known: Examination, samples: Samples) -> Iterator[str]:
    for name, rows in table_rows(known.model).items():
        if rows < _VOCABULARY or name not in samples[0] or any(part in name.lower() for part in _OTHERS):
            continue
        ids = np.concatenate([sample[name].reshape(-1) for sample in samples])
        if ids.size >= _FEW_IDS and ids.dtype.kind in "iu" and bool(((ids == 0) | (ids == 1)).all()):
            yield f"{name} holds the ids 0 and 1 only, of {rows:,}"


def _show_finding(told: list[str], because: str) -> Shown:
    return Shown(
        because=because,
        role="information",
        sentence=f"The samples look made up: {'; '.join(told)}. Verdicts on such inputs need not hold on real ones.",
        confidence=0.999,
        confidence_from="a thousandth is the chance that a match with a generator's distribution is missed or met",
        repairs=(
            (
                "real_inputs",
                "give real samples, or hold these against real ones",
                "--inputs samples/  (or --real samples/)",
            ),
        ),
        details={"told": told},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,32,32] x) => (float[1,3,32,32] y) { y = Relu(x) }"""
_TOKENS = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1,16] ids) => (float[1,16,4] y) {
  y = Gather<axis = 0>(w, ids)
}"""
_RNG = np.random.default_rng(60)
_TABLE = {"w": _RNG.normal(size=(200, 4)).astype(np.float32)}
_UNIFORM = _RNG.random((1, 3, 32, 32), dtype=np.float32)
_NORMAL = _RNG.normal(size=(1, 3, 32, 32)).astype(np.float32)
_UNLUCKY = np.random.default_rng(993).normal(size=(1, 3, 32, 32)).astype(np.float32)
# A picture's neighbours are alike: waves of a few pixels, and some noise on them.
_WAVES = np.sin(np.linspace(0, 9, 32))[:, None] * np.cos(np.linspace(0, 5, 32))
_PICTURE = (0.5 + 0.4 * _WAVES + 0.05 * _RNG.normal(size=(1, 3, 32, 32))).astype(np.float32)
_PLAIN = "ort?optimization=disabled"

CHECK = Check(
    code="DAT003",
    title="The inputs are not real data",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs={"x": np.zeros((1, 3, 32, 32), np.float32)}, candidate=_PLAIN),
        Example(model=_MODEL, inputs={"x": _UNIFORM}, candidate=_PLAIN),
        Example(model=_MODEL, inputs={"x": _NORMAL}, candidate=_PLAIN),
        # One draw in two thousand: 2.03 / sqrt(n) from the normal distribution.
        Example(model=_MODEL, inputs={"x": _UNLUCKY}, candidate=_PLAIN),
        Example(model=_TOKENS, inputs={"ids": _RNG.integers(0, 2, size=(1, 16))}, constants=_TABLE, candidate=_PLAIN),
    ),
    holds_not=(
        Example(model=_MODEL, inputs={"x": _PICTURE}, candidate=_PLAIN),
        Example(model=_MODEL, inputs=None, candidate=_PLAIN),
        # Noise that was scaled and shifted is somebody's data as far as one can see.
        Example(model=_MODEL, inputs={"x": _NORMAL * 3 + 1}, candidate=_PLAIN),
        Example(model=_TOKENS, inputs={"ids": _RNG.integers(0, 200, size=(1, 16))}, constants=_TABLE, candidate=_PLAIN),
    ),
)
