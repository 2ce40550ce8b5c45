"""Operands of products, each exchanged for what is left of it by quantization."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.arithmetic._graphs import constant_like, drop_unused, feed, place_behind

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic.primitives import Rewriting

__all__ = ["Taken"]


@dataclass(slots=True, kw_only=True)
class Taken:
    """What was quantized, and whether it is a constant. Each activation is once, each weight for each product."""

    suffix: str
    work: Rewriting
    done: dict[str, bool] = field(default_factory=dict)
    fed: dict[str, ir.Value] = field(default_factory=dict)

    def constant(self, node: ir.Node, index: int, array: np.ndarray) -> None:
        """Lets input `index` read `array` in place of its constant."""
        value = node.inputs[index]
        if value is not None:
            self.done[str(value.name)] = True
            stored = constant_like(value, array, self.work.names.fresh(value.name, self.suffix))
            feed([(node, index)], stored)

    def activation(self, node: ir.Node, index: int, made: Callable[[], list[ir.Node]]) -> None:
        """Lets input `index` read the last of the nodes that `made` gives, which are made once for a value."""
        value = node.inputs[index]
        if value is None:
            return
        name = str(value.name)
        self.done[name] = False
        if name not in self.fed:
            nodes = made()
            place_behind(value, nodes)
            self.fed[name] = nodes[-1].outputs[0]
        feed([(node, index)], self.fed[name])

    def finished(self) -> dict[str, bool]:
        """What was quantized; weights that nothing reads any more are removed."""
        held = self.work.model.graph.initializers
        for name in [one for one, constant in self.done.items() if constant]:
            value = held.get(name)
            if value is not None:
                drop_unused(value)
        return self.done
