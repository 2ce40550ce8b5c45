"""The two sides run in different environments, or one contradicts itself.

What goes wrong: another GPU, driver or version of a library brings other kernels; a variable switches TF32 off on one side only;
a library is loaded in another version than the program was linked with; a library made the process flush small numbers
to zero.

How it shows: the same engine or model gives other results on another machine, often by little and now and then by much.

How we test for it: what both sides tell of themselves is compared key by key: versions, driver, GPU, CPU and its features,
switches in the environment, threads, subnormals. For a recording that is what `environment.json` beside it says, written
there by `parityscope doctor --format json`. What a process has loaded is held against what its libraries were linked with.

What it is confused with: a cause. A difference stands beside all others and proves nothing; ENV002 changes one thing at a
time where a switch is at hand.

How to repair: make the environments equal, one fact at a time, and look which of them takes the error with it.

Sources: NVIDIA/TensorRT issues 285, 2062, 4419, 2182, 3652 (right in another version or on another GPU); NVIDIA's
documentation of NVIDIA_TF32_OVERRIDE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.environment import list_conflicts, list_differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.environment import EnvironmentDifference
    from parityscope.examination import Examination


def _propose_claims(known: Examination) -> Iterator[Claim]:
    reference, candidate = known.environments
    found = list_differences(reference, candidate)
    told = [
        f"{one.key} is {one.reference!r} for the reference and {one.candidate!r} for the candidate" for one in found
    ]
    told += [f"on the candidate's side {sentence}" for sentence in list_conflicts(candidate)]
    if not told:
        return
    yield Claim(
        words="the environments differ",
        predicts=Prediction(
            measure="what both sides tell of themselves",
            if_true="a fact that may change results is not the same, or contradicts itself",
            if_false="all that both tell is the same",
        ),
        test=lambda: _show_finding(found, told, "; ".join(told)),
    )


def _show_finding(found: tuple[EnvironmentDifference, ...], told: list[str], because: str) -> Shown:
    first = f" ({found[0].matters})" if found else ""
    return Shown(
        because=because,
        role="information",
        sentence=f"The environments differ: {'; '.join(told)}{first}. That is no cause until a run shows it.",
        confidence_from="read, not estimated",
        repairs=(("same_environment", "make the environments equal, one fact at a time"),),
        details={
            "differences": [
                {"key": one.key, "reference": one.reference, "candidate": one.candidate, "matters": one.matters}
                for one in found
            ],
            "told": told,
        },
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) { y = Tanh(x) }"""
_X = {"x": np.linspace(-1, 1, 8, dtype=np.float32)[None]}

CHECK = Check(
    code="ENV001",
    title="The sides run in different environments",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=list,
            environment={"onnxruntime": "1.0.0", "NVIDIA_TF32_OVERRIDE": "1"},
        ),
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=list,
            environment={"linked libcudnn": "9", "loaded libcudnn": "8.9.7"},
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="ort?optimization=disabled"),
        Example(model=_MODEL, inputs=_X, candidate="sim:f16"),
        # A recording that tells nothing of where it was made.
        Example(model=_MODEL, inputs=_X, outputs_fault=list),
    ),
)
