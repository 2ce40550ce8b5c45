"""Cases on disk, as `proving.rounds` has them: FOLDER/SEED/{model.onnx, inputs, candidates, cases/00}, and FOLDER/truth/SEED.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx

from proving.drawn.drawing import KINDS, Drawn, drawn
from proving.drawn.networks import LARGE, SMALL, Network, Sample, network, run

HELD_OUT = 1000  # seeds from here on are run once
_VISIBLE, _DRAWS = 0.01, 60
_SHOWN = ("outputs", "two recorded", "outputs", "around", "outputs", "two", "outputs", "graph")
_OF_GRAPH = tuple(kind for kind in KINDS if kind != "input")


def make_case(folder: Path, seed: int) -> str:
    """Writes the case of a seed; a line about it.

    Every other case is in a small network. A fault moves some output by 1 % at least, of two each does so alone and beside the
    other: what leaves no trace behind the other nobody could name.
    """
    draw = np.random.default_rng([2027, seed])
    shown = _SHOWN[seed % len(_SHOWN)]
    for _ in range(_DRAWS):
        net = network(str(draw.choice(SMALL if seed // len(_SHOWN) % 2 == 0 else LARGE)))
        kinds = ["input"] if shown == "around" else [str(draw.choice(_OF_GRAPH)) for _ in range(1 + ("two" in shown))]
        try:
            faults = [drawn(net, kind, draw) for kind in kinds]
            if len({one.at for one in faults}) < len(faults):
                continue
            alone = [_outputs(net, [one])[1] for one in faults]
            model, outputs = _outputs(net, faults)
        except Exception:  # noqa: BLE001, S112 - a fault that cannot be made is drawn again
            continue
        errors = [_error(net.reference, one) for one in (*alone, outputs)]
        errors += [_error(one, outputs) for one in alone if len(alone) > 1]
        if np.isfinite(errors).all() and min(errors) > _VISIBLE:
            _write(folder, seed, net, shown, faults, model, outputs)
            return f"{seed} {net.name} {shown}: {'; '.join(one.says for one in faults)}"
    return f"{seed}: nothing to be seen in {_DRAWS} draws"


def _outputs(net: Network, faults: list[Drawn]) -> tuple[onnx.ModelProto, list[Sample]]:
    model, samples = onnx.ModelProto(), net.inputs
    model.CopyFrom(net.model)
    for one in faults:
        if one.edit is not None:
            one.edit(model)
        if one.prepare is not None:
            samples = [one.prepare(sample) for sample in samples]
    return model, run(model, samples)


def _error(reference: list[Sample], candidate: list[Sample]) -> float:
    found = []
    for one, other in zip(reference, candidate, strict=True):
        for name, array in one.items():
            if other[name].shape != array.shape:
                return float("nan")
            known = array.astype(np.float64)
            found.append(float(np.linalg.norm(other[name].astype(np.float64) - known) / (np.linalg.norm(known) or 1.0)))
    return max(found) if np.isfinite(found).all() else float("nan")


def _write(
    folder: Path,
    seed: int,
    net: Network,
    shown: str,
    faults: list[Drawn],
    model: onnx.ModelProto,
    outputs: list[Sample],
) -> None:
    base = folder / str(seed)
    shutil.rmtree(base, ignore_errors=True)
    case = base / "cases" / "00"
    for path in (case / "outputs", base / "inputs"):
        path.mkdir(parents=True)
    onnx.save(net.model, base / "model.onnx")
    for index, (sample, row) in enumerate(zip(net.inputs, outputs, strict=True)):
        np.savez_compressed(base / "inputs" / f"{index:06}.npz", allow_pickle=False, **sample)
        np.savez_compressed(case / "outputs" / f"{index:06}.npz", allow_pickle=False, **row)
    target = "saved?path=cases/00/outputs"
    if shown in {"two", "graph"}:
        onnx.save(model, base / "candidate.onnx")
        target = "ort?model=candidate.onnx&optimization=disabled"
    arguments = ["model.onnx", "--candidate", target, "--inputs", "inputs", "--reference", "ort?optimization=disabled"]
    (case / "case.json").write_text(json.dumps({"arguments": arguments}), encoding="utf-8")
    truth = {
        "seed": seed,
        "model": net.name,
        "shown": shown,
        "faults": [{"kind": one.kind, "at": one.at, "says": one.says, "named": one.named} for one in faults],
        "beside": {one.at: _beside(net, one.at) for one in faults},
    }
    (folder / "truth").mkdir(exist_ok=True)
    (folder / "truth" / f"{seed}.json").write_text(json.dumps(truth), encoding="utf-8")


def _beside(net: Network, tensor: str) -> list[str]:
    """Tensors one node away: where the same change may be said to stand."""
    graph = net.model.graph
    made = [one for node in graph.node if tensor in node.output for one in node.input if one in net.values]
    return [*made, *(one for node in graph.node if tensor in node.input for one in node.output)]
