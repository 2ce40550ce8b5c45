"""What a search rules out: how many faults of each kind were tried, and how large one of them would have had to be to be found.

A description is told where it saves more bits than it takes to say it and than chance saves: with n numbers that count as
evidence, one that explains the share s of the squared error saves n/2 log2(1 / (1 - s)) bits. So what takes b bits is found from
the share 1 - 2^(-2 (b + chance) / n) on. Of a kind the least share is told at which each of those that were tried would have
been found. What was not tried for want of time is not ruled out.

Sources: J. Rissanen, Automatica 14, 1978.
"""

from __future__ import annotations

import math
import re

from parityscope.light_dataclasses import dataclass, field
from parityscope.records import RuledOut

SURE_BITS = 20.0  # chosen: one claim in a million that would save as much by chance
MOST_NUMBERS = 4096  # count as evidence: elements of a tensor are not independent. Chosen.
ARITHMETIC = "arithmetic"

# Kinds in users' words, by the names that generators and families have. An index of any axis is one.
_MOVED = "a result scaled, shifted, rounded, cut off or moved"
_FITTED = "a result with numbers fitted to it, for all or for each channel or row"
_IN_PART = "a result changed in one part, such as a run of rows, channels or blocks"
_KEPT = "what was left of the sample before"
_READ = "an input scaled, shifted, rounded or moved"
_TAKEN = "inputs left out, exchanged or taken from elsewhere"
_HELD = "a constant scaled, rounded, moved or exchanged"
_SET = "another attribute value"
_FUNCTION = "another function"
_WORDS = {
    ARITHMETIC: "the arithmetic of another format",
    **dict.fromkeys(("values", "exchanged"), _MOVED),
    "fits": _FITTED,
    "curves": "a result that is a curve of what it should be, or of an input",
    **dict.fromkeys(("result scaled and shifted", "result scaled", "result shifted", "negative part scaled"), _MOVED),
    **dict.fromkeys(("both bounds", "upper bound", "lower bound"), _MOVED),
    "neighbours": "a step left out, done twice or in another order",
    **dict.fromkeys(("places", "changed places"), _IN_PART),
    **dict.fromkeys(("before", "mixtures", "states"), _KEPT),
    "moved": "values of other places or tensors in a result",
    **dict.fromkeys(("resampled", "resampled inputs"), "a result or an input that is resampled"),
    "swallowed": "NaN that becomes a number",
    "masks": "a mask that is shifted or not applied",
    **dict.fromkeys(("inputs", "operands"), _TAKEN),
    **dict.fromkeys(("changed inputs", "fitted inputs", "rows"), _READ),
    **dict.fromkeys(("input scaled", "input shifted", "input cut off", "filter"), _READ),
    **dict.fromkeys(
        ("constants", "near constants", "changed constants", "joint", "layouts", "grids", "fitted grids"), _HELD
    ),
    **dict.fromkeys(("attributes", "fitted attributes", "attribute"), _SET),
    **dict.fromkeys(("operators", "fitted operators", "relatives", "operator fitted"), _FUNCTION),
    "inside": "a step inside the operator changed",
    "pairs": "two changes at once",
}
_PLACE = re.compile(
    r"( \d+)?(, everywhere)?$"
)  # of a kind's name: that it holds at many places, or the number of an axis


def find_least_share(bits: float, numbers: float) -> float:
    """The share of the squared error from which on what takes so many bits is found, of so many numbers: in (0, 1]."""
    return -math.expm1(-2 * math.log(2) * (bits + SURE_BITS) / max(numbers, 1.0))


@dataclass(slots=True)
class _OfKind:
    generated: int = 0
    tried: int = 0
    bits: float = 0.0  # of the longest that was tried
    most: float = 0.0
    nearest: str = ""
    in_part: bool = False


@dataclass(slots=True, kw_only=True)
class KindTally:
    """Counts by kind. `numbers` count as evidence; what explains less than `least` is not looked at further."""

    numbers: float
    least: float = 0.0
    _kinds: dict[str, _OfKind] = field(default_factory=dict)

    def note_tried(self, kind: str, bits: float) -> None:
        """One edit of that many bits was computed."""
        held = self._held(kind)
        held.generated += 1
        held.tried += 1
        held.bits = max(held.bits, bits)

    def note_untried(self, kind: str, count: int = 1) -> None:
        """So many were generated and not computed."""
        self._held(kind).generated += count

    def note_explained(self, kind: str, bits: float, share: float, words: str) -> None:
        """What one of so many bits explains, on what nothing was fitted to."""
        held = self._held(kind)
        held.in_part |= share > self.least and share >= find_least_share(bits, self.numbers)
        if share > held.most:
            held.most, held.nearest = min(share, 1.0), words

    def told(self) -> tuple[RuledOut, ...]:
        """Every kind of which something was generated, the largest first."""
        found = [
            RuledOut(
                kind=words,
                tried=held.tried,
                generated=held.generated,
                least=max(self.least, find_least_share(held.bits, self.numbers)) if held.tried else None,
                most=held.most,
                nearest=held.nearest,
                in_part=held.in_part,
            )
            for words, held in self._kinds.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.generated, one.kind)))

    def _held(self, kind: str) -> _OfKind:
        name = _PLACE.sub("", kind)
        return self._kinds.setdefault(_WORDS.get(name, name), _OfKind())
