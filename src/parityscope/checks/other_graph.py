"""The candidate's own graph says something else.

What goes wrong: the file that is deployed is not the network that it came from. A simplifier, a converter, a quantizer or a
script changed a constant, an attribute, the order of inputs, a node, or had the nodes read by another opset; or it is another
version.

How it shows: the candidate runs a file of its own (`model=PATH`: ONNX, or an IR of OpenVINO), or is a network of PyTorch, and
computes exactly what that says.

How we test for it: both graphs are aligned by what they compute and by structure (names are hints only), step by step on one
sample, each step of the candidate's fed with the reference's values. What differs is told in words. All differences are put into
the reference's graph, which must then give the candidate's outputs; then as many as possible are taken out again. What cannot be
left out is the cause, each difference with its share on all samples looked at. What can be is harmless, and how far it moves the
outputs is measured.

What it is confused with: types and quantization that the file declares itself, which are told and not blamed; more training,
which changes nearly every weight a little and is told as another version of the model; a runtime that does not compute what its
file says, of which this check says nothing.

How to repair: put the original's constant, attribute or node back. This is tried in a copy of the candidate's file, which the
same candidate runs, and is measured (`repaired.onnx` in the study). Or convert, simplify or quantize again from the original,
without the step that made the difference.

Sources: delta debugging (Zeller and Hildebrandt, 2002); ONNX operator changelog, Softmax-13 and Resize-11.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Correction, Example, NearMiss, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.bench import Bench
    from parityscope.examination import Examination
    from parityscope.hypotheses.from_other_graph import Compared, Unit
    from parityscope.records import Finding, Site

PUT_BACK = "put_back"
_VERSION = "The candidate is another version of the model"
_CODE = "EXP005"
_RETRAINED, _TRAINING = "retrained", "training"
OF_LAYERS = frozenset({"attribute", "constant", "opset"})  # kinds of differences of what a layer itself says
_MODE = "training_mode"  # the attribute of BatchNormalization and Dropout
_MANY = 3  # weights that more training moved: it never moves one layer's alone
_TOLD = 3  # places and harmless differences that are named
_LEAST = 0.01  # of the squared error, as in `diagnosis`: what is less contributes, beside those that make the rest


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    if bench.graphs is None:
        return
    try:
        compared = bench.graphs()
    except ParityError as error:
        yield _make_claim(
            "the candidate's graph differs from the reference's", functools.partial(_raise_problem, error)
        )
        return
    causes = compared.decision.causes
    correction = _make_correction(compared)
    for place, (unit, share) in enumerate(causes if compared.decision.alone else ()):
        yield _make_claim(
            describe_unit(unit),
            functools.partial(_test_claim, known, compared, unit, share, correction, first=place == 0),
        )
    for unit in compared.decision.unproved:
        yield _make_claim(describe_unit(unit), functools.partial(_show_unproved, known, compared, unit))
    if not (causes and compared.decision.alone) and not compared.decision.unproved:
        words = f"one of {len(compared.decision.rest)} differences of the candidate's graph makes the error"
        yield _make_claim(words, lambda: _show_refuted(known, compared, correction))


def _raise_problem(error: ParityError) -> Shown:
    raise error


def _make_correction(compared: Compared) -> Correction | None:
    """What was proved together is put right together."""
    from parityscope.hypotheses.from_other_graph import transplant_differences

    units = [unit for unit, _ in compared.decision.causes]
    if all(unit.declared for unit in units):
        return None
    words = "; ".join(describe_unit(unit) for unit in units[:_TOLD])
    edit = transplant_differences(
        compared.alignment, compared.stretches, [one for unit in units for one in unit.differences]
    )
    return Correction(words=f"has what the candidate's file has: {words}", model=edit, parts=len(units))


def _make_claim(words: str, test: Callable[[], Shown]) -> Claim:
    return Claim(
        words=words,
        predicts=Prediction(
            change="put it into the reference's graph, with and without the other differences",
            measure="squared error of the outputs to the candidate's",
            if_true="the candidate's outputs, and not without it",
            if_false="the reference's outputs, or the candidate's without it too",
        ),
        cost_s=4 * RUN_S,
        test=test,
    )


def _show_refuted(known: Examination, compared: Compared, correction: Correction | None) -> Shown:
    """Most of the error comes from elsewhere; what the file does to it may still be one of several causes."""
    decision = compared.decision
    because = f"with all of them in it the reference's graph explains {format_percent(decision.explained)} of the error"
    seen = Shown(
        because=because, outcome="refutes", before=1.0, after=1.0 - decision.explained, skipped=compared.unread
    )
    if correction is None:
        return seen
    unit, share = decision.causes[0]
    shown = replace(_show_difference(known, compared, unit, share, seen, first=True), correction=correction)
    return replace(seen, nearest=NearMiss(shown=shown, tried=decision.tried, distinct=True))


def _test_claim(
    known: Examination, compared: Compared, unit: Unit, share: float, correction: Correction | None, *, first: bool
) -> Shown:
    decision = compared.decision
    because = f"put into the reference's graph, it makes {format_percent(share)} of the error"
    if (several := len(decision.causes)) > 1:
        because += f", and {several} differences together {format_percent(decision.explained)}"
    seen = Shown(because=because, before=1.0, after=1.0 - share, skipped=compared.unread)
    return replace(_show_difference(known, compared, unit, share, seen, first=first), correction=correction)


def _show_unproved(known: Examination, compared: Compared, unit: Unit) -> Shown:
    """A difference in what can be run, beside nodes that cannot be."""
    because = (
        "from the same values it gives others; what that does to the outputs lies behind nodes that cannot be run here"
    )
    version = _is_version(unit.group, len(unit.differences))
    return Shown(
        because=because,
        before=0.0,
        after=unit.error,
        title=_VERSION if version else "",
        role="information" if unit.declared else "contributing",
        sentence=f"{describe_unit(unit)}: {because}.",
        site=site_of_unit(known, unit),
        repairs=_offer_repairs(unit, version=version, has_file=False),
        details={"parameter": unit.group, "differences": len(unit.differences)},
        skipped=compared.unread,
    )


def _show_difference(
    known: Examination, compared: Compared, unit: Unit, share: float, seen: Shown, *, first: bool
) -> Shown:
    """What is told of a difference that makes this share of the error."""
    version = _is_version(unit.group, len(unit.differences))
    harmless = _describe_harmless(compared) if first else ""
    declared = (
        " This is what the file's own types or quantization say, and no fault by itself." if unit.declared else ""
    )
    return replace(
        seen,
        title=_VERSION if version else "",
        role="information" if unit.declared else "contributing" if share < _LEAST else "cause",
        sentence=f"{describe_unit(unit)}: {seen.because}.{declared}{harmless}",
        confidence=min(1.0, max(0.0, compared.decision.explained)),
        confidence_from="the share of the error, in squares, that the reference's graph gives with what is named in it",
        site=site_of_unit(known, unit),
        share=share,
        repairs=_offer_repairs(unit, version=version, has_file=bool(known.candidate.option("model"))),
        details={
            "parameter": unit.group,
            "together": compared.decision.explained,
            "differences": len(unit.differences),
            "kinds": sorted({one.kind for one in unit.differences}),
            "harmless": len(compared.decision.rest),
            "harmless_share": compared.decision.rest_share,
        },
    )


def tells_version(finding: Finding) -> bool:
    """Whether a finding says that all weights are another training's: such a candidate errs by any size."""
    told = finding.details
    return finding.code == _CODE and _is_version(told.get("parameter"), int(told.get("differences", 0)))


