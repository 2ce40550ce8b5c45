"""NaN or Inf begins here.

What goes wrong: somewhere the candidate has a NaN or an infinity where the reference arithmetic, on the candidate's own
inputs, has a number. Everything behind usually follows.

How it shows: non-finite counts at the outputs; the first tensor in topological order at which they are *born*, not
inherited.

How we test for it: the severed replay gives each tensor from the candidate's own inputs; an element that is not finite
in the candidate and finite in the replay was born at that tensor. Where none was, the first tensor that has any although nothing
that enters has: there the model's own arithmetic makes it of what the candidate hands over (the logarithm of a zero).

What it is confused with: a maximum that hands on a NaN which the replay loses (MaxPool, ReduceMax): such places are left
out, and the place where that NaN was born is told. It says where, not why. The range checks (RNG001, RNG002, RNG003) say why.

How to repair: as the range checks say; else keep this node in FP32.

Sources: the exact decomposition c - r = (c - f(c_in)) + (f(c_in) - r).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.maxima import NAN_DEPENDENT
from parityscope.checks import Check, Claim, Example, Prediction, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination
    from parityscope.records import Localization, Pair, Site, Suspect


def _propose_claims(known: Examination, localization: Localization) -> Iterator[Claim]:
    lost = [pair for pair in known.tensors.values() if pair.nonfinite_candidate]
    if not lost:
        return
    born = sorted(
        (one for one in localization.suspects if one.introduced_nonfinite and not _hands_nonfinite_on(known, one)),
        key=lambda suspect: suspect.site.index,
    )

    def test() -> Shown:
        onset = None if born else _first_nonfinite_tensor(known)
        if onset is not None:
            return _is_made_of_numbers(known, onset, len(lost))
        if not born:
            because = (
                f"{len(lost)} tensors hold NaN or Inf that the reference has not, and none is born where we could see"
            )
            return Shown(because=because, outcome="refutes", before=len(lost), after=0.0)
        first = born[0]
        because = f"{first.introduced_nonfinite} elements are born at {first.site.tensor}; {len(lost)} tensors hold any"
        return Shown(
            because=because,
            before=float(len(lost)),
            after=float(first.introduced_nonfinite),
            role="contributing",
            sentence=f"NaN or Inf begins at {first.site.op_type} {first.site.node} (tensor {first.site.tensor!r}): "
            f"{first.introduced_nonfinite} elements are not finite although their inputs give numbers in FP32.",
            confidence=1.0,
            confidence_from="counted, not estimated",
            site=first.site,
            share=first.share,
            repairs=(("keep_in_fp32", f"keep {first.site.node} in FP32"),),
            details={"elements": first.introduced_nonfinite, "tensors": len(lost)},
        )

    yield Claim(
        words="NaN or Inf that only the candidate has are born at one place",
        predicts=Prediction(
            change="none: the severed replay computes every tensor from the candidate's own inputs",
            measure="elements not finite in the candidate and finite in the replay, by tensor",
            if_true="the first tensor that has any is where they are born",
            if_false="no tensor has any: they come in with the inputs or through what could not be observed",
        ),
        test=test,
    )


def _first_nonfinite_tensor(known: Examination) -> Pair | None:
    """The first tensor with NaN or Inf of the candidate's alone, if all that enters it was seen and is finite."""
    for pair in sorted(known.tensors.values(), key=lambda one: one.site.index):
        if pair.nonfinite_candidate:
            entering = _tensors_read_by(known, pair.site)
            clean = all(name in known.tensors and not known.tensors[name].nonfinite_candidate for name in entering)
            return pair if clean else None
    return None


def _tensors_read_by(known: Examination, site: Site) -> set[str]:
    """The computed tensors that a node reads."""
    reads = (
        value
        for node in known.graph.graph
        if any(output.name == site.tensor for output in node.outputs)
        for value in node.inputs
    )
    return {str(value.name) for value in reads if value is not None and value.producer() is not None}


