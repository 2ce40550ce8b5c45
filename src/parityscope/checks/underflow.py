"""A small constant vanishes in the number format.

What goes wrong: an epsilon (1e-12 under a square root, 1e-10 before a logarithm) is smaller than the smallest number of
the format (6e-8 in FP16) and becomes zero; the division or the logarithm that it guards then gives infinity or NaN,
or a normalization divides by something else. A constant that becomes subnormal loses digits.

How it shows: NaN or Inf, or a large error, begins at a Div, Log, Sqrt, Pow or an addition of the constant.

How we test for it: the reference runs once more with only this constant rounded to the format. That must reproduce the
candidate's output error. (Where the constant is added nothing is seen yet; it bites one operator later, on inputs that
are already wrong, so that no single layer introduces the error.) Where the constant guards against inputs that vanish in the
format too (max(power, 1e-12) before a logarithm), the reference alone shows nothing: then the candidate's own zeros are
counted where the constant would have stood, and what the next operator makes of them.

What it is confused with: activations beyond range (RNG002).

How to repair: raise the epsilon to a value that the format holds (with care: the function changes), keep the nodes
from the constant to the division in FP32, or use BF16, whose smallest number is FP32's.

Sources: IEEE 754-2019, section 7.5 (underflow).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import EXPLAINED, WIDER_RANGE, constants_of, format_percent
from parityscope.checks.statistics import explained_share
from parityscope.light_dataclasses import dataclass
from parityscope.operators import STANDARD
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.bench import Lab
    from parityscope.checks._common import RegionConstant
    from parityscope.examination import Examination


# Weights have many tiny elements whose loss says nothing; a guard against division by zero is a scalar or a small row.
_SMALL_CONSTANT = 64
_POLES = frozenset(one.name for one in STANDARD.values() if one.pole is not None)  # make infinity or NaN of a zero
_ASKED = 16  # chosen: an experiment is a run of the model; those that vanish are asked first


def _propose_claims(known: Examination, lab: Lab) -> Iterator[Claim]:
    if known.verdict != "beyond":
        return
    outputs = [pair.site.tensor for pair in known.beyond if pair.site.tensor in known.tensors]
    if not outputs:
        return
    for tensor, constant in itertools.islice(_small_constants(known), _ASKED):
        yield _make_claim(known, lab, outputs[0], tensor, constant)


def _small_constants(known: Examination) -> Iterator[tuple[str, RegionConstant]]:
    """Constants that lose digits in the format, with the tensor that reads each; those that vanish first."""
    found = {}
    tensors = {site.node: tensor for tensor, site in known.places.items()}
    for constant in constants_of(known, tensors, most=_SMALL_CONSTANT):
        size = np.abs(constant.values[constant.values != 0])
        if size.size and size.min() < known.storage.smallest_normal:
            found[constant.name] = (float(size.min()), tensors[constant.node], constant)
    for _, tensor, constant in sorted(found.values(), key=lambda one: one[0]):
        yield tensor, constant


def _make_claim(known: Examination, lab: Lab, output: str, tensor: str, constant: RegionConstant) -> Claim:
    smallest = float(np.abs(constant.values[constant.values != 0]).min())
    rounded = round_to(constant.values.astype(np.float32), known.storage).astype(constant.dtype)
    vanishes = bool((rounded[constant.values != 0] == 0).any())
    fate = "zero" if vanishes else "a subnormal number with fewer digits"
    least = known.storage.smallest_subnormal if vanishes else known.storage.smallest_normal
    claim = (
        f"{constant.op_type} {constant.node} reads constant {constant.name!r} = {format_number(smallest)}, which becomes {fate} "
        f"in {known.storage.title} (smallest {'positive' if vanishes else 'normal'} number {format_number(least)})"
    )

    def test() -> Shown:
        share = explained_share(
            lab.candidate(output), lab.reference(output), lab.forward(output, {constant.name: rounded})
        )
        because = f"with {constant.name} rounded, {format_percent(share)} of the output error is reproduced"
        source = "the share of the output error that the experiment reproduced"
        if share < EXPLAINED and (let := _find_let_through(known, lab, tensor)):
            share = let.share
            because = (
                f"the reference alone shows nothing, but in the candidate {let.zeros} elements behind it are zero where the "
                f"constant would stand, and they are {format_percent(share)} of what is not finite behind {let.reader}"
            )
            source = "the share of the elements that are not finite behind it where the constant was lost"
        if share < EXPLAINED:
            return Shown(because=because, outcome="refutes", after=share)
        return Shown(
            because=because,
            after=share,
            sentence=f"{_say_pole(known, lab, tensor, claim) if vanishes else claim}.",
            share=min(1.0, share),
            confidence_from=source,
            repairs=[
                ("keep_in_fp32", f"keep {constant.node} and what it guards in FP32"),
                (
                    "raise_epsilon",
                    (
                        f"raise {constant.name} to at least {format_number(known.storage.smallest_normal)}, "
                        f"{format_number(round(known.storage.smallest_normal / smallest))} times what it is; this changes the "
                        "function, so measure the task metric"
                    ),
                ),
                WIDER_RANGE,
            ],
            details={
                "parameter": constant.name,
                "value": smallest,
                "node": constant.node,
                "format": known.storage.name,
            },
        )

    return Claim(
        words=claim,
        site=known.places[tensor],
        predicts=Prediction(
            change=f"round {constant.name} to {known.storage.title} in the reference; nothing else",
            measure=f"share of the error at output {output} that this reproduces",
            if_true=f"at least {format_percent(EXPLAINED)}",
            if_false="none of it",
        ),
        cost_s=1.0,
        test=test,
    )


def _say_pole(known: Examination, lab: Lab, tensor: str, claim: str) -> str:
    """The claim with what the candidate made of the zero that the constant kept away, where that is not finite."""
    for op_type, reader in _poles_behind(known, tensor):
        found, right = lab.candidate(reader), lab.reference(reader)
        lost = found[~np.isfinite(found) & np.isfinite(right)] if found.shape == right.shape else found[:0]
        if lost.size:
            made = "NaN" if np.isnan(lost).any() else "-inf" if (lost < 0).all() else "infinity"
            return f"{claim.partition(' (smallest ')[0]}, and {op_type} of zero gives {made}"
    return claim


def _poles_behind(known: Examination, tensor: str) -> list[tuple[str, str]]:
    """The operators that read a tensor and make infinity or NaN of zero, with what each gives."""
    return [
        (node.op_type, str(output.name))
        for node in known.graph.graph
        if node.op_type in _POLES and any(value is not None and value.name == tensor for value in node.inputs)
        for output in node.outputs
        if output.name in known.tensors
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LetThrough:
    """`zeros` that a guard let through, and which `share` they are of what its `reader` makes not finite."""

    zeros: int
    share: float
    reader: str


def _find_let_through(known: Examination, lab: Lab, tensor: str) -> _LetThrough | None:
    """Zeros of the candidate at `tensor` where its own inputs and the constant give a number; None if it does not show any."""
    if tensor not in known.tensors:
        return None
    kept = lab.replay(tensor, {})
    found = lab.candidate(tensor)
    if kept.shape != found.shape:
        return None
    lost = (found == 0) & (kept != 0)
    for op_type, reader in _poles_behind(known, tensor):
        behind = ~np.isfinite(lab.candidate(reader)) & np.isfinite(lab.reference(reader))
        if lost.any() and behind.any() and behind.shape == lost.shape:
            return _LetThrough(
                zeros=int(lost.sum()), share=float((behind & lost).sum() / behind.sum()), reader=f"{op_type} {reader}"
            )
    return None


_LOG = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  floor = Relu(x)
  safe = Add(floor, epsilon)
  y = Log(safe)
}"""
# Half of the small inputs vanish in FP16 as the constant does: the reference with the constant rounded shows nothing.
_GUARDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  power = Mul(x, x)
  safe = Max(power, epsilon)
  y = Log(safe)
}"""
_SMALL = np.array([[1e-5, -2e-5, 3e-5, 1e-4, 0.5, 1, 2, 3]], np.float32)
_X = np.array([[-1, -0.5, 0.25, 0.5, 1, 2, 3, 4]], np.float32)

CHECK = Check(
    code="RNG003",
    title="A small constant vanishes in the number format",
    propose=_propose_claims,
    holds=(
        Example(
            model=_LOG,
            inputs={"x": _X},
            candidate="sim:f16",
            site="safe",
            constants={"epsilon": np.array(1e-10, np.float32)},
        ),
        Example(
            model=_GUARDED,
            inputs={"x": _SMALL},
            candidate="sim:f16",
            site="safe",
            constants={"epsilon": np.array(1e-12, np.float32)},
        ),
    ),
    holds_not=(
        Example(model=_LOG, inputs={"x": _X}, candidate="sim:f16", constants={"epsilon": np.array(1e-3, np.float32)}),
    ),
)
