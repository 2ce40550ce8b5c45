"""Forecasts: known answers derived in numpy, every awkward input, the strict JSON, the page and the command."""

from __future__ import annotations

import json
import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status
from parityscope.arithmetic import FORMATS, round_to
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.expectation.forecasting import ForecastSettings, forecast
from parityscope.expectation.forecasts import Forecast, MagnitudeRange
from parityscope.expectation.parameters import changed_parameters
from parityscope.expectation.ranges import range_of
from parityscope.records import Site
from parityscope.report.forecast import FORMS, forecast_document
from parityscope.testing.networks import write_network
from proving.models.fetching import ocr_det_input, page_image, require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.case import Inputs, Model

_NO_WEIGHTS: Mapping[str, Any] = MappingProxyType({})
F16 = FORMATS["f16"]
GENERATOR = np.random.default_rng(3)
NORMALIZATION = """g (float[1,2,n] x) => (float[1,2,n] y) {
    a = Relu(x)  b = BatchNormalization(a, scale, bias, mean, variance)  y = Sigmoid(b) }"""
STATISTICS = {
    "scale": np.float32([1e4, 1e4]),
    "bias": np.zeros(2, np.float32),
    "mean": np.zeros(2, np.float32),
    "variance": np.float32([9.79e7, 1.0]),
}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A folder that makes models and samples."""
    return Case(tmp_path)


class Case:
    """Makes a model and samples on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(self, text: str, weights: Mapping[str, Any] = _NO_WEIGHTS) -> Path:
        return write_network(self.folder / "model.onnx", '<ir_version: 9, opset_import: ["": 19]>' + text, weights)

    def samples(self, *samples: Mapping[str, np.ndarray]) -> Path:
        folder = self.folder / "samples"
        folder.mkdir()
        for number, sample in enumerate(samples):
            write_npz(folder / f"{number:06d}.npz", dict(sample))
        return folder

    def load(
        self, text: str, samples: Sequence[Mapping[str, np.ndarray]], weights: Mapping[str, Any] = _NO_WEIGHTS
    ) -> tuple[Model, Inputs]:
        model = load_model(self.model(text, weights))
        return model, load_inputs(model, str(self.samples(*samples)), spool=self.folder / "spool")

    def forecast(
        self,
        text: str,
        *samples: Mapping[str, np.ndarray],
        weights: Mapping[str, Any] = _NO_WEIGHTS,
        formats: Sequence[str] = ("f16",),
        settings: ForecastSettings | None = None,
    ) -> Forecast:
        model, inputs = self.load(text, samples, weights)
        return forecast(model, inputs, formats, settings)


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


def size(error: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(error.astype(np.float64)) / np.linalg.norm(reference.astype(np.float64)))


def low(array: np.ndarray) -> np.ndarray:
    return round_to(array, F16)


def test_total_and_introduced_errors_are_those_of_numpy(case: Case) -> None:
    # FP32 products are correctly rounded here and there: every number below is determined.
    x, u, v = normal(300), normal(300), normal(300)
    found = case.forecast(
        "g (float[n] x) => (float[n] y) { a = Mul(x, u) y = Mul(a, v) }", {"x": x}, weights={"u": u, "v": v}
    )
    (only,) = found.formats
    a = low(low(x) * low(u))
    y = low(a * low(v))
    layers = {layer.site.tensor: layer for layer in only.layers}
    assert layers["a"].rel_l2 == pytest.approx(size(a - x * u, x * u), rel=1e-9)
    reference = x * u * v
    assert layers["y"].rel_l2 == pytest.approx(size(y.astype(np.float64) - reference, reference), rel=1e-9)
    # Introduced by the second product: what it stores against the exact product of what it reads.
    assert layers["y"].introduced == pytest.approx(size(y.astype(np.float64) - a * v, reference), rel=1e-9)
    assert layers["y"].inherited == pytest.approx(size((a * v).astype(np.float64) - reference, reference), rel=1e-9)
    (output,) = only.outputs
    assert output.is_output
    assert output.max_abs == np.abs(y.astype(np.float64) - reference).max()
    assert not found.lost


def test_errors_of_several_samples_are_pooled(case: Case) -> None:
    samples = [normal(40), 100 * normal(40)]
    found = case.forecast("g (float[n] x) => (float[n] y) { y = Neg(x) }", *({"x": x} for x in samples))
    (output,) = found.formats[0].outputs
    together = np.concatenate(samples)
    assert output.rel_l2 == pytest.approx(size(low(together) - together, together), rel=1e-9)
    assert output.per_sample == pytest.approx([size(low(x) - x, x) for x in samples], rel=1e-9)
    assert found.samples == 2


