"""Targets -> their neighbours: other ways to run the reference that ought to agree, the candidate with one switch thrown.

Peers of a reference: the same model in ONNX Runtime with its optimizer off, if it is not that itself, and, for a model whose
own types are half precision, simulated as it is typed, because ONNX Runtime computes those in FP32 on a CPU. Switches of a
candidate: its optimizer, its threads, TF32 and the precision hint, as far as its runtime has them. None is opened here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.records import Target

if TYPE_CHECKING:
    from parityscope.case import Model

__all__ = ["origins_of", "peers_of", "switched_of", "unoptimized"]

_HALVES = {"f16", "bf16"}


def peers_of(model: Model, reference: Target) -> tuple[Target, ...]:
    """Other ways to run `model` that ought to give what `reference` gives, up to rounding."""
    if reference.backend not in {"ort", "saved"}:
        return ()
    plain = unoptimized(reference)
    # An optimized run has no say over the model as it stands: where they differ the optimizer is wrong.
    found = [plain] if plain != reference else []
    if not _HALVES.isdisjoint(model.formats) and not reference.precision:
        found.append(Target(backend="sim"))
    return tuple(found)


def unoptimized(reference: Target) -> Target:
    """ONNX Runtime on the CPU with its optimizer off, and with the reference's custom operators: the model as it stands."""
    custom = tuple((key, value) for key, value in reference.options if key == "custom_ops")
    return Target(backend="ort", options=tuple(sorted((*custom, ("optimization", "disabled")))))


def switched_of(candidate: Target) -> tuple[Target, ...]:
    """The candidate with one switch thrown, for each that its runtime has and that is not thrown already."""
    if candidate.backend == "ort":
        found = [_with(candidate, "optimization", "disabled"), _with(candidate, "threads", "1")]
        if candidate.option("tf32") == "on":
            without = replace(candidate, precision="" if candidate.precision == "tf32" else candidate.precision)
            found.append(_with(without, "tf32", "off"))
    elif candidate.backend == "openvino":
        found = [_with(candidate, "threads", "1")]
        if candidate.precision not in {"", "f32"}:
            found.append(replace(candidate, precision="f32"))
    elif candidate.backend == "torch":
        found = [replace(candidate, precision="")]
        if candidate.option("compile") == "on":
            found.append(_with(candidate, "compile", "off"))
    elif candidate.backend == "command":
        found = [_with(candidate, "optimization", "disabled")]
    else:
        found = []
    return tuple(one for one in found if one != candidate)


def origins_of(reference: Target, candidate: Target) -> tuple[Target, ...]:
    """The network before its conversion, where a side is one: in FP32 as it was given, then in each other mode."""
    own = next((side for side in (reference, candidate) if side.backend == "torch"), None)
    if own is None:
        return ()
    plain = replace(own, precision="")
    if not own.option("module"):
        return (plain,)
    mode = own.option("mode", "eval")
    return (plain, *(_with(plain, "mode", other) for other in ("eval", "batch-statistics") if other != mode))


def _with(target: Target, key: str, value: str) -> Target:
    """`target` with one option set."""
    return replace(target, options=tuple(sorted({**dict(target.options), key: value}.items())))