def tells_layer(finding: Finding) -> bool:
    """Whether a finding says that the file has a layer otherwise which reads what it should: no guess about inputs."""
    return finding.code == _CODE and OF_LAYERS.issuperset(finding.details.get("kinds", ("",)))


def _is_version(group: object, differences: int) -> bool:
    return group == _RETRAINED and differences >= _MANY


def _offer_repairs(unit: Unit, *, version: bool, has_file: bool) -> list[tuple[str, str]]:
    """What the original has put back in a copy of the candidate's file, which is tried; and converting once more."""
    if not has_file:
        text = "export the file again from this network, or give the network what the file has"
        return [*offer_eval_mode(unit), ("convert_again", text)]
    if unit.group == _TRAINING:
        return offer_eval_mode(unit)
    again = (
        "export the version that the reference has, or hold the candidate against its own original"
        if version
        else "convert again from the original without the step that made this difference"
    )
    found = [("convert_again", again)]
    if not unit.declared and not version:
        text = "put what the original has back into the candidate's file, with all that is named here"
        found.insert(0, (PUT_BACK, text))
    return found


def offer_eval_mode(unit: Unit) -> list[tuple[str, str]]:
    """What an exporter, or a program that loads the network, has to do where one side is in training mode alone."""
    if unit.group != _TRAINING and not any(_MODE in one.words for one in unit.differences):
        return []
    return [("eval_mode", "call model.eval() before the export, with training=TrainingMode.EVAL")]


