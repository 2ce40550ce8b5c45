"""The inputs lie outside the range that the model's own normalization was made for.

What goes wrong: the model normalizes by itself ((x - mean) / deviation, x / 255, or a batch normalization at its very input) and
the samples of the test were normalized already, or not scaled, or are of another unit. Both sides then work where no real
sample goes: sums cancel, exponentials saturate, and the verdict says little of real data.

How it shows: an error, or an agreement, that is not met in use.

How we test for it: no run. The normalization is read from the first operators of the graph: its mean and deviation are those of
the data that the model was made for. More than 1 % of the elements that are further than 6 deviations from the mean are
outside; and all that vary by less than a twentieth of the deviation are a hundredth of an image and not one.

What it is confused with: an operator at the input that scales and shifts for another reason than to normalize; then the numbers
that are told say so at a glance. Samples of two values are a mask that is turned into what is added to scores. Samples of one
constant are DAT003's.

How to repair: give the samples as the model takes them, or hold them against real ones with `--real DATA`.

Sources: Chebyshev's inequality: no more than 1 in 36 lies beyond 6 deviations, whatever the distribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import constant_value
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks.statistics import is_constant
from parityscope.light_dataclasses import dataclass
from parityscope.operators import of_kind, operators_that_move, with_trait
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.examination import Examination


_LOOKED_AT = 4  # samples: what prepares one prepares all
_FEW = 64  # values: fewer tell no spread
_FAR = 6.0  # deviations
_OUTSIDE = 0.01  # of the elements; chosen
_NARROW = 0.05  # of the deviation; chosen: a twelfth of a night photograph's
_STEPS = 6  # operators from the input on that are looked through
_MOST_CHANNELS = 4  # of a constant that normalizes an image; one for all features of a table says nothing of each
_MOVES = operators_that_move("in order", "permuted") | of_kind("conversion")


@dataclass(frozen=True, slots=True, kw_only=True)
class _InputNormalization:
    """What the model does to its input: x becomes (x - mean) / deviation, taken over the channels."""

    mean: float
    deviation: float


def _propose_claims(known: Examination) -> Iterator[Claim]:
    told = [] if known.inputs.generated else list(_describe_inputs_outside(known))
    if not told:
        return
    yield Claim(
        words="the samples are not what the model's own normalization is made for",
        predicts=Prediction(
            measure="the inputs' values in deviations from the mean that the model subtracts",
            if_true=f"more than {format_percent(_OUTSIDE)} beyond {_FAR:g}, or a spread below {_NARROW:g}",
            if_false="they fill the range",
        ),
        test=lambda: _show_finding(told, "; ".join(told)),
    )


def _describe_inputs_outside(known: Examination) -> Iterator[str]:
    samples = [known.inputs.sample(index).arrays for index in known.inputs.indices[:_LOOKED_AT]]
    for value in known.graph.graph.inputs:
        normal = _find_normalization(value) if value.name in samples[0] else None
        values = np.concatenate([sample[str(value.name)].reshape(-1) for sample in samples]) if normal else np.empty(0)
        if normal is None or values.dtype.kind not in "fiu" or values.size < _FEW or _is_mask(values):
            continue
        values = values[np.isfinite(values)].astype(np.float64)
        outside = float((np.abs(values - normal.mean) > _FAR * normal.deviation).mean())
        spread = float(values.std()) / normal.deviation
        if outside > _OUTSIDE or spread < _NARROW:
            lies = f"{format_percent(outside)} of its elements are further off than {_FAR:g} deviations"
            narrow = f"its values vary by {format_number(spread)} of a deviation"
            yield (
                f"{value.name} lies in {format_number(values.min())} to {format_number(values.max())}, where the "
                "model itself subtracts "
                f"{format_number(normal.mean)} and divides by {format_number(normal.deviation)}: "
                f"{lies if outside > _OUTSIDE else narrow}"
            )


def _is_mask(values: np.ndarray) -> bool:
    """Whether there are no more than two values: what switches, and is no picture or measurement."""
    return is_constant(values) or bool(np.isin(values, (values.min(), values.max())).all())


def _find_normalization(value: ir.Value) -> _InputNormalization | None:
    """The affine map that the first operators behind an input make, as a normalization; None where they make none."""
    gain, offset = np.ones(1), np.zeros(1)
    for _ in range(_STEPS):
        users = [node for node, _ in value.uses()]
        if len(users) != 1:
            break
        node = users[0]
        if node.op_type == "BatchNormalization" and value is node.inputs[0]:
            return _batch_normalization(node, gain, offset)
        if node.op_type not in _MOVES:
            other = next((one for one in node.inputs if one is not value), None)
            held = None if other is None else constant_value(other)
            few = held is not None and held.size <= _MOST_CHANNELS  # a table of embeddings is not read for this
            if held is None or not few or len(node.inputs) != 2 or node.op_type not in with_trait("affine"):
                break
            operand = np.asarray(held.numpy(), np.float64)
            gain, offset = _compose_affine(
                node.op_type, gain, offset, operand.reshape(-1), first=node.inputs[0] is value
            )
        value = node.outputs[0]
    return _normalization_from_affine(gain, offset)


def _compose_affine(
    kind: str, gain: np.ndarray, offset: np.ndarray, operand: np.ndarray, *, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The affine map with one more operator; what is no affine map of the input becomes NaN."""
    with np.errstate(all="ignore"):
        match kind:
            case "Add":
                return gain, offset + operand
            case "Sub":
                return (gain, offset - operand) if first else (-gain, operand - offset)
            case "Mul":
                return gain * operand, offset * operand
        return (gain / operand, offset / operand) if first else (gain * np.nan, offset)


