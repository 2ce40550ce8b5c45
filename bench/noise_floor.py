"""FP32 noise floors held against what they are floors of: other FP32 evaluations of the same model.

For each model and candidate: the distribution of measured error over floor, a tensor at a time (float tensors of more
than 64 elements), the share graded FP32, and what the floor costs in plain inferences.

    python bench/noise_floor.py [MODEL ...]
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.opening import open_target
from parityscope.backends.recording import observable_tensors
from parityscope.backends.targets import parse_target
from parityscope.case import Inputs, Model, Sample, load_model
from parityscope.comparison import measure_pair
from parityscope.expectation.expecting import ErrorQuestion, expect_error
from parityscope.expectation.grades import grade_of
from proving.models.fetching import model_path, ocr_det_input, ocr_rec_input, page_image, rendered_line

if TYPE_CHECKING:
    from collections.abc import Mapping

CANDIDATES = ("openvino:f32", "ort?optimization=disabled", "ort?threads=1", "sim:tf32")
LEAST = 64  # elements; the ratio of a smaller tensor is one draw from a wide distribution
CLASSIFIER_WIDTH = 192


def main(identities: list[str]) -> None:
    for identity in identities or ["ocr-det", "ocr-rec", "ocr-cls"]:
        examine(identity)


def examine(identity: str) -> None:
    model = load_model(model_path(identity))
    sample = sample_of(identity)
    inputs = Inputs(origin=identity, names=("x",), sha256="", indices=(0,), read=lambda _: sample)
    names = [*observable_tensors(model), *(value.name for value in model.outputs)]
    reference = evaluated(model, sample, "ort", names)
    start = time.perf_counter()
    question = ErrorQuestion(
        model=model,
        inputs=inputs,
        samples=[0],
        tensors=names,
        formats=(),
        reference=lambda _, name: reference.get(name),
    )
    floor = expect_error(question).errors["f32"]
    seconds = time.perf_counter() - start
    print(f"{identity}: {len(floor)} floors in {seconds:.1f} s, plain inference {plain(model, sample):.3f} s")
    judged = [name for name in floor if reference[name].dtype == np.float32 and reference[name].size > LEAST]
    for candidate in CANDIDATES:
        found = evaluated(model, sample, candidate, names)
        ratios, graded = [], 0
        for name in judged:
            if name in found and found[name].shape == reference[name].shape:
                error = measure_pair(reference[name], found[name], channel_axis=None).rel_l2
                ratios.append(error / floor[name])
                graded += grade_of(error, {"f32": floor[name]}) == "f32"
        parts = np.quantile(ratios, [0, 0.1, 0.5, 0.9, 0.99, 1])
        told = " ".join(f"{part:9.3g}" for part in parts)
        print(f"  {candidate:26s} {len(ratios):4d} tensors, min p10 median p90 p99 max: {told}; FP32: {graded}")


def evaluated(model: Model, sample: Sample, target: str, names: list[str]) -> Mapping[str, np.ndarray]:
    with open_target(model, parse_target(target), Capture(tensors=tuple(names))) as session:
        return dict(session.run(sample))


def plain(model: Model, sample: Sample) -> float:
    run = open_session(model.graph())
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        run(sample.arrays)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def sample_of(identity: str) -> Sample:
    if identity == "ocr-det":
        arrays = ocr_det_input(page_image(), (768, 384))
    else:
        arrays = ocr_rec_input(rendered_line("The quick brown fox 12345"))
    if identity == "ocr-cls":  # a fixed width, padded with grey
        whole = np.zeros((1, 3, arrays["x"].shape[2], CLASSIFIER_WIDTH), np.float32)
        part = arrays["x"][..., :CLASSIFIER_WIDTH]
        whole[..., : part.shape[-1]] = part
        arrays = {"x": whole}
    return Sample(index=0, name=identity, arrays=arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
