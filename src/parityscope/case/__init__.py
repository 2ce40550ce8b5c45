"""model + inputs + policy -> Case: what is examined. The only place that reads ONNX graphs and input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.inputs import Inputs, Sample, load_inputs
from parityscope.case.model import Model, load_model
from parityscope.case.policy import DECLARED, declared_policy
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from parityscope.case.own import OwnInputs
    from parityscope.records import Policy

__all__ = ["DECLARED", "Case", "Inputs", "Model", "Sample", "declared_policy", "load_inputs", "load_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One examination: the reference model, the samples it is examined on, and what counts as within.

    `own` is what the deployment gave its model for the same samples, where that was recorded.
    """

    name: str
    model: Model
    inputs: Inputs
    policy: Policy
    own: OwnInputs | None = None
