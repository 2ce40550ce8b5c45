"""The file keeps a part in FP32 between Casts, and the engine computes it in half precision all the same.

What goes wrong: squares and sums stand between a Cast to float32 and a Cast back, because they do not fit half precision. The
engine fuses over the Casts, merges the layers with others, or matches the precisions that were asked for by a name that no
layer has any more. What the file says is then a wish.

How it shows: Inf, NaN or zeros behind a normalization in half precision, although the file was mended for just that; the
advice to keep those nodes in FP32 has been followed already.

How we test for it: from outputs alone. The islands are read off the file. The model is simulated as it is typed, and once more
with its islands in the format around them: if that gives the candidate's outputs, with the same elements lost, and the model
as it is typed does not, the islands are not honoured. Each is tried alone, then all of them.

What it is confused with: a file whose islands are in the wrong place (RNG002 alone: the model as it is typed loses the same
elements); an engine that was asked for half precision throughout, or one that tells the precision of each
layer, which say so themselves (CST001).

How to repair: build it strongly typed, so that the file's types are no wish (`trtexec --stronglyTyped`; the only way of
TensorRT 11); with TensorRT 8 to 10 set the precision and the output type of exactly these layers, and obey them; or make
the island unnecessary (RNG002's repairs: divide before squaring, or one operator for the whole normalization).

Sources: NVIDIA/TensorRT issues 4019 (Casts around ReduceSum and Pow), 1196, 2080, 2407, 3224 and 3889 (precisions that were not
obeyed).
"""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.islands import find_islands, model_ignoring_islands
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.opening import model_of
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S
from parityscope.evaluation.simulating import open_simulation
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.light_dataclasses import dataclass
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.arithmetic.islands import Island
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.bench import Bench
    from parityscope.case import Model
    from parityscope.checks import Offer
    from parityscope.examination import Examination

# A mixed-precision file, simulated as it is typed or with some of its FP32 islands ignored, held against the candidate.

_FALL = 10.0  # as elsewhere: 99 % of the error in squares
_SAME_PLACES = 0.9  # of the lost elements; the bound of RNG002: at the edge of the range the last bit decides
_SHOWN = 6  # nodes in a claim (chosen); the details hold them all
_ALONE = 8  # chosen: islands that are tried one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The worst relative L2 distance of the finite elements of any output (infinite if others are lost), and what it may be."""

    error: float
    limit: float

    def explains(self, before: Distance) -> bool:
        """Whether it is within its limit, and takes 99 % of the error of `before` (in squares)."""
        return self.error <= self.limit and self.error * _FALL < before.error


