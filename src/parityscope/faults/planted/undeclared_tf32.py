"""Products run in TF32, a default of the GPU, where FP32 was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.faults.planting import answers, apart, recorded
from parityscope.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from parityscope.faults.records import Bed

__all__ = ["FAULT"]


def _plant(bed: Bed) -> Plant:
    way = int(bed.draw.integers(3))
    exact, found = answers(bed.path, bed.samples), answers(bed.path, bed.samples, "tf32")
    if max(apart(exact, found, name) for name in exact[0]) < 1e-5:
        raise NoEffectError("the outputs do not show it")
    if way == 0:
        candidate = "sim:tf32"
    else:
        outputs = answers(bed.path, bed.samples, "tf32", inside=way == 1)
        candidate = recorded(bed, outputs, "f32")
    words = ("live", "all tensors recorded", "outputs recorded")[way]
    return Plant(words=f"tf32 where f32 was declared ({words})", candidate=candidate, declared="f32")


FAULT = Fault(
    title="TF32 that nobody declared",
    family="arithmetic",
    expected="ACC001",
    subjects=(
        "small-two",
        "small-conv",
        "small-encoder",
        "small-rows",
        "ocr-cls",
        "ocr-rec",
        "ocr-det",
        "vad-18",
        "pitch",
        "magika",
    ),
    plant=_plant,
)
