"""A graph that computes as an engine of lower precision would, out of a model in full precision.

Every compute node stays float32 (multiply-accumulate in FP32, as tensor cores do with their wider accumulators), and
tensors are rounded where an engine would store them: after every operator for float16, bfloat16 and float8, at the
inputs of products for TF32. `sites` says what is rounded, `movement` what needs no second rounding, `detyping` what
happens to models that hold float16 values themselves, and `inserting` how a rounding is done.

Engines fuse operators and keep the tensors between them in registers, so that rounding after every operator is an upper
estimate for chains of pointwise operators and for normalizations that run in FP32. `fusion` says what an engine fuses;
with a profile of it, or with the `Fusion` of a graph that an engine executed, only what leaves a kernel is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic._graphs import Names
from parityscope.arithmetic.detyping import retype
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import FORMATS, Format, format_named
from parityscope.arithmetic.fusion import Fusion, profile_named
from parityscope.arithmetic.fusion.planning import planned
from parityscope.arithmetic.fusion.static import with_moved_constants
from parityscope.arithmetic.inserting import insert
from parityscope.arithmetic.maxima import propagate_nans
from parityscope.arithmetic.movement import already_rounded
from parityscope.arithmetic.opsets import OLDEST, prepared
from parityscope.arithmetic.primitives import Rewriting
from parityscope.arithmetic.recurrent import inside, opset_for, registers, take_apart
from parityscope.arithmetic.sites import Plan, not_simulated, uniform, untabled
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.arithmetic.fusion import Profile
    from parityscope.arithmetic.integers import Quantizer
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.records import Skip

__all__ = ["PRECISIONS", "Arrangement", "Simulation", "arrange", "detype", "simulate"]

# Precisions that can be simulated, with the first opset that has what writing their roundings into a graph needs: Clip with
# inputs (11), Cast to bfloat16 (13) and to float8 (19). Who rounds beside the graph needs none.
PRECISIONS = {"tf32": 11, "f16": 7, "bf16": 13, "f8e4m3": 19, "f8e5m2": 19}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangement:
    """What a precision does to a graph, before any rounding is written into it.

    `model` is a graph of FP32 nodes that nothing was put into, `plan` what is rounded in it, `settled` the values that hold
    rounded numbers anyway. `overflow` is what becomes of constants beyond range, and of tensors in float8. `quantizers` stand
    before inputs (node, index) of quantized products. `precision` and `notes` are as in `Simulation`.
    """

    model: ir.Model
    precision: str
    plan: Plan
    settled: frozenset[ir.Value]
    overflow: Overflow
    quantizers: Mapping[tuple[ir.Node, int], Quantizer] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A graph of FP32 nodes with roundings between them.

    `precision` is the format's short name, or "" for a model as it is typed. `tensors` and `weights` hold the names
    of what is stored rounded, `operands` of what is rounded on its way into a product, each with its format's short
    name. A tensor keeps its name for its rounded numbers; a model input is read as `<name>::rounded`. `notes` says
    what could not be simulated.
    """

    model: ir.Model
    precision: str
    tensors: Mapping[str, str]
    weights: Mapping[str, str]
    operands: Mapping[str, str]
    notes: tuple[Skip, ...] = ()


def simulate(
    model: ir.Model,
    precision: Format | str,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    profile: Profile | Fusion | str = "none",
) -> Simulation:
    """The graph that computes as `arrange` says; arguments are as there."""
    name = precision if isinstance(precision, str) else precision.name
    oldest = PRECISIONS.get(name, OLDEST)
    return _written(arrange(model, precision, overflow=overflow, bounded=bounded, profile=profile, oldest=oldest))


def detype(model: ir.Model) -> Simulation:
    """The graph of `model` as its own types say: float16 and bfloat16 values rounded, float32 ones left alone."""
    return _written(arrange(model, None))


