"""Do both sides share a bug of the optimizer? The reference against the model as it stands, where reference and candidate agree.

One inference tells in nearly every case that they do not. Where it is far off, the noise floor decides (`noise.noise_floor`): it
holds the unoptimized model against itself with its sums in several orders, and only what none of them moves is the optimizer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks import Proposal, Result
from parityscope.checks._common import number
from parityscope.checks._reproducing import RUN_S, apart
from parityscope.comparison.rows import aligner
from parityscope.noise import FAR, FLOAT32_ROUNDING, noise_floor
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.checks import Scene

    Both = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]

__all__ = ["shared_bug"]


def shared_bug(scene: Scene, twice: Callable[[], Both], code: str, title: str) -> Proposal:
    """The proposal of a check of this code and title; `twice` gives the reference's outputs and the unoptimized model's."""
    experiment = Experiment(
        check=code,
        claim="both sides share a bug of the reference's optimizer",
        change="run the model with the optimizer off, on the first sample",
        measure="relative L2 distance of its outputs from the reference's",
        if_true=f"more than {number(FAR * FLOAT32_ROUNDING)}, and more than any order of the sums makes",
        if_false="rounding",
        cost_s=2 * RUN_S,
        runs="reference",
    )
    return Proposal(experiment=experiment, test=lambda: _tested(scene, twice, experiment, title))


def _tested(scene: Scene, twice: Callable[[], Both], experiment: Experiment, title: str) -> Result:
    ours, plain = twice()
    align = aligner(scene.policy.matched if scene.policy else ())
    other = align(ours, plain)
    errors = {name: apart(ours[name], other[name]) for name in ours if name in other}
    far = {name: error for name, error in errors.items() if error > FAR * FLOAT32_ROUNDING}
    first = scene.inputs.indices[:1]
    moved: Mapping[str, float] = {}
    if far:
        moved = noise_floor(
            scene.model, scene.inputs, first, list(far), reference=lambda _, name: ours.get(name), align=align
        ).moved
    if not moved:
        worst = max(errors.values(), default=0.0)
        because = f"the model without its optimizer is {number(worst)} from the reference"
        because += ", which may be another order of the sums" if far else ""
        return Result(
            evidence=Evidence(experiment=experiment, outcome="refutes", before=0.0, after=worst, because=because)
        )
    output = max(moved, key=lambda name: moved[name])
    because = (
        f"without its optimizer the model's {output} is {number(moved[output])} (relative L2) from the reference's, which no "
        "order of the sums makes"
    )
    evidence = Evidence(experiment=experiment, outcome="supports", before=0.0, after=moved[output], because=because)
    finding = Finding(
        code=experiment.check,
        title=title,
        role="information",
        claim=f"The sides agree, and not with the model: {because}. They share a bug of the optimizer.",
        confidence=1.0 - FAR * FLOAT32_ROUNDING / moved[output],
        confidence_from="one minus what is not told from rounding over the distance",
        site=scene.places.get(output),
        evidence=(evidence,),
        repairs=(
            OfferedRepair(
                repair="other_reference",
                text="take the model as it stands for the reference",
                command="--reference 'ort?optimization=disabled'",
            ),
        ),
        details={"shared": True, "between": moved[output]},
    )
    return Result(evidence=evidence, finding=finding)