def test_a_parameter_beyond_the_range_is_the_cause(case: Case) -> None:
    found = case.forecast(NORMALIZATION, {"x": 6 + normal(1, 2, 50)}, weights=STATISTICS, formats=["f16", "bf16"])
    first, second = found.formats
    assert first.lost
    assert not second.lost
    assert first.cause is not None
    assert (first.cause.kind, first.cause.parameter) == ("parameter", "variance")
    assert first.statements[0].startswith("FP16 overflows at the running variance of BatchNormalization#1")
    assert "'variance' holds 97,900,000, beyond 65,504 (1 of 2 elements)" in first.statements[0]
    assert "is lost in FP16" in first.statements[1]
    # Rounding alone keeps 11 bits of every number.
    assert first.rounding["y"] < 2e-3
    assert second.parameters == ()


def test_an_activation_beyond_the_range_is_the_cause(case: Case) -> None:
    text = "g (float[n] x) => (float[] y) { two = Constant<value_float=2.0>() p = Pow(x, two) y = ReduceMean<keepdims=0>(p) }"
    x = np.float32([300, 1, 2, 3])
    found = case.forecast(text, {"x": x}).formats[0]
    assert found.lost
    assert found.cause is not None
    assert found.cause.kind == "activation"
    assert found.cause.site.tensor == "p"
    assert "it reaches 90,000, beyond 65,504" in found.cause.text
    (output,) = found.outputs
    assert (output.nonfinite, output.rel_l2) == (1, math.inf)
    assert "1 of 1 elements become NaN or infinite" in found.statements[1]


def test_the_first_layer_that_is_not_finite_is_the_cause_and_none_that_rounds(case: Case) -> None:
    text = """g (float[n] x) => (float[] y) <float tiny = {1e-8}> {
        s = Sin(x)  r = Relu(s)  m = Max(r, tiny)  l = Log(m)  y = ReduceMean<keepdims=0>(l) }"""
    found = case.forecast(text, {"x": np.linspace(-3, 3, 40, dtype=np.float32)}).formats[0]
    assert found.lost
    assert found.cause is not None
    assert (found.cause.kind, found.cause.site.tensor) == (
        "nonfinite",
        "l",
    )  # 1e-8 is zero in FP16, and its logarithm none
    assert "gives NaN or infinity first at" in found.statements[0]
    assert "20 of 40 elements" in found.statements[0]


def test_margins_are_powers_of_two() -> None:
    site = Site(tensor="t", node="n", op_type="Mul", index=0)
    held = MagnitudeRange(site=site, elements=3, largest=2.0**10, smallest=2.0**-20, zeros=1, nonfinite=0)
    assert held.to_overflow(F16) == math.log2(65504) - 10
    assert held.to_subnormal(F16) == -6  # the smallest normal number is 2^-14
    assert held.to_zero(F16) == 5  # half the smallest subnormal one is 2^-25
    nothing = MagnitudeRange(site=site, elements=3, largest=0.0, smallest=0.0, zeros=3, nonfinite=0)
    assert nothing.to_overflow(F16) == nothing.to_zero(F16) == math.inf


