"""Which nodes of a model can be rounded on their own, and what that rounds: the plan of every assignment at once.

**What low means.** A node that is low reads its float inputs (weights too) rounded and stores its outputs rounded; a
node that is not reads what its producers stored. With every node low the network computes what
`simulation.arrange_precision` says, with
none what the model gives (with its own float16 and bfloat16 values rounded, as it is typed). For TF32 only products
are switched, and only what they read is rounded.

Operators that only move numbers (`movement`) do not decide: what they give is rounded when all that they read is. `gating`
says which node is which; `evaluation.switching` runs assignments.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import Format, format_named
from parityscope.arithmetic.gating import NodeDecision, Switching, decide_nodes
from parityscope.arithmetic.graphs import divided_nodes
from parityscope.arithmetic.opsets import prepare_copy
from parityscope.arithmetic.simulation import PRECISIONS, arrange_everywhere
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.arithmetic.sites import RoundingPlan
    from parityscope.records import Skip

__all__ = ["NodeDecision", "Switchable", "make_switchable"]

_NO_PRODUCTS: Mapping[str, Scalings] = MappingProxyType({})
_OPSET, _OPSET_OF_FP8 = 13, 19  # as typed files are written for: what they say and what is run here is the same graph


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Switchable:
    """What is rounded in each assignment of a model.

    `nodes` are the nodes that can be low, in topological order. `model` is a graph of FP32 nodes; `typed` the values that are
    stored in a format of their own in every assignment; `plan` what is rounded besides when everything is low, and `settled`
    the values that hold rounded numbers anyway. `full` is what products that are not low round their operands to, if anything.
    `notes` says what is rounded in no assignment.
    """

    model: ir.Model
    precision: str
    nodes: tuple[NodeDecision, ...]
    typed: Mapping[ir.Value, Format]
    plan: RoundingPlan
    settled: frozenset[ir.Value]
    switching: Switching
    overflow: Overflow
    full: Format | None
    notes: tuple[Skip, ...] = ()

    def opened(self, low: np.ndarray) -> list[bool]:
        """For each gate of `switching`, whether an assignment `low` (bool, (nodes,)) opens it: all of its nodes are low.

        Raises:
            ValueError: `low` is of another shape or type.
        """
        if low.shape != (len(self.nodes),) or low.dtype != np.bool_:
            raise ValueError(f"an assignment is {len(self.nodes)} booleans, not {low.dtype} {low.shape}")
        return [bool(low[list(members)].all()) for members in self.switching.gates]

    def assignment(self, low: Collection[str]) -> np.ndarray:
        """The nodes called `low` as bool, (nodes,).

        Raises:
            ParityError: one of them cannot be switched.
        """
        names = [node.name for node in self.nodes]
        unknown = sorted(set(low) - set(names))
        if unknown:
            raise ParityError(
                f"{unknown[0]!r} is no node that can be rounded",
                fix="take names of the nodes that can be rounded: operators that only move numbers follow their producers",
            )
        wanted = set(low)
        return np.array([name in wanted for name in names], np.bool_)


def make_switchable(
    model: ir.Model,
    precision: Format | str,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    products: Mapping[str, Scalings] = _NO_PRODUCTS,
    full: str = "f32",
    inside: bool = False,
) -> Switchable:
    """What each assignment rounds in a copy of `model`; arguments and what is converted as for `simulation.arrange_precision`.

    A node with bodies (If, Loop, Scan) is switched as a whole; or, `inside`, nodes in bodies are switched by their own names
    (which have to be unique in the whole model), and the node around them is about what it takes, carries and gives.

    Each of `products` (the name of a node, and the scales of its operands) can take its operands in FP8 E4M3 whatever it
    stores: that is a node of its own, called `<name> in FP8`. With them the precision may be "f32": then nothing else is
    switched. Products that are not low round what they read to TF32 where `full` says so ("tf32").

    Raises:
        ParityError: the format cannot be simulated, or the opset cannot be converted up.
    """
    number_format = format_named(precision) if isinstance(precision, str) else precision
    if number_format.name not in PRECISIONS and not (number_format.name == "f32" and products):
        raise ParityError(
            f"{number_format.name} cannot be simulated in float32", fix=f"use one of: {', '.join(PRECISIONS)}"
        )
    converted = prepare_copy(model, _OPSET_OF_FP8 if products or number_format.saturating else _OPSET)
    wanted = None if number_format.name == "f32" else number_format
    found = arrange_everywhere(converted, wanted, overflow=overflow, bounded=bounded)
    parted = [node for node in divided_nodes(found.model.graph) if node not in found.apart] if inside else []
    # What the model itself types in a lower format is rounded in every assignment.
    storage = {value: held for value, held in found.plan.storage.items() if value not in found.typed}
    plan = replace(found.plan, storage=storage)
    switching = decide_nodes(plan, found.settled, found.model, overflow, products, parted)
    return Switchable(
        model=found.model,
        precision=number_format.name,
        nodes=switching.decisions,
        typed={value: each for value, each in found.typed.items() if value not in found.settled},
        plan=plan,
        settled=found.settled,
        switching=switching,
        overflow=overflow,
        full=format_named(full) if full != "f32" else None,
        notes=found.notes,
    )
