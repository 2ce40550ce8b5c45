"""What TensorRT-RTX makes of Q/DQ files, dynamic shapes and refit: engines that are built on a CPU and not run.

    python bench/variants.py [MODEL ...]

Prints the rows of the second table of regions in docs/tensorrt.md. The quantized files are ONNX Runtime's own
(`quantize_static`, QDQ, symmetric) on random samples: what is looked at is the engine, and no number that it computes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from network_view import SHAPES
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.typed import typed_model
from parityscope.backends.tensorrt.network import network_view
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.packages import find_package
from parityscope.backends.tensorrt.profiles import ranges_of_samples
from parityscope.case.model import read_graph
from proving.engine_fusion import agreement, foretold
from proving.models.fetching import model_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Shapes = Mapping[str, tuple[int, ...]]


PRODUCTS = ["Conv", "MatMul", "Gemm"]


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Two random samples."""

    def __init__(self, shapes: Shapes) -> None:
        self._left = [
            {name: np.random.default_rng(seed).normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
            for seed in range(2)
        ]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def main() -> None:
    for identity in sys.argv[1:] or ("dnsmos", "ocr-cls"):
        with tempfile.TemporaryDirectory() as folder:
            print_rows(identity, Path(folder))


def print_rows(identity: str, folder: Path) -> None:
    path, shapes = model_path(identity), SHAPES[identity]
    model = read_graph(path)
    half = folder / "f16.onnx"
    ir.save(typed_model(model.clone(), "f16", {}).model, half)
    print_row(f"{identity}, FP16", half, [shapes], model)
    batches = [{name: (size, *shape[1:]) for name, shape in shapes.items()} for size in (1, 8)]
    print_row(f"{identity}, FP16, batch 1 to 8", half, batches, model)
    print_row(f"{identity}, FP16, refit", half, [shapes], model, refit=True)
    for title, kind in (("INT8", QuantType.QInt8), ("FP8", QuantType.QFLOAT8E4M3FN)):
        file = folder / f"{title}.onnx"
        for place, outputs in (("", True), (", at inputs only", False)):
            quantize(path, file, shapes, kind, outputs=outputs)
            print_row(f"{identity}, {title} Q/DQ{place}", file, [shapes], read_graph(file))


def quantize(path: Path, file: Path, shapes: Shapes, kind: QuantType, *, outputs: bool) -> None:
    """Quantizers at the inputs of products, as NVIDIA's tools do; with `outputs` behind them too, as ONNX Runtime does."""
    eight = kind == QuantType.QFLOAT8E4M3FN
    quantize_static(
        str(path),
        str(file),
        Samples(shapes),
        quant_format=QuantFormat.QDQ,
        activation_type=kind,
        weight_type=kind,
        calibrate_method=CalibrationMethod.Distribution if eight else CalibrationMethod.MinMax,
        op_types_to_quantize=PRODUCTS,
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": [] if outputs else PRODUCTS,
        },
    )


def print_row(title: str, path: Path, shapes: Sequence[Shapes], model: ir.Model, *, refit: bool = False) -> None:
    """`model` is the graph, of an FP16 file that in FP32: what the fusion profile says of it is held against the engine."""
    view = network_view(path, find_package("rtx"), TensorrtOptions(shapes=ranges_of_samples(shapes), refit=refit))
    if view.problem:
        print(f"| {title} | refused: {view.problem.rpartition('[')[0] or view.problem} | | | |", flush=True)
        return
    types: dict[str, int] = {}
    for layer in view.engine_layers:
        for tensor in layer.outputs:
            types[tensor.dtype] = types.get(tensor.dtype, 0) + 1
    asked = [layer for layer in view.executed.layers if layer.asked]
    cells: list[Any] = [title, len(view.engine_layers), ", ".join(f"{count} {name}" for name, count in types.items())]
    cells.append(f"{sum(layer.stored == layer.asked for layer in asked)} of {len(asked)}")
    fusion = profile_named("tensorrt").predict(model, "f16")
    if fusion is not None:
        found = foretold(model, fusion, view.engine_layers)
        cells.append(f"{found.exact} of {found.regions} ({agreement(model, fusion, view.engine_layers).share:.3f})")
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