def _batch_normalization(node: ir.Node, gain: np.ndarray, offset: np.ndarray) -> _InputNormalization | None:
    """Its running mean and variance, in terms of the input."""
    held = [None if one is None else constant_value(one) for one in node.inputs[3:5]]
    found = [np.asarray(one.numpy(), np.float64) for one in held if one is not None]
    if len(found) < len(held) or len(found) != 2:
        return None
    mean, variance = found
    if mean.size > _MOST_CHANNELS or gain.size > 1 or not gain[0]:
        return None
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return _normalization_from_affine(gain / deviation, (offset - mean) / deviation) if deviation.all() else None


def _normalization_from_affine(gain: np.ndarray, offset: np.ndarray) -> _InputNormalization | None:
    """A gain and an offset as (x - mean) / deviation; a division by 255 alone is of bytes, no scale is no normalization."""
    if not (np.isfinite(gain).all() and np.isfinite(offset).all() and gain.all()):
        return None
    if not offset.any():
        is_of_bytes = np.allclose(gain, 1.0 / 255.0, rtol=1e-3)
        return _InputNormalization(mean=127.5, deviation=255.0 / np.sqrt(12.0)) if is_of_bytes else None
    if np.allclose(gain, 1.0):
        return None
    return _InputNormalization(mean=float(np.mean(-offset / gain)), deviation=float(np.mean(np.abs(1.0 / gain))))


def _show_finding(told: list[str], because: str) -> Shown:
    repair = (
        "real_inputs",
        "give samples as the model takes them, or hold these against real ones",
        "--inputs samples/  (or --real samples/)",
    )
    return Shown(
        because=because,
        role="information",
        sentence=f"The samples are not of the range that the model is made for: {'; '.join(told)}. Verdicts on such inputs need "
        "not hold on real ones.",
        confidence=0.9,
        confidence_from="chosen: what scales and shifts at an input is nearly always a normalization",
        repairs=(repair,),
        details={"told": told},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,16] x) => (float[1,3,16,16] y) {
  a = Sub(x, mean)
  b = Div(a, deviation)
  y = Tanh(b)
}"""
_CONSTANTS = {
    "mean": np.array([123.675, 116.28, 103.53], np.float32).reshape(1, 3, 1, 1),
    "deviation": np.array([58.395, 57.12, 57.375], np.float32).reshape(1, 3, 1, 1),
}
_RNG = np.random.default_rng(65)
_PIXELS = np.clip(110 + 60 * np.sin(np.arange(768) / 9.0) + _RNG.normal(size=768) * 8, 0, 255)
_IMAGE = np.rint(_PIXELS).reshape(1, 3, 16, 16).astype(np.float32)
_MASKING = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,128] x) => (float[1,128] y) {
  a = Sub(one, x)
  b = Mul(a, lowest)
  y = Softmax(b)
}"""
_HIDING = {"one": np.ones(1, np.float32), "lowest": np.full(1, -3.4e38, np.float32)}
_SEEN = (np.arange(128) < 100).astype(np.float32).reshape(1, 128)
_PLAIN = "ort?optimization=disabled"

CHECK = Check(
    code="DAT011",
    title="The inputs lie outside the range that the model's own normalization says",
    propose=_propose_claims,
    holds=(
        # Normalized before, and of another unit.
        Example(model=_MODEL, inputs={"x": _IMAGE / np.float32(255)}, constants=_CONSTANTS, candidate=_PLAIN),
        Example(model=_MODEL, inputs={"x": _IMAGE * np.float32(255)}, constants=_CONSTANTS, candidate=_PLAIN),
    ),
    holds_not=(
        Example(model=_MODEL, inputs={"x": _IMAGE}, constants=_CONSTANTS, candidate=_PLAIN),
        # A shift without a scale is no normalization.
        Example(
            model=_MODEL.replace("Div(a, deviation)", "Neg(a)"),
            inputs={"x": _IMAGE / np.float32(255)},
            constants=_CONSTANTS,
            candidate=_PLAIN,
        ),
        # What lets attention see or not.
        Example(model=_MASKING, inputs={"x": _SEEN}, constants=_HIDING, candidate=_PLAIN),
    ),
)
