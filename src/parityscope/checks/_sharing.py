"""Do both sides share a bug of the optimizer? The reference against the model as it stands, where reference and candidate agree.

One inference tells in nearly every case that they do not. Where it is far off, the noise floor decides (`expectation.expect`): it
holds the unoptimized model against itself with its sums in several orders, and only what none of them moves is the optimizer's.
It counts where the verdict may be another against the model as it stands: by as much as the sides are apart at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.checks import Claim, Prediction, Shown
from parityscope.checks._reproducing import ORDER, RUN_S
from parityscope.comparison.distance import distance_between
from parityscope.comparison.rows import make_aligner
from parityscope.expectation.expecting import ErrorQuestion, expect_error
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.expectation.records import FAR
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from parityscope.examination import Examination

    Both = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def shared_bug(known: Examination, twice: Callable[[], Both]) -> Claim:
    """The claim; `twice` gives the reference's outputs and the unoptimized model's."""
    return Claim(
        words="both sides share a bug of the reference's optimizer",
        predicts=Prediction(
            change="run the model with the optimizer off, on the first sample",
            measure="relative L2 distance of its outputs from the reference's",
            if_true=f"more than {format_number(FAR * FLOAT32_ROUNDING)}, more than any order of the sums makes, and "
            "with the measured "
            "error more than the declared arithmetic",
            if_false="rounding",
        ),
        cost_s=2 * RUN_S,
        runs="reference",
        test=lambda: _test_claim(known, twice),
    )


def _test_claim(known: Examination, twice: Callable[[], Both]) -> Shown:
    ours, plain = twice()
    align = make_aligner(known.policy)
    own, other = align(ours, plain)
    errors = {name: distance_between(own[name], other[name]) for name in own if name in other}
    far = {name: error for name, error in errors.items() if error > FAR * FLOAT32_ROUNDING}
    first = known.inputs.indices[:1]
    moved: Mapping[str, float] = {}
    if far:
        question = ErrorQuestion(
            model=known.model,
            inputs=known.inputs,
            samples=first,
            tensors=list(far),
            formats=(),
            reference=lambda _, name: ours.get(name),
            align=align,
        )
        moved = expect_error(question).moved
    if not moved:
        worst = max(errors.values(), default=0.0)
        because = f"the model without its optimizer is {format_number(worst)} from the reference"
        because += ", which may be another order of the sums" if far else ""
        return Shown(because=because, outcome="refutes", after=worst)
    output = max(moved, key=lambda name: moved[name])
    because = (
        f"without its optimizer the model's {output} is {format_number(moved[output])} (relative L2) from the "
        "reference's, which no "
        "order of the sums makes"
    )
    if not any(_changes_verdict(known, name, size) for name, size in moved.items()):
        because += f"; beside what {known.declared} costs that changes no verdict"
        return Shown(because=because, outcome="refutes", after=moved[output])
    return Shown(
        because=because,
        after=moved[output],
        role="information",
        sentence=f"The sides agree, and not with the model: {because}. They share a bug of the optimizer.",
        confidence=1.0 - FAR * FLOAT32_ROUNDING / moved[output],
        confidence_from="one minus what is not told from rounding over the distance",
        site=known.places.get(output),
        repairs=[
            (
                "other_reference",
                "take the model as it stands for the reference",
                "--reference 'ort?optimization=disabled'",
            )
        ],
        details={"shared": True, "between": moved[output]},
    )


def _changes_verdict(known: Examination, output: str, moved: float) -> bool:
    """Whether the candidate, so much further from the model as it stands, may be beyond the declared arithmetic."""
    pair = next(pair for pair in known.outputs if pair.site.tensor == output)
    measured = pair.value("rel_l2" if "rel_l2" in pair.measurements else "mismatch_share")
    formats = ORDER[: ORDER.index(known.declared) + 1] if known.declared in ORDER else ()
    allowed = max((pair.expected[name] * margin_of(name) for name in formats if name in pair.expected), default=0.0)
    return measured + moved > allowed
