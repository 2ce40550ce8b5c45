"""FP16 is asked of OpenVINO on a CPU that has only BF16: a wish that is silently answered in another precision.

What a CPU honours depends on the CPU. On one that has both, and for a graph that is executed as asked, there is no such fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import load_model
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    for asked in ("f16", "bf16"):
        candidate = f"openvino:{asked}"
        with open_target(load_model(bed.path), parse_target(candidate), Capture()) as session:
            graph = session.executed
        if graph is not None and graph.executed != asked:
            words = f"OpenVINO is asked for {asked} and executes {graph.executed}"
            return Plant(words=words, candidate=candidate, declared=asked)
    raise NoEffectError("this machine executes what is asked for")


FAULT = Fault(
    title="A precision that was not honoured",
    family="arithmetic",
    expected="CST001",
    # Within what was declared, that is a fact; beyond it, a lower arithmetic is right as well, and the hint that makes it.
    accepted=("ACC001", "ENV002"),
    subjects=("small-conv", "small-two", "small-rows", "ocr-cls", "ocr-rec"),
    plant=_plant,
    informs=True,
)
