"""Generated inputs: deterministic, of the declared types, inside the ranges that the graph gives away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from parityscope.case import load_inputs, load_model
from parityscope.case.generated import generated_shapes, table_rows
from parityscope.errors import ParityError
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.case import Model


def model(folder: Path, text: str, **tables: np.ndarray) -> Model:
    write_network(folder / "m.onnx", f'<ir_version: 8, opset_import: ["": 17]> g {text}', tables)
    return load_model(folder / "m.onnx")


def bert(folder: Path) -> Model:
    return model(
        folder,
        "(int64[batch, seq] input_ids, int64[batch, seq] token_type_ids, int64[batch, seq] attention_mask, "
        "int64[batch, seq] position_ids) => (float[batch, seq, 4] y) {"
        " short = Cast <to = 6> (input_ids)"
        " words = Gather(table, short)"
        " kinds = Gather(types, token_type_ids)"
        " places = Gather(positions, position_ids)"
        " seen = Cast <to = 1> (attention_mask)"
        " axis = Constant <value_ints = [-1]> ()"
        " wide = Unsqueeze(seen, axis)"
        " one = Add(words, kinds) two = Add(one, places) y = Mul(two, wide) }",
        table=np.zeros((1000, 4), np.float32),
        types=np.zeros((2, 4), np.float32),
        positions=np.zeros((8, 4), np.float32),
    )


def test_token_ids_come_from_the_vocabulary(tmp_path: Path) -> None:
    made = bert(tmp_path)
    assert table_rows(made) == {"input_ids": 1000, "token_type_ids": 2, "position_ids": 8}
    inputs = load_inputs(made, None, spool=tmp_path / "spool", shapes={"input_ids": (2, 500)})
    arrays = inputs.sample(0).arrays
    # The same symbols have the same sizes in every input.
    assert {array.shape for array in arrays.values()} == {(2, 500)}
    ids = arrays["input_ids"]
    assert ids.dtype == np.int64
    assert 0 <= ids.min() < 100
    assert 900 <= ids.max() < 1000
    assert not arrays["token_type_ids"].any()
    assert arrays["attention_mask"].all()
    np.testing.assert_array_equal(arrays["position_ids"][0], np.arange(500) % 8)
    assert inputs.generated
    assert inputs.seed == 0
    assert "input_ids [2, 500] uniform over the 1000 rows" in inputs.origin


def test_samples_differ_and_repeat_with_the_seed(tmp_path: Path) -> None:
    made = bert(tmp_path)
    three = load_inputs(made, None, spool=tmp_path, samples=3, seed=7)
    again = load_inputs(made, None, spool=tmp_path, samples=3, seed=7)
    other = load_inputs(made, None, spool=tmp_path, samples=3, seed=8)
    assert len(three) == 3
    assert three.sha256 == again.sha256 != other.sha256
    ids = [sample.arrays["input_ids"] for sample in three]
    assert not np.array_equal(ids[0], ids[1])
    # A sample does not depend on how many are drawn.
    one = load_inputs(made, None, spool=tmp_path, seed=7)
    np.testing.assert_array_equal(one.sample(0).arrays["input_ids"], ids[0])


def test_images_and_features_and_odd_types(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "(float[N, 3, H, W] image, float[N, height, width, 3] nhwc, float[N, D] feature, uint8[N, P] pixels, "
        "bool[100] b, int32[50] n, float16[N, 8, L, 64] past, bfloat16[40] h)"
        " => (float[N, 3, H, W] y) { y = Relu(image) }",
    )
    arrays = load_inputs(made, None, spool=tmp_path, samples=1).sample(0).arrays
    shapes = {name: array.shape for name, array in arrays.items()}
    assert shapes == {
        "image": (1, 3, 224, 224),
        "nhwc": (1, 224, 224, 3),
        "feature": (1, 16),
        "pixels": (1, 16),
        "b": (100,),
        "n": (50,),
        "past": (1, 8, 16, 64),
        "h": (40,),
    }
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        value.name: value.dtype for value in made.inputs
    }
    assert arrays["image"].min() >= 0
    assert arrays["image"].max() < 1
    assert arrays["past"].min() < 0  # a feature, not an image
    assert set(np.unique(arrays["b"])) == {False, True}
    assert 0 <= arrays["n"].min() <= arrays["n"].max() <= 9


def test_onehot_depth_bounds_the_indices(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "(int64[200] k) => (float[200, 6] y) { depth = Constant <value_int = 6> () "
        "ends = Constant <value_floats = [0.0, 1.0]> () y = OneHot(k, depth, ends) }",
    )
    k = load_inputs(made, None, spool=tmp_path).sample(0).arrays["k"]
    assert set(np.unique(k)) == set(range(6))


@given(st.lists(st.sampled_from([1, 3, 7, None, "N", "batch", "L"]), max_size=5), st.integers(0, 3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_shapes_respect_what_is_declared(tmp_path: Path, dims: list[int | str | None], seed: int) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("a", "b")]
    node = helper.make_node("Identity", ["a"], ["y"])
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    made = load_model(tmp_path / "m.onnx")
    shapes = generated_shapes(made, {})
    assert shapes["a"] == shapes["b"]
    assert all(size == dim for size, dim in zip(shapes["a"], dims, strict=True) if isinstance(dim, int))
    # `load_inputs` checks what was generated against the model, symbols included.
    assert load_inputs(made, None, spool=tmp_path, seed=seed).sample(0).arrays["a"].shape == shapes["a"]


def test_what_cannot_be_generated_says_what_to_do(tmp_path: Path) -> None:
    made = model(tmp_path, "(string[N] text) => (string[N] y) { y = Identity(text) }")
    with pytest.raises(ParityError, match=r"'text' \(str \[N\]\) cannot be generated") as caught:
        load_inputs(made, None, spool=tmp_path)
    assert "--inputs" in caught.value.fix
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [info], [helper.make_tensor_value_info("y", 1, None)]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "r.onnx")
    unranked = load_model(tmp_path / "r.onnx")
    with pytest.raises(ParityError, match="how many axes input 'x' has"):
        load_inputs(unranked, None, spool=tmp_path)
    assert load_inputs(unranked, None, spool=tmp_path, shapes={"x": (4,)}).sample(0).arrays["x"].shape == (4,)
    with pytest.raises(ParityError, match="-1 cannot be a seed"):
        load_inputs(unranked, None, spool=tmp_path, shapes={"x": (4,)}, seed=-1)
