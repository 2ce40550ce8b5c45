"""LSTM, GRU and RNN taken apart: the operators' own function in FP32, and the roundings of each step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic import round_to
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.fusion import GraphFusion
from parityscope.arithmetic.fusion.openvino import PROFILE
from parityscope.arithmetic.graphs import Names
from parityscope.arithmetic.recurrent import take_apart
from parityscope.backends.onnxruntime_sessions import open_session
from simulated import detype, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

Arrays = dict[str, np.ndarray]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, ENTERING, HIDDEN = 4, 2, 3, 5
# What ONNX Runtime's own operator and the same equations node by node differ by in FP32: sums of ten terms of size 1 and
# sigmoids of them, over four steps. Between 2e-8 and 2e-6 were seen.
CLOSE = 1e-5


def recurrent(
    op_type: str,
    parameters: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    *,
    opset: int = 14,
    constant: bool = True,
    **attributes: Any,
) -> ir.Model:
    """A model of one recurrent node called "layer"; what of its inputs is a parameter and what is fed."""
    places = ["X", "W", "R", "B", "lengths", "h", *(["c", "P"] if op_type == "LSTM" else [])]
    given = {**parameters, **feeds}
    outputs = ["Y", "last", *(["memory"] if op_type == "LSTM" else [])]
    names = [name if name in given else "" for name in places]
    node = onnx.helper.make_node(op_type, names, outputs, hidden_size=HIDDEN, name="layer", **attributes)
    fed = dict(feeds) if constant else given
    held = parameters if constant else {}
    kind = onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(name, kind(each.dtype), each.shape) for name, each in fed.items()],
        [onnx.helper.make_tensor_value_info(name, kind(given["X"].dtype), None) for name in outputs],
        [onnx.numpy_helper.from_array(each, name) for name, each in held.items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    return ir.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def drawn(op_type: str, directions: int, seed: int, *, whole: bool = True) -> tuple[Arrays, Arrays]:
    """Parameters and an input; `whole` ones have everything that is optional but lengths."""
    draw = np.random.default_rng(seed)
    rows = GATES[op_type] * HIDDEN

    def normal(*shape: int) -> np.ndarray:
        return draw.normal(size=shape).astype(np.float32)

    parameters = {"W": normal(directions, rows, ENTERING), "R": normal(directions, rows, HIDDEN)}
    feeds = {"X": normal(STEPS, BATCH, ENTERING)}
    if whole:
        parameters["B"] = normal(directions, 2 * rows)
        feeds["h"] = normal(directions, BATCH, HIDDEN)
        if op_type == "LSTM":
            feeds["c"] = normal(directions, BATCH, HIDDEN)
            parameters["P"] = normal(directions, 3 * HIDDEN)
    return parameters, feeds


def taken_apart(model: ir.Model) -> ir.Model:
    copy = model.clone()
    infer_types(copy)
    (taken,) = take_apart(copy, Names(copy))
    assert taken.scan.name == "layer"
    assert not any(node.op_type in GATES for node in copy.graph.all_nodes())
    return copy


def run(model: ir.Model, feeds: Mapping[str, np.ndarray], *, optimization: str = "all") -> Arrays:
    return dict(open_session(model, optimization=optimization, threads=1)(feeds))


def same_function(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> None:
    expected, found = run(model, feeds), run(taken_apart(model), feeds)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=CLOSE)


@settings(max_examples=60, deadline=None)
@given(
    op_type=st.sampled_from(sorted(GATES)),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    whole=st.booleans(),
    constant=st.booleans(),
    lengths=st.none() | st.lists(st.integers(1, STEPS), min_size=BATCH, max_size=BATCH),
    clip=st.none() | st.floats(0.25, 3.0),
    special=st.booleans(),
    opset=st.sampled_from([11, 14]),
    seed=st.integers(0, 2**16),
)
def test_in_fp32_it_is_the_same_function(
    op_type: str,
    direction: str,
    whole: bool,
    constant: bool,
    lengths: list[int] | None,
    clip: float | None,
    special: bool,
    opset: int,
    seed: int,
) -> None:
    parameters, feeds = drawn(op_type, 2 if direction == "bidirectional" else 1, seed, whole=whole)
    if lengths is not None:
        feeds["lengths"] = np.array(lengths, np.int32)
    attributes: dict[str, Any] = {"direction": direction, **({} if clip is None else {"clip": clip})}
    if special and op_type != "RNN":
        attributes[{"LSTM": "input_forget", "GRU": "linear_before_reset"}[op_type]] = 1
    model = recurrent(op_type, parameters, feeds, opset=opset, constant=constant, **attributes)
    same_function(model, feeds if constant else {**parameters, **feeds})


@pytest.mark.parametrize(
    "name",
    ["Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign", "Tanh"],
)
def test_every_activation_with_numbers_of_its_own(name: str) -> None:
    # Numbers are listed for those activations alone that take one, in their order: the Sigmoid before takes none.
    parameters, feeds = drawn("LSTM", 1, 5)
    small = {key: 0.3 * array for key, array in parameters.items()}
    numbers: dict[str, Any] = {"activation_alpha": [0.3], "activation_beta": [0.2]}
    same_function(recurrent("LSTM", small, feeds, activations=["Sigmoid", name, "Tanh"], **numbers), feeds)


def test_no_biases_and_no_state_before_are_zeros_of_the_batch_at_hand() -> None:
    parameters, feeds = drawn("GRU", 2, 3, whole=False)
    model = taken_apart(recurrent("GRU", parameters, feeds, direction="bidirectional"))
    model.graph.inputs[0].shape = ir.Shape([None, None, ENTERING])
    longer = {"X": np.concatenate([feeds["X"]] * 3, axis=1)}
    found = run(model, longer)["last"]
    np.testing.assert_array_equal(found, np.concatenate([run(model, feeds)["last"]] * 3, axis=1))


# Dyadic numbers of few bits: sums of products of them are exact in FP32 in any order, so that only what is rounded on
# purpose is. HardSigmoid with 1/4 and 1/2, and Relu, are exact as well.
EXACT: dict[str, Any] = {
    "activations": ["HardSigmoid", "Relu", "Relu"],
    "activation_alpha": [0.25],
    "activation_beta": [0.5],
}


def dyadic(op_type: str, seed: int) -> tuple[Arrays, Arrays]:
    parameters, feeds = drawn(op_type, 1, seed)
    parameters.pop("P", None)
    rounded = [
        {name: np.round(array * 8).astype(np.float32) / 8 for name, array in each.items()}
        for each in (parameters, feeds)
    ]
    return rounded[0], rounded[1]


def lstm_in_numpy(parameters: Arrays, feeds: Arrays, name: str) -> Arrays:
    """The specification's equations; both states rounded after each step, all else in float64."""

    def stored(array: np.ndarray) -> np.ndarray:
        return round_to(array, FORMATS[name])

    def hard(array: np.ndarray) -> np.ndarray:
        return np.clip(0.25 * array + 0.5, 0.0, 1.0)

    wide = {key: array.astype(np.float64) for key, array in {**parameters, **feeds}.items()}
    h, c = wide["h"][0], wide["c"][0]
    bias = wide["B"][0].reshape(2, -1).sum(axis=0)
    every = []
    for x in wide["X"]:
        i, o, f, g = np.split(x @ wide["W"][0].T + h @ wide["R"][0].T + bias, 4, axis=1)
        c = stored(hard(f) * c + hard(i) * np.maximum(g, 0.0))
        h = stored(hard(o) * np.maximum(c, 0.0))
        every.append(h)
    return {"Y": np.stack(every)[:, None], "last": h[None], "memory": c[None]}


