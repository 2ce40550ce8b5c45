"""What an explanation says, as plain records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from parityscope.hypotheses.worker import EditCandidate
    from parityscope.records import RuledOut, Skip

Status = Literal["exact", "within floor", "explained", "expected", "unexplained", "not testable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One hypothesis and how well it explains what a layer introduced.

    `share` is 1 - |c - f_h|^2 / |c - f|^2 (None for FP32 in another order, which predicts no error), `slope` and
    `slope_error` are the regression's. `channels_above` counts channels of `channels` whose rest is above the floor,
    `worst_z` is the largest root mean square z of a channel, `elements_above` counts elements beyond eight margins.
    `mismatched` counts elements that are finite on one side only, or infinite with another sign. `on_top_of` names the
    arithmetic that a semantic hypothesis was tested in ("" for FP32), `parameter` is the fitted number, if any, and
    `generated` what a search said of it.
    """

    hypothesis: str
    title: str
    family: Literal["arithmetic", "semantic"]
    words: str
    share: float | None
    slope: float = 1.0
    slope_error: float = 0.0
    worst_z: float = 0.0
    channels: int = 0
    channels_above: int = 0
    elements_above: int = 0
    mismatched: int = 0
    node: str = ""
    on_top_of: str = ""
    parameter: float | None = None
    generated: EditCandidate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What explains the error that a region introduced at `tensor`.

    `status`: "exact" (nothing introduced), "within floor" (FP32 noise), "explained" (by `by`, a set that cannot be told
    apart, the likeliest first), "expected" (by size: several nodes whose inner roundings are not known, or sums in the
    declared format in an order that is not known, which `by` then names), "unexplained" (a candidate bug: `left` describes
    where the error lies) or "not testable" (`skipped` says why). `rejected` are the best that failed. `evidence` says what
    separates the members of `by`, or that nothing does. `nearest` are generated descriptions that explain some of it, with their
    shares: no causes. `described` is the first of them where it explains nearly everything, in more words than chance excludes:
    a cause if the outputs come back with it. `curve` is a curve that describes most of it, and no cause.
    `ruled_out` are the kinds of what was tried in vain.
    """

    tensor: str
    status: Status
    by: tuple[Explained, ...] = ()
    rejected: tuple[Explained, ...] = ()
    evidence: tuple[str, ...] = ()
    left: str = ""
    nearest: tuple[tuple[str, float], ...] = ()
    described: EditCandidate | None = None
    curve: EditCandidate | None = None
    ruled_out: tuple[RuledOut, ...] = ()
    elements: int = 0
    skipped: tuple[Skip, ...] = ()

    @property
    def is_bug(self) -> bool:
        """Whether the region computed something else than the model says, whatever the arithmetic."""
        return self.status == "unexplained" or (self.status == "explained" and self.by[0].family == "semantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationOptions:
    """How to explain.

    `declared` is the format that the candidate says it computes in, or was seen to execute ("" when nobody knows); it
    decides between hypotheses that the numbers cannot tell apart. `seed` draws the floor's noise. `seconds` bounds what is
    tried for one region; they are estimated from its size (`budget`), so that a busy machine finds the same.
    """

    declared: str = ""
    seed: int = 0
    seconds: float = 4.0


def explanation_as_json(explanation: Explanation) -> dict[str, Any]:
    """The plain data of `suspects[].explained_by` and what belongs to it (floats may be non-finite)."""
    return {
        "status": explanation.status,
        "explained_by": [_explained_as_json(each) for each in explanation.by],
        "rejected": [_explained_as_json(each) for each in explanation.rejected],
        "evidence": list(explanation.evidence),
        "left": explanation.left,
        "nearest": [{"words": words, "share": share} for words, share in explanation.nearest],
    }


def _explained_as_json(explained: Explained) -> dict[str, Any]:
    return {
        "hypothesis": explained.hypothesis,
        "title": explained.title,
        "family": explained.family,
        "words": explained.words,
        "share": explained.share,
        "slope": explained.slope,
        "slope_error": explained.slope_error,
        "channels_above": explained.channels_above,
        "channels": explained.channels,
        "worst_z": explained.worst_z,
        "elements_above": explained.elements_above,
        "node": explained.node,
        "on_top_of": explained.on_top_of,
        "parameter": explained.parameter,
    }
