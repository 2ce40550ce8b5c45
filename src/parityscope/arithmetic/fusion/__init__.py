"""What an engine runs as one kernel, and in which precision: the fusion model of the simulation.

An engine rounds a tensor to its storage format when it writes it to memory, and nowhere else: what a kernel keeps in
registers stays in FP32. Which nodes make one kernel, which kernels run in FP32 although a lower precision was asked
for, and what is done to constants, differs by engine and by precision. All of it is data here:

* `FusedKernel`, `GraphFusion` : what one engine does to one graph, in one precision;
* `FusionProfile` : a plug-in, one file per engine, whose plain function predicts a `GraphFusion` from the graph alone;
* `following.follow_executed` : the `GraphFusion` of a graph that an engine really executed;
* `planning.plan_fusion` : the roundings that follow from a `GraphFusion`.

Nodes are known by the names of the values that they compute, because these survive a conversion between opsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.arithmetic.recurrent import Recurrence
    from parityscope.arithmetic.rounding import Overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """Nodes that run as one kernel.

    `values` are the names of all that its nodes compute. `precision` is the short name of the format in which it takes
    its inputs and the operands of its products, `stored` of the one in which it writes what leaves it; "f32" is none.
    `exact_inputs` are values that it takes as they are even so. `kind` says which pattern or layer it is.
    """

    values: tuple[str, ...]
    precision: str
    stored: str
    kind: str = ""
    exact_inputs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFusion:
    """The kernels of a graph; they cover every node whose results are used.

    `default` is the precision of what is fed to the graph, and of nodes that are in no kernel after all.

    `stores_constants` says that every constant is rounded that a kernel of lower precision reads. `folds` says that the
    scales behind a product are multiplied into its weights, and its biases added up, in FP32 and what comes of it is
    rounded; a constant that neither concerns stays as it is. `overflow`, where the engine has its own way, is what
    becomes of constants beyond range. `recurrence` is what is rounded inside recurrent operators (None: nothing, they
    compute in FP32). `keeps_nan` says that a maximum with a NaN among its elements is NaN.
    """

    kernels: tuple[FusedKernel, ...]
    default: str
    stores_constants: bool = True
    folds: bool = False
    overflow: Overflow | None = None
    keeps_nan: bool = True
    recurrence: Recurrence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionProfile:
    """An engine: `predict(model, precision)` says how it runs a graph of FP32 values in a precision ("f16", "bf16").

    The model is read only. None stands for rounding behind every operator.
    """

    name: str
    title: str
    predict: Callable[[ir.Model, str], GraphFusion | None]


def known_profiles() -> dict[str, FusionProfile]:
    """Every profile by name."""
    return {
        found.name: found
        for found, _ in discover_plugins("parityscope.arithmetic.fusion", "PROFILE", FusionProfile).values()
    }


def profile_named(name: str) -> FusionProfile:
    """The profile called `name`.

    Raises:
        ParityError: there is none of that name.
    """
    known = known_profiles()
    if name not in known:
        raise ParityError(f"there is no fusion profile {name!r}", fix=f"use one of: {', '.join(sorted(known))}")
    return known[name]
