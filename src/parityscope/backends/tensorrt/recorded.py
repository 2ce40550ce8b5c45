"""What `recorder/parityscope_tensorrt.py` wrote beside an engine -> the session that `trt` would have been there.

The outputs of the engine that nobody looked into are read by `saved`, as from any recording. Here are the tensors from inside,
each from the part of the recording that shows it, under the model's names; the outputs of the engine that showed them, so
that what looking changed is measured as it is live; the engine's layers with their kernels and times; why a tensor is missing.
"""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any

from parityscope.backends import Session
from parityscope.backends.matching import match_recordings
from parityscope.backends.tensorrt.asked import asked_of
from parityscope.backends.tensorrt.borders import (
    border_values,
    fits_shape,
    read_by,
    site_names,
    whole_regions,
    with_site_names,
)
from parityscope.backends.tensorrt.inspector import read_layer_info, read_profile
from parityscope.backends.tensorrt.iotensors import widen_outputs
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.network import described_by
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.case.extending import inferred_shapes
from parityscope.case.formats.npz import open_npz
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.plain_documents import read_json_file
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends import Capture
    from parityscope.case import Model, Sample
    from parityscope.case.formats import Stored
    from parityscope.logs import EngineLayer
    from parityscope.records import ExecutedGraph

_FACTS = "tensorrt.json"
_SCHEMA = "parityscope-tensorrt/1"
_NBYTES = 64 << 20  # of the file of facts (chosen): names of some hundred thousand tensors
_PARTS = 10**6  # more than any recording has
_PRODUCTS = frozenset({"tensorrt", "tensorrt_rtx"})
_PRECISIONS = frozenset({"", "f32", "f16", "bf16", "int8", "f8e4m3"})
_FIRST_INT64 = 10
_FORMATS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int8": "int8"}
_DISTURBS = {"unfused": "unfused tensors shown", "debug": "debug tensors marked", "outputs": "outputs marked"}
_REFUSED = "TensorRT's builder refuses an engine that shows it"
_HIDDEN = "inside of a kernel, or between kernels of a region that shows nothing"
_FIX = "record with --watch debug, which shows it by name and ends a fusion there"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedPart:
    """One engine that shows tensors: its files, one a sample, and the model's name of each tensor in them -> theirs."""

    stored: Stored
    match: Callable[[Sample], int]
    names: Mapping[str, str]
    disturbance: float
    refused: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphNames:
    """What of the model's graph the engine's layers are told by."""

    names: Mapping[str, str]
    reads: Mapping[str, Sequence[str]]
    message: Any


def engine_session(
    folder: Path, model: Model, capture: Capture, outputs: Callable[[Sample], Mapping[str, np.ndarray]], pair: str
) -> Session:
    """The session of the engine that was recorded in `folder`; `outputs` gives those of the engine that nobody looked into.

    Raises:
        ParityError: the recorder's file of facts is damaged, or it was interrupted before it had any.
    """
    told = _read_facts(folder)
    renamed = name_all_nodes(model.path, {})
    graph = _GraphNames(
        names=site_names(renamed, model.sites), reads=read_by(renamed, model.sites), message=renamed.message
    )
    wanted = set(capture.tensors)
    parts = [_read_part(folder, one, model, graph, pair) for one in told["parts"] if one.get("seen") is not None]
    chosen = {name: part for part in reversed(parts) for name in part.names if name in wanted}
    used = sorted({id(part): part for part in chosen.values()}.values(), key=lambda part: -part.disturbance)
    declared = {value.name: value.dtype for value in model.outputs}
    narrow = told["product"] == "tensorrt" and int(told["version"].split(".")[0]) < _FIRST_INT64

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        found = dict(outputs(sample))
        if used:
            # What looking changed is measured on the outputs of the engine that was disturbed most.
            stored = used[0].stored
            index = used[0].match(sample)
            names = [name for name in found if name in stored.names(index)]
            found.update(stored.read(index, names))
        shapes = inferred_shapes(model.path, {name: array.shape for name, array in sample.arrays.items()})
        for name, part in chosen.items():
            index = part.match(sample)
            if part.names[name] not in part.stored.names(index):
                continue
            array = part.stored.read(index, [part.names[name]])[part.names[name]]
            shape = shapes.get(name, array.shape)
            if fits_shape(array.shape, shape):
                found[name] = array.reshape(shape)
        return widen_outputs(found, declared) if narrow else found

    return Session(
        run=run,
        disturbs=_DISTURBS.get(told.get("way", ""), "none") if used else "none",
        executed=_read_executed_graph(folder, told, model, graph),
        absent=tuple(_skips_of_missing(capture.tensors, chosen, parts)),
        environment={"tensorrt": f"{told['product']} {told['version']}", "recorded by": told["made_by"]},
    )


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / _FACTS
    held = read_json_file(path, "the recorder's facts", limit=_NBYTES)
    fix = "run the recorder's command again, which goes on where it was interrupted, and copy the folder again"
    if not isinstance(held, dict) or held.get("schema") != _SCHEMA:
        raise ParityError(f"{path.name} is not what the recorder writes", where=str(path), fix=fix)
    texts = [held.get(key) for key in ("product", "version", "made_by")]
    parts = held.get("parts")
    whole = (
        all(isinstance(text, str) and text for text in texts)
        and texts[0] in _PRODUCTS
        and str(texts[1]).split(".")[0].isdecimal()
        and held.get("precision", "") in _PRECISIONS
        and isinstance(held.get("arguments", {}), dict)
        and isinstance(parts, list)
        and all(_is_part(part) for part in parts)
    )
    if not whole:
        raise ParityError(f"{path.name} is damaged", where=str(path), fix=fix)
    return held


