"""The recording was made in another environment, whose outputs are right: told as a difference, blamed for nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proving.faults.planting import answers, base_of, recorded
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed

_FACTS = (
    {"onnxruntime": "1.0.0", "NVIDIA_TF32_OVERRIDE": "1"},
    {"linked libcudnn": "9", "loaded libcudnn": "8.9.7"},
    {"onnxruntime": "1.16.0", "gpu": "NVIDIA A100", "driver": "535.54"},
)


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    path = bed.folder / "there.json"
    facts = _FACTS[int(bed.draw.integers(len(_FACTS)))]
    path.write_text(json.dumps(facts), encoding="utf-8")
    candidate = f"{recorded(bed, answers(bed.path, bed.samples, base), base)}&environment={path}"
    return Plant(words=f"recorded with {facts} ({base})", candidate=candidate, declared=base)


FAULT = Fault(
    title="Another environment",
    family="arithmetic",
    expected="ENV001",
    subjects=("small-two", "small-conv", "small-encoder", "ocr-cls", "vad-18"),
    plant=_plant,
    informs=True,
)
