"""INT8 predicted against INT8 computed: ONNX Runtime quantizes the same model on the same samples, and runs it.

    python bench/quantization.py [--models ocr-rec,ocr-det,...]

`quantize_static` writes QuantizeLinear and DequantizeLinear at products (symmetric, activations per tensor by their largest
magnitude, weights per channel); that file runs with the optimizer off, so that products see just these numbers, and with it on,
where ONNX Runtime's integer kernels compute. `parityscope predict --formats int8` knows only the model and the samples.
Prints a table in Markdown; nothing is asserted.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from parityscope.arithmetic.opsets import prepare_copy
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.expectation.forecasting import forecast
from proving.models.fetching import model_path
from proving.models.samples import SAMPLES, sample_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRODUCTS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
LEAST = 64  # elements of a tensor that is counted
OPSET = 13  # the first with scales per channel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(SAMPLES))
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(
        "| model | tensors | predicted / computed, median | p10 to p90 | outputs predicted | computed | with integer kernels |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in parser.parse_args().models.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            print(f"| {name} | {row(name, Path(scratch))} |", flush=True)


def row(name: str, folder: Path) -> str:
    feeds = sample_of(name)
    write_npz(folder / "inputs" / "0.npz", feeds)
    model = load_model(model_path(name))
    inputs = load_inputs(model, str(folder / "inputs"), spool=folder)
    (found,) = forecast(model, inputs, ["int8"]).formats
    exact = prepare_copy(model.graph(), OPSET)
    ir.save(exact, folder / "exact.onnx")
    try:
        quantize(folder / "exact.onnx", folder / "int8.onnx", feeds)
        names = [one.site.tensor for one in found.layers if one.elements > LEAST and not one.exact]
        reference = run(folder / "exact.onnx", feeds, names)
        computed = run(folder / "int8.onnx", feeds, names)
        kernels = run(folder / "int8.onnx", feeds, [], optimized=True)
    except Exception as error:  # noqa: BLE001 - what another tool does with a model is told, whatever it is
        return f"- | - | - | {said(found.outputs)} | not quantized: {str(error).splitlines()[0][:90]} | "
    predicted = {one.site.tensor: one.rel_l2 for one in (*found.layers, *found.outputs)}
    ratios = np.array(
        [
            predicted[tensor] / apart(reference[tensor], computed[tensor])
            for tensor in names
            if tensor in computed and apart(reference[tensor], computed[tensor]) > 0
        ]
    )
    told = (
        f"{np.median(ratios):.3f} | {np.quantile(ratios, 0.1):.2f} to {np.quantile(ratios, 0.9):.2f}"
        if ratios.size
        else "- | -"
    )
    outputs = [value.name for value in model.outputs if value.name in predicted]
    floats = [output for output in outputs if reference[output].dtype.kind == "f"]
    real, integer = (
        " ".join(f"{apart(reference[one], side[one]):.3g}" for one in floats) for side in (computed, kernels)
    )
    guess = " ".join(f"{predicted[one]:.3g}" for one in floats)
    return f"{ratios.size} | {told} | {guess} | {real} | {integer}"


def said(outputs: Sequence[object]) -> str:
    return " ".join(f"{getattr(one, 'rel_l2', float('nan')):.3g}" for one in outputs)


def quantize(source: Path, target: Path, feeds: Mapping[str, np.ndarray]) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [dict(feeds)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=PRODUCTS,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": PRODUCTS,
        },
    )


def run(
    path: Path, feeds: Mapping[str, np.ndarray], names: Sequence[str], *, optimized: bool = False
) -> dict[str, np.ndarray]:
    """Outputs, and those of `names` that there are."""
    model = onnx.load(path)
    made = {value for node in model.graph.node for value in node.output}
    held = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in names if one in made - held)
    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def apart(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Relative L2, in float64."""
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    norm = float(np.linalg.norm(r))
    return float(np.linalg.norm(c - r)) / norm if norm else 0.0


if __name__ == "__main__":
    main()