def test_states_are_rounded_after_each_step() -> None:
    outside = []
    for seed in range(5):
        parameters, feeds = dyadic("LSTM", seed)
        model = recurrent("LSTM", parameters, feeds, **EXACT)
        found = simulate(model, "bf16")(feeds)
        expected = lstm_in_numpy(parameters, feeds, "bf16")
        # Inside, the state before rounding is FP32 and not float64: a tie may fall to its other side.
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=2.0**-8, atol=0)
            assert np.mean(found[name] == array) > 0.9
            np.testing.assert_array_equal(round_to(found[name], FORMATS["bf16"]), found[name])
        plain = run(model, feeds)
        outside.append(np.array_equal(found["last"], round_to(plain["last"], FORMATS["bf16"])))
    assert not all(outside)  # rounding the results alone is not enough


def test_sums_in_fp16_are_rounded_two_terms_at_a_time() -> None:
    # H' = relu(X W + H R + B), with X W and H R of 6 terms each added up in pairs, each sum so far rounded to FP16, then
    # the bias added and the product stored, then the sum of both and the state.
    draw = np.random.default_rng(7)
    sizes = {"W": (1, HIDDEN, 6), "R": (1, HIDDEN, HIDDEN), "B": (1, 2 * HIDDEN)}
    parameters = {name: (np.round(draw.normal(size=size) * 64) / 64).astype(np.float32) for name, size in sizes.items()}
    x = (np.round(draw.normal(size=(STEPS, BATCH, 6)) * 64) / 64).astype(np.float32)
    model = recurrent("RNN", parameters, {"X": x}, activations=["Relu"])
    found = simulate(model, "f16", profile="onnxruntime-cuda")({"X": x})

    def half(array: np.ndarray) -> np.ndarray:
        return round_to(array.astype(np.float32), FORMATS["f16"])

    def product(left: np.ndarray, right: np.ndarray, bias: np.ndarray, terms: int) -> np.ndarray:
        total = np.zeros((len(left), len(right)), np.float32)
        for start in range(0, left.shape[1], terms):
            total = half(total + left[:, start : start + terms] @ right[:, start : start + terms].T)
        return half(total + half(bias))

    h = np.zeros((BATCH, HIDDEN), np.float32)
    for each in x:
        entered = product(half(each), half(parameters["W"][0]), parameters["B"][0][:HIDDEN], 2)
        # Five terms can be divided into single ones alone.
        h = half(np.maximum(entered + product(h, half(parameters["R"][0]), parameters["B"][0][HIDDEN:], 1), 0.0))
    np.testing.assert_array_equal(found["last"][0], h)


