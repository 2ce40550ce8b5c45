"""Products of quantized operands: against ONNX Runtime's own quantization, against numpy, and from the command line."""

from __future__ import annotations

import itertools
import json
import struct
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from command_line import exit_status, read_study
from hardware import needs_narrow_sums
from parityscope.arithmetic.quantizing import operands_of, quantize_products
from parityscope.case.formats.dynamic_ranges import dynamic_ranges, dynamic_ranges_text
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.simulating import simulated_world
from parityscope.testing.networks import write_network
from proving.models.fetching import require
from proving.models.samples import page_crops

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.arithmetic.simulation import Arrangement

_RNG = np.random.default_rng(11)
_CONV = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4,9,9] x) => (float[2,8] y) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  r = Relu(c)
  d = Conv<group = 8>(r, k)
  p = GlobalAveragePool(d)
  f = Flatten(p)
  y = Gemm<transB = 1>(f, m, b)
}"""
_SHAPES = {"w": (8, 4, 3, 3), "k": (8, 1, 3, 3), "m": (8, 8), "b": (8,)}
_X = _RNG.normal(size=(2, 4, 9, 9)).astype(np.float32)


def _model(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for name, shape in shapes.items():
        # Channels of very different sizes, so that one scale for all of them would be another quantization.
        sizes = 10.0 ** _RNG.uniform(-2, 1, size=(shape[0], *[1] * (len(shape) - 1)))
        array = (_RNG.normal(size=shape) * sizes).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *also: str) -> list[np.ndarray]:
    seen = onnx.ModelProto.FromString(model.SerializeToString())
    seen.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in also)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(seen.SerializeToString(), options).run(None, feeds)


def _simulated(arrangement: Arrangement, feeds: dict[str, np.ndarray], *also: str) -> list[np.ndarray]:
    """The outputs of the simulated network, then the tensors `also`."""
    world = simulated_world("simulated", arrangement)
    return list(run_world(world, feeds, [*world.program.outputs, *also]).values())


def _operands(arrangement: Arrangement) -> set[str]:
    """The activations that products read quantized."""
    return {str(node.inputs[index].name) for node, index in arrangement.quantizers if node.inputs[index] is not None}


def _largest(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, float]:
    names = [name for name in operands_of(ir.from_proto(model)) if name not in feeds]
    found = dict(zip(names, _run(model, feeds, *names)[len(model.graph.output) :], strict=True))
    return {name: float(np.abs(array).max()) for name, array in {**found, **feeds}.items()}


def _quantized(model: onnx.ModelProto, folder: Path) -> Path:
    """The file that ONNX Runtime makes of a model, calibrated on `_X`."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    onnx.save(model, folder / "model.onnx")

    class _Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{"x": _X}]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    products = ["Conv", "Gemm"]
    quantize_static(
        folder / "model.onnx",
        folder / "int8.onnx",
        _Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=products,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": products,
        },
    )
    return folder / "int8.onnx"


def test_it_is_what_a_runtime_quantizes(tmp_path: Path) -> None:
    """ONNX Runtime calibrates and writes QuantizeLinear and DequantizeLinear; tensors agree but for FP32's order of sums."""
    model = _model(_CONV, _SHAPES)
    seen = ("c", "r", "d", "f")
    wanted = _run(onnx.load(_quantized(model, tmp_path)), {"x": _X}, *seen)
    exact = _run(model, {"x": _X}, *seen)
    simulation = quantize_products(ir.from_proto(model), "int8", _largest(model, {"x": _X}))
    found = _simulated(simulation, {"x": _X}, *seen)
    for name, r, one, other in zip(("y", *seen), exact, wanted, found, strict=True):
        error = np.linalg.norm(one - r)
        assert error > 1e-3 * np.linalg.norm(r), name  # quantization is seen here
        assert np.linalg.norm(other - one) < 1e-3 * error, name


