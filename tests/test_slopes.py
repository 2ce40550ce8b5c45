"""What edits do to the outputs, looked up in moments of the adjoints: the same as running them and multiplying."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.edits import StretchEdit, form_of
from parityscope.hypotheses.from_outputs.reference import open_reference
from parityscope.hypotheses.from_outputs.sites import sites_of
from parityscope.hypotheses.from_outputs.slopes import Slopes, constant_adjoints, effects_of_exchanges
from parityscope.testing.networks import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

DRAW = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


# Of each node: its text, its constants, what it reads. The rules of BatchNormalization's variance are not linear in it.
NODES: dict[str, tuple[str, dict[str, np.ndarray], np.ndarray]] = {
    "grouped": (
        "Conv<group = 2, strides = [2, 1], dilations = [1, 2], pads = [1, 2, 0, 1]>(x, w, b)",
        {"w": floats(6, 2, 3, 3), "b": floats(6)},
        floats(2, 4, 9, 10),
    ),
    "padded": (
        'Conv<auto_pad = "SAME_LOWER", strides = [2]>(x, w, b)',
        {"w": floats(5, 3, 4), "b": floats(5)},
        floats(1, 3, 11),
    ),
    "gemm": ("Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, w, b)", {"w": floats(7, 5), "b": floats(7)}, floats(4, 5)),
    "product": ("MatMul(x, w)", {"w": floats(5, 6)}, floats(2, 3, 5)),
    "sum": ("Sub(w, x)", {"w": floats(3, 1)}, floats(2, 3, 5)),
    "scale": ("Mul(x, w)", {"w": floats(5)}, floats(2, 3, 5)),
    "norm": (
        "BatchNormalization(x, w, b, m, v)",
        {"w": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 1},
        floats(2, 4, 5),
    ),
    "layer": ("LayerNormalization<axis = -1>(x, w, b)", {"w": floats(5), "b": floats(5)}, floats(2, 3, 5)),
}


def slopes_of(text: str, constants: dict[str, np.ndarray], x: np.ndarray) -> Slopes:
    """Of the one node of a network, with three random directions."""
    shape = ",".join(map(str, x.shape))
    network = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float y) {{ y = {text} }}'
    model = ir.from_proto(parse_network(network, constants))
    reference = open_reference(compile_program(model), [{"x": x}], 1 << 30)
    (site,) = sites_of(reference, frozenset())
    adjoint = floats(site.size, 3)
    inputs = [reference.value(0, name) for name in site.step.inputs]
    wanted = [index for index, name in enumerate(site.step.inputs) if name in constants]
    made = constant_adjoints(site.step, inputs, site.result, adjoint, wanted)
    held = {site.step.inputs[index]: table for index, table in made.items()}
    return Slopes(site=site, sample=0, adjoint=adjoint, constants=held)


def of_constant(index: int, change: Callable[[np.ndarray], np.ndarray]) -> StretchEdit:
    return StretchEdit(
        words="",
        bits=0,
        at=0,
        before=lambda arrays: [
            change(array) if place == index and array is not None else array for place, array in enumerate(arrays)
        ],
    )


def run_and_multiplied(slopes: Slopes, edit: StretchEdit) -> np.ndarray:
    results = slopes.site.results(0, edit)
    assert results is not None
    assert results[0] is not None
    change = results[0].astype(np.float64) - slopes.site.result
    return np.asarray(change.ravel() @ slopes.adjoint.astype(np.float64))


@pytest.mark.parametrize("kind", NODES)
def test_a_change_of_a_constant_is_looked_up(kind: str) -> None:
    slopes = slopes_of(*NODES[kind])
    inputs = slopes.site.step.inputs
    assert set(slopes.constants) == set(NODES[kind][1])
    for name in slopes.constants:
        amount = 1e-3 if name == "v" else 1.0  # what is not linear is so for small changes
        noise = floats(*NODES[kind][1][name].shape) * np.float32(amount)
        edit = of_constant(inputs.index(name), partial(np.add, noise))
        known, found = run_and_multiplied(slopes, edit), slopes.of(edit)
        assert found is not None
        # FP32 sums of some thousand terms; the square of a change of 1e-3 beside it.
        assert np.linalg.norm(found - known) <= (1e-2 if name == "v" else 1e-4) * np.linalg.norm(known) + 1e-5


def test_all_exchanges_of_two_indices_are_looked_up_at_once() -> None:
    slopes = slopes_of(*NODES["grouped"])
    weights = NODES["grouped"][1]["w"]
    table = effects_of_exchanges(weights, slopes.constants["w"], 0)
    assert table is not None
    swapped = of_constant(1, lambda array: array[[0, 4, 2, 3, 1, 5]])
    assert np.allclose(table[1, 4], run_and_multiplied(slopes, swapped), rtol=1e-4, atol=1e-4)
    assert np.allclose(table[4, 1], table[1, 4])


def test_elementwise_changes_are_looked_up_between_nodes() -> None:
    slopes = slopes_of(*NODES["product"])
    edit = StretchEdit(
        words="",
        bits=0,
        whole=lambda stretch, sample: np.minimum(stretch.base[sample], 0.5),
        pointwise=("", lambda array: np.minimum(array, 0.5)),
    )
    known, found = run_and_multiplied(slopes, edit), slopes.of(edit)
    assert found is not None
    assert np.linalg.norm(found - known) <= 0.05 * np.linalg.norm(known)  # one element may lie beside the bound


def test_values_of_one_attribute_are_alike_to_the_runtime() -> None:
    """What ended it once is not tried again with the next number."""
    words = [f"attribute batch_dims {value} in place of 0" for value in (-5, 3, 1.5e-3)]
    assert {form_of(one) for one in words} == {"attribute batch_dims # in place of #"}
    assert form_of("attribute axis 1 in place of 0") not in {form_of(one) for one in words}
