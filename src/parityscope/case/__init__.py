"""model + inputs + policy -> Case: what is examined. The only place that reads ONNX graphs and input data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.case.inputs import Inputs, Sample, load_inputs
from parityscope.case.model import Model, load_model
from parityscope.errors import ParityError
from parityscope.records import Policy

if TYPE_CHECKING:
    from parityscope.records import Budget, Target

__all__ = ["DECLARED", "Case", "Inputs", "Model", "Sample", "declared_policy", "load_inputs", "load_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One examination: the reference model, the samples it is examined on, and what counts as within."""

    name: str
    model: Model
    inputs: Inputs
    policy: Policy


# Arithmetics that a candidate may declare.
DECLARED = ("f32", "tf32", "f16", "bf16")


def declared_policy(declared: str, candidate: Target, budgets: tuple[Budget, ...] = ()) -> Policy:
    """The policy of a candidate: `declared` if it is given, else what its target says, else FP32 without TF32.

    Raises:
        ParityError: there is no such arithmetic.
    """
    if declared and declared not in DECLARED:
        raise ParityError(f"{declared!r} is no declared arithmetic", fix=f"use one of: {', '.join(DECLARED)}")
    if declared:
        return Policy(declared=declared, declared_reason="given with --declared", budgets=budgets)
    if candidate.precision in DECLARED:
        said = "the candidate's target says so"
        return Policy(declared=candidate.precision, declared_reason=said, budgets=budgets)
    return Policy(budgets=budgets)
