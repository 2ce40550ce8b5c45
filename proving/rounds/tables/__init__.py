"""Tables, a folder a round: its models, their inputs, and what is wrong with each deployment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from proving.rounds.inputs import Sample
    from proving.rounds.records import Fault, FreshModel

ROUNDS = (2, 3)  # the cases of the first are lost


@dataclass(frozen=True, slots=True)
class Tables:
    """What a round is made of: by the model's name its faults, its right deployments, and what its inputs are read from."""

    models: tuple[FreshModel, ...]
    faults: Mapping[str, tuple[Fault, ...]]
    rights: Mapping[str, tuple[str, ...]]
    samples: Mapping[str, Callable[[list[Path]], Iterable[Sample]]]


def tables_of(number: int) -> Tables:
    """The tables of round `number`."""
    folder = f"{__name__}.round{number}"
    faults = import_module(f"{folder}.faults")
    inputs = import_module(f"{folder}.inputs" if number > 2 else "proving.rounds.inputs")
    return Tables(import_module(f"{folder}.models").MODELS, faults.FAULTS, faults.RIGHTS, inputs.SAMPLES)
