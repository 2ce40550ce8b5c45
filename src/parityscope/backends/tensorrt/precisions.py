"""Precisions of single layers in a weakly typed network (TensorRT 8.6 to 10): a wish that the builder may or must obey.

A layer is named by the ONNX node that it was made for (its metadata) or by its own name. Layers that write integers or booleans,
or read a shape, have no precision and are left as they are, which is what trtexec does with --layerPrecisions.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.logs.names import metadata_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from parityscope.backends.tensorrt.api import TypedLayer

_FLOATS = frozenset({"FLOAT", "HALF", "BF16", "FP8"})


def wanted_of(name: str, wanted: Iterable[tuple[str, str]]) -> str:
    """The precision that `wanted` (pattern, precision) gives a node: the last that fits; "" if none does."""
    return next((precision for pattern, precision in reversed(list(wanted)) if fnmatch.fnmatchcase(name, pattern)), "")


def ask_for(
    layers: Iterable[TypedLayer], wanted: Iterable[tuple[str, str]], types: Mapping[str, Any]
) -> tuple[str, ...]:
    """Asks `layers` for the precisions that `wanted` gives their nodes; `types` are TensorRT's by our names of formats.

    Gives the names of the layers that were asked.

    Raises:
        ParityError: a pattern fits no layer that computes in floating point.
    """
    patterns = list(wanted)
    asked, used = [], set()
    for layer in layers:
        outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
        if not outputs or any(output.dtype.name not in _FLOATS for output in outputs):
            continue
        if layer.num_inputs and layer.get_input(0).is_shape_tensor:
            continue
        names = (*metadata_nodes(layer.metadata), layer.name)
        precision = next((found for name in names if (found := wanted_of(name, patterns))), "")
        if not precision:
            continue
        layer.precision = types[precision]
        for index in range(len(outputs)):
            layer.set_output_type(index, types[precision])
        asked.append(layer.name)
        used |= {pattern for pattern, _ in patterns for name in names if fnmatch.fnmatchcase(name, pattern)}
    if idle := [pattern for pattern, _ in patterns if pattern not in used]:
        raise ParityError(
            f"layers= names {idle[0]!r}, and no layer that computes in floating point has that name",
            fix="parityscope network MODEL lists the nodes by name",
        )
    return tuple(asked)
