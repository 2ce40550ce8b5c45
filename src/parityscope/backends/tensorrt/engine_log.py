"""A file of `trtexec --exportLayerInfo` as a `Log` without lines, so that two engines are compared as two logs are."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.backends.tensorrt.inspector import read_layer_info, read_profile
from parityscope.logs import Log
from parityscope.records import Skip

if TYPE_CHECKING:
    from pathlib import Path

_DETAILED = "trtexec --loadEngine=model.plan --profilingVerbosity=detailed --exportLayerInfo=layers.json"


def log_of_layer_info(path: Path) -> Log:
    """The engine's layers, inputs and outputs; nothing else is told.

    Raises:
        ParityError: the file is no JSON of the engine inspector.
    """
    layers, tensors = read_layer_info(path)
    bare = sum(not layer.outputs for layer in layers)
    skipped = [Skip(what="versions, TF32, fusions and weights", reason="an engine's layers do not tell them")]
    if bare:
        skipped.append(
            Skip(
                what=f"types and kernels of {bare} layers",
                reason="the engine was built without detailed profiling verbosity: these layers are names",
                fix=f"build it again with --profilingVerbosity=detailed, then {_DETAILED}",
            )
        )
    return Log(
        path=path,
        nbytes=path.stat().st_size,
        lines=0,
        tool="an engine's layers",
        layers=layers,
        tensors=tensors,
        reformats=sum(layer.kind == "Reformat" for layer in layers),
        skipped=tuple(skipped),
    )


def with_profile(log: Log, path: Path) -> Log:
    """`log` with the times of its layers from a file of `trtexec --exportProfile`.

    Raises:
        ParityError: the file is no such profile.
    """
    times = {name: seconds * 1000 for name, seconds in read_profile(path).items()}
    names = {layer.name for layer in log.layers}
    strangers = [name for name in times if name not in names]
    skipped = log.skipped
    if strangers:
        told = ", ".join(strangers[:3])
        skip = Skip(
            what=f"the times of {len(strangers)} of {len(times)} layers",
            reason=f"the engine has no layer of that name: {told}",
            fix="take layers and profile from one engine, in one run of trtexec",
            asked=len(strangers) == len(times),
        )
        skipped = (*skipped, skip)
    return replace(log, layer_times=MappingProxyType(times), skipped=skipped)
