"""What the repairs of a finding need: the map from what the deployment gives to what the model expects, if it is affine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.checks.input_fit import fit_inputs
from parityscope.checks.preprocessing.images import image_of
from parityscope.checks.preprocessing.normalizations import write_numbers
from parityscope.checks.preprocessing.steps import apply_steps, model_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.checks import Offer
    from parityscope.checks.preprocessing.steps import PreprocessingStep
    from parityscope.records import Pair

# Formats that deployments are built in; TF32 stands for FP16 where that could not be predicted.
_ROUNDED = {"f16": "FP16", "tf32": "TF32 (FP16's significand)", "bf16": "BF16"}

_UNTOLD = {"input", "layout", "whole"}  # of a recipe: they say nothing of an image

# An error that many times what the coarsest predicted format costs is no rounding. Chosen: far above the margin of the grades.
_FAR_ABOVE = 10.0


def repair_details(steps: tuple[PreprocessingStep, ...], sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The details of repairs/_preprocessing.py, with the deployment's input as the raw array; {} where no such map is."""
    given = apply_steps(steps, sample)
    return {} if given is None else affine_details(model_inputs(given), model_inputs(sample))


def affine_details(given: Mapping[str, np.ndarray], sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The same, from what the deployment gives for the reference's `sample`."""
    changed = [name for name in sample if not np.array_equal(sample[name], given[name])]
    if len(changed) != 1:
        return {}
    (name,) = changed
    image = image_of(name, sample[name])
    if image is None or given[name].shape != sample[name].shape or not np.isfinite(given[name]).all():
        return {}
    fit = fit_inputs(given[name], sample[name], axis=image.axis)
    if not fit.is_exact or fit.mirrored or any(fit.shift) or 0.0 in fit.gain:
        return {}
    layout = "NCHW" if image.axis == 1 else "NHWC"
    return {
        "input": name,
        "raw_layout": layout,
        "layout": layout,
        "channels": list(fit.order),
        "subtract": [_round_to_float32(-offset / gain) for gain, offset in zip(fit.gain, fit.offset, strict=True)],
        "divide": [_round_to_float32(1.0 / gain) for gain in fit.gain],
        "raw_dtype": str(given[name].dtype),
    }


def repairs_of(details: Mapping[str, Any], steps: Sequence[PreprocessingStep], otherwise: str) -> tuple[Offer, ...]:
    """What repairs the deployment: a recipe, or code and nodes where the details hold one or a map; else a sentence.

    Where one step alone is wrong and there is a formula of what is right, that is told.
    """
    if "recipe" in details:
        text = f"prepare the deployment's images as the reference's: {_tell_recipe(details['recipe'])}"
        moved = any(":placing-fit-" in step.key for step in steps)
        return (("prepare_by_recipe", f"{text}; map boxes and masks back by that fit" if moved else text),)
    right = steps[0].right if len(steps) == 1 else ""
    if "input" not in details:
        return (("mend_preprocessing", _say_right(right) if right else otherwise),)
    code = f"turn what the deployment gives now into what the model expects, in its code{_write_formula(details)}"
    model = "put that into the model, which then takes what the deployment gives now"
    return (
        ("preprocess_in_code", _say_right(right) if right else code),
        ("prepend_preprocessing", model),
    )


def _say_right(formula: str) -> str:
    return f"normalise as the model expects, in the deployment's code: {formula}"


def _tell_recipe(recipe: Mapping[str, Any]) -> str:
    """The recipe in one line: what the image becomes, and what its numbers do."""
    told = []
    for key, value in recipe.items():
        numbers = list(value) if isinstance(value, list | tuple) else []
        if key in {*_UNTOLD, "scale", "mean", "deviation"}:
            continue
        told.append(f"{key} {' x '.join(map(str, numbers)) if key == 'size' else value}")
    scale = float(recipe.get("scale", 1.0))
    pixel = "pixel" if scale == 1.0 else f"pixel / {scale:.4g}"
    mean, deviation = (
        list(np.atleast_1d(np.asarray(recipe.get(key, default), np.float64)).tolist())
        for key, default in (("mean", 0.0), ("deviation", 1.0))
    )
    plain = set(mean) == {0.0} and set(deviation) == {1.0}
    told.append(f"x = {pixel}" if plain else f"x = ({pixel} - {write_numbers(mean)}) / {write_numbers(deviation)}")
    return ", ".join(told)


def _write_formula(details: Mapping[str, Any]) -> str:
    """The map from what is given to what is expected as a formula; "" where channels or axes change too."""
    subtract, divide = list(details.get("subtract", ())), list(details.get("divide", ()))
    order = list(details.get("channels", ()))
    if not subtract or not divide or order != sorted(order):
        return ""
    return f": x = (x - {write_numbers(subtract)}) / {write_numbers(divide)}".replace("- -", "+ ")


def describe_precision(outputs: Sequence[Pair]) -> str:
    """That no precision explains the error, as a sentence; "" where one might, or where none was predicted.

    The tell-tale sign of a fault in front of the model: FP32, FP16 and BF16 deployments are equally wrong.
    """
    names = {name for pair in outputs for name in pair.expected} & set(_ROUNDED)
    if "f16" in names:
        names.discard("tf32")
    told = []
    for name in sorted(names, key=list(_ROUNDED).index):
        predicted = [pair for pair in outputs if name in pair.expected]
        cost = max(pair.expected[name] for pair in predicted)
        if max(map(_measured_error, predicted)) >= _FAR_ABOVE * cost:
            told.append(f"{_ROUNDED[name]} {cost:.2g}")
    if not told:
        return ""
    costs = " and ".join(told)
    return f" No precision is to blame: rounding to {costs} is all that it would cost, so that all are equally wrong."


def _measured_error(pair: Pair) -> float:
    return max((pair.value(name) for name in ("rel_l2", "mismatch_share") if name in pair.measurements), default=0.0)


def _round_to_float32(value: float) -> float:
    """Seven digits, about what the fit of float32 arrays is true to; what rounds to nothing beside them is 0."""
    rounded = float(f"{value:.6g}")
    return 0.0 if abs(rounded) < 1e-5 else rounded
