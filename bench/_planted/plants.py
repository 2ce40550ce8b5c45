"""Every plant by the hypothesis that must name it, drawn until its effect could be found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from _planted import function_plants as functions
from _planted import rounding_plants as roundings
from _planted.arithmetics import CLEAN, arithmetic, bf16, f16, int8, scaled_cast, tf32_cut
from _planted.layer import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from _planted.plant import Plant

# A plant below twenty times FP32's rounding of the result is drawn again: nothing could find it.
_LEAST_EFFECT = 20 * 2.0**-24


PLANTS: dict[str, Callable[[np.random.Generator], Plant]] = {
    **{truth: roundings.honestly(truth) for truth in CLEAN},
    "tf32_truncated": roundings.operands_rounded(tf32_cut),
    "f32_truncated": roundings.accumulated("f32_truncated"),
    "f16_inputs": roundings.operands_rounded(f16),
    "f16_output": roundings.output_rounded(f16),
    "f16_accumulation": roundings.accumulated("f16_accumulation"),
    "bf16_inputs": roundings.operands_rounded(bf16),
    "bf16_output": roundings.output_rounded(bf16),
    "f8e4m3": roundings.operands_rounded(scaled_cast(ml_dtypes.float8_e4m3fn, 448)),
    "f8e5m2": roundings.operands_rounded(scaled_cast(ml_dtypes.float8_e5m2, 57344)),
    "int8": roundings.operands_rounded(int8),
    "reciprocal_division": roundings.reciprocal,
    "saturated_weights": roundings.saturated,
    "flushed_subnormals": roundings.flushed,
    "clip_bound": functions.clip_bound,
    "activation_before_bias": functions.activation_before_bias,
    "gelu_form": functions.gelu_form,
    "epsilon": functions.epsilon,
    "bias_dropped": functions.bias_dropped,
    "padding": functions.padding,
    "resize": functions.another_resize,
    "average_pool_padding": functions.average_pool,
    "integer_arithmetic": functions.integers,
    "axis_order": functions.axis_order,
    "channel_scaled": functions.channel_scaled,
    "batch_normalization": functions.statistics,
    "activation_slope": functions.slope,
}


# What is said of a planted function, as a regular expression; all others are named by their hypothesis.
SAID = {
    "clip_bound": r"Clip left out|cut off|Relu6? |constant (min|max)",
    "activation_before_bias": r"done before",
    "gelu_form": r"[Gg]elu|tanh approximation|Erf|approximate",
    "epsilon": r"epsilon",
    "bias_dropped": r"left out|all zeros",
    "padding": r"pads|[Pp]added|padding|auto_pad|constant_value|mode",
    "resize": r"coordinate_transformation_mode|nearest_mode|mode|cubic_coeff_a",
    "average_pool_padding": r"count_include_pad",
    "integer_arithmetic": r"int32|rounded down|Floor|fmod|Round|truncat|Mod|saturated|wrapped",
    "axis_order": r"transposed|laid out|reversed|order|exchanged|interleaved|perm",
    "channel_scaled": r"scaled by",
    "batch_normalization": r"inputs \d and \d exchanged|taken for input",
    "activation_slope": r"alpha|slope|LeakyRelu left out|negative results",
}


def planted(truth: str, generator: np.random.Generator) -> Plant:
    """A plant with an effect that could be found: on top of its arithmetic, above that arithmetic's own error."""
    for _ in range(100):
        plant = replace(PLANTS[truth](generator), truth=truth)
        if truth in CLEAN or (_stands_out(plant, generator) if plant.base else _effect(plant) > _LEAST_EFFECT):
            return plant
    raise RuntimeError(f"no plant of {truth} has an effect")


def _effect(plant: Plant) -> float:
    exact = run(plant.layer, plant.feeds).astype(np.float64)
    error = np.linalg.norm(plant.candidate - exact)
    return float(error / (np.linalg.norm(exact) or 1.0))


def _stands_out(plant: Plant, generator: np.random.Generator) -> bool:
    """Whether the fault changes what its arithmetic gives, by more than the floor and a few ties."""
    alone = arithmetic(plant.layer, plant.feeds, plant.base, generator).astype(np.float64)
    size = float(np.linalg.norm(alone)) or 1.0
    unit = {"f16_inputs_output": 2.0**-11, "bf16_inputs_output": 2.0**-8}.get(plant.base, _LEAST_EFFECT)
    return float(np.linalg.norm(plant.candidate - alone)) > unit * size
