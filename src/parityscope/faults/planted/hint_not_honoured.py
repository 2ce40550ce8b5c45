"""FP16 is asked of OpenVINO on a CPU that has only BF16: a wish that is silently answered in another precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.faults.records import Fault, Plant

if TYPE_CHECKING:
    from parityscope.faults.records import Bed

__all__ = ["FAULT"]


def _plant(bed: Bed) -> Plant:
    del bed
    return Plant(words="OpenVINO is asked for FP16", candidate="openvino:f16", declared="f16")


FAULT = Fault(
    title="A precision that was not honoured",
    family="arithmetic",
    expected="CST001",
    # Within what was declared, that is a fact; beyond it, a lower arithmetic is right as well.
    accepted=("ACC001",),
    subjects=("small-conv", "small-two", "small-rows", "ocr-cls", "ocr-rec"),
    plant=_plant,
    informs=True,
)
