"""Decisions that are others in the candidate, each held against how far honest draws lean at the same place.

What is compared, and with which quantile, is said in `study/changed_decisions.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.decisions import BECAME, GAP, NORM, PLACE, RANK, SAMPLE, WAS, lean_of
from parityscope.expectation.grades import FLOAT32_ROUNDING, FORMATS, margin_of
from parityscope.light_dataclasses import dataclass, field
from parityscope.records import Flip
from parityscope.study.output_parts import finest_of_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison.decisions import Decided
    from parityscope.examination import Examination
    from parityscope.records import DecisionRule

_SAMPLES = 32  # with flips that are drawn, those with the clearest ones; chosen
_BOTH = math.sqrt(2.0)  # of the error of one number is that of the difference of two
_SURE = 4  # draws after which a flip within one margin of their scatter is looked at no further; chosen
_FINER = 2.0**-13  # the unit roundoff of FP32 over that of TF32


@dataclass(slots=True, kw_only=True, eq=False)
class Flips:
    """Flips of an output (rows as in `comparison.decisions`) that are asked about, and what draws make of them.

    `tensor` holds what is decided on, `shapes` are its shapes by sample, once drawn. `leans` are what draws add to the lead of
    what each was, a row for each draw. With `error`, draws are scaled to that relative error; without a known one (NaN) from
    TF32's roundoff to FP32's.
    """

    decided: Decided
    flips: np.ndarray
    tensor: str
    margin: float
    least: float
    error: float | None
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    gaps: np.ndarray = field(init=False)
    leans: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The gaps are those of the comparison, where it knew them."""
        self.gaps = self.flips[:, GAP].copy()

    @property
    def asked_samples(self) -> set[int]:
        """The samples that they are on."""
        return {int(one) for one in self.flips[:, SAMPLE]}

    @property
    def count_drawn(self) -> int:
        """How many of them draws said something about."""
        return int(np.isfinite(self.leans[-1]).sum()) if self.leans else 0

    def begin_draw(self) -> None:
        """The next draw says nothing yet."""
        self.leans.append(np.full(len(self.flips), np.nan))

    def add_sample(self, sample: int, expected: np.ndarray, given: np.ndarray) -> None:
        """Adds a sample to the last draw."""
        here = np.flatnonzero(self.flips[:, SAMPLE] == sample)
        wide, away = part_scaled(expected, given, self.error)
        self.shapes[sample] = expected.shape
        asked = self.flips[here]
        kind, axis, at = self.decided.kind, self.decided.axis, self.decided.at
        lead = lean_of(kind, axis, at, asked, wide)
        self.gaps[here] = np.where(np.isnan(self.gaps[here]), lead, self.gaps[here])
        self.leans[-1][here] = lean_of(kind, axis, at, asked, wide + away) - lead

    def is_settled(self) -> bool:
        """Whether each is explained already without a quantile."""
        return len(self.leans) >= _SURE and bool((self.gaps <= self._scatter() * self.margin).all())

    def find_worst(self, level: float) -> Flip | None:
        """The flip that draws explain least, at a chance of `level`; None where they say nothing of any."""
        from scipy.special import stdtrit

        if not self.leans:
            return None
        known = np.isfinite(self._scatter())
        if not known.any():
            return None
        allowed = np.maximum(-stdtrit(len(self.leans), level) * self._scatter(), _BOTH * self.least) * self.margin
        excess = np.where(known, self.gaps - allowed, -np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(
                excess > 0, self.gaps / allowed, np.where(known, np.minimum(self.gaps / allowed, 1.0), -np.inf)
            )
        at = int(np.nanargmax(ratio)) if not np.isnan(ratio).all() else int(np.argmax(known))
        shape = self.shapes[int(self.flips[at, SAMPLE])]
        return _flip_of(self.decided, self.flips[at], shape, float(self.gaps[at]), float(allowed[at]))

    def _scatter(self) -> np.ndarray:
        """The root mean square of each flip's leans over the draws, with the last bits of another FP32 kernel."""
        drawn = np.sqrt(np.mean(np.square(self.leans), axis=0))
        return np.asarray(np.hypot(drawn, FLOAT32_ROUNDING * np.abs(self.gaps)))


def part_scaled(expected: np.ndarray, given: np.ndarray, error: float | None) -> tuple[np.ndarray, np.ndarray]:
    """What was expected as float64, and how far a draw is away from it, as far as that arithmetic goes (`Flips.error`)."""
    wide = expected.astype(np.float64)
    away = given.astype(np.float64) - wide
    if error is None:
        return wide, away
    if math.isnan(error):
        return wide, away * _FINER
    size = float(np.linalg.norm(away))
    return wide, away * (error * float(np.linalg.norm(wide)) / size if size > 0 else 0.0)


def doubtful_flips(examination: Examination, name: str, decided: Decided, rule: DecisionRule) -> Flips | None:
    """The flips of an output that its expected error does not explain at once; None where it does all of them."""
    declared = examination.case.policy.declared
    flips = decided.flips
    if not rule.scores:
        flips = flips[~(flips[:, GAP] <= _surely_allowed(examination, name, flips))]
    if not len(flips):
        return None
    floors: Mapping[str, float] = examination.expectation.errors.get("f32", {}) if examination.expectation else {}
    return Flips(
        decided=decided,
        flips=_on_few_samples(flips),
        tensor=rule.scores or name,
        margin=margin_of(declared),
        least=0.0 if rule.scores else finest_of_outputs(examination.case.model)(name),
        error=None if declared in FORMATS else math.nan if rule.scores else floors.get(name, FLOAT32_ROUNDING),
    )


def sure_flip(examination: Examination, name: str, decided: Decided) -> Flip | None:
    """Of flips that are all explained at once the clearest; None where there is none."""
    if not len(decided.flips):
        return None
    allowed = _surely_allowed(examination, name, decided.flips)
    at = int(np.argmax(decided.flips[:, GAP] - allowed))
    shape = examination.compared.statistics[name].shape
    return _flip_of(decided, decided.flips[at], shape, float(decided.flips[at, GAP]), float(allowed[at]))


def _surely_allowed(examination: Examination, name: str, flips: np.ndarray) -> np.ndarray:
    """The expected error of two numbers of each flip's sample, with the margin; NaN where none is expected."""
    statistics = examination.compared.statistics[name]
    elements = max(1.0, statistics.count / max(1, statistics.samples))
    margin = margin_of(examination.case.policy.declared) * _BOTH
    return np.asarray(margin * _expected_of(examination, name) * flips[:, NORM] / math.sqrt(elements))


def judge_by_size(examination: Examination, found: Flips) -> Flip | None:
    """The clearest flip, as if all of its sample's expected error fell on it; None where nothing is known of that."""
    expected = _expected_of(examination, found.tensor)
    if not math.isfinite(expected) or np.isnan(found.gaps).any():
        return None
    allowed = found.margin * _BOTH * expected * found.flips[:, NORM]
    at = int(np.argmax(found.gaps / np.maximum(allowed, np.finfo(np.float64).tiny)))
    shape = examination.compared.statistics[found.tensor].shape
    return _flip_of(found.decided, found.flips[at], shape, float(found.gaps[at]), float(allowed[at]))


def describe_flip(flip: Flip, declared: str) -> str:
    """A changed decision in one sentence, with by how much it was clear."""
    explains = f"{declared} rounding explains {flip.allowed:.3g}"
    if flip.kind in {"mask", "sides", "boxes"}:
        side = "above" if flip.was else "not above"
        where = ", ".join(map(str, flip.index))
        return f"sample {flip.sample}, index [{where}]: {side} {flip.at:g} in the reference alone, by {flip.gap:.3g}; {explains}"
    what = (
        f"{flip.became} instead of {flip.was}" if flip.kind == "order" else f"class {flip.became} instead of {flip.was}"
    )
    place = f"sample {flip.sample}"
    if flip.kind == "positions":
        place += f": step {flip.index[-1]}"
    elif flip.kind == "segments":
        place += f": pixel {list(flip.index[-2:])}"
    elif any(flip.index):
        place += f": row {flip.index[0]}"
    rank = f" at place {flip.rank + 1}" if flip.rank else ""
    return f"{place}, {what}{rank}, which leads by {flip.gap:.3g}; {explains}"


def _expected_of(examination: Examination, name: str) -> float:
    if examination.expectation is None:
        return math.nan
    return examination.expectation.of(name).get(examination.case.policy.declared, math.nan)


def _on_few_samples(flips: np.ndarray) -> np.ndarray:
    """Those of the samples with the clearest ones; of samples whose gaps are not known, the first."""
    share = np.nan_to_num(flips[:, GAP] / np.maximum(flips[:, NORM], np.finfo(np.float64).tiny), nan=0.0)
    clearest: dict[float, float] = {}
    for sample, size in zip(flips[:, SAMPLE].tolist(), share.tolist(), strict=True):
        clearest[sample] = max(clearest.get(sample, 0.0), size)
    kept = sorted(clearest, key=lambda one: -clearest[one])[:_SAMPLES]
    return np.asarray(flips[np.isin(flips[:, SAMPLE], kept)])


def _flip_of(decided: Decided, flip: np.ndarray, shape: tuple[int, ...], gap: float, allowed: float) -> Flip:
    if decided.kind not in {"mask", "sides", "boxes"}:
        axis = decided.axis % len(shape)
        shape = (*shape[:axis], *shape[axis + 1 :])
    elif decided.kind == "boxes":
        shape = (shape[0], max(shape[1:]))
    place = np.unravel_index(int(flip[PLACE]), shape) if shape else ()
    return Flip(
        kind=decided.kind,
        sample=int(flip[SAMPLE]),
        index=tuple(int(one) for one in place),
        rank=int(flip[RANK]),
        was=int(flip[WAS]),
        became=int(flip[BECAME]),
        gap=gap,
        allowed=allowed,
        at=decided.at,
    )
