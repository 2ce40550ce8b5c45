"""All inputs are bound in the order of another list: sorted, backwards, one place on, or as somebody typed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import fed
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    names = list(bed.samples[0])
    count = int(bed.draw.integers(3, min(5, len(names)) + 1))
    chosen = [names[place] for place in bed.draw.permutation(len(names))[:count]]
    whose = {place: chosen[(number + 1) % count] for number, place in enumerate(chosen)}
    if whose.get("token_type_ids") == "input_ids":
        raise NoEffectError("token numbers are no types")
    given = [{name: sample[whose.get(name, name)] for name in names} for sample in bed.samples]
    return fed(bed, given, f"{', '.join(chosen)} bound in a ring")


FAULT = Fault(
    title="Three or more inputs in another order",
    family="bindings",
    expected="BND001",
    repair="bind_by_name",
    subjects=("small-many", "small-encoder", "minilm-i8"),
    plant=_plant,
)
