"""What a node costs in full and in low precision: a roofline, or times that were measured.

time = max(multiply-accumulates / peak, bytes / bandwidth); a Cast reads and writes its tensor once. It is a model of a
GPU that is kept busy: launches, fusion and caches are left out, so that it ranks assignments and predicts no latency.
`CAST_OVERHEAD` stands for what a Cast costs beside its traffic (a launch where it is not fused), so that no plan is
sprinkled with Casts of tiny tensors.

NVIDIA H200 SXM, dense: 67 TFLOP/s in FP32, 494.5 in TF32, 989.5 in FP16 and BF16, 1979 in FP8, 4.8 TB/s. Source: NVIDIA
H200 Tensor Core GPU datasheet (2024), whose tensor-core numbers are with sparsity, twice the dense ones.

A profile is a JSON object {"nodes": {name: {"f32": seconds, "f16": seconds}}}; nodes that it leaves out keep the roofline.
A product may have an "f8e4m3" as well: its time with operands in FP8, quantizing them included.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from parityscope.arithmetic.sites import PRODUCTS
from parityscope.case.graph import constant_value
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.operators import base_of, of_kind
from parityscope.plain_documents import read_json_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import onnx_ir as ir

    Shape = tuple[float, ...]

CAST_OVERHEAD = 1e-7  # seconds. Chosen: a twentieth of a kernel launch, as most Casts fuse with a neighbour
# Of a model that is over before its first Cast is launched a roofline says nothing; there the overhead only breaks ties.
CASTS_AS_LONG_AS_ALL = 1000  # chosen
_FULL_BYTES, _LOW_BYTES = 4, 2
_PROFILE_NBYTES = 64 << 20  # of a file with times (chosen): some hundred thousand nodes
_PEAK_KINDS = PRODUCTS.keys() | of_kind("recurrent") | {"Attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Peaks in floating-point operations a second (two for a multiply-accumulate) and bandwidth in bytes a second."""

    name: str
    full: float
    tf32: float
    low: float
    eighth: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one node in full and in low precision; `eighth` with its operands in FP8, NaN where nobody measured it."""

    full: float
    low: float
    eighth: float = math.nan


H200 = Hardware(name="NVIDIA H200 SXM", full=67e12, tf32=494.5e12, low=989.5e12, eighth=1979e12, bandwidth=4.8e12)


def roofline_times(flops: float, elements: int, hardware: Hardware) -> Times:
    """Both times of a node that does `flops` and reads and writes `elements` numbers."""
    return Times(
        full=max(flops / hardware.full, elements * _FULL_BYTES / hardware.bandwidth),
        low=max(flops / hardware.low, elements * _LOW_BYTES / hardware.bandwidth),
    )


def cast_seconds(elements: int, hardware: Hardware, whole: float) -> float:
    """The time of a Cast of a tensor between the two precisions, in a model that takes `whole` seconds in FP32."""
    overhead = min(CAST_OVERHEAD, whole / CASTS_AS_LONG_AS_ALL)
    return overhead + elements * (_FULL_BYTES + _LOW_BYTES) / hardware.bandwidth


def flops_of(node: ir.Node, shapes: Mapping[str, Sequence[float]]) -> float:
    """Floating-point operations of the products inside a node, two a multiply-accumulate; 0 for others.

    Convolutions: 2 |output| |kernel| channels-per-group (transposed: of the input). Products: 2 |output| depth.
    Recurrences: 2 steps batch (|W| + |R|). Shapes that are unknown give 0.
    """
    if node.op_type not in _PEAK_KINDS or not node.inputs:
        return 0.0
    first, second, *_ = read = [shape_of(value, shapes) for value in (*node.inputs, None)]
    made = shape_of(node.outputs[0], shapes)
    if node.op_type in of_kind("recurrent"):
        weights = sum(math.prod(each) for each in read[1:3] if each is not None)
        return 2.0 * weights * math.prod(first[:-1]) if first is not None else 0.0
    if made is None:
        return 0.0
    if base_of(node.op_type) in {"Gemm", "MatMul"}:
        return 2.0 * math.prod(made) * _summed_length(node, first, second)
    if first is None or second is None:
        return 0.0
    if base_of(node.op_type) == "Conv":
        return 2.0 * math.prod(made) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return 2.0 * math.prod(first) * math.prod(second[1:])
    if node.op_type == "Attention":  # two products of each query with every key
        return 4.0 * math.prod(first) * second[-2]
    return 2.0 * math.prod(made) * (first[-1] if first else 1)


def _summed_length(node: ir.Node, first: Shape | None, second: Shape | None) -> float:
    """The length that a matrix product sums over: that of the weights, which one shape says whole; 0 where nobody knows it."""
    if second and constant_value(node.inputs[1]) is not None:
        return second[-1] if node.attributes.get_int("transB", 0) else second[max(len(second) - 2, 0)]
    if first is None:
        return 0.0
    return (first[0] if node.attributes.get_int("transA", 0) else first[-1]) if first else 1.0


def read_profile(path: Path, low: str) -> dict[str, Times]:
    """Measured times by node.

    Raises:
        ParityError: the file is missing, is no such JSON, or holds a number that is no time.
    """
    example = json.dumps({"nodes": {"conv1": {"f32": 1e-5, low: 4e-6}}})
    fix = f"write {example}, in seconds"
    try:
        held = read_json_file(path, "the profile", limit=_PROFILE_NBYTES)["nodes"]
        found = {
            str(name): Times(full=float(one["f32"]), low=float(one[low]), eighth=float(one.get("f8e4m3", math.nan)))
            for name, one in held.items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ParityError(
            f"the profile is not of the form that is known: {error!r}", where=str(path), fix=fix
        ) from error
    if any(not (time >= 0 and math.isfinite(time)) for one in found.values() for time in (one.full, one.low)) or any(
        one.eighth < 0 or math.isinf(one.eighth) for one in found.values()
    ):
        raise ParityError("the profile holds a number that is no time", where=str(path), fix=fix)
    return found


def shape_of(value: ir.Value | None, shapes: Mapping[str, Sequence[float]]) -> Shape | None:
    """The dimensions of a value: of the constant that it is, on the sample, or as declared; None where nobody knows."""
    if value is None:
        return None
    constant = constant_value(value)
    if constant is not None:  # its value may declare no shape of its own
        return tuple(int(dim) for dim in constant.shape.numpy())
    if str(value.name) in shapes:
        return tuple(shapes[str(value.name)])
    if value.shape is not None and all(isinstance(dim, int) for dim in value.shape):
        return tuple(int(dim) for dim in value.shape if isinstance(dim, int))
    return None
