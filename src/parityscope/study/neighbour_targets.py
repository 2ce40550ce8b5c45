"""Targets -> their neighbours: other ways to run the reference that ought to agree, the candidate with one switch thrown.

Peers of a reference: the same model in ONNX Runtime with its optimizer off, if it is not that itself, and, for a model whose
own types are half precision, simulated as it is typed, because ONNX Runtime computes those in FP32 on a CPU. Switches of a
candidate: its optimizer, its threads, TF32 and the precision hint, as far as its runtime has them. None is opened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.backends import backend_named, is_recording, optimizes_as_onnxruntime
from parityscope.backends.targets import plain_target, with_option
from parityscope.records import Target

if TYPE_CHECKING:
    from parityscope.case import Model

_HALVES = {"f16", "bf16"}


def peers_of(model: Model, reference: Target) -> tuple[Target, ...]:
    """Other ways to run `model` that ought to give what `reference` gives, up to rounding."""
    if not (is_recording(reference) or optimizes_as_onnxruntime(reference)):
        return ()
    plain = unoptimized_target(reference)
    # An optimized run has no say over the model as it stands: where they differ the optimizer is wrong.
    found = [plain] if plain != reference else []
    if not _HALVES.isdisjoint(model.formats) and not reference.precision:
        found.append(Target(backend="sim"))
    return tuple(found)


def unoptimized_target(reference: Target) -> Target:
    """ONNX Runtime on the CPU with its optimizer off, and with the reference's custom operators: the model as it stands."""
    return with_option(plain_target(reference), "optimization", "disabled")


def switched_of(candidate: Target) -> tuple[Target, ...]:
    """The candidate with one switch thrown, for each that its runtime has and that is not thrown already."""
    return tuple(one for one in backend_named(candidate.backend).switched(candidate) if one != candidate)


def origins_of(reference: Target, candidate: Target) -> tuple[Target, ...]:
    """The network before its conversion, where a side is one: in FP32 as it was given."""
    for side in (reference, candidate):
        origins = backend_named(side.backend).origins
        if origins is not None:
            return tuple(origins(side))
    return ()
