"""What a layer may have computed instead: one hypothesis per file, or several that are one rule in several formats.

A hypothesis is a value of plain functions (the last line of its file). For a small graph (a region: the nodes between
observable tensors) it gives `Variant`s, and each says how to compute that graph differently: by a rewritten graph, by
roundings of what is read, or by another way to accumulate products. Nothing is run here; `parityscope.explanation`
runs the variants on the candidate's own inputs and tests whether the *vector* of the error comes out.

They are about the format that numbers were rounded to, and asked once of the whole region, with the node that makes its
output. Other functions than the model says are not listed here but generated (`parityscope.hypotheses`).
A module's docstring says what it computes and where that is from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import dataclass
from parityscope.plugins import discover_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic.recurrent import Recurrence

    Transform = Callable[[np.ndarray, "Operand"], np.ndarray]
    Accumulate = Callable[[ir.Node, Sequence[np.ndarray | None]], np.ndarray | None]
    Rewrite = Callable[[ir.Model, ir.Node, float], None]
    Variants = Callable[[ir.Node, "RegionContext"], Iterable["Variant"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What a transform is about to change: input `index` of `node`; `constant` for parameters of the model."""

    node: ir.Node
    index: int
    constant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRounding:
    """A monotone rounding of float32 or float64 arrays to the format called `name`, of unit roundoff `unit`."""

    name: str
    unit: float
    apply: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """How an engine rounds the sums inside products, where the order is not known: it widens the noise floor.

    `unit` is the accumulator's unit roundoff, `block` the number of terms added between two roundings, `truncates` is
    True where it drops bits and False where it rounds to nearest.
    """

    unit: float
    block: int
    truncates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """How recurrent operators are computed: taken apart, and rounded to the format called `format` in every step.

    The weights and what `recurrence` stores are; where it stores nothing, what products take is.
    """

    format: str
    recurrence: Recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compute a region.

    Args:
        words: What is different, for the report.
        rewrite: Edits a copy of the region's graph, given the node asked about.
        inside: What is rounded inside of the region's recurrent operators; without it they run whole.
        operands: Applied to what products (MatMul, Conv, ...) multiply, on its way in.
        stored: Applied to the region's float inputs and parameters.
        between: Applied to float tensors between the region's nodes.
        output: Rounds the region's output.
        accumulate: Computes a product from its (transformed) inputs; None where it cannot or would take too long.
        accumulator: Products are added up by this one; without it in FP32, rounded to nearest.
        by_size: Only the size of the error is known and not its vector; accepted by magnitude, and only where the
            candidate declares or was seen to execute this arithmetic.
    """

    words: str
    rewrite: Rewrite | None = None
    inside: Inside | None = None
    operands: Transform | None = None
    stored: Transform | None = None
    between: Transform | None = None
    output: FormatRounding | None = None
    accumulate: Accumulate | None = None
    accumulator: Accumulator | None = None
    by_size: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionContext:
    """What a hypothesis may look at.

    `model` is the region's graph (to be read only), `candidate` and `replayed` its output on both sides on the
    candidate's inputs, c and f(c_in): float64, equal shapes. `value` gives what the reference arithmetic makes of any
    value of the region.
    """

    model: ir.Model
    candidate: np.ndarray
    replayed: np.ndarray
    value: Callable[[ir.Value], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One thing that a layer may have computed instead of what the model says."""

    name: str
    title: str
    applies: Callable[[ir.Node, ir.Graph], bool]
    variants: Variants
    family: Literal["arithmetic", "semantic"] = "arithmetic"


def known_hypotheses() -> dict[str, Hypothesis]:
    """Every hypothesis there is, by name and in the order of the names."""
    alone = discover_plugins(__name__, "HYPOTHESIS", Hypothesis).values()
    several = discover_plugins(__name__, "HYPOTHESES", tuple).values()
    found = [*(one for one, _ in alone), *(one for some, _ in several for one in some)]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}
