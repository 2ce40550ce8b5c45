"""The same graph giving back other values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import value_by_name
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir


def mark_outputs(model: ir.Model, names: Sequence[str]) -> None:
    """Makes the values called `names` the outputs of the graph, in this order.

    Raises:
        ParityError: the main graph has no such value.
    """
    known = value_by_name(model)
    missing = [name for name in names if name not in known]
    if missing:
        raise ParityError(
            f"the graph has no value {missing[0]!r}", fix="take a name from `parityscope run MODEL --all-tensors`"
        )
    model.graph.outputs.clear()
    model.graph.outputs.extend(known[name] for name in names)