class _MixedFile:
    """Simulations of the mixed file, held against the candidate on the samples of the bench."""

    def __init__(self, known: Examination, bench: Bench, model: Model) -> None:
        self.known, self.bench, self.model = known, bench, model
        ours, theirs = [value.name for value in model.outputs], [value.name for value in known.model.outputs]
        self.named = dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {name: name for name in ours}

    def run(self, ignored: Sequence[Island], tensors: Sequence[str] = ()) -> Run:
        """The file as it is typed, but for the `ignored` islands."""
        return open_simulation(
            arrange_precision(model_ignoring_islands(self.model.graph(), ignored), None), [*self.named, *tensors]
        )

    def distance(self, ignored: Sequence[Island]) -> Distance:
        """The worst sample's."""
        run = self.run(ignored)
        found = [
            self._worst_distance(run(self.bench.inputs(index)), self.bench.candidate(index))
            for index in self.bench.samples
        ]
        return max(found, key=lambda one: one.error / one.limit)

    def tells(self) -> bool:
        """Whether an output of the candidate holds any number to go by."""
        return any(
            bool(np.isfinite(array).any())
            for index in self.bench.samples
            for array in self.bench.candidate(index).values()
            if array.dtype.kind == "f"
        )

    def _worst_distance(self, simulated: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> Distance:
        found = [
            Distance(error=_finite_distance(simulated[ours], candidate[name]), limit=self._limit_of_output(name))
            for ours, name in self.named.items()
            if name in candidate and candidate[name].dtype.kind == "f"
        ]
        return max(found, key=lambda one: one.error / one.limit, default=Distance(error=math.inf, limit=1.0))

    def _limit_of_output(self, output: str) -> float:
        """What rounding to halves may do to an output, whatever was declared: the file's own types are halves."""
        expected = next((pair.expected for pair in self.known.outputs if pair.site.tensor == output), {})
        errors = [expected[name] * margin_of(name) for name in ("f32", "f16", "bf16") if name in expected]
        return max([*errors, margin_of("f32") * FLOAT32_ROUNDING])


def _finite_distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Relative L2 over what is finite in both; infinite if the shapes or the lost elements are not the same."""
    if expected.shape != found.shape:
        return math.inf
    lost, gone = ~np.isfinite(expected), ~np.isfinite(found)
    either = int((lost | gone).sum())
    if either and int((lost & gone).sum()) < _SAME_PLACES * either:
        return math.inf
    kept = ~(lost | gone)
    ours, theirs = expected[kept].astype(np.float64), found[kept].astype(np.float64)
    norm, apart = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs - ours))
    return apart / norm if norm else (math.inf if apart else 0.0)


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    model = known.model
    found = find_islands(model.shared_graph())
    if not found and known.candidate.option("model"):
        model = model_of(known.model, known.candidate)
        found = find_islands(model.shared_graph())
    if not found:
        return
    yield Claim(
        words="the FP32 islands of the file are computed in the format around them",
        predicts=Prediction(
            change="simulate the model as it is typed, and with its islands in the format around them",
            measure="worst relative L2 distance from the candidate's outputs",
            if_true="it falls to rounding with the islands ignored, with the same elements lost",
            if_false="it does not, or the model as it is typed gives the same",
        ),
        cost_s=6 * RUN_S,
        runs="reference",
        test=lambda: _test_claim(_MixedFile(known, bench, model), found),
    )


def _test_claim(trial: _MixedFile, found: tuple[Island, ...]) -> Shown:
    if not trial.tells():
        because = "no output of the candidate holds a number: the same could come of anything"
        return Shown(because=because, outcome="inconclusive", before=0.0, after=0.0)
    before = trial.distance(())
    best, ignored = before, found
    # One alone first: an island in which nothing is lost leaves no trace, and is not to be named with the others.
    for one in (*((each,) for each in found[:_ALONE]), found):
        after = trial.distance(one)
        if after.error / after.limit < best.error / best.limit:
            best, ignored = after, one
        if best.explains(before):
            break
    because = (
        f"computed in {_title_of(ignored)} there, the reference differs from the candidate by {format_percent(best.error)}, "
        f"and computed as the file says by {format_percent(before.error)}"
    )
    holds = best.explains(before)
    seen = Shown(because=because, outcome="supports" if holds else "refutes", before=before.error, after=best.error)
    return _show_finding(trial, ignored, before, best, seen) if holds else seen


def _show_finding(
    trial: _MixedFile, ignored: tuple[Island, ...], before: Distance, after: Distance, seen: Shown
) -> Shown:
    share = 1.0 if math.isinf(before.error) else max(0.0, 1.0 - (after.error / before.error) ** 2)
    share = round(share, 3)  # what is left is rounding, which a simulation and an engine do not share
    tensors = [name for island in ignored for name in island.tensors]
    places = trial.model.sites
    nodes = [places[name].node for name in tensors if name in places]
    first, words = _name_first_tensor(trial, ignored, tensors)
    return replace(
        seen,
        sentence=f"The file says FP32 between its Casts at {_list_nodes(nodes)}, and the candidate computes "
        f"{_title_of(ignored)} there: {seen.because}.{words}",
        confidence_from="the share of the error, in squares, that the islands in half precision explain with nothing fitted",
        site=trial.known.places.get(first) or places.get(first),
        share=share,
        repairs=_offer_repairs(
            shlex.quote(trial.model.path.name), [_layer_name(trial.model, name) for name in tensors if name in places]
        ),
        details={"nodes": nodes, "islands": len(ignored), "format": ignored[0].around},
    )


def _title_of(islands: Sequence[Island]) -> str:
    return "FP16" if islands[0].around == "f16" else "BF16"


def _list_nodes(nodes: Sequence[str]) -> str:
    more = len(nodes) - _SHOWN
    return ", ".join(nodes[:_SHOWN]) + (f" and {more} more nodes" if more > 0 else "")


def _name_first_tensor(trial: _MixedFile, ignored: Sequence[Island], tensors: list[str]) -> tuple[str, str]:
    """The first tensor of the islands in which numbers are lost, or else the one that moves the most; and a sentence."""
    sample = trial.bench.inputs(trial.bench.samples[0])
    typed, narrow = trial.run((), tensors)(sample), trial.run(ignored, tensors)(sample)
    worst, size = tensors[0], -1.0
    for name in tensors:
        lost = int((~np.isfinite(narrow[name]) & np.isfinite(typed[name])).sum())
        if lost:
            top = float(np.abs(typed[name][np.isfinite(typed[name])]).max())
            return (
                name,
                f" {name!r} reaches {format_number(top)}, and {lost:,} of its {typed[name].size:,} elements overflow there.",
            )
        moved = _finite_distance(typed[name], narrow[name])
        if moved > size:
            worst, size = name, moved
    return worst, f" It moves {worst!r} the most, by {format_number(size)} (relative L2)."


def _layer_name(model: Model, tensor: str) -> str:
    """What TensorRT's parser calls the node that makes `tensor`: by its name, or after its first output."""
    node = next(node for node in model.shared_graph().graph if any(value.name == tensor for value in node.outputs))
    return node.name or f"node_of_{node.outputs[0].name}"


def _offer_repairs(model: str, layers: Sequence[str]) -> tuple[Offer, ...]:
    typed = (
        "strongly_typed",
        "build it strongly typed, so that the engine keeps the types of the file",
        f"trtexec --onnx={model} --stronglyTyped --saveEngine=fixed.plan",
    )
    # trtexec parts its lists at commas, and takes at most one wildcard in a name.
    if any("," in layer or "*" in layer for layer in layers):
        return (typed,)
    listed = shlex.quote(",".join(f"{layer}:fp32" for layer in layers))
    obeyed = (
        "obey_precisions",
        "with TensorRT 8 to 10 and weak types, ask for FP32 at exactly these layers, inputs and results, and have that obeyed",
        (
            f"trtexec --onnx={model} --fp16 --precisionConstraints=obey "
            f"--layerPrecisions={listed} --layerOutputTypes={listed} --saveEngine=fixed.plan"
        ),
    )
    return (typed, obeyed)


_MIXED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,16] y) {
  h = Cast<to = 10>(x)
  a = MatMul(h, w0)
  wide = Cast<to = 1>(a)
  squares = Pow(wide, two)
  total = ReduceSum<keepdims = 1>(squares, axes)
  length = Sqrt(total)
  unit = Div(wide, length)
  n = Cast<to = 10>(unit)
  b = MatMul(n, w1)
  y = Cast<to = 1>(b)
}"""
# The Casts around the island are there, and what stands between them is half precision.
_IGNORED = _MIXED.replace("wide = Cast<to = 1>(a)", "wide = Cast<to = 10>(a)").replace(
    "(wide, two)", "(wide, half_two)"
)
_RNG = np.random.default_rng(5)
_CONSTANTS: dict[str, np.ndarray] = {
    "w0": (_RNG.normal(size=(64, 64)) * 14).astype(np.float16),
    "w1": (_RNG.normal(size=(64, 16)) / 8).astype(np.float16),
    "two": np.array(2, np.float32),
    "half_two": np.array(2, np.float16),
    "axes": np.array([-1], np.int64),
}
_X = {"x": _RNG.normal(size=(4, 64)).astype(np.float32)}
_SMALL = {**_CONSTANTS, "w0": np.asarray(_CONSTANTS["w0"] / 14, np.float16)}

CHECK = Check(
    code="CST003",
    title="An FP32 island of the file is not honoured",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MIXED,
            candidate_model=_IGNORED,
            inputs=_X,
            constants=_CONSTANTS,
            candidate="sim",
            declared="f16",
            site="squares",
        ),
    ),
    holds_not=(
        # Honoured; nothing is too large for it to matter; and another fault in the same file.
        Example(model=_MIXED, inputs=_X, constants=_CONSTANTS, candidate="sim", declared="f16"),
        Example(model=_MIXED, candidate_model=_IGNORED, inputs=_X, constants=_SMALL, candidate="sim", declared="f16"),
        Example(
            model=_MIXED,
            candidate_model=_MIXED.replace("Sqrt", "Log"),
            inputs=_X,
            constants=_CONSTANTS,
            candidate="sim",
            declared="f16",
        ),
    ),
)
