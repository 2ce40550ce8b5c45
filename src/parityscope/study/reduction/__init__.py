"""A study's finding -> the smallest model, weights and input that still show it.

`reduce_study` asks what a study asked again, `reduce_examination` starts from an examination that was just made. What is the same
finding is said by `pattern`: the same code at the same operator and tensor, beyond, and lost numbers only where there were some.
Each smaller model is examined as `diagnose` examines one (`trying`); regions are cut out of both sides' graphs (`region`,
`making`), searched (`searching`) and made smaller (`shrinking`).
"""

from __future__ import annotations

from parityscope.study.reduction.making import files_of
from parityscope.study.reduction.records import Attempt, FindingPattern, Piece, Reduced
from parityscope.study.reduction.searching import GoneError, reduce_examination, reduce_study

__all__ = [
    "Attempt",
    "FindingPattern",
    "GoneError",
    "Piece",
    "Reduced",
    "files_of",
    "reduce_examination",
    "reduce_study",
]