def site_of_unit(known: Examination, unit: Unit) -> Site | None:
    """The first of the reference's nodes, in the order of its file, that differs or gives another value from here on."""
    by_node = {site.node: site for site in known.places.values() if site.node}
    found = (
        known.places.get(one.at) or by_node.get(one.node) or known.places.get(one.site) for one in unit.differences
    )
    places = [site for site in found if site is not None]
    return min(places, key=lambda site: site.index, default=None)


def describe_unit(unit: Unit) -> str:
    """What differs, at how many places."""
    words, count = unit.differences[0].words + unit.note, len({one.words for one in unit.differences})
    if unit.group == _RETRAINED and count >= _MANY:
        return f"{count} weights differ a little from the reference's, as after more training"
    few = {1: words, 2: f"{words} (and likewise at another place)"}
    return few.get(count, f"{words} (and likewise at {count - 1} other places)")


def _describe_harmless(compared: Compared) -> str:
    """What else differs, and how little that does."""
    rest = [one for unit in compared.decision.rest for one in unit.differences]
    if not rest:
        return ""
    named = "; ".join(one.words for one in rest[-_TOLD:])
    more = f" and {len(rest) - _TOLD} more" if len(rest) > _TOLD else ""
    return (
        f" {len(rest)} other difference{'s' if len(rest) > 1 else ''}, together "
        f"{format_percent(compared.decision.rest_share)} of the error: {named}{more}."
    )


_RNG = np.random.default_rng(5)
_WEIGHTS = {"w": _RNG.normal(size=(6, 8)).astype(np.float32), "b": _RNG.normal(size=8).astype(np.float32)}
_X = {"x": _RNG.normal(size=(4, 6)).astype(np.float32)}
_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x) => (float[4,8] y) {
  a = Gemm(x, w, b)
  r = Relu(a)
  n = Softmax<axis = 1>(r)
  y = Sub(n, r)
}"""
_OTHER = _MODEL.replace(" a", " q").replace("(a)", "(q)")
_LEAKY = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y) {
  a = MatMul(x, w)
  y = LeakyRelu<alpha = 0.01>(a)
}"""
_NETWORK = """
import torch

class Leaky(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x @ self.weight, {slope})

def make():
    return Leaky()
"""
_V = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}
_L = {"x": _RNG.normal(size=(2, 8)).astype(np.float32)}

CHECK = Check(
    code=_CODE,
    title="The candidate's own graph says something else",
    propose=_propose_claims,
    holds=(
        Example(
            model=_MODEL, inputs=_X, candidate="ort", candidate_model=_OTHER.replace("Relu", "Tanh"), constants=_WEIGHTS
        ),
        Example(
            model=_MODEL,
            inputs=_X,
            candidate="ort",
            candidate_model=_OTHER.replace("axis = 1", "axis = 0"),
            constants=_WEIGHTS,
        ),
        Example(
            model=_MODEL,
            inputs=_X,
            candidate="ort",
            candidate_model=_OTHER.replace("Sub(n, r)", "Sub(r, n)"),
            constants=_WEIGHTS,
        ),
        Example(model=_LEAKY, inputs=_L, constants=_V, network=_NETWORK.format(slope=0.1), candidate="{network}"),
    ),
    holds_not=(
        Example(model=_MODEL, inputs=_X, candidate="ort", candidate_model=_OTHER, constants=_WEIGHTS),
        Example(model=_MODEL, inputs=_X, candidate="sim:bf16", declared="f32", constants=_WEIGHTS),
        Example(model=_LEAKY, inputs=_L, constants=_V, network=_NETWORK.format(slope=0.01), candidate="{network}"),
    ),
)
