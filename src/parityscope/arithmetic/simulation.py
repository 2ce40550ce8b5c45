"""What an engine of lower precision rounds in a model of full precision: said of a graph, written into none.

Every compute node stays float32 (multiply-accumulate in FP32, as tensor cores do with their wider accumulators), and
tensors are rounded where an engine would store them: after every operator for float16, bfloat16 and float8, at the
inputs of products for TF32. `sites` says what is rounded, `movement` what needs no second rounding, `detyping` what
happens to models that hold float16 values themselves; `evaluation.simulating` runs it.

Engines fuse operators and keep the tensors between them in registers, so that rounding after every operator is an upper
estimate for chains of pointwise operators and for normalizations that run in FP32. `fusion` says what an engine fuses;
with a profile of it, or with the `GraphFusion` of a graph that an engine executed, only what leaves a kernel is rounded.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.arithmetic.detyping import is_wide, retype_to_float
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import FORMATS, Format, format_named
from parityscope.arithmetic.fusion import GraphFusion, profile_named
from parityscope.arithmetic.fusion.planning import plan_fusion
from parityscope.arithmetic.fusion.static import fold_moved_constants
from parityscope.arithmetic.graphs import Names
from parityscope.arithmetic.maxima import NAN_DEPENDENT, propagate_nans
from parityscope.arithmetic.movement import already_rounded
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.arithmetic.recurrent import (
    is_recurrent,
    opset_for,
    recurrence_of_format,
    take_apart,
    values_in_registers,
)
from parityscope.arithmetic.sites import RoundingPlan, leave_tables_unrounded, skips_of_not_simulated, uniform_plan
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.arithmetic.fusion import FusionProfile
    from parityscope.arithmetic.integers import Quantizer
    from parityscope.arithmetic.recurrent import Recurrence, TakenApart
    from parityscope.arithmetic.rounding import Overflow
    from parityscope.records import Skip

PRECISIONS = ("tf32", "f16", "bf16", "f8e4m3", "f8e5m2")  # that can be simulated


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrangement:
    """What a precision does to a graph.

    `model` is a graph of FP32 nodes that no rounding was put into, `plan` what is rounded in it, `settled` the values that hold
    rounded numbers anyway, `typed` those that the model itself keeps in a lower format, `apart` what recurrent operators
    became. `overflow` is what becomes of constants beyond range, and of tensors in float8. `quantizers` stand before inputs
    (node, index) of quantized products. `precision` is the format's short name, empty for a model as it is typed; `notes`
    say what is not rounded that an engine would round.
    """

    model: ir.Model
    precision: str
    plan: RoundingPlan
    settled: frozenset[ir.Value]
    overflow: Overflow
    typed: Mapping[ir.Value, Format] = field(default_factory=lambda: MappingProxyType({}))
    apart: frozenset[ir.Node] = frozenset()
    quantizers: Mapping[tuple[ir.Node, int], Quantizer] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ground:
    """A graph of FP32 nodes, of which any number of formats may say what they round, and in which none writes.

    `taken` is what recurrent operators became, `typed` the values that the model itself keeps in a lower format, `settled`
    those of them that hold rounded numbers already; `notes` say what keeps its type.
    """

    model: ir.Model
    taken: tuple[TakenApart, ...] = ()
    typed: Mapping[ir.Value, Format] = field(default_factory=lambda: MappingProxyType({}))
    settled: frozenset[ir.Value] = frozenset()
    notes: tuple[Skip, ...] = ()


def is_ground(model: ir.Model) -> bool:
    """Whether a graph that is `prepare_copy`, with its types inferred, is its own ground, whatever the format."""
    changed = any(is_recurrent(node) or node.op_type in NAN_DEPENDENT for node in model.graph.all_nodes())
    return not changed and is_wide(model)


def ground_of(model: ir.Model, number_format: Format | None) -> Ground:
    """A copy of `model` that a format is said of; which one matters only where there are recurrent operators."""
    copy = prepare_copy(model, opset_for(model, OLDEST))
    return _lay_ground(copy, _recurrence_of(number_format), keeps_nan=True, typed=number_format is None)


def _recurrence_of(number_format: Format | None) -> Recurrence:
    return recurrence_of_format("f16" if number_format is None else number_format.name)


def _lay_ground(copy: ir.Model, rounds: Recurrence | None, *, keeps_nan: bool, typed: bool = False) -> Ground:
    """Makes a graph of FP32 nodes of `copy`; recurrent operators are taken apart as `rounds` says, None: left whole."""
    infer_types(copy)
    names = Names(copy)
    taken = take_apart(copy, names, terms=rounds.terms, typed=typed) if rounds else ()
    if keeps_nan:
        propagate_nans(copy, names)
    held, settled, kept = retype_to_float(copy, names)
    return Ground(model=copy, taken=taken, typed=held, settled=settled, notes=tuple(kept))


def arrange_precision(
    model: ir.Model,
    precision: Format | str | None,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    profile: FusionProfile | GraphFusion | str = "none",
    ground: Ground | None = None,
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
        profile: Which engine's fusion is simulated: a profile or its name, or the `GraphFusion` that an engine was seen to
            use (`fusion.following.follow_executed`). "none" rounds behind every operator. TF32 rounds at products alone, where
            fusion changes nothing.
        ground: What `ground_of` gives for the model and the format, where it is known.

    Raises:
        ParityError: the format cannot be simulated, there is no such profile, or the opset cannot be converted up.
    """
    if precision is None:
        return arrange_everywhere(model, None, bounded=bounded, ground=ground)
    number_format = format_named(precision) if isinstance(precision, str) else precision
    if number_format.name not in PRECISIONS:
        raise ParityError(
            f"{number_format.name} cannot be simulated in float32", fix=f"use one of: {', '.join(PRECISIONS)}"
        )
    # TF32 has float16's significand and FP32's range: stored everywhere, it is float16's rounding without its range.
    rounded = number_format if bounded or number_format.name != "f16" else format_named("tf32")
    fusion = _fusion_of_profile(model, number_format.name, profile)
    if fusion is None or number_format.name == "tf32":
        return arrange_everywhere(model, number_format, overflow=overflow, bounded=bounded, ground=ground)
    formats = {**FORMATS, number_format.name: rounded}
    return _arrange_fused(model, fusion, rounded, formats, overflow, bounded=bounded)