def _is_made_of_numbers(known: Examination, pair: Pair, lost: int) -> Shown:
    """The finding where the reference arithmetic makes NaN or Inf too, of what the candidate hands over."""
    count, site = pair.nonfinite_candidate, pair.site
    zeros = [(name, found) for name in sorted(_tensors_read_by(known, site)) if (found := _count_vanished(known, name))]
    said = "".join(f"; {name!r} is 0 in {found} elements that are none in the reference" for name, found in zeros)
    because = f"{count} elements begin at {site.tensor}, where everything that enters is finite{said}; {lost} tensors hold any"
    return Shown(
        because=because,
        before=float(lost),
        after=float(count),
        role="contributing",
        sentence=f"NaN or Inf begins at {site.op_type} {site.node} (tensor {site.tensor!r}), {count} elements: {site.op_type} "
        f"itself makes them of the numbers that reach it{said}.",
        confidence_from="counted, not estimated",
        site=site,
        repairs=(("keep_in_fp32", f"keep what computes the inputs of {site.node} in FP32"),),
        details={"elements": count, "tensors": lost, "zeros": dict(zeros)},
    )


def _count_vanished(known: Examination, name: str) -> int:
    """How many elements of a tensor are zero in the candidate and not in the reference."""
    if known.lab is None:
        return 0
    ours, found = known.lab.reference(name), known.lab.candidate(name)
    return int(np.count_nonzero((found == 0) & (ours != 0))) if ours.shape == found.shape else 0


def _hands_nonfinite_on(known: Examination, suspect: Suspect) -> bool:
    """Whether it is a maximum of elements that hold NaN already.

    What a maximum of NaN is differs between runtimes: GPUs hand it on, ONNX Runtime's CPU provider may lose it. Where the
    replay loses what the candidate hands on, nothing is born.
    """
    if suspect.site.op_type not in NAN_DEPENDENT:
        return False
    entering = _tensors_read_by(known, suspect.site) & set(known.tensors)
    return any(known.tensors[name].nonfinite_candidate for name in entering)


_CHAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  a = Relu(x)
  b = Sigmoid(a)
  y = Tanh(b)
}"""
_POOLED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,8] x) => (float[1,1,1] y) {
  a = Relu(x)
  b = MaxPool<kernel_shape = [8]>(a)
  y = Tanh(b)
}"""
# NaN in one element of a, handed on by the pooling as a GPU does.
_HANDING_ON = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,8] x) => (float[1,1,1] y) {
  half = Constant<value_float = 0.5>()
  negative = Constant<value_float = -1.0>()
  zero = Constant<value_float = 0.0>()
  nan = Log(negative)
  r = Relu(x)
  large = Greater(x, half)
  a = Where(large, nan, r)
  lost = IsNaN(a)
  ones = Cast<to = 1>(lost)
  any = MaxPool<kernel_shape = [8]>(ones)
  some = Greater(any, zero)
  best = MaxPool<kernel_shape = [8]>(a)
  b = Where(some, nan, best)
  y = Tanh(b)
}"""
# A product that is 0 in half precision, and its logarithm: nothing is born there that the model would not make itself.
_UNDERFLOW = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  k = Constant<value_float = 0.00001>()
  a = Mul(x, k)
  s = Mul(a, k)
  l = Log(s)
  y = Neg(l)
}"""
_X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)


def _put_nan(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[0, 3] = np.nan
    return changed


CHECK = Check(
    code="RNG004",
    title="NaN or Inf begins here",
    propose=_propose_claims,
    holds=(
        Example(model=_CHAIN, inputs={"x": _X}, fault=("b", _put_nan), site="b"),
        Example(
            model=_POOLED, inputs={"x": _X.reshape(1, 1, 8)}, candidate="ort", candidate_model=_HANDING_ON, site="a"
        ),
        Example(model=_UNDERFLOW, inputs={"x": np.abs(_X) + np.float32(0.1)}, candidate="sim:f16", site="l"),
    ),
    holds_not=(Example(model=_CHAIN, inputs={"x": _X}, fault=("b", lambda array: array * np.float32(1.5))),),
)
