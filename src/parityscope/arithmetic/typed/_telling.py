"""What a typed model says about itself, and what its writer has to say beside it.

`metadata_props` of the model: `parityscope.low`, the format; `parityscope.kept`, a JSON object of the nodes that are
not in it, each with its format and the reason. Every such node carries `parityscope.kept` of its own as well.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.typed._writing import Refusal
    from parityscope.arithmetic.typed.constants import RoundingLoss

__all__ = ["label_kept_nodes", "skips_of_losses", "skips_of_parted", "skips_of_refused"]

_KEY = "parityscope.kept"
_NAMED = 5  # names that a note lists before it says how many more there are. Chosen.


def label_kept_nodes(
    model: ir.Model, low: str, kept: Mapping[ir.Node, str], names: Mapping[ir.Node, str], why: Mapping[str, str]
) -> None:
    """Writes which nodes are kept, in what and why, into the model's and the nodes' metadata."""
    told = {}
    for node, format_name in kept.items():
        name = names.get(node) or node.name or str(node.outputs[0].name)
        reason = why.get(name, "asked for")
        node.metadata_props[_KEY] = f"{format_name}: {reason}"
        told[name] = {"format": format_name, "reason": reason}
    model.metadata_props["parityscope.low"] = low
    model.metadata_props[_KEY] = json.dumps(told, sort_keys=True)


def skips_of_refused(refusals: Sequence[Refusal]) -> list[Skip]:
    """Nodes that could not be in their format, by operator and reason."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in refusals:
        grouped.setdefault((one.op_type, one.format_name, one.why), []).append(one.name)
    return [
        Skip(
            what=f"{FORMATS[held].title} of {_count_nodes(names, op_type)}: {_list_names(names)}",
            reason=f"kept in FP32: {why}",
        )
        for (op_type, held, why), names in grouped.items()
    ]


def skips_of_parted(model: ir.Model) -> list[Skip]:
    """A note where Casts stand between DequantizeLinear and what computes with its numbers."""
    found = [
        str(user.outputs[0].name)
        for node in model.graph.all_nodes()
        if node.op_type == "DequantizeLinear"
        for user, _ in node.outputs[0].uses()
        if user.op_type == "Cast"
    ]
    if not found:
        return []
    return [
        Skip(
            what=f"{len(found)} Casts behind DequantizeLinear: {_list_names(found)}",
            reason="a runtime that makes integer kernels of DequantizeLinear and what follows may not look through them",
            fix="keep the products that read quantized numbers in FP32",
        )
    ]


def skips_of_losses(losses: Sequence[RoundingLoss]) -> list[Skip]:
    """Constants that a format cannot hold: those that overflow one by one, those that only lose tiny values together."""
    notes = [_skip_of_overflow(loss) for loss in losses if loss.overflowing]
    for name, held in FORMATS.items():
        tiny = [loss for loss in losses if loss.format_name == name and loss.vanishing]
        if tiny:
            values = sum(loss.vanishing for loss in tiny)
            among = sum(loss.elements for loss in tiny)
            notes.append(
                Skip(
                    what=f"{values} of {among} values of {len(tiny)} constants in {held.title}: "
                    f"{_list_names([loss.constant for loss in tiny])}",
                    reason=f"below half of {held.smallest_subnormal:.3g} they become zero of their own sign",
                )
            )
    return notes


def _skip_of_overflow(loss: RoundingLoss) -> Skip:
    held = FORMATS[loss.format_name]
    return Skip(
        what=f"{loss.overflowing} of {loss.elements} values of constant {loss.constant} in {held.title}",
        reason=f"up to {loss.largest:.3g} in magnitude, beyond {held.largest:.6g}, they become infinite",
        fix="keep the node that reads it in FP32, or bring its values into range",
    )


def _count_nodes(names: Sequence[str], op_type: str) -> str:
    return f"{len(names)} {op_type} {'node' if len(names) == 1 else 'nodes'}"


def _list_names(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_NAMED]) + (f" and {len(every) - _NAMED} more" if len(every) > _NAMED else "")