def test_a_quantizers_default_on_a_processor_whose_sums_saturate(tmp_path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    needs_narrow_sums()
    generator = np.random.default_rng(45)
    weights = {
        "v": generator.normal(size=(32, 24)).astype(np.float32) + np.float32(0.6),
        "w": generator.normal(size=(24, 10)).astype(np.float32) + np.float32(0.6),
    }
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,32] x) => (float[4,10] y) {
      a = MatMul(x, v)
      b = Sigmoid(a)
      y = MatMul(b, w)
    }"""
    path = write_network(tmp_path / "model.onnx", text, weights)
    data = iter([{"x": generator.uniform(0.3, 1, size=(4, 32)).astype(np.float32)} for _ in range(4)])

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(data, None)

    quantize_static(path, tmp_path / "int8.onnx", Reader(), quant_format=QuantFormat.QDQ)  # in int8 and int8
    write_npz(tmp_path / "x.npz", {"x": generator.uniform(0.3, 1, size=(4, 32)).astype(np.float32)})
    line = ["diagnose", str(path), "--candidate", str(tmp_path / "int8.onnx"), "--inputs", str(tmp_path / "x.npz")]
    assert exit_status(*line, "--study", str(tmp_path / "study"), "--quiet") == 1
    found = read_study(tmp_path / "study")["findings"]
    causes = [one for one in found if one["role"] == "cause"]
    assert [one["code"] for one in causes] == ["RNG005"]
    assert "reduce_range=True" in causes[0]["repairs"][0]["text"]
    assert causes[0]["repairs"][0]["trial"]["verdict"] == "within"
    assert not {"FUS002", "FUS003", "FUS011"} & {one["code"] for one in found}


def test_weights_have_a_scale_for_each_channel_that_comes_out() -> None:
    model = _model(_CONV, _SHAPES)
    simulation = quantize_products(ir.from_proto(model), "int8", _largest(model, {"x": _X}))
    held = {
        str(node.inputs[index].name): array
        for (node, index), array in simulation.plan.constants.items()
        if node.inputs[index] is not None
    }
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    for name in ("w", "k", "m"):
        array, left = weights[name], held[name]
        step = np.abs(array).reshape(len(array), -1).max(axis=1) / 127
        levels = left / step.reshape(-1, *[1] * (array.ndim - 1))
        np.testing.assert_allclose(levels, np.rint(levels), atol=1e-3)
        assert (np.abs(left - array).reshape(len(array), -1).max(axis=1) <= 0.501 * step).all()
    assert set(held) == {"w", "k", "m"}  # the bias stays


def test_what_is_beyond_the_calibration_saturates() -> None:
    model = _model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = MatMul(x, w) }', {}
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    simulation = quantize_products(ir.from_proto(model), "int8", {"x": 127.0})
    x = np.array([[0.4, 126.6, 200.0, -500.0]], np.float32)
    (y,) = _simulated(simulation, {"x": x})
    np.testing.assert_array_equal(y, [[0, 127, 127, -128]])


def test_fp8_has_the_scales_of_typed_models() -> None:
    model = _model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,32] y) { y = MatMul(x, w) }',
        {"w": (16, 32)},
    )
    x = (_RNG.normal(size=(2, 16)) * 1e4).astype(np.float32)
    size = float(np.abs(x).max())
    simulation = quantize_products(ir.from_proto(model), "fp8", {"x": size})
    (y,) = _simulated(simulation, {"x": x})
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])

    def stored(array: np.ndarray, largest: np.ndarray) -> np.ndarray:
        scale = np.clip(2.0 ** np.ceil(np.log2(largest / 448)), 2.0**-14, 2.0**7).astype(np.float32)
        return (array / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale

    np.testing.assert_allclose(y, stored(x, np.array(size)) @ stored(weight, np.abs(weight).max(axis=0)), rtol=1e-5)
    assert _operands(simulation) == {"x"}
    assert [index for _, index in simulation.plan.constants] == [1]


def test_products_without_a_scale_stay_and_are_told() -> None:
    model = _model(_CONV, _SHAPES)
    largest = _largest(model, {"x": _X})
    del largest["r"]
    simulation = quantize_products(ir.from_proto(model), "int8", largest)
    assert _operands(simulation) == {"x", "f"}
    assert [one.what for one in simulation.notes] == ["products that read 'r'"]


def test_products_in_bodies_stay_and_are_told() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2,4] x) => (float[2,4] y) {
      y = If(c) <then_branch = t () => (float[2,4] a) { a = MatMul(x, w) },
                 else_branch = e () => (float[2,4] b) { b = Identity(x) }>
    }"""
    simulation = quantize_products(ir.from_proto(_model(text, {"w": (4, 4)})), "int8", {"x": 1.0})
    assert [one.what for one in simulation.notes] == ["1 products in bodies of If, Loop or Scan"]


