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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.backends.tensorrt.packages import Package

Built = TypeVar("Built")

Way = Literal["unfused", "debug", "outputs"]
WAYS: tuple[Way, ...] = ("unfused", "debug", "outputs")
_BUILDS = 12  # chosen: a single tensor that is refused among a thousand is found in 2 log2(1000) = 20, most cost four
_FLOATS = ("FLOAT", "HALF", "BF16")
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
    """What was marked: the engine's name of a tensor -> the ONNX value, and why others were not.

    `unfused` says that the engine may show what lies between its kernels besides.
    """

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    absent: tuple[Skip, ...] = ()
    unfused: bool = False


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
    if asked == "all":  # into fused regions, as every backend calls it: by name
        return next(way for way in usable if way != "unfused")
    for way in WAYS:
        if way == asked and way not in usable:
            raise ParityError(
                f"{package.title} {package.version} has no observe={way} ({first[way][0]}.{first[way][1]} is the first)",
                fix=f"use observe={usable[0]}",
            )
    return next(way for way in WAYS if way == asked)


def registered_tensor_names(lines: Iterable[str]) -> dict[str, str]:
    """ONNX value -> the name that the parser gave its tensor, from the parser's verbose log; of namesakes the first."""
    found: dict[str, str] = {}
    for line in lines:
        if match := _REGISTERED.search(line.rstrip()):
            found.setdefault(match[2], match[1])
    return found


def mark_tensors(network: Any, marks: Marks, tensors: Mapping[str, str]) -> Marked:
    """Marks what `marks` asks for in a parsed `network`; `tensors` are the parser's names by ONNX value."""
    if marks.way == "unfused":
        network.mark_unfused_tensors_as_debug_tensors()
        return Marked(names={tensors.get(name, name): name for name in marks.names}, unfused=True)
    held = _network_tensors(network)
    outputs = {network.get_output(index).name for index in range(network.num_outputs)}
    found, absent = {}, []
    for name in marks.names:
        tensor = held.get(tensors.get(name, name))
        if tensor is None:
            reason = "the parser made no tensor of it: it is a constant, or inside of control flow"
            absent.append(Skip(what=f"tensor {name}", reason=reason))
        elif tensor.name in outputs:
            continue
        elif getattr(tensor, "is_shape_tensor", False):
            absent.append(Skip(what=f"tensor {name}", reason="TensorRT computes it as a shape, beside the engine"))
        elif marks.way == "debug":
            network.mark_debug(tensor)
            found[tensor.name] = name
        else:
            network.mark_output(tensor)
            found[tensor.name] = name
    return Marked(names=found, absent=tuple(absent))


def names_floats_first(network: Any, marks: Marks, tensors: Mapping[str, str]) -> list[list[str]]:
    """The names of `marks`: those of floating point, then the others, which some compilers refuse to show."""
    held = _network_tensors(network)
    kinds = {name: held[tensors.get(name, name)].dtype.name for name in marks.names if tensors.get(name, name) in held}
    floats = [name for name in marks.names if kinds.get(name) in _FLOATS]
    return [floats, [name for name in marks.names if name not in set(floats)]]


def _network_tensors(network: Any) -> dict[str, Any]:
    """The tensors that the layers of a network write, by name."""
    layers = (network.get_layer(index) for index in range(network.num_layers))
    return {
        output.name: output
        for layer in layers
        for output in (layer.get_output(each) for each in range(layer.num_outputs))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Most(Generic[Built]):
    """What was `built` with most of the marks (None: nothing, not even without any), and the names that are `left` out of it."""

    built: Built | None
    left: tuple[str, ...] = ()


def take_most(build: Callable[[Sequence[str]], Built | None], groups: Sequence[Sequence[str]]) -> Most[Built]:
    """Builds with as many of the names as the builder takes: a group that it refuses is tried by halves.

    `groups` are tried one after another, each together with what was taken before; `build` gives None where the builder
    refuses. After `_BUILDS` builds what has not been taken is left out. At last an engine without marks is tried: it can
    still be compared, if not looked into.
    """
    taken: list[str] = []
    built: Built | None = None
    waiting = [list(group) for group in reversed(groups) if group]
    whole = [name for group in groups for name in group]
    if len(waiting) > 1:
        waiting.append(whole)
    left = set(whole)
    builds = 0
    while waiting and left and builds < _BUILDS:
        group = [name for name in waiting.pop() if name in left]
        if not group:
            continue
        made = build([*taken, *group])
        builds += 1
        if made is not None:
            taken, built = [*taken, *group], made
            left -= set(group)
        elif group != whole or not waiting:
            middle = len(group) // 2
            waiting += [half for half in (group[middle:], group[:middle]) if middle and half]
    if built is None:
        built = build(())
    return Most(built=built, left=tuple(name for name in whole if name in left))


def without_refused(marked: Marked, left: Sequence[str]) -> Marked:
    """What was marked, with the names that the builder refuses told as missing."""
    skips = [Skip(what=f"tensor {name}", reason="TensorRT's builder refuses an engine that shows it") for name in left]
    return replace(marked, absent=(*marked.absent, *skips))