def _fusion_of_profile(
    model: ir.Model, precision: str, profile: FusionProfile | GraphFusion | str
) -> GraphFusion | None:
    if isinstance(profile, GraphFusion):
        return profile
    if profile == "none":
        return None
    engine = profile_named(profile) if isinstance(profile, str) else profile
    # Engines match the graph as it was exported: a conversion between opsets takes operators apart.
    return engine.predict(fold_moved_constants(prepare_copy(model, OLDEST)), precision)


def _arrange_fused(
    model: ir.Model,
    fusion: GraphFusion,
    number_format: Format,
    formats: Mapping[str, Format],
    overflow: Overflow,
    *,
    bounded: bool,
) -> Arrangement:
    rounds = fusion.recurrence
    copy = fold_moved_constants(prepare_copy(model, opset_for(model, OLDEST) if rounds else OLDEST))
    ground = _lay_ground(copy, rounds, keeps_nan=fusion.keeps_nan)
    typed = _ranged(ground.typed, bounded=bounded)
    reduced = {name: each for name, each in formats.items() if name in PRECISIONS}
    held = values_in_registers(ground.taken, rounds.stored if rounds else ())
    plan = plan_fusion(copy, fusion, reduced, typed, overflow, held)
    # What reads a register holds unrounded numbers, even if it only moves them.
    reads = {node for node, _ in plan.inner}
    settled = frozenset(value for value in already_rounded(copy, plan) if value.producer() not in reads)
    return Arrangement(
        model=copy,
        precision=number_format.name,
        plan=plan,
        settled=ground.settled | settled,
        overflow=fusion.overflow or overflow,
        notes=(*ground.notes, *skips_of_not_simulated(copy, number_format)),
    )


def arrange_everywhere(
    model: ir.Model,
    number_format: Format | None,
    *,
    overflow: Overflow = "infinity",
    bounded: bool = True,
    ground: Ground | None = None,
) -> Arrangement:
    """What `arrange_precision` finds without a profile."""
    narrow = number_format is not None and number_format.name == "f16" and not bounded
    rounded = format_named("tf32") if narrow else number_format
    ground = ground_of(model, number_format) if ground is None else ground
    copy, taken, settled = ground.model, ground.taken, ground.settled
    held = values_in_registers(taken, _recurrence_of(number_format).stored)
    typed = _ranged(ground.typed, bounded=bounded)
    notes = (*ground.notes, *skips_of_not_simulated(copy, rounded))
    plan = uniform_plan(copy, rounded, typed, stored=narrow, registers=held)
    settled |= already_rounded(copy, plan)
    if overflow == "infinity":  # what is rounded in a run is not saturated
        plan, settled = leave_tables_unrounded(copy, plan, settled)
    return Arrangement(
        model=copy,
        precision=rounded.name if rounded else "",
        plan=plan,
        settled=settled,
        overflow=overflow,
        typed={value: each for value, each in typed.items() if value not in held},
        apart=frozenset(each.scan for each in taken),
        notes=notes,
    )


def _ranged(typed: Mapping[ir.Value, Format], *, bounded: bool) -> Mapping[ir.Value, Format]:
    """The values that are typed in a lower format; where the range is to be left aside, float16's is too."""
    if bounded:
        return typed
    return {value: format_named("tf32") if held.name == "f16" else held for value, held in typed.items()}
