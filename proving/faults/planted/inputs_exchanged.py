"""Two inputs of one shape and type are bound in each other's place, by position, as a tokenizer or an exporter lists them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from proving.faults.changing import fed
from proving.faults.planting import program
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    first = bed.samples[0]
    pairs = [
        pair
        for pair in itertools.combinations(first, 2)
        # Token types are two: a model that gets token numbers there refuses them.
        if first[pair[0]].shape == first[pair[1]].shape and set(pair) != {"input_ids", "token_type_ids"}
    ]
    if not pairs:
        raise NoEffectError("no two inputs are alike")
    one, other = pairs[int(bed.draw.integers(len(pairs)))]
    given = [{**sample, one: sample[other], other: sample[one]} for sample in bed.samples]
    plant = fed(bed, given, f"{one} and {other} exchanged")
    if not bed.subject.trained and bed.draw.random() < 0.3:
        line = f"data[{one!r}], data[{other!r}] = data[{other!r}], data[{one!r}]"
        return Plant(words=f"{one} and {other} exchanged by a program", candidate=program(bed, before=line))
    return plant


FAULT = Fault(
    title="Two inputs exchanged",
    family="bindings",
    expected="BND001",
    repair="bind_by_name",
    subjects=("small-two", "small-many", "small-encoder", "vad-seq", "minilm-i8"),
    plant=_plant,
)
