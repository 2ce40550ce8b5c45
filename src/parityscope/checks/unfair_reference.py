"""The reference is wrong, or computes something else than the model says.

What goes wrong: the reference is an engine too. ONNX Runtime's CPU provider computes float16 operators in float32; its optimizer
has had bugs; a recorded reference may be of another model, or of another version of this one.

How it shows: an error of the size of FP16 rounding in an honest FP16 deployment; a candidate that agrees with everything but the
reference.

How we test for it: the model is run in other ways that ought to agree with the reference: in ONNX Runtime with its optimizer
off, in place of a recording, and, where its own types are half precision, simulated as it is typed. Two references must
agree within the FP32 noise floor. Where they do not and the candidate agrees with the other one, the reference is the cause;
where rounding that the reference leaves out is as large as the candidate's error, that is.

Where the sides agree and may be one runtime, they may share a bug of its optimizer: the model is run without it on the first
sample. What is then far beyond rounding, is not what another order of the sums makes, and together with the measured error is
more than the declared arithmetic makes, is told, and the study is incomplete: whether the candidate is right was not judged.

What it is confused with: a candidate in a lower precision than it declares (ACC001): there the references agree.

How to repair: take the reference that agrees, for example `--reference ort?optimization=disabled`; for a half-precision model
judge against its FP32 original (`parityscope evaluate`), or declare the precision.

Sources: NVIDIA/TensorRT issues 4355 and 4361; ONNX Runtime issues 14500 (a fused convolution on the CPU), 10636, 20986;
measured: its CPU provider removes the roundings of float16 graphs at every optimization level.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import is_simulation
from parityscope.backends.targets import parse_target
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._reproducing import ORDER, RUN_S, limit_of
from parityscope.comparison.distance import distance_between
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.expectation.expecting import ErrorQuestion, expect_error
from parityscope.expectation.grades import FLOAT32_ROUNDING, margin_of
from parityscope.expectation.records import FAR
from parityscope.plain_numbers import format_number
from parityscope.records import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.examination import Examination
    from parityscope.records import Pair

    Samples = Sequence[Mapping[str, np.ndarray]]
    Both = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]

# Do both sides share a bug of the optimizer? The reference against the model as it stands, where reference and candidate agree.
#
# One inference tells in nearly every case that they do not. Where it is far off, the noise floor decides
# (`expectation.expect`): it holds the unoptimized model against itself with its sums in several orders, and only what none of
# them moves is the optimizer's. It counts where the verdict may be another against the model as it stands: by as much as the
# sides are apart at most.
# The candidate agrees with the other reference if that leaves a tenth of the error, as elsewhere (99 % in squares).
_FALL = 10.0
# What the reference leaves out explains the error if it is at least half as large: both are rounding of one format, and their
# sizes lie within a factor of two (the margin of the grades).
_AS_LARGE = 0.5


def _shared_bug(known: Examination, twice: Callable[[], Both]) -> Claim:
    """The claim; `twice` gives the reference's outputs and the unoptimized model's."""
    return Claim(
        words="both sides share a bug of the reference's optimizer",
        predicts=Prediction(
            change="run the model with the optimizer off, on the first sample",
            measure="relative L2 distance of its outputs from the reference's",
            if_true=f"more than {format_number(FAR * FLOAT32_ROUNDING)}, more than any order of the sums makes, and "
            "with the measured "
            "error more than the declared arithmetic",
            if_false="rounding",
        ),
        cost_s=2 * RUN_S,
        runs="reference",
        test=lambda: _test_claim(known, twice),
    )


def _test_claim(known: Examination, twice: Callable[[], Both]) -> Shown:
    ours, plain = twice()
    align = make_aligner(known.policy)
    own, other = align(ours, plain)
    errors = {name: distance_between(own[name], other[name]) for name in own if name in other}
    far = {name: error for name, error in errors.items() if error > FAR * FLOAT32_ROUNDING}
    first = known.inputs.indices[:1]
    moved: Mapping[str, float] = {}
    if far:
        question = ErrorQuestion(
            model=known.model,
            inputs=known.inputs,
            samples=first,
            tensors=list(far),
            formats=(),
            reference=lambda _, name: ours.get(name),
            align=align,
        )
        moved = expect_error(question).moved
    if not moved:
        worst = max(errors.values(), default=0.0)
        because = f"the model without its optimizer is {format_number(worst)} from the reference"
        because += ", which may be another order of the sums" if far else ""
        return Shown(because=because, outcome="refutes", after=worst)
    output = max(moved, key=lambda name: moved[name])
    because = (
        f"without its optimizer the model's {output} is {format_number(moved[output])} (relative L2) from the "
        "reference's, which no "
        "order of the sums makes"
    )
    if not any(_changes_verdict(known, name, size) for name, size in moved.items()):
        because += f"; beside what {known.declared} costs that changes no verdict"
        return Shown(because=because, outcome="refutes", after=moved[output])
    return Shown(
        because=because,
        after=moved[output],
        role="information",
        sentence=f"The sides agree, and not with the model: {because}. They share a bug of the optimizer.",
        confidence=1.0 - FAR * FLOAT32_ROUNDING / moved[output],
        confidence_from="one minus what is not told from rounding over the distance",
        site=known.places.get(output),
        repairs=[
            (
                "other_reference",
                "take the model as it stands for the reference",
                "--reference 'ort?optimization=disabled'",
            )
        ],
        details={"shared": True, "between": moved[output]},
    )


def _changes_verdict(known: Examination, output: str, moved: float) -> bool:
    """Whether the candidate, so much further from the model as it stands, may be beyond the declared arithmetic."""
    pair = next(pair for pair in known.outputs if pair.site.tensor == output)
    measured = pair.value("rel_l2" if "rel_l2" in pair.measurements else "mismatch_share")
    formats = ORDER[: ORDER.index(known.declared) + 1] if known.declared in ORDER else ()
    allowed = max((pair.expected[name] * margin_of(name) for name in formats if name in pair.expected), default=0.0)
    return measured + moved > allowed


def _propose_claims(known: Examination) -> Iterator[Claim]:
    if known.twice is not None:
        yield _shared_bug(known, known.twice)
    bench = known.bench
    if bench is None:
        return
    beyond = list(known.beyond)
    if not beyond:
        return
    if bench.given is not None:
        yield _make_claim(known, bench, beyond, "the model itself in ONNX Runtime", bench.outputs)
        return
    for target, run in bench.peers.items():
        yield _make_claim(known, bench, beyond, target, run)


def _make_claim(
    known: Examination,
    bench: Bench,
    pairs: list[Pair],
    peer: str,
    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
) -> Claim:

    def test() -> Shown:
        seen = [_measure_three_sides(known, bench, pair.site.tensor, run) for pair in pairs]
        worst = max(seen, key=lambda one: one[0] / one[3])
        return _judge_reference(known, pairs[seen.index(worst)], peer, worst)

    return Claim(
        words=f"the reference is wrong: {peer} says something else",
        predicts=Prediction(
            change=f"run {peer} as a second reference",
            measure="relative L2 distances between the two references, and of the candidate to each",
            if_true="the references differ by more than FP32 noise, and the candidate agrees with the other",
            if_false="the references agree",
        ),
        cost_s=RUN_S * len(bench.samples),
        test=test,
    )


def _measure_three_sides(
    known: Examination,
    bench: Bench,
    output: str,
    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
) -> tuple[float, float, float, float]:
    """Distances reference-other, candidate-other, candidate-reference, and the noise that both references may have."""
    expected = next((pair.expected for pair in known.outputs if pair.site.tensor == output), {})
    noise = margin_of("f32") * max(expected.get("f32", 0.0), FLOAT32_ROUNDING)
    worst = (0.0, 0.0, 0.0, noise)
    refused: list[ParityError] = []
    for index in bench.samples:
        try:
            other = run(bench.inputs(index)).get(output)
        except ParityError as error:
            refused.append(error)
            continue
        reference = (bench.given or bench.reference)(index).get(output)
        candidate = bench.candidate(index).get(output)
        if (
            other is None
            or reference is None
            or candidate is None
            or not (other.shape == reference.shape == candidate.shape)
        ):
            continue
        found = (
            distance_between(reference, other),
            distance_between(other, candidate),
            distance_between(reference, candidate),
            noise,
        )
        worst = max(worst, found, key=lambda one: one[0])
    if refused and len(refused) == len(bench.samples):
        raise refused[0]
    return worst


def _judge_reference(known: Examination, pair: Pair, peer: str, seen: tuple[float, float, float, float]) -> Shown:
    between, to_other, error, noise = seen
    output = pair.site.tensor
    # The noise floor of a half-precision model has its roundings in it: of those the size alone is asked.
    # The model itself, beside a recording, is told of in words and is no target.
    as_typed = known.bench is not None and peer in known.bench.peers and is_simulation(parse_target(peer))
    left_out = as_typed and error > 0 and _AS_LARGE * error <= between <= error / _AS_LARGE
    if between <= noise and not left_out:
        because = f"the references are {format_number(between)} apart, and FP32 noise explains {format_number(noise)}"
        return Shown(because=because, outcome="refutes", before=error, after=between)
    agrees = to_other <= limit_of(known, output) and to_other * _FALL <= error
    said = f"the two references are {format_number(between)} apart"
    said += "" if left_out else f" where FP32 noise explains {format_number(noise)}"
    if left_out:
        because = (
            f"{said}: rounding of the model's own types, which the reference leaves out; the error is "
            f"{format_number(error)}"
        )
    else:
        because = f"{said}; the candidate is {format_number(to_other)} from {peer} and {format_number(error)} from the reference"
    if not agrees and not left_out:
        # Two ways to run the model that differ are worth knowing; the candidate's error is neither's.
        return Shown(
            because=because,
            before=error,
            after=to_other,
            role="information",
            title="The model run in another way differs by more than rounding",
            sentence=f"Output {output}: {because}.",
            confidence=0.5,
            confidence_from="chosen: both ways are measured, and neither is shown to be wrong",
            site=pair.site,
            details={"peer": peer, "between": between, "to_peer": to_other, "error": error},
        )
    share = 1.0 if left_out or math.isinf(error) else max(0.0, 1.0 - (to_other / error) ** 2) if error else 0.0
    return Shown(
        because=because,
        before=error,
        after=to_other,
        sentence=f"Output {output}: {because}.",
        confidence=min(between, error) / max(between, error) if left_out else share,
        confidence_from="the smaller over the larger of what the reference leaves out and the error"
        if left_out
        else "the share of the error, in squares, that is gone against the other reference",
        site=pair.site,
        share=share,
        repairs=(
            (
                "other_reference",
                "declare the model's own precision, or judge against its FP32 original"
                if left_out
                else f"take the reference that agrees: {peer}",
                "--declared f16" if left_out else (f"--reference {peer}" if " " not in peer else "--reference ort"),
            ),
        ),
        details={"peer": peer, "between": between, "to_peer": to_other, "error": error},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,64] y) {
  a = MatMul(x, w)
  y = Tanh(a)
}"""
_HALF = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,64] x) => (float[2,64] y) {
  h = Cast<to = 10>(x)
  a = MatMul(h, w)
  b = Tanh(a)
  c = MatMul(b, w)
  y = Cast<to = 1>(c)
}"""
_RNG = np.random.default_rng(65)
_W = {"w": (_RNG.normal(size=(64, 64)) / 8).astype(np.float32)}
_W16 = {"w": _W["w"].astype(np.float16)}
_X = {"x": _RNG.normal(size=(2, 64)).astype(np.float32)}
_BUDGET = (Budget(output="", metric="rel_l2", limit=1e-5, reason="an example"),)


def _scale_outputs(samples: Samples) -> Samples:
    """A recording of an older version of the model, which had another scale."""
    return [{"y": each["y"] * np.float32(0.9)} for each in samples]


CHECK = Check(
    code="DAT009",
    title="The reference is wrong, or computes something else than the model says",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL,
            inputs=_X,
            constants=_W,
            candidate="ort?optimization=disabled",
            reference_fault=_scale_outputs,
            site="y",
        ),
        Example(model=_HALF, inputs=_X, constants=_W16, candidate="sim", budgets=_BUDGET, site="y"),
    ),
    holds_not=(
        # The candidate is wrong and the references agree; the candidate is coarse and the references agree.
        Example(model=_MODEL, inputs=_X, constants=_W, outputs_fault=_scale_outputs),
        Example(model=_MODEL, inputs=_X, constants=_W, candidate="sim:bf16", declared="f32"),
        Example(model=_HALF, inputs=_X, constants=_W16, candidate="sim", declared="f16"),
    ),
)