def test_a_calibration_cache_is_read(tmp_path: Path) -> None:
    digits = struct.pack(">f", 0.5).hex()
    (tmp_path / "c.cache").write_text(
        f"TRT-100300-EntropyCalibration2\nx: {digits}\na: b: {digits}\n", encoding="utf-8"
    )
    assert dynamic_ranges(str(tmp_path / "c.cache")) == {"x": 63.5, "a: b": 63.5}
    assert dynamic_ranges(dynamic_ranges_text({"x": 2.0})) == {"x": 2.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("TRT-1\nx: zz", "line 2: no scale"),
        ("TRT-1\nx: 7f800000", "has the scale inf"),
        ("TRT-1\nx 3f000000", "line 2"),
        ("[1]", "no JSON object"),
        ('{"x": -1}', "which is no magnitude"),
        ('{"x": true}', "which is no magnitude"),
        ("hello", "no whole JSON"),
    ],
)
def test_what_is_no_calibration_is_one_error(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_text(text, encoding="utf-8")
    with pytest.raises(ParityError, match=said) as error:
        dynamic_ranges(str(tmp_path / "c"))
    assert error.value.fix


def test_predicting_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _model(_CONV, _SHAPES)
    onnx.save(model, tmp_path / "model.onnx")
    for number, size in enumerate((1.0, 3.0)):
        write_npz(tmp_path / "in" / f"{number}.npz", {"x": _X * np.float32(size)})
    largest = {
        name: 3 * size for name, size in _largest(model, {"x": _X}).items()
    }  # the network is linear in size but for b
    base = ["predict", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "in"), "--format", "json", "--quiet"]
    assert exit_status(*base, "--formats", "int8,fp8") == 0
    document = json.loads(capsys.readouterr().out)
    int8, fp8 = document["formats"]
    assert [int8["title"], fp8["title"]] == ["INT8", "Scaled FP8"]
    simulation = quantize_products(ir.from_proto(model), "int8", largest)
    errors, sizes = 0.0, 0.0
    for size in (1.0, 3.0):
        feeds = {"x": _X * np.float32(size)}
        (r,), (c,) = _run(model, feeds), _simulated(simulation, feeds)
        errors, sizes = errors + float(((c - r) ** 2).sum()), sizes + float((r**2).sum())
    assert int8["outputs"][0]["rel_l2"] == pytest.approx((errors / sizes) ** 0.5, rel=1e-2)
    layers = {one["site"]["tensor"]: one for one in int8["layers"]}
    assert layers["c"]["introduced"] == pytest.approx(layers["c"]["rel_l2"])  # it reads the input itself
    assert layers["r"]["introduced"] == 0
    (tmp_path / "ranges.json").write_text(dynamic_ranges_text(largest), encoding="utf-8")
    assert exit_status(*base, "--formats", "int8", "--dynamic-range", str(tmp_path / "ranges.json")) == 0
    again = json.loads(capsys.readouterr().out)["formats"][0]
    assert again["outputs"][0]["rel_l2"] == pytest.approx(int8["outputs"][0]["rel_l2"], rel=1e-3)


