"""A switch of the runtime makes the error: a hint of BF16 where FP32 was said, or a program that obeys NVIDIA_TF32_OVERRIDE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import answers_of, program, stands_out
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed

# Ten bits of the significand are kept of every output unless the variable switches that off.
_OVERRIDE = """import os
if os.environ.get("NVIDIA_TF32_OVERRIDE") != "0":
    for name, array in outputs.items():
        bits = array.astype(np.float32).view(np.uint32)
        outputs[name] = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)"""


def _plant(bed: Bed) -> Plant:
    if bed.draw.random() < 0.6:
        # A CPU without BF16, and a graph that OpenVINO keeps in FP32 all the same, have no such fault.
        stands_out(bed, answers_of(bed.path, bed.samples, "openvino:bf16"), "f32")
        return Plant(words="OpenVINO's hint is BF16, FP32 was declared", candidate="openvino:bf16", declared="f32")
    return Plant(words="a program that obeys NVIDIA_TF32_OVERRIDE", candidate=program(bed, after=_OVERRIDE))


FAULT = Fault(
    title="A switch of the runtime",
    family="arithmetic",
    expected="ENV002",
    # What the switch stands for.
    accepted=("ACC001",),
    subjects=("small-two", "small-conv", "small-rows", "small-map", "ocr-cls"),
    plant=_plant,
)