def test_a_model_typed_in_fp16_is_rounded_as_one_that_is_simulated_in_it() -> None:
    parameters, feeds = drawn("LSTM", 2, 11)
    plain = recurrent("LSTM", parameters, feeds, direction="bidirectional")
    halves = [{name: array.astype(np.float16) for name, array in each.items()} for each in (parameters, feeds)]
    typed = recurrent("LSTM", halves[0], halves[1], direction="bidirectional")
    found = detype(typed)(halves[1])
    for name, array in simulate(plain, "f16")(feeds).items():
        np.testing.assert_array_equal(found[name].astype(np.float32), array)


def test_the_profile_decides_what_is_rounded_inside() -> None:
    parameters, feeds = drawn("LSTM", 1, 17)
    model = recurrent("LSTM", parameters, feeds)
    exact = run(model, feeds)["last"]
    fusion = PROFILE.predict(model, "f16")
    assert fusion is not None

    def error(profile: str | GraphFusion) -> float:
        simulation = simulate(model, "f16", profile=profile)
        assert bool(simulation.notes) == isinstance(profile, GraphFusion)
        return float(np.linalg.norm(simulation(feeds)["last"] - exact))

    # Nothing inside, the states, all of it: more is rounded from one to the next.
    nothing = error(replace(fusion, recurrence=None))
    found = {profile: error(profile) for profile in ("openvino", "onnxruntime-cuda", "none")}
    assert found["onnxruntime-cuda"] == found["none"]
    assert len({nothing, *found.values()}) == 3
    (note,) = simulate(model, "f16", profile=replace(fusion, recurrence=None)).notes
    assert "computes it in FP32 inside" in note.reason


def test_activations_without_a_default_are_left_alone() -> None:
    parameters, feeds = drawn("RNN", 1, 19)
    (note,) = simulate(recurrent("RNN", parameters, feeds, activations=["ScaledTanh"]), "f16").notes
    assert "activations outside of the standard set" in note.reason


def test_an_old_opset_is_converted_up_for_it() -> None:
    parameters, feeds = drawn("GRU", 1, 23)
    simulation = simulate(recurrent("GRU", parameters, feeds, opset=9), "f16")
    assert simulation.model.opset_imports[""] >= 11
    assert not simulation.notes
    assert np.isfinite(simulation(feeds)["last"]).all()
