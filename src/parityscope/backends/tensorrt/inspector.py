"""The engine inspector's JSON, as `trtexec --exportLayerInfo` writes it, of both layouts -> an engine's layers and tensors.

* up to 10: `{"Layers": [...], "Bindings": ["x", "y"]}`; a tensor's type stands in words in `Format/Datatype`;
* 11 and RTX: `{"Layers": [...], "I/O Tensors": [{"Name", "IOMode", "DataType", ...}]}`; a tensor's `Datatype` and
  `Format` stand apart;
* without detailed profiling verbosity a layer is its name alone, a string.

Source: NVIDIA's "Migrating IEngineInspector from TensorRT 10.x to 11.x", and the outputs quoted in
https://github.com/NVIDIA/TensorRT/issues/4020 and /2418.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from parityscope.errors import ParityError
from parityscope.logs import EngineLayer, IOTensor
from parityscope.logs.layers import type_word
from parityscope.logs.names import metadata_nodes, name_nodes
from parityscope.logs.records import EngineTensor
from parityscope.plain_documents import parse_json
from parityscope.regular_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DETAILED = "write it with: trtexec --loadEngine=model.plan --profilingVerbosity=detailed --exportLayerInfo=layers.json"
_NBYTES = 256 << 20  # of a file of the inspector (chosen): some hundred thousand layers with all details


def read_layer_info(path: Path) -> tuple[tuple[EngineLayer, ...], tuple[IOTensor, ...]]:
    """The layers and the inputs and outputs in a file of `trtexec --exportLayerInfo`.

    Raises:
        ParityError: the file is no JSON of the engine inspector.
    """
    held = _read_inspector_json(path, _DETAILED)
    try:
        return engine_layers(held), io_tensors(held)
    except (LookupError, TypeError, AttributeError) as error:
        raise ParityError(f"{path.name} has no layers of an engine", where=str(path), fix=_DETAILED) from error


def read_layer_items(path: Path) -> list[tuple[EngineLayer, Mapping[str, Any]]]:
    """The layers in such a file, each with all that stands there of it; nothing where only its name does.

    Raises:
        ParityError: as `read_layer_info`.
    """
    layers, _ = read_layer_info(path)
    items = _read_inspector_json(path, _DETAILED)["Layers"]
    return [(layer, {} if isinstance(item, str) else item) for layer, item in zip(layers, items, strict=True)]


def read_profile(path: Path) -> dict[str, float]:
    """Seconds of each layer, from a file of `trtexec --exportProfile`: the average over its runs.

    The file is a list whose first item has the number of runs and each other one a layer with `name`, `timeMs`, `averageMs`,
    `medianMs` (8.5 and newer) and `percentage`. Source: LayerProfile in trtexec's sampleReporting.cpp.

    Raises:
        ParityError: the file is no such list.
    """
    fix = (
        "write it with: trtexec --loadEngine=model.plan --dumpProfile --separateProfileRun --exportProfile=profile.json"
    )
    try:
        found = {
            str(item["name"]): float(item["averageMs"]) / 1000
            for item in _read_inspector_json(path, fix)
            if "name" in item
        }
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ParityError(f"{path.name} is no profile of trtexec: {error}", where=str(path), fix=fix) from error
    if not found:
        raise ParityError(f"{path.name} is no profile of trtexec: it names no layer", where=str(path), fix=fix)
    return found


def _read_inspector_json(path: Path, fix: str) -> Any:
    """The JSON of a file; parts of a layer's name may be joined by control characters, which are no strict JSON.

    `fix` says how such a file is written.
    """
    return parse_json(read_text_file(path, path.name, limit=_NBYTES), path.name, path, strict=False, fix=fix)


def engine_layers(held: Mapping[str, Any]) -> tuple[EngineLayer, ...]:
    """The layers of an inspector's document; a layer that is a string has only its name."""
    return tuple(_layer_from_json(item) for item in held["Layers"])


def io_tensors(held: Mapping[str, Any]) -> tuple[IOTensor, ...]:
    """The inputs and outputs of the engine in its order; up to 10 they are names, told apart by the layers that write them."""
    if "I/O Tensors" in held:
        return tuple(_io_tensor_from_json(item) for item in held["I/O Tensors"])
    written = {tensor.name for layer in engine_layers(held) for tensor in layer.outputs}
    return tuple(
        IOTensor(name=name, mode="output" if name in written else "input") for name in held.get("Bindings", ())
    )


def _layer_from_json(item: Any) -> EngineLayer:
    if isinstance(item, str):
        return EngineLayer(name=item, kind="", inputs=(), outputs=(), nodes=name_nodes(item), told=False)
    name = str(item.get("Name", ""))
    nodes = metadata_nodes(str(item.get("Metadata", "")))
    return EngineLayer(
        name=name,
        kind=str(item.get("LayerType", "")),
        inputs=tuple(_tensor_from_json(each) for each in item.get("Inputs", ())),
        outputs=tuple(_tensor_from_json(each) for each in item.get("Outputs", ())),
        nodes=nodes or name_nodes(name),
        told=bool(nodes),
        tactic=str(item.get("TacticName", "") or item.get("TacticValue", "")),
    )


def _tensor_from_json(item: Mapping[str, Any]) -> EngineTensor:
    words = str(item.get("Datatype") or item.get("Format/Datatype") or "")
    dims = ",".join(str(size) for size in item.get("Dimensions", ()))
    return EngineTensor(name=str(item.get("Name", "")), dtype=type_word(words), dimensions=dims)


def _io_tensor_from_json(item: Mapping[str, Any]) -> IOTensor:
    mode: Literal["input", "output"] = "input" if item.get("IOMode") == "Input" else "output"
    dims = ",".join(str(size) for size in item.get("Dimensions", ()))
    return IOTensor(name=str(item.get("Name", "")), mode=mode, dtype=str(item.get("DataType", "")), dimensions=dims)