def test_a_simulated_deployment_needs_its_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(_model(_CONV, _SHAPES), tmp_path / "model.onnx")
    write_npz(tmp_path / "x.npz", {"x": _X})
    run = [
        "compare",
        str(tmp_path / "model.onnx"),
        "--inputs",
        str(tmp_path / "x.npz"),
        "--study",
        str(tmp_path / "study"),
    ]
    assert exit_status(*run, "--candidate", "sim:int8") == 2
    assert "needs the largest magnitudes" in capsys.readouterr().err
    largest = dynamic_ranges_text(_largest(onnx.load(tmp_path / "model.onnx"), {"x": _X}))
    (tmp_path / "r.json").write_text(largest, encoding="utf-8")
    assert exit_status(*run, "--candidate", f"sim:int8?dynamic_range={tmp_path / 'r.json'}") in {0, 1}


def test_a_deployment_that_says_it_is_int8_is_graded_so(tmp_path: Path) -> None:
    candidate = _quantized(_model(_CONV, _SHAPES), tmp_path)
    write_npz(tmp_path / "x.npz", {"x": _X})
    # Verdict and grades are asked, and no cause.
    asked = ["compare", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "x.npz"), "--format", "json"]
    asked += ["--quiet", "--candidate", f"ort?model={candidate}"]
    assert exit_status("localize", *asked[1:], "--declared", "int8", "--study", str(tmp_path / "a")) == 0
    document = read_study(tmp_path / "a")
    assert document["verdict"] == "within"
    (output,) = document["outputs"]
    assert output["grade"] == "int8"
    assert output["rel_l2"] == pytest.approx(output["expected"]["int8"], rel=0.02)
    assert {one["grade"] for one in document["tensors"] if one["name"] in {"c", "d"}} == {"int8"}
    assert exit_status(*asked, "--declared", "f16") == 1
    # Weights of one layer that are half as large again are no quantization.
    wrong = onnx.load(candidate)
    for one in wrong.graph.initializer:
        if one.name == "w_scale":
            one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one) * np.float32(1.5), one.name))
    onnx.save(wrong, candidate)
    assert exit_status(*asked, "--declared", "int8") == 1


def test_a_format_that_is_not_known_is_told_with_all_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(_model(_CONV, _SHAPES), tmp_path / "model.onnx")
    write_npz(tmp_path / "x.npz", {"x": _X})
    words = ["predict", str(tmp_path / "model.onnx"), "--inputs", str(tmp_path / "x.npz"), "--formats", "int9"]
    assert exit_status(*words) == 2
    error = capsys.readouterr().err
    assert "no number format 'int9'" in error
    assert "int8, fp8" in error


@pytest.fixture(scope="module")
def text_direction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained classifier, samples of it, and the file that ONNX Runtime quantizes it to, calibrated on other samples."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    folder = tmp_path_factory.mktemp("quantized")
    plain = onnx.version_converter.convert_version(onnx.load(require("ocr-cls")), 13)
    onnx.save(plain, folder / "plain.onnx")
    given = list(itertools.islice(page_crops(np.random.default_rng(1)), 10))
    for number, arrays in enumerate(given[8:]):
        write_npz(folder / "samples" / f"{number}.npz", arrays)

    class _Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(given[:8])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    quantize_static(
        folder / "plain.onnx",
        folder / "int8.onnx",
        _Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return folder


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (0.05, 1)])
def test_a_trained_model_quantized_right_is_within_and_with_a_broken_scale_beyond(
    text_direction: Path, factor: float, status: int
) -> None:
    model = onnx.load(text_direction / "int8.onnx")
    scale = next(node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear")
    tensor = next(one for one in model.graph.initializer if one.name == scale)
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * np.float32(factor), scale))
    path = text_direction / f"{status}.onnx"
    onnx.save(model, path)
    line = ["compare", str(text_direction / "plain.onnx"), "--inputs", str(text_direction / "samples"), "--quiet"]
    study = text_direction / f"study-{status}"
    assert exit_status(*line, "--candidate", f"ort?model={path}", "--study", str(study)) == status
    document = read_study(study)
    assert document["policy"]["declared"] == "int8"
