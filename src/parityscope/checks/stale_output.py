"""An output is old, or was never written, wholly or from some element on.

What goes wrong: the output is read before the engine has finished, into a buffer that is used again; the copy back is too
short; two buffers are exchanged between runs, so that each answer is the one before.

How it shows: right numbers in the wrong place: a sample's output is the sample before's, or zero, or is right up to an element
and old behind it.

How we test for it: no run is needed. Each output of a sample is held against the reference's output of the sample before,
against the candidate's own (bit for bit), and against zero or one repeated value; what is right must be as near to the
reference as the declared arithmetic allows.

What it is confused with: all inputs being the sample before's, which looks the same from outside; a network that gives
the same answer for two samples, which is not blamed; a layer that is dead, which gives zeros too: where a layer is seen
to make the error, or the format cannot hold the values, nothing is claimed here.

How to repair: wait for the stream (or the future) before reading; copy all bytes back; give every run its own buffers.

Sources: NVIDIA/TensorRT issues 904 and 3312 (copies on another stream); CUDA programming guide, asynchronous execution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction
from parityscope.checks._correcting import correct_old_output
from parityscope.checks._reproducing import (
    Misfit,
    bad_samples,
    is_same_throughout,
    limit_of,
    nonsense_fits,
    part_of_error,
    show_refuted,
    show_supported,
    wrong_samples,
)
from parityscope.checks.misreading.remains import Remains, remains_by_sample
from parityscope.comparison.distance import distance_between
from parityscope.plain_numbers import format_number
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.bench import Bench
    from parityscope.checks import Shown
    from parityscope.examination import Examination

    Samples = Sequence[Mapping[str, np.ndarray]]

# A suspect that holds half of the output error is where it comes from, and then the output was written.
_ONE_PLACE = 0.5
_MENDS = {
    "before": "wait until the run is over (synchronize the stream) before the output is read, give each run its own "
    "buffers, and see that the inputs are uploaded again",
    "zero": "read the output from the buffer that the engine writes, after the run is over",
    "repeated": "read the output from the buffer that the engine writes, after the run is over",
}


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    for pair in known.beyond:
        yield _make_claim(known, bench, pair.site.tensor)


def _make_claim(known: Examination, bench: Bench, output: str) -> Claim:
    return Claim(
        words=f"output {output} is the sample before's or was not written, wholly or from some element on",
        predicts=Prediction(
            change="none: hold it against the outputs of the sample before, zero and one repeated value",
            measure="elements that are old, and the relative L2 error of the others",
            if_true="all that is wrong is old, and the rest is right",
            if_false="the wrong elements are new ones",
        ),
        test=lambda: _test_claim(known, bench, output),
    )


def _test_claim(known: Examination, bench: Bench, output: str) -> Shown:
    limit = limit_of(known, output)
    found: list[Remains] = []
    before = Misfit(error=0.0, over=0.0)
    for place, error, remains in remains_by_sample(bench, output, limit):
        # Nothing came before the first sample: what its buffer held is anybody's guess.
        if remains is None and place > 0:
            because = f"sample {bench.samples[place]} is wrong and new, or cannot be compared"
            return show_refuted(Misfit(error=error, over=error / limit), because)
        if remains is not None:
            found.append(remains)
            before = max(before, Misfit(error=error, over=error / limit), key=lambda one: one.error)
    if not found:
        return show_refuted(None, "no wrong sample is old, and the first had none before it")
    told = found[-1]
    if why := _why_written(known, output):
        return show_refuted(before, why)
    if told.kind == "before" and is_same_throughout(known, bench, output):
        return show_refuted(before, "the answer is the same from the first sample on, before which there was none")
    if told.kind == "before" and not bad_samples(known, bench):
        return show_refuted(None, "so few values are equal by chance")
    if told.kind != "before" and (why := _why_constant(known, bench, output)):
        return show_refuted(before, why)
    because = (
        f"so it is on {len(found)} of {len(bench.samples)} samples looked at, whose error is up to "
        f"{format_number(before.error)}"
    )
    finding = _show_finding(
        known,
        output,
        told,
        show_supported(before, Misfit(error=told.error, over=0.0), because),
        bench.candidate(bench.samples[-1])[output],
    )
    share = part_of_error(known, bench, {output})
    return replace(finding, share=share, correction=correct_old_output(output, told.start))


def _why_written(known: Examination, output: str) -> str:
    """Why an output was written, right or wrong; "" if nothing says that."""
    suspects = known.localization.suspects if known.localization else ()
    blamed = [one for one in suspects if (one.share or 0.0) >= _ONE_PLACE and one.site.tensor != output]
    return f"the error arises at {blamed[0].site.tensor} and not behind it" if blamed else ""


def _why_constant(known: Examination, bench: Bench, output: str) -> str:
    """Why a constant output may have been computed so; "" if nothing says that."""
    values = np.abs(np.asarray(bench.reference(bench.samples[-1])[output]))
    if values.dtype.kind == "f" and values.size and float(values.max()) < known.storage.smallest_normal:
        return f"the values are too small for {known.storage.name}, which rounds them to zero"
    if _is_honest_constant(known, bench, output):
        return f"an honest deployment in {known.declared} gives that too"
    wrong = wrong_samples(known, bench)
    if wrong and all(nonsense_fits(known, bench, index) for index in wrong):
        return "nonsense in place of the inputs gives these outputs too: what saturates is the same throughout"
    return ""


def _is_honest_constant(known: Examination, bench: Bench, output: str) -> bool:
    """Whether the declared arithmetic itself, simulated on these samples, makes the candidate's constant of an output."""
    if bench.honest is None:
        return False
    limit = limit_of(known, output)
    for index in bench.samples:
        found = bench.honest(bench.inputs(index)).get(output)
        if found is None or not distance_between(bench.candidate(index)[output], found) <= limit:
            return False
    return True


