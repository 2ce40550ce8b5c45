"""Which suspects are worth an explanation and experiments: those that what is wrong at the outputs may come from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.records import Localization, Suspect

MOST = 8  # chosen: the rest has a small share of the output error
# Of the largest effect at the outputs (L2): a ten thousandth of its square cannot matter to the verdict. Chosen.
_LEAST = 1e-2


def leading_suspects(localization: Localization | None, most: int = MOST) -> list[Suspect]:
    """At most so many suspects that introduce error above the floor, worst first.

    Where suspects were injected, those alone of which the effect at the outputs is known and not small beside the largest.
    """
    if localization is None:
        return []
    found = [one for one in localization.suspects if one.introduced > one.floor or one.introduced_nonfinite]
    known = [one.injected for one in found if one.injected is not None]
    if known:
        largest = max(known)
        least = _LEAST * largest if math.isfinite(largest) else 0.0
        found = [one for one in found if one.injected is not None and one.injected >= least]
    return found[:most]