def arrange(
    model: ir.Model,
    precision: Format | str | None,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    profile: Profile | Fusion | str = "none",
    oldest: int = OLDEST,
) -> Arrangement:
    """What is rounded in `model` in a uniform precision; `model` itself is only put in topological order.

    Values that are float16 or bfloat16 by their own type stay in that format.

    Args:
        model: Any opset from 7.
        precision: One of `PRECISIONS`; None for the model as it is typed.
        overflow: What becomes of weights beyond the format's range: infinity as in IEEE 754, or the largest finite
            number, as TensorRT does. Tensors overflow to infinity as hardware conversions do; in float8 they follow
            this too.
        bounded: False simulates the rounding of float16 alone and leaves it FP32's range, also where the model's own types
            are float16: what the format costs where nothing overflows or underflows. The other formats have FP32's
            range, or are not simulated so.
        profile: Which engine's fusion is simulated: a profile or its name, or the `Fusion` that an engine was seen to
            use (`fusion.following.follow`). "none" rounds behind every operator. TF32 rounds at products alone, where
            fusion changes nothing.
        oldest: Models of older opsets are converted up.

    Raises:
        ParityError: the format cannot be simulated, there is no such profile, or the opset cannot be converted up.
    """
    if precision is None:
        return _uniform(model, None, "infinity", oldest, bounded=bounded)
    number_format = format_named(precision) if isinstance(precision, str) else precision
    if number_format.name not in PRECISIONS:
        raise ParityError(
            f"{number_format.name} cannot be simulated in float32", fix=f"use one of: {', '.join(PRECISIONS)}"
        )
    # TF32 has float16's significand and FP32's range: stored everywhere, it is float16's rounding without its range.
    rounded = number_format if bounded or number_format.name != "f16" else format_named("tf32")
    fusion = _fusion(model, number_format.name, profile)
    if fusion is None or number_format.name == "tf32":
        return _uniform(model, rounded, overflow, oldest, stored=rounded is not number_format, bounded=bounded)
    formats = {**FORMATS, number_format.name: rounded}
    return _fused(model, fusion, rounded, formats, overflow, oldest, bounded=bounded)


def _fusion(model: ir.Model, precision: str, profile: Profile | Fusion | str) -> Fusion | None:
    if isinstance(profile, Fusion):
        return profile
    if profile == "none":
        return None
    engine = profile_named(profile) if isinstance(profile, str) else profile
    # Engines match the graph as it was exported: a conversion between opsets takes operators apart.
    return engine.predict(with_moved_constants(prepared(model, OLDEST)), precision)


def _fused(
    model: ir.Model,
    fusion: Fusion,
    number_format: Format,
    formats: Mapping[str, Format],
    overflow: Overflow,
    oldest: int,
    *,
    bounded: bool,
) -> Arrangement:
    rounds = fusion.recurrence
    copy = with_moved_constants(prepared(model, opset_for(model, oldest) if rounds else oldest))
    infer_types(copy)
    names = Names(copy)
    taken = take_apart(copy, names, terms=rounds.terms) if rounds else ()
    if fusion.keeps_nan:
        propagate_nans(copy, names)
    typed, settled, kept = _retyped(copy, names, bounded=bounded)
    notes = [*kept, *not_simulated(copy, number_format)]
    reduced = {name: each for name, each in formats.items() if name in PRECISIONS}
    held = registers(taken, rounds.stored if rounds else ())
    plan = planned(copy, fusion, reduced, typed, overflow, held)
    # What reads a register holds unrounded numbers, even if it only moves them.
    reads = {node for node, _ in plan.inner}
    settled |= frozenset(value for value in already_rounded(copy, plan) if value.producer() not in reads)
    return Arrangement(
        model=copy,
        precision=number_format.name,
        plan=plan,
        settled=settled,
        overflow=fusion.overflow or overflow,
        notes=tuple(notes),
    )


def _uniform(
    model: ir.Model,
    number_format: Format | None,
    overflow: Overflow,
    oldest: int,
    *,
    stored: bool = False,
    bounded: bool = True,
) -> Arrangement:
    copy = prepared(model, opset_for(model, oldest))
    infer_types(copy)
    names = Names(copy)
    rounds = inside("f16" if number_format is None or stored else number_format.name)
    held = registers(take_apart(copy, names, terms=rounds.terms, typed=number_format is None), rounds.stored)
    propagate_nans(copy, names)
    typed, settled, kept = _retyped(copy, names, bounded=bounded)
    notes = [*kept, *not_simulated(copy, number_format)]
    plan = uniform(copy, number_format, typed, stored=stored, registers=held)
    settled |= already_rounded(copy, plan)
    if overflow == "infinity":  # what is rounded in a run is not saturated
        plan, settled = untabled(copy, plan, settled)
    return Arrangement(
        model=copy,
        precision=number_format.name if number_format else "",
        plan=plan,
        settled=settled,
        overflow=overflow,
        notes=tuple(notes),
    )


def _written(found: Arrangement) -> Simulation:
    """The arrangement with its roundings in the graph."""
    work = Rewriting(model=found.model, names=Names(found.model), overflow=found.overflow)
    inserted = insert(found.plan, found.settled, work)
    return Simulation(
        model=found.model,
        precision=found.precision,
        tensors=inserted.tensors,
        weights=inserted.weights,
        operands=inserted.operands,
        notes=found.notes,
    )


def _retyped(
    copy: ir.Model, names: Names, *, bounded: bool
) -> tuple[dict[ir.Value, Format], frozenset[ir.Value], list[Skip]]:
    """What `retype` gives; where the range is to be left aside, float16's is too."""
    typed, settled, kept = retype(copy, names)
    if not bounded:
        typed = {value: format_named("tf32") if held.name == "f16" else held for value, held in typed.items()}
    return typed, settled, kept
