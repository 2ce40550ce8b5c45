"""What the repairs of a finding need: the map from what the deployment gives to what the model expects, if it is affine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.checks._preprocessing.images import image_of
from parityscope.checks._preprocessing.steps import apply_steps
from parityscope.checks.input_fit import fit_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.checks._preprocessing.steps import Step

__all__ = ["repair_details"]


def repair_details(steps: tuple[Step, ...], sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The details of repairs/_preprocessing.py, with the deployment's input as the raw array; {} where no such map is."""
    given = apply_steps(steps, sample)
    if given is None:
        return {}
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
        "subtract": [_short(-offset / gain) for gain, offset in zip(fit.gain, fit.offset, strict=True)],
        "divide": [_short(1.0 / gain) for gain in fit.gain],
        "raw_dtype": str(given[name].dtype),
    }


def _short(value: float) -> float:
    """Seven digits, about what the fit of float32 arrays is true to; what rounds to nothing beside them is 0."""
    rounded = float(f"{value:.6g}")
    return 0.0 if abs(rounded) < 1e-5 else rounded
