"""TensorRT 8 to 10: the precision of layers, as a command line of trtexec.

`--layerPrecisions` says what a layer computes in and `--layerOutputTypes` what it gives, "+" between the outputs;
`--precisionConstraints=obey` makes them binding. trtexec parts the list at commas and each item at its colon, so that
layers with one of these in their names cannot be written here. A wildcard is not needed: other layers follow `--fp16`.

Sources: trtexec --help of TensorRT 10; samples/common/sampleOptions.cpp (how the lists are parted).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from parityscope.records import Skip
from parityscope.repairs.settings import Exporter, Text
from parityscope.repairs.settings._tensorrt import REMOVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.repairs.settings._nodes import Placed

_SPELT = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


def _write_trtexec(kept: Mapping[str, str], model: ir.Model, low: str) -> Text:
    from parityscope.repairs.settings._nodes import locate_nodes  # with it graphs, which `layer_options` need none of

    nodes = locate_nodes(kept, model)
    said = [placed for placed in nodes if can_be_named(placed.layer) and placed.outputs]
    words = ["trtexec", "--onnx=MODEL.onnx", f"--{_SPELT[low]}"]
    if any(placed.format_name == "bf16" for placed in said) and low != "bf16":
        words.append("--bf16")
    words += layer_options([(one.layer, one.format_name, len(one.outputs)) for one in said])
    words.append("--saveEngine=ENGINE.plan")
    comment = "".join(f"# {line}\n" for line in REMOVED.splitlines())
    return Text(
        kind="trtexec",
        filename="build_with_precisions.sh",
        text=comment + " \\\n  ".join(shlex.quote(word) for word in words) + "\n",
        brief=shlex.join(words),
        notes=tuple(_skip_of_unsaid(placed) for placed in nodes if placed not in said),
    )


def can_be_named(layer: str) -> bool:
    """Whether an option can name the layer: trtexec parts its lists at commas and colons."""
    return not set(layer) & set(",:")


def layer_options(layers: Sequence[tuple[str, str, int]]) -> list[str]:
    """The options that make the precision of layers binding; of each its name, format and number of outputs."""
    if not layers:
        return []
    precisions = ",".join(f"{layer}:{_SPELT[name]}" for layer, name, _ in layers)
    types = ",".join(f"{layer}:{'+'.join([_SPELT[name]] * outputs)}" for layer, name, outputs in layers)
    return ["--precisionConstraints=obey", f"--layerPrecisions={precisions}", f"--layerOutputTypes={types}"]


def _skip_of_unsaid(placed: Placed) -> Skip:
    if not placed.outputs:
        return Skip(what=f"node {placed.key}", reason="it gives no floats: its layer has no precision to set")
    return Skip(
        what=f"node {placed.key}",
        reason="its name holds a comma or a colon, at which trtexec parts its lists",
        fix="rename it, or use the Python script (kind tensorrt)",
    )


EXPORTER = Exporter(name="trtexec", title="TensorRT 8-10, layer precisions of trtexec", write=_write_trtexec)
