"""Which tensors of a network an engine shows besides its outputs, and how that is asked for when it is built.

| way | what it does | since |
| --- | --- | --- |
| `unfused` | every tensor that lies between two kernels anyway; no fusion changes | 10.12, RTX |
| `debug` | the tensors asked for, by name; fusion ends at each of them | 10.0, RTX |
| `outputs` | the tensors asked for become outputs; fusion ends at each of them, and device memory holds them all | all |

TensorRT names a tensor after the ONNX value unless that name is taken: the parser's log then says which it took ("Registering
tensor: y_0 for ONNX tensor: y").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from parityscope.backends._tensorrt.packages import Package

__all__ = ["WAYS", "Marked", "Marks", "mark", "registered", "way_for"]

Way = Literal["unfused", "debug", "outputs"]
WAYS: tuple[Way, ...] = ("unfused", "debug", "outputs")
_FIRST_DEBUG = (10, 0)
_FIRST_UNFUSED = (10, 12)
_REGISTERED = re.compile(r"Registering tensor: (.+) for ONNX tensor: (.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The tensors asked for, by the names of ONNX values, and the way."""

    way: Way = "unfused"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """What was marked: the engine's name of a tensor -> the ONNX value, and why others were not."""

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    absent: tuple[Skip, ...] = ()


def way_for(asked: str, package: Package) -> Way:
    """The way to look that was asked for, or the one that disturbs least.

    Raises:
        ParityError: this version has no such way.
    """
    from parityscope.errors import ParityError

    first: dict[Way, tuple[int, int]] = {"unfused": _FIRST_UNFUSED, "debug": _FIRST_DEBUG, "outputs": (0, 0)}
    usable = [way for way in WAYS if package.product == "rtx" or package.numbers[:2] >= first[way]]
    if not asked:
        return usable[0]
    for way in WAYS:
        if way == asked and way not in usable:
            raise ParityError(
                f"{package.title} {package.version} has no observe={way} ({first[way][0]}.{first[way][1]} is the first)",
                fix=f"use observe={usable[0]}",
            )
    return next(way for way in WAYS if way == asked)


def registered(lines: Iterable[str]) -> dict[str, str]:
    """ONNX value -> the name that the parser gave its tensor, from the parser's verbose log; of namesakes the first."""
    found: dict[str, str] = {}
    for line in lines:
        if match := _REGISTERED.search(line.rstrip()):
            found.setdefault(match[2], match[1])
    return found


def mark(network: Any, marks: Marks, tensors: Mapping[str, str]) -> Marked:
    """Marks what `marks` asks for in a parsed `network`; `tensors` are the parser's names by ONNX value."""
    if marks.way == "unfused":
        network.mark_unfused_tensors_as_debug_tensors()
        return Marked(names={tensors.get(name, name): name for name in marks.names})
    held = {}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for place in range(layer.num_outputs):
            output = layer.get_output(place)
            held[output.name] = output
    outputs = {network.get_output(index).name for index in range(network.num_outputs)}
    found, absent = {}, []
    for name in marks.names:
        tensor = held.get(tensors.get(name, name))
        if tensor is None:
            reason = "the parser made no tensor of it: it is a constant, or inside of control flow"
            absent.append(Skip(what=f"tensor {name}", reason=reason))
        elif tensor.name in outputs:
            continue
        elif marks.way == "debug":
            network.mark_debug(tensor)
            found[tensor.name] = name
        else:
            network.mark_output(tensor)
            found[tensor.name] = name
    return Marked(names=found, absent=tuple(absent))
