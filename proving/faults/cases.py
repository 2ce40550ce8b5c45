"""Which cases there are, and which of them are kept apart.

The cases of a fault go round its subjects; case number k of fault f on subject s is drawn from a generator that these three
seed, so that a longer suite contains a shorter one, and any case can be run alone.

**Kept apart.** A model is kept apart if the first byte of the SHA-256 of "model:NAME" is below 85, a case (its parameters) if
that of "case:FAULT/SUBJECT/NUMBER" is: 85 of 256 are a third. Whoever tunes a check looks at neither.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from proving.faults.records import Case
from proving.faults.subjects import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proving.faults.records import Fault

TUNING = ""  # not kept apart
_THIRD = 85  # of 256


def cases(
    faults: Mapping[str, Fault], per_fault: int, *, clean: bool = True, trained: bool = True, faulty: bool = True
) -> Iterator[Case]:
    """`per_fault` cases of every fault, each followed by its clean twin; round by round, so that a part is fair to all.

    With `trained` false the models that packages ship are left out.
    """
    for number in range(per_fault):
        for name, fault in faults.items():
            subjects = [one for one in fault.subjects if trained or not SUBJECTS[one].trained]
            if not subjects:
                continue
            subject = subjects[number % len(subjects)]
            held = held_out(name, subject, number)
            if faulty:
                yield Case(fault=name, subject=subject, number=number, clean=False, held=held)
            if clean:
                yield Case(fault=name, subject=subject, number=number, clean=True, held=held)


def held_out(fault: str, subject: str, number: int) -> str:
    """Why a case is kept apart: "model", "parameter", or "" if it may be tuned on."""
    if _byte(f"model:{subject}") < _THIRD:
        return "model"
    return "parameter" if _byte(f"case:{fault}/{subject}/{number}") < _THIRD else TUNING


def generator(case: Case, attempt: int, purpose: str) -> np.random.Generator:
    """The numbers of one case: the same for a fault and its clean twin as far as the `purpose` is."""
    text = f"{case.fault}/{case.subject}/{case.number}/{attempt}/{purpose}"
    return np.random.default_rng(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint32))


def _byte(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]
