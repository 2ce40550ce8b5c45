"""The planted-fault suite: deployments with a known fault, and their clean twins, to measure the diagnosis on.

A *fault* is one file of `planted/`: what is broken, in which family, the code that has to come first (and others that would be
right too, stated beforehand), and a function that plants it. A *subject* is a model with fitting inputs: a small network whose
weights are drawn (`networks`), or a trained one that a package ships (`trained`). A *case* is a fault on a subject, drawn from a
generator that is seeded by its own id, so that each can be repeated alone. Its *clean twin* is the same subject with the
same inputs, deployed honestly in FP32, TF32, FP16 or BF16.

The diagnosis gets what a user would have, and nothing else: a model, inputs, and a candidate, which is a recording, another
ONNX file, a precision, or a program (`planting`). It runs as `parityscope diagnose` runs it (`running`). What it said is judged
against what was planted by rules that know nothing of how it works (`judging`), and summed up with Wilson intervals (`tables`).

A third of the models and a third of the parameters are kept apart while the checks are tuned (`cases.held_out`); figures are
given for both parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.plugins import discover_plugins
from proving.faults.records import FAMILIES, Bed, Case, Fault, NoEffectError, Outcome, Plant, Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FAMILIES",
    "Bed",
    "Case",
    "Fault",
    "NoEffectError",
    "Outcome",
    "Plant",
    "Subject",
    "chosen_faults",
    "faults",
]


def faults() -> dict[str, Fault]:
    """Every fault there is, by name: the files of `planted/`, then outside packages' of the same entry point group."""
    return {name: found for name, (found, _) in discover_plugins("proving.faults.planted", "FAULT", Fault).items()}


def chosen_faults(names: Sequence[str], family: str) -> dict[str, Fault]:
    """The faults of these names (all if none is given) and of this family or expected code ("" for any).

    Raises:
        ParityError: there is no such fault, or none is left.
    """
    known = faults()
    for name in names:
        if name not in known:
            raise ParityError(f"there is no fault {name!r}", fix="take one of `python -m proving.faults --list`")
    kept = {
        name: fault
        for name, fault in known.items()
        if (not names or name in names) and (not family or fault.family == family or fault.expected.startswith(family))
    }
    if not kept:
        raise ParityError(
            f"no fault is of {family!r}",
            fix=f"give the start of a code (BND, PRE, ...) or one of: {', '.join(FAMILIES)}",
        )
    return kept