def _show_finding(known: Examination, output: str, told: Remains, seen: Shown, shown: np.ndarray) -> Shown:
    # Rows whose second begins behind the end of the buffer leave the same.
    row = told.kind == "zero" and shown.ndim > 1 and 0 < told.start <= shown.shape[-1] < shown.size
    also = f" Rows that begin every {shown.nbytes} bytes or more, read end to end, look so too." if row else ""
    return replace(
        seen,
        sentence=f"Output {output} {told.words}; {seen.because}.{also}",
        # What is old is found as it was, bit for bit or within the arithmetic; zeros may also be a computed result.
        confidence=1.0 if told.kind == "before" else 0.8,
        confidence_from="the values themselves" if told.kind == "before" else "the values; a dead layer gives such too",
        site=known.places.get(output) or Site(tensor=output, node="", op_type="Input", index=-1),
        repairs=(("wait", _MENDS[told.kind]),),
        details={"output": output, "kind": told.kind, "from": told.start},
    )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,64] y) {
  y = Tanh(x)
}"""
_DEAD = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) {
  a = Tanh(x)
  b = Exp(a)
  y = Mul(b, w)
}"""
# Exp is infinite in FP16 there, and what it divides is zero.
_SATURATED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) {
  a = Exp(x)
  y = Div(w, a)
}"""
_X = {"x": np.random.default_rng(22).normal(size=(3, 64)).astype(np.float32)}


def _deployment_reading(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Samples], Samples]:
    """A deployment that gives `change(its output, what the buffer held before)`; zero before the first run."""

    def fault(samples: Samples) -> Samples:
        held = np.zeros_like(samples[0]["y"])
        found = []
        for each in samples:
            found.append({"y": change(each["y"], held)})
            held = each["y"]
        return found

    return fault


def _keep_old_tail(value: np.ndarray, rest: np.ndarray) -> np.ndarray:
    return np.concatenate([value[:, :40], rest[:, 40:]], axis=1)


CHECK = Check(
    code="BND003",
    title="An output is old or was never written",
    propose=_propose_claims,
    holds=(
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda _, before: before), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda value, _: value * 0), site="y"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(_keep_old_tail), site="y"),
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=_deployment_reading(lambda value, _: _keep_old_tail(value, value * 0)),
            site="y",
        ),
        # The engine's own old answer, which differs from what either side recorded by the last bit.
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=_deployment_reading(
                lambda value, before: _keep_old_tail(value, np.nextafter(before, np.float32(2)))
            ),
            site="y",
        ),
        # Fresh memory that a debugger fills with the bytes 0xCD is this number.
        Example(
            model=_MODEL,
            inputs=_X,
            outputs_fault=_deployment_reading(
                lambda value, _: _keep_old_tail(value, np.full_like(value, -431602080.0))
            ),
            site="y",
        ),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16"),
        Example(model=_MODEL, inputs=_X, candidate="sim:f16"),
        Example(model=_MODEL, inputs=_X, outputs_fault=_deployment_reading(lambda value, _: value / 2)),
        Example(
            model=_DEAD,
            inputs={"x": _X["x"][:1]},
            constants={"w": np.ones(64, np.float32)},
            fault=("b", lambda value: value * 0),
        ),
        Example(
            model=_SATURATED,
            inputs={"x": np.linspace(12, 14, 192, dtype=np.float32).reshape(3, 64)[:1]},
            constants={"w": np.full(64, 1e4, np.float32)},
            outputs_fault=lambda samples: [{"y": one["y"] * 0} for one in samples],
            declared="f16",
        ),
    ),
)
