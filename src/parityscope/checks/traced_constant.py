"""Tracing made a constant of what depends on the input.

What goes wrong: an exporter that follows one example through the network writes down what it saw. A number taken out of a
tensor (`int(x.sum())`, `x.shape[0]` in Python arithmetic, `.item()`), a branch on a value, a loop over a length become what they
were for the example. The file is right for the example and for what resembles it.

How it shows: an input that changes nothing; samples of one size that are right and of another size that are wrong.

How we test for it: each input is changed, one at a time, in the network and in the file. Where the network's outputs follow
and the file's do not move by a bit, the input was traced away. And samples are grouped by their sizes: where network and file
agree on all samples of one size and on none of another, a size was.

What it is confused with: an input that did not arrive (BND002), where the file would follow it; a constant that the
network's own graph, exported here, has not: that is told as what the file says otherwise (EXP005), or what the
conversion changed.

How to repair: compute it with tensor operations (`torch.where`, `x.size(0)` inside them); export with dynamic shapes
(`dynamic_shapes=`, `dynamic_axes=`); for a branch, `torch.cond`, or `dynamo=True`, which refuses what it cannot follow.

Sources: PyTorch's TracerWarning ("this value will be treated as a constant in the future"), as in wenet-e2e/wenet issue 1651.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._conversion import misfit_by_sample
from parityscope.checks._reproducing import RUN_S, are_same_arrays, measure_misfit, show_refuted
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.bench import Bench, Run
    from parityscope.examination import Examination


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    file = bench.converted
    if file is None:
        return
    for value in known.model.inputs:
        yield _input_proposal(known, bench, file, value.name)
    if len(_samples_by_shape(bench)) > 1:
        yield _size_proposal(known, bench, file)


def _input_proposal(known: Examination, bench: Bench, file: Run, name: str) -> Claim:
    return Claim(
        words=f"the file does not follow input {name}",
        predicts=Prediction(
            change=f"change {name} in the network and in the file",
            measure="whether outputs move",
            if_true="the network's do, the file's stay as they are to the bit",
            if_false="the file's move",
        ),
        cost_s=3 * RUN_S,
        runs="candidate",
        test=lambda: _tested_input(known, bench, file, name),
    )


def _tested_input(known: Examination, bench: Bench, file: Run, name: str) -> Shown:
    network = next(iter(bench.origin.values()))
    inputs = bench.inputs(bench.samples[0])
    changed = {**inputs, name: _reverse_elements(inputs[name])}
    if are_same_arrays(changed, inputs):
        return show_refuted(None, "its values are all alike, so there is nothing to exchange")
    try:
        answers = file(inputs), file(changed)
        own = network(inputs), network(changed)
    except ParityError as error:
        return show_refuted(None, f"a side refuses it: {error.problem}")
    before = measure_misfit(known, *own)
    if not are_same_arrays(*answers):
        return show_refuted(before, "the file's outputs move")
    if before.fits:
        return show_refuted(None, "the network does not follow it either")
    because = f"with {name} changed the network's outputs move and the file's stay as they are to the bit"
    return _show_finding(
        f"Input {name} was traced away: {because}.", name, Shown(because=because, before=before.error, after=0.0)
    )


def _size_proposal(known: Examination, bench: Bench, file: Run) -> Claim:
    return Claim(
        words="the file is right for one size of its inputs only",
        predicts=Prediction(
            change="none: samples are grouped by their sizes",
            measure="the samples on which network and file agree",
            if_true="all of one size, none of another",
            if_false="some or none of each size",
        ),
        cost_s=4 * RUN_S,
        runs="candidate",
        test=lambda: _tested_sizes(known, bench, file),
    )


def _tested_sizes(known: Examination, bench: Bench, file: Run) -> Shown:
    strict = known.declaring("f32")
    found = misfit_by_sample(strict, bench, next(iter(bench.origin.values())), file)
    right: list[str] = []
    wrong: list[str] = []
    mixed: list[str] = []
    for size, members in _samples_by_shape(bench).items():
        fit = {found[index].fits for index in members}
        (mixed if len(fit) > 1 else right if fit == {True} else wrong).append(size)
    worst = max(found.values(), key=lambda one: one.over)
    if mixed or not (right and wrong):
        return show_refuted(worst, "whether they agree does not go by size")
    because = f"network and file agree for {'; '.join(right)} and not for {'; '.join(wrong)}"
    return _show_finding(
        f"A size was traced as a constant: {because}.", "", Shown(because=because, before=worst.error, after=0.0)
    )


def _samples_by_shape(bench: Bench) -> dict[str, list[int]]:
    """The samples by the shapes of their inputs, in words."""
    found: dict[str, list[int]] = {}
    for index in bench.samples:
        words = ", ".join(f"{name} {list(array.shape)}" for name, array in bench.inputs(index).items())
        found.setdefault(words, []).append(index)
    return found


def _reverse_elements(array: np.ndarray) -> np.ndarray:
    """The same elements in the opposite order, which no type and no range forbids; floats a little larger as well."""
    turned = array.ravel()[::-1].reshape(array.shape)
    # An average over all elements would not notice their order.
    return (turned * 1.25).astype(array.dtype) if array.dtype.kind == "f" else turned


def _show_finding(claim: str, name: str, seen: Shown) -> Shown:
    return replace(
        seen,
        sentence=claim,
        confidence_from="outputs that are equal to the bit, or samples that part by size without exception",
        repairs=(
            (
                "export_dynamic",
                "compute it with tensor operations instead of Python numbers and branches, and export with dynamic shapes",
            ),
        ),
        details={"input": name},
    )


_TRACED = (
    """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x, float[4] k) => (float[N,8] y) { y = Mul(x, c) }"""
)
_FOLLOWED = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x, float[4] k) => (float[N,8] y) {
  s = ReduceSum<keepdims = 0>(k)
  y = Mul(x, s)
}"""
_NETWORK = """
import torch

class TracedNet(torch.nn.Module):
    def forward(self, x, k):
        return x * k.sum()

def make():
    return TracedNet()
"""
_RNG = np.random.default_rng(73)
_INPUTS: Mapping[str, np.ndarray] = {
    "x": _RNG.normal(size=(2, 8)).astype(np.float32),
    "k": np.array([0.5, 1.0, 2.0, 4.0], np.float32),
}
_CONSTANTS = {"c": np.array(6.0, np.float32)}
_OURS = "{network}"

CHECK = Check(
    code="EXP003",
    title="Tracing made a constant of what depends on the input",
    propose=_propose_claims,
    holds=(
        Example(
            model=_TRACED, inputs=_INPUTS, constants=_CONSTANTS, network=_NETWORK, reference=_OURS, candidate="ort"
        ),
    ),
    holds_not=(
        Example(
            model=_FOLLOWED,
            inputs=_INPUTS,
            network=_NETWORK.replace("x * k.sum()", "x * k.mean()"),
            reference=_OURS,
            candidate="ort",
        ),
        Example(
            model=_FOLLOWED, inputs=_INPUTS, network=_NETWORK, reference=_OURS, candidate="sim:bf16", declared="f32"
        ),
    ),
)
