"""Ways to plant a fault: recordings of a faulty data path, edited models, and programs with a bug.

Whatever a deployment computes, it computes in one of four arithmetics (`BASES`), drawn for each case: FP32 in ONNX Runtime with
its optimizer off, or TF32, BF16 or FP16 simulated. A fault has to stand out of that: `stands_out` compares the faulty
outputs with honest ones of the same arithmetic, and raises `NoEffectError` where they are less than `_LEAST` times as far
apart as honest ones are from FP32, or less than `_LEAST_NOISE` times what FP32 itself leaves open: what the optimizer, and
one rounding of every input, move.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.recording import observable_tensors
from parityscope.backends.targets import parse_target
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.inputs import Sample
from parityscope.expectation.grades import FLOAT32_ROUNDING
from proving.faults.records import NoEffectError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import onnx

    from proving.faults.records import Bed

    Arrays = Mapping[str, np.ndarray]

BASES = ("f32", "tf32", "f16", "bf16")

# How many times further than honest arithmetic a fault has to move the outputs. Chosen: four standard deviations of a rounding
# error are not exceeded by chance in a few thousand elements.
_LEAST = 4.0
# As many times FP32's noise. Chosen: no two honest evaluations in FP32 were further apart than 1.7 times an estimate of
# it (`expectation.grades`), and this one is no bound but a sample of two.
_LEAST_NOISE = 20.0
_LEAST_MOVED = 1e-5  # chosen: relative L2; what moves less matters to nobody


def base_of(bed: Bed, *allowed: str) -> str:
    """An arithmetic for the deployment, FP32 half of the time; FP16 only where the subject fits into it."""
    held = [base for base in (allowed or BASES) if base != "f16" or bed.subject.halves]
    return "f32" if "f32" in held and bed.draw.random() < 0.5 else str(bed.draw.choice(held))


def live(base: str, model: Path | None = None) -> str:
    """The target that computes honestly in `base`, on another model if one is given."""
    head = "ort?optimization=disabled" if base == "f32" else f"sim:{base}"
    if model is None:
        return head
    return f"{head}{'&' if '?' in head else '?'}model={model}"


def answers(
    path: Path, samples: Sequence[Arrays], base: str = "f32", *, inside: bool = False
) -> list[dict[str, np.ndarray]]:
    """What the model at `path` gives for each sample in `base`; with `inside` every tensor that can be seen as well."""
    return answers_of(path, samples, live(base), inside=inside)


def answers_of(
    path: Path, samples: Sequence[Arrays], target: str, *, inside: bool = False
) -> list[dict[str, np.ndarray]]:
    """The same of any target."""
    model = load_model(path)
    names = {value.name for value in model.outputs}
    capture = (
        Capture(tensors=tuple(name for name in observable_tensors(model) if name not in names)) if inside else Capture()
    )
    with open_target(model, parse_target(target), capture) as session:
        return [
            dict(session.run(Sample(index=index, name=f"{index:06d}.npz", arrays=arrays)))
            for index, arrays in enumerate(samples)
        ]


def recorded(bed: Bed, outputs: Sequence[Arrays], base: str, name: str = "recorded") -> str:
    """The target of a recording of `outputs`, which declares `base`."""
    folder = write_samples(outputs, bed.folder / name)
    return f"saved{'' if base == 'f32' else ':' + base}?path={folder}&pair=order"


def edited(bed: Bed, edit: Callable[[onnx.ModelProto], None]) -> Path:
    """A copy of the bed's model that `edit` has changed in place."""
    import onnx

    model = onnx.load(bed.path)
    edit(model)
    path = bed.folder / "edited.onnx"
    onnx.save(model, path)
    return path


_PROGRAM = """import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

source, sink = map(Path, sys.argv[1:])
data = dict(np.load(source / "000000.npz", allow_pickle=False))
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession({model!r}, options)
order = [value.name for value in session.get_inputs()]
names = [value.name for value in session.get_outputs()]
{before}
outputs = dict(zip(names, session.run(names, data)))
{after}
np.savez(sink / "000000.npz", **outputs)
"""


def program(bed: Bed, before: str = "", after: str = "", model: Path | None = None) -> str:
    """The target of a program of its own, whose lines before and after the run (on `data` and `outputs`) have the bug."""
    path = bed.folder / "infer.py"
    path.write_text(_PROGRAM.format(model=str(model or bed.path), before=before, after=after), encoding="utf-8")
    return f"command?run={sys.executable} {path}"


def write_samples(samples: Sequence[Arrays], folder: Path) -> Path:
    """A folder with one .npz a sample, numbered from nought."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, arrays in enumerate(samples):
        write_npz(folder / f"{number:06d}.npz", {name: np.asarray(array, order="C") for name, array in arrays.items()})
    return folder


def stands_out(bed: Bed, outputs: Sequence[Arrays], base: str) -> Sequence[Arrays]:
    """`outputs`, if they are further from honest ones than those from FP32.

    Raises:
        NoEffectError: they are not.
    """
    exact = answers(bed.path, bed.samples)
    honest = exact if base == "f32" else answers(bed.path, bed.samples, base)
    noisy = (_optimized(bed.path, bed.samples), answers(bed.path, [_rounded_once(bed, each) for each in bed.samples]))
    for name in set(exact[0]) & set(outputs[0]):
        own = apart(exact, honest, name)
        noise = max(apart(exact, other, name) for other in noisy)
        if apart(honest, outputs, name) > max(_LEAST * own, _LEAST_NOISE * noise, _LEAST_MOVED):
            return outputs
    raise NoEffectError("no output moves by more than honest arithmetic")


def _optimized(path: Path, samples: Sequence[Arrays]) -> list[dict[str, np.ndarray]]:
    with open_target(load_model(path), parse_target("ort"), Capture()) as session:
        return [dict(session.run(Sample(index=0, name="", arrays=arrays))) for arrays in samples]


def _rounded_once(bed: Bed, arrays: Arrays) -> dict[str, np.ndarray]:
    """Inputs whose floats are off by up to one rounding."""
    draw = np.random.default_rng(len(bed.samples))
    return {
        name: (array * (1 + draw.uniform(-FLOAT32_ROUNDING, FLOAT32_ROUNDING, array.shape))).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in arrays.items()
    }


def apart(reference: Sequence[Arrays], candidate: Sequence[Arrays], name: str) -> float:
    """The worst relative L2 distance of output `name` over the samples; infinite where it is not finite."""
    worst = 0.0
    for mine, its in zip(reference, candidate, strict=True):
        one, other = (np.asarray(side[name]).astype(np.float64) for side in (mine, its))
        if one.shape != other.shape or not np.isfinite(other).all():
            return float("inf")
        worst = max(worst, float(np.linalg.norm(one - other) / (np.linalg.norm(one) or 1.0)))
    return worst