@settings(deadline=None)
@given(bits=st.lists(st.integers(0, 2**32 - 1), max_size=40), dtype=st.sampled_from(["float32", "float64", "float16"]))
def test_the_ends_of_any_floats_are_found(bits: list[int], dtype: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(bits, np.uint32).view(np.float32).astype(dtype)
    found = range_of(Site(tensor="t", node="n", op_type="Mul", index=0), array)
    some = [abs(float(x)) for x in array if math.isfinite(x) and x]
    assert (found.largest, found.smallest) == (max(some, default=0.0), min(some, default=0.0))
    assert found.zeros == sum(1 for x in array if x == 0)
    assert found.nonfinite == sum(1 for x in array if not math.isfinite(x))
    assert found.elements == len(bits)


def test_ranges_are_over_all_samples_and_leave_zeros_and_infinities_out(case: Case) -> None:
    x = [np.float32([0, 1e-6, -8]), np.float32([np.inf, 0.5, 100])]
    found = case.forecast("g (float[n] x) => (float[n] y) { y = Neg(x) }", *({"x": each} for each in x))
    (held,) = found.ranges
    assert (held.largest, held.smallest, held.zeros, held.nonfinite, held.elements) == (100, np.float32(1e-6), 1, 1, 6)


def test_parameters_are_counted_by_what_becomes_of_them(case: Case) -> None:
    # FP16: 2^16 is beyond 65,504; 2^-26 is below half of 2^-24; 3e-6 is below 2^-14; 65,519 rounds to 65,504.
    weights = {"w": np.float32([2.0**16, 2.0**-26, 3e-6, 1.0, 0.0, -65519.0]), "scales": np.float32([1e-9, 1e-9])}
    text = (
        "g (float[6] x, float[1,1,4,4] i) => (float[6] y, float[a,b,c,d] z) { y = Mul(x, w) s = Add(y, w) z = Neg(i) }"
    )
    model = load_model(case.model(text, weights)).graph()
    (parameter,) = changed_parameters(model, F16)
    assert (parameter.overflowed, parameter.flushed, parameter.subnormal, parameter.elements) == (1, 1, 1, 6)
    assert parameter.value == 2.0**16
    assert parameter.smallest == 2.0**-26
    assert len(parameter.nodes) == 2
    assert changed_parameters(model, FORMATS["bf16"]) == ()
    assert changed_parameters(model, FORMATS["tf32"]) == ()


def test_chunks_change_nothing(case: Case) -> None:
    # Tensors of 0.5 MiB in chunks of 0.5 MiB: every one is a chunk of its own, and its inputs are another's.
    text = "g (float[n] x) => (float[n] y) { a = Mul(x, x) b = Exp(a) c = Mul(a, b) y = Add(c, x) }"
    model, inputs = case.load(text, [{"x": 0.1 * normal(1 << 17)}])
    apart = forecast(model, inputs, ["f16"], ForecastSettings(memory=2 << 20))
    together = forecast(model, inputs, ["f16"], ForecastSettings(memory=1 << 30))
    assert len(apart.formats[0].layers) == 4
    for one, other in zip(apart.formats[0].layers, together.formats[0].layers, strict=True):
        assert one.site == other.site
        assert one.rel_l2 == pytest.approx(other.rel_l2, rel=1e-3)  # marking tensors changes fusion by FP32 noise
        assert one.introduced == pytest.approx(other.introduced, rel=1e-3)


NOTHING = np.float32([])
AWKWARD: dict[str, tuple[str, dict[str, np.ndarray], str]] = {
    "no floats": (
        "g (int64[n] x) => (int64[n] y) { y = Add(x, x) }",
        {"x": np.arange(3)},
        "The model computes no floating-point tensor",
    ),
    "strings": (
        """g (float[k] w) => (string[n] y, float[k] z) {
            words = Constant<value_strings=["a", "b"]>() y = Identity(words) z = Neg(w) }""",
        {"w": np.float32([1.5])},
        "Output 'z' in FP16: relative L2 error 0",
    ),
    "booleans": (
        "g (float[n] x) => (bool[n] y) { third = Constant<value_float=0.33333334>() y = Greater(x, third) }",
        {"x": np.float32([0.33333331, 1, 0])},
        "of its elements differ",
    ),
    "a single element": (
        "g (float[1] x) => (float[1] y) { y = Exp(x) }",
        {"x": np.float32([0.1])},
        "Output 'y' in FP16: relative L2 error",
    ),
    "a scalar": ("g (float x) => (float y) { y = Exp(x) }", {"x": np.float32(0.1)}, "Output 'y' in FP16"),
    "zeros": (
        "g (float[n] x) => (float[n] y) { a = Mul(x, x) y = Sin(a) }",
        {"x": np.zeros(4, np.float32)},
        "all zeros in the reference",
    ),
    "empty": (
        "g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }",
        {"x": NOTHING},
        "'y' is empty on these samples",
    ),
    "a reference that overflows": (
        "g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }",
        {"x": np.float32([1000, 1])},
        "The reference itself holds 1 NaN or infinite elements at 'a'",
    ),
    "float64": (
        "g (double[n] x) => (double[n] y) { y = Exp(x) }",
        {"x": np.array([0.1, 0.2])},
        "Output 'y' in FP16: relative L2 error",
    ),
    "no nodes": ("g (float[n] x) => (float[n] x) { }", {"x": np.float32([0.1])}, "Output 'x' in FP16"),
    "control flow": (
        """g (float[n] x, bool c) => (float[n] y) {
            y = If (c) <then_branch = t () => (float[n] a) { a = Exp(x) },
                        else_branch = e () => (float[n] b) { b = Neg(x) }> }""",
        {"x": np.float32([0.1, 3]), "c": np.array(True)},
        "Output 'y' in FP16: relative L2 error",
    ),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_models_get_a_plain_statement(case: Case, name: str) -> None:
    text, feeds, statement = AWKWARD[name]
    model, inputs = case.load(text, [feeds])
    found = forecast(model, inputs, ["f16", "bf16", "tf32", "f8e4m3"])
    said = [*found.statements, *(each for one in found.formats for each in one.statements)]
    assert any(statement in each for each in said), said
    held = forecast_document(found, model, inputs)
    text_of = json.dumps(held, allow_nan=False)
    assert json.loads(text_of) == held
    for kind in ("text", "json", "html"):
        assert FORMS.render(held, kind)


def test_formats_that_cannot_be_predicted_are_refused(case: Case) -> None:
    model, inputs = case.load("g (float[n] x) => (float[n] y) { y = Neg(x) }", [{"x": normal(3)}])
    with pytest.raises(ParityError, match="f32 cannot be predicted"):
        forecast(model, inputs, ["f32"])
    with pytest.raises(ParityError, match="no number format"):
        forecast(model, inputs, ["f17"])


def test_outputs_alone_need_no_layers(case: Case) -> None:
    found = case.forecast(
        NORMALIZATION, {"x": 3 + normal(1, 2, 50)}, weights=STATISTICS, settings=ForecastSettings(layers=False)
    )
    assert found.formats[0].layers == ()
    assert found.formats[0].lost
    assert found.formats[0].parameters[0].overflowed == 1


def test_no_name_becomes_markup(case: Case) -> None:
    path = case.model("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
    proto = onnx.load(path)
    wicked = "</script><b>&"
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = wicked
    onnx.save(proto, path)
    model = load_model(path)
    inputs = load_inputs(model, str(case.samples({"x": normal(3)})), spool=case.folder / "spool")
    page = FORMS.render(forecast_document(forecast(model, inputs, ["f16"]), model, inputs), "html")
    assert wicked not in page
    assert "<b>&" not in page
    assert "&lt;/script&gt;&lt;b&gt;&amp;" in page
    assert re.findall(r"""(?:src|href)=["']?(?!#|data:,)([^"'>]+)""", page) == []  # nothing is loaded from anywhere


@pytest.mark.parametrize("kind", ["html", "json", "txt"])
def test_the_command_predicts_and_its_exit_code_says_whether_an_output_is_lost(
    case: Case, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    model, samples = case.model(NORMALIZATION, STATISTICS), case.samples({"x": 3 + normal(1, 2, 50)})
    report = case.folder / f"report.{kind}"
    words = ["predict", str(model), "--inputs", str(samples), "-o", str(report)]
    assert exit_status(*words, "--formats", "f16") == 1
    said = capsys.readouterr()
    assert "FP16 overflows at the running variance of BatchNormalization#1" in said.out
    assert "an output is lost" in said.err
    assert "running variance" in report.read_text(encoding="utf-8")
    assert exit_status(*words, "--formats", "f16") == 2
    assert "exists already" in capsys.readouterr().err
    assert exit_status(*words[:-2], "--formats", "bf16,tf32", "--format", "json", "--outputs-only", "--quiet") == 0
    held = json.loads(capsys.readouterr().out)
    assert held["schema"] == "parityscope-forecast/1"
    assert [each["precision"] for each in held["formats"]] == ["bf16", "tf32"]
    assert exit_status(*words[:-2], "--formats", ",") == 2


@pytest.mark.model
def test_the_detector_is_lost_in_float16_at_its_running_variance(tmp_path: Path) -> None:
    model = load_model(require("ocr-det"))
    require("page-image")
    page = tmp_path / "page.npz"
    write_npz(page, ocr_det_input(page_image(), (384, 192)))
    inputs = load_inputs(model, str(page), spool=tmp_path / "spool")
    found = forecast(model, inputs, ["f16"])
    assert found.lost
    assert "overflows at the running variance of p2o.BatchNormalization.1 " in found.formats[0].statements[0]
    assert "is lost in FP16" in found.formats[0].statements[1]