def _is_part(held: object) -> bool:
    """Whether this is what the recorder tells of one engine that shows tensors."""
    if not isinstance(held, dict):
        return False
    number, names, refused = held.get("number"), held.get("names", {}), held.get("refused", [])
    far = held.get("disturbance")
    return (
        isinstance(number, int)
        and 0 <= number < _PARTS
        and isinstance(names, dict)
        and all(isinstance(each, str) for each in names.values())
        and isinstance(refused, list)
        and all(isinstance(each, str) for each in refused)
        and (far is None or (isinstance(far, int | float) and far >= 0))
    )


def _read_part(folder: Path, facts: Mapping[str, Any], model: Model, graph: _GraphNames, pair: str) -> _RecordedPart:
    # A C++ program has one engine: what it showed lies beside its outputs.
    beside = bool(facts.get("beside"))
    where = folder / "outputs" if beside else folder / "inside" / f"{int(facts['number']):03d}"
    files = tuple(sorted(where.glob("*.npz")))
    if not files:
        raise ParityError(
            f"the recording has no tensors in {where.name}, which it says it has",
            where=str(where),
            fix="copy the whole folder again",
        )
    stored = open_npz(files, f"{len(files)} files in {where}")
    layers = _read_layers((folder / "engine" if beside else where) / "layers.json", model, graph)
    told = {**border_values(layers, model.sites), **dict(facts.get("names", {}))}
    theirs = stored.names(0)
    names = {value: name for name, value in told.items() if name in theirs and value in model.sites}
    # The rounds of a loop: `h#1` of the engine is `v#1` of the model.
    rounds = {
        f"{told[name.partition('#')[0]]}#{name.partition('#')[2]}": name for name in theirs if _is_round_of(name, told)
    }
    return _RecordedPart(
        stored=stored,
        match=match_recordings(stored, [path.name for path in files], pair),
        names={**names, **rounds},
        disturbance=float(facts.get("disturbance") or 0.0),
        refused=frozenset(facts.get("refused", ())),
    )


def _is_round_of(name: str, told: Mapping[str, str]) -> bool:
    first, mark, number = name.partition("#")
    return bool(mark) and number.isdigit() and first in told


def _read_layers(path: Path, model: Model, graph: _GraphNames) -> tuple[EngineLayer, ...]:
    layers, _ = read_layer_info(path)
    return whole_regions(with_site_names(layers, graph.names, model.sites), graph.reads)


def _read_executed_graph(
    folder: Path, told: Mapping[str, Any], model: Model, graph: _GraphNames
) -> ExecutedGraph | None:
    """The engine's layers with what their nodes were asked for, and their times; None where the recorder has none yet."""
    path = folder / "engine" / "layers.json"
    if not path.is_file():
        return None
    asked = told.get("arguments", {})
    pairs = [item.rpartition(":") for item in str(asked.get("layerPrecisions") or "").split(",") if item]
    options = TensorrtOptions(
        tf32=bool(asked.get("tf32")),
        precision="" if told.get("precision", "") == "f32" else str(told.get("precision", "")),
        typing="weak" if told.get("typing") == "weak" else "strong",
        layers=tuple(
            (name if name == "*" else glob.escape(name), _FORMATS[kind]) for name, _, kind in pairs if kind in _FORMATS
        ),
    )
    types = asked_of(graph.message, options)
    by_site = {graph.names.get(node, node): kind for node, kind in types.items()}
    found = described_by(options, by_site)(_read_layers(path, model, graph))
    profile = folder / "engine" / "profile.json"
    seconds = read_profile(profile) if profile.is_file() else {}
    return replace(
        found, layers=tuple(replace(layer, seconds=seconds.get(layer.name, layer.seconds)) for layer in found.layers)
    )


def _skips_of_missing(
    wanted: Sequence[str], chosen: Mapping[str, _RecordedPart], parts: Sequence[_RecordedPart]
) -> list[Skip]:
    refused = frozenset().union(*(part.refused for part in parts))
    return [
        Skip(what=f"tensor {name}", reason=_REFUSED if name in refused else _HIDDEN, fix=_FIX)
        for name in wanted
        if name not in chosen
    ]
