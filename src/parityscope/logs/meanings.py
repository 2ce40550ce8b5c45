"""Every line that is explained: `explain_line` gives the meaning of one line, `MEANINGS` the whole table."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.logs._meanings_failures import FAILURES
from parityscope.logs._meanings_numbers import NUMBERS
from parityscope.logs._meanings_runs import RUNS
from parityscope.logs._meanings_tf32 import TF32

if TYPE_CHECKING:
    from parityscope.logs.records import Meaning

MEANINGS: tuple[Meaning, ...] = (*TF32, *NUMBERS, *FAILURES, *RUNS)
_COMPILED = MappingProxyType({meaning.name: re.compile(meaning.pattern) for meaning in MEANINGS})


def explain_line(text: str) -> tuple[Meaning, str] | None:
    """(meaning, fact) of a line without its prefix; the fact is what its pattern takes out ("" for none)."""
    for meaning in MEANINGS:
        if meaning.hint in text:
            found = _COMPILED[meaning.name].search(text)
            if found is not None:
                return meaning, fact_in(found)
    return None


def fact_in(found: re.Match[str]) -> str:
    """The first group that took part in a match."""
    return next((group.strip() for group in found.groups() if group), "")
