"""An assignment of formats as settings, for runtimes and converters that take those instead of a typed graph.

In: the nodes that are kept out of the low format, by name, each with its format, and the model they are nodes of. Out:
a script or a command line. `settings_for(kind, kept, model)`; every kind is one file of this folder.

A strongly typed model (`arithmetic.typed`) needs none of these, and is all that TensorRT 11 takes. Nodes without a name
cannot be pointed at by most of these tools: that is a `Skip`, and the fix is to name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx_ir as ir

    from parityscope.records import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What an exporter wrote: the text, the file name that suits it, and what could not be said in it.

    `brief` is the same for somebody who has a build of their own already: the option, or the lines that go into it.
    """

    kind: str
    filename: str
    text: str
    brief: str
    notes: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A kind of settings: `write(kept, model, low)` gives them, `low` being the format of all other nodes.

    `formats` are those that the tool brings a network to by itself.
    """

    name: str
    title: str
    write: Callable[[Mapping[str, str], ir.Model, str], Text]
    formats: tuple[str, ...] = ("f16", "bf16")


def known_exporters() -> dict[str, Exporter]:
    """Every kind of settings there is, by name."""
    return {
        found.name: found
        for found, _ in discover_plugins("parityscope.repairs.settings", "EXPORTER", Exporter).values()
    }


def settings_for(kind: str, kept: Mapping[str, str], model: ir.Model, *, low: str = "f16") -> Text:
    """The settings of a kind for an assignment.

    Args:
        kind: "tensorrt", "trtexec", "polygraphy", "openvino", "modelopt", "nncf" or "ort-float16".
        kept: Names of nodes, as `case.graph.node_name` gives them, with "f32", "bf16" or "f16".
        model: The model that the settings are for.
        low: The format of all other nodes, "f16" or "bf16".

    Raises:
        ParityError: there is no such kind, a node is not in the model, or the tool has no such format.
    """
    known = known_exporters()
    if kind not in known:
        raise ParityError(f"there are no settings of kind {kind!r}", fix=f"use one of: {', '.join(sorted(known))}")
    return known[kind].write(kept, model, low)
