"""The checks of an export, on pairs of exported files: one stands for the network, the other is what came out of its conversion.

PyTorch itself is in tests/test_torch.py, which needs it. What the checks do with a network and a file needs only two functions,
and ONNX Runtime runs both here: the network's modes are files of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from examinations import examination_of
from parityscope.case import Case, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.checks import Example, known_checks
from parityscope.checks.asking import ask_check
from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs
from parityscope.records import Policy
from parityscope.study.bench import open_bench
from parityscope.testing.check_contract import findings_of
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.bench import Run
    from parityscope.records import Finding

EVAL = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) {
  n = BatchNormalization<epsilon = 0.00001>(x, scale, shift, mean, variance)
  y = Tanh(n)
}"""
TRAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) {
  n, m, v = BatchNormalization<epsilon = 0.00001, training_mode = 1>(x, scale, shift, mean, variance)
  y = Tanh(n)
}"""
STATISTICS = {
    "scale": np.ones(4, np.float32),
    "shift": np.zeros(4, np.float32),
    "mean": np.array([1, -2, 0.5, 0.25], np.float32),
    "variance": np.array([4, 0.5, 9, 1], np.float32),
}
# The mean over all positions, with their number as it was while it was traced, or as it is.
COUNTED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,N] x) => (float[1,1] y) {
  total = ReduceSum<keepdims = 1>(x, axes)
  shape = Shape<start = 1>(x)
  count = Cast<to = 1>(shape)
  y = Div(total, count)
}"""
TRACED = COUNTED.replace("  count = Cast<to = 1>(shape)\n", "").replace(
    "y = Div(total, count)", "y = Div(total, eight)"
)
AXES = {"axes": np.array([1]), "eight": np.array([8], np.float32)}
# A mask that steers the network, and was taken for a constant.
MASKED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x, float[1,8] mask) => (float[1,8] y) {
  kept = Mul(x, mask)
  y = Softmax(kept)
}"""
UNMASKED = MASKED.replace("Mul(x, mask)", "Mul(x, ones)")
SLOPE = (
    """<ir_version: 8, opset_import: ["" : 17]> g (float[8,4] x) => (float[8,4] y) { y = LeakyRelu<alpha = 0.1>(x) }"""
)


class Desk:
    """Files written from text, and the findings of one check about a network, its modes and a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def written(self, text: str, constants: Mapping[str, np.ndarray]) -> Path:
        return write_network(self.folder / f"{len(list(self.folder.iterdir()))}.onnx", text, constants)

    def findings(
        self,
        code: str,
        original: str,
        file: str,
        samples: Sequence[Mapping[str, np.ndarray]],
        constants: Mapping[str, np.ndarray],
    ) -> list[Finding]:
        """`original` is the network; the deployment runs the file in ONNX Runtime."""
        model = load_model(self.written(file, constants))
        for number, arrays in enumerate(samples):
            write_npz(self.folder / "x" / f"{number}.npz", arrays)
        inputs = load_inputs(model, self.folder / "x", spool=self.folder / "spool")
        case = Case(name="export", model=model, inputs=inputs, policy=Policy(declared="f32"))
        known = replace(examination_of(case, "ort"), verdict="beyond")
        with open_bench(known) as bench:
            network, converted = self.runner(original, constants), self.runner(file, constants)
            given = replace(
                bench,
                origin={"torch?module=net.py:make": network},
                converted=converted,
                converted_from=lambda: compare_graphs(
                    model,
                    load_model(self.written(original, constants)),
                    [SideOutputs(inputs=one, reference=converted(one), candidate=network(one)) for one in samples],
                ),
                outputs=network,
                reference=lambda index: network(bench.inputs(index)),
            )
            results = [proposal.test() for proposal in ask_check(known_checks()[code], replace(known, bench=given))]
        return [result.finding for result in results if result.finding is not None]

    def runner(self, text: str, constants: Mapping[str, np.ndarray]) -> Run:
        from parityscope.backends.onnxruntime_sessions import open_path

        path = self.written(text, constants)
        outputs = [value.name for value in load_model(path).outputs]
        return open_path(path, outputs=outputs, optimization="disabled")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def batch(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = [{"x": batch(1, 8, 4)}, {"x": batch(2, 8, 4)}]


def test_a_file_that_was_exported_in_training_mode(desk: Desk) -> None:
    found = desk.findings("EXP001", EVAL, TRAIN, X, STATISTICS)
    assert len(found) == 1
    assert "From the file to the network: attribute training_mode of BatchNormalization n: 1 became 0" in found[0].claim
    assert [one.repair for one in found[0].repairs] == ["eval_mode", "export_again"]
    assert found[0].site is not None
    assert found[0].site.tensor == "n"


def test_a_network_that_is_run_in_training_mode(desk: Desk) -> None:
    (found,) = desk.findings("EXP001", TRAIN, EVAL, X, STATISTICS)
    assert "attribute training_mode of BatchNormalization n: 0 became 1" in found.claim
    assert found.repairs[0].repair == "eval_mode"


def test_a_right_file_is_no_fault_of_the_conversion(desk: Desk) -> None:
    assert desk.findings("EXP001", EVAL, EVAL, X, STATISTICS) == []


def test_another_fault_is_no_training_mode(desk: Desk) -> None:
    (found,) = desk.findings("EXP001", EVAL, EVAL.replace("Tanh", "Sigmoid"), X, STATISTICS)
    assert "Tanh" in found.claim
    assert [one.repair for one in found.repairs] == ["export_again"]


def test_an_input_that_was_traced_away(desk: Desk) -> None:
    mask = (np.arange(8) < 5).astype(np.float32)[None]
    samples = [{"x": batch(3, 1, 8), "mask": mask}, {"x": batch(4, 1, 8), "mask": mask}]
    found = desk.findings("EXP003", MASKED, UNMASKED, samples, {"ones": np.ones((1, 8), np.float32)})
    assert [one.claim.split(":")[0] for one in found] == ["Input mask was traced away"]


def test_a_size_that_was_traced_as_a_constant(desk: Desk) -> None:
    samples = [{"x": batch(5, 1, 8)}, {"x": batch(6, 1, 12)}, {"x": batch(7, 1, 8)}, {"x": batch(8, 1, 12)}]
    found = desk.findings("EXP003", COUNTED, TRACED, samples, AXES)
    assert len(found) == 1
    words = "A size was traced as a constant: network and file agree for x [1, 8] and not for x [1, 12]"
    assert found[0].claim.startswith(words)


def test_a_file_that_follows_its_sizes_is_not_blamed(desk: Desk) -> None:
    samples = [{"x": batch(5, 1, 8)}, {"x": batch(6, 1, 12)}]
    assert desk.findings("EXP003", COUNTED, COUNTED, samples, AXES) == []


def test_the_conversion_is_placed_before_the_deployment(desk: Desk) -> None:
    found = desk.findings("EXP001", SLOPE, SLOPE.replace("0.1", "0.2"), X, {})
    assert len(found) == 1
    assert found[0].claim.startswith("The conversion is at fault")
    assert found[0].share == pytest.approx(1.0)


def test_a_right_conversion_places_the_fault_behind_it(desk: Desk) -> None:
    assert desk.findings("EXP001", SLOPE, SLOPE, X, {}) == []


# A sum in which the inputs have different parts.
PARTS = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] a, float[2,8] b) => (float[2,8] y) {
  t = Tanh(a)
  s = Mul(b, w)
  y = Add(t, s)
}"""
AB = [{"a": batch(10, 2, 8), "b": batch(11, 2, 8)}, {"a": batch(12, 2, 8), "b": batch(13, 2, 8)}]
ONES, NOUGHT = {"w": np.ones(8, np.float32)}, {"w": np.ones(8, np.float32), "nought": np.zeros(8, np.float32)}


def test_what_the_file_does_with_an_input_says_nothing_of_how_it_arrived(desk: Desk) -> None:
    # As if b never arrived; but the deployment does what the file does with the very same inputs.
    assert desk.findings("BND002", PARTS, PARTS.replace("Mul(b, w)", "Mul(b, nought)"), AB, NOUGHT) == []
    assert len(desk.findings("EXP003", PARTS, PARTS.replace("Mul(b, w)", "Mul(b, nought)"), AB, NOUGHT)) == 1


def test_names_that_were_exchanged_by_the_export(desk: Desk) -> None:
    exchanged = PARTS.replace("Tanh(a)", "Tanh(b)").replace("Mul(b, w)", "Mul(a, w)")
    found = desk.findings("BND001", PARTS, exchanged, AB, ONES)
    assert len(found) == 1
    assert found[0].claim.endswith("they were exchanged when the network was exported.")
    assert [one.repair for one in found[0].repairs] == ["export_again"]


SOFTMAX = """<ir_version: 8, opset_import: ["" : 12]> g (float[2,3,4] x) => (float[2,3,4] y) {
  a = Mul(x, x)
  y = OP(a)
}"""


@pytest.mark.parametrize("operator", ["Softmax", "Hardmax"])
def test_operators_that_changed_between_opsets(operator: str, tmp_path: Path) -> None:
    text = SOFTMAX.replace("OP", operator)
    example = Example(
        model=text, candidate_model=text.replace(": 12]", ": 13]"), inputs={"x": batch(9, 2, 3, 4)}, candidate="ort"
    )
    (first,) = findings_of(example, tmp_path / "example")
    assert (first["code"], first["role"], first["site"]["tensor"]) == ("EXP005", "cause", "y")
    assert f"attribute axis of {operator} y: 1 became -1" in first["claim"]
