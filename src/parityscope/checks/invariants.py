"""A tensor breaks what its own operator promises, whatever the reference says.

What goes wrong: an optimizer loses a bound of Clip when it fuses it, reads a Softmax along another axis, gives the index of
something else. The values are then impossible, and no comparison is needed to know that.

How it shows: values above six behind a ReLU6, negative ones behind a ReLU, rows of a Softmax that sum to 0.3.

How we test for it: the candidate's own values alone. Clip, Relu, Sigmoid, HardSigmoid, Tanh, Erf, Sin, Cos, Abs, Sqrt, Exp and
Softplus have ranges; rows of Softmax sum to one and those of LogSoftmax to one behind exp, along the declared axis; ArgMax and
ArgMin give an index that is inside their axis and, where the input was captured too, one at which no other is better.
Bounds are allowed the rounding of the format that the candidate stores, and at least bfloat16's; sums, four times that.

What it is confused with: rounding of the bound itself, which is allowed for; NaN, which has its own checks (RNG004).

How to repair: keep the operator from being fused (an extra output, another optimization level), write the bound as Min and Max,
or update the runtime.

Sources: NVIDIA/TensorRT issue 4606 (MatMul, Add and Clip lose the upper bound in 10.12 and 10.13) and 3938; the ONNX operator
specification.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer
from parityscope.case.graph import computing, constant_value
from parityscope.checks import Check, Example, Proposal, Result
from parityscope.checks._examples import CLIP, CLIP_CONSTANTS, halved, unclipped
from parityscope.checks._promises import COARSE, Broken, broken_index, broken_range, broken_sums
from parityscope.records import Evidence, Experiment, Finding, OfferedRepair, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx_ir as ir

    from parityscope.checks import Scene

__all__ = ["CHECK"]

_CODE = "FUS010"
_TITLE = "A tensor breaks what its operator promises"
_ONE_PLACE = 0.5  # a suspect that holds half of the output error is its cause

# Smallest and largest value of operators by the ONNX specification.
_RANGES: dict[str, tuple[float, float]] = {
    "Relu": (0.0, math.inf),
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "Sin": (-1.0, 1.0),
    "Cos": (-1.0, 1.0),
    "Abs": (0.0, math.inf),
    "Sqrt": (0.0, math.inf),
    "Exp": (0.0, math.inf),
    "Softplus": (0.0, math.inf),
}
_SUMMED = ("Softmax", "LogSoftmax")
_INDICES = ("ArgMax", "ArgMin")


def _propose(scene: Scene) -> Iterator[Proposal]:
    if scene.verdict == "within":
        return
    read = _reader(scene)
    nodes = [node for node in computing(scene.graph) if node.op_type in {*_RANGES, *_SUMMED, *_INDICES, "Clip"}]
    found = [node for node in nodes if read(str(node.outputs[0].name)) is not None]
    if not found:
        return
    experiment = Experiment(
        check=_CODE,
        claim="a tensor has values that its operator cannot give",
        change="none",
        measure=f"ranges, sums and indices of {len(found)} tensors of the candidate",
        if_true="one is outside what its operator promises",
        if_false="all keep it",
        cost_s=0.2,
        runs="nothing",
    )
    yield Proposal(experiment=experiment, test=lambda: _tested(scene, found, read, experiment))


def _reader(scene: Scene) -> Callable[[str], Callable[[], np.ndarray] | None]:
    """Where a tensor's candidate values can be had: captured ones, or outputs; None if nowhere."""
    lab, bench = scene.lab, scene.bench
    outputs = {pair.site.tensor for pair in scene.outputs}

    def read(tensor: str) -> Callable[[], np.ndarray] | None:
        if lab is not None and tensor in scene.tensors:
            return lambda: lab.candidate(tensor)
        if bench is not None and tensor in outputs:
            return lambda: bench.candidate(bench.samples[0])[tensor]
        return None

    return read


def _tested(
    scene: Scene,
    nodes: list[ir.Node],
    read: Callable[[str], Callable[[], np.ndarray] | None],
    experiment: Experiment,
) -> Result:
    worst: tuple[ir.Node, Broken] | None = None
    for node in nodes:
        values = read(str(node.outputs[0].name))
        if values is None:
            continue
        broken = _broken(scene, node, values(), read)
        # The first in the graph's order is where it begins; what is behind it may only pass it on.
        if broken is not None:
            worst = (node, broken)
            break
    if worst is None:
        evidence = Evidence(experiment=experiment, outcome="refutes", before=0.0, after=0.0, because="all keep it")
        return Result(evidence=evidence)
    node, broken = worst
    tensor = str(node.outputs[0].name)
    because = (
        f"{node.op_type} gives {tensor!r} {broken.count:,} times what it cannot: {broken.words} at {list(broken.index)}"
    )
    evidence = Evidence(
        experiment=experiment, outcome="supports", before=0.0, after=float(broken.count), because=because
    )
    return Result(evidence=evidence, finding=_finding(scene, tensor, node.op_type, broken, evidence))


def _broken(
    scene: Scene,
    node: ir.Node,
    values: np.ndarray,
    read: Callable[[str], Callable[[], np.ndarray] | None],
) -> Broken | None:
    rounding = max(2.0 * scene.storage.unit_roundoff, COARSE)
    if node.op_type in _RANGES:
        return broken_range(values, *_RANGES[node.op_type], rounding)
    if node.op_type == "Clip":
        low, high = _bound(node, 1, "min", -math.inf), _bound(node, 2, "max", math.inf)
        # A lower bound above the upper one has no range, and an unknown bound promises nothing.
        return broken_range(values, low, high, rounding) if low <= high else None
    axis = integer(node, "axis", 0 if node.op_type in _INDICES else _softmax_axis(scene))
    if node.op_type in _SUMMED:
        if node.op_type == "Softmax" and (broken := broken_range(values, 0.0, 1.0, rounding)):
            return broken
        if _softmax_axis(scene) == 1 and axis != values.ndim - 1:
            return None  # before opset 13 everything from the axis on is one row
        return broken_sums(values, axis, scene.storage.unit_roundoff, logarithms=node.op_type == "LogSoftmax")
    return _broken_index(node, values, axis, read)


def _broken_index(
    node: ir.Node,
    values: np.ndarray,
    axis: int,
    read: Callable[[str], Callable[[], np.ndarray] | None],
) -> Broken | None:
    source = read(str(node.inputs[0].name)) if node.inputs[0] is not None else None
    if source is None:
        return broken_range(values, 0.0, math.inf, 0.0)
    array = source()
    if not -array.ndim <= axis < array.ndim:
        return None
    kept = values if integer(node, "keepdims", 1) else np.expand_dims(values, axis)
    return broken_index(kept, array, axis, largest=node.op_type == "ArgMax")


def _bound(node: ir.Node, position: int, attribute: str, missing: float) -> float:
    """A bound of Clip; NaN, which no comparison holds for, where it is computed."""
    if attribute in node.attributes:
        return float(node.attributes[attribute].as_float())
    if position >= len(node.inputs) or node.inputs[position] is None:
        return missing
    tensor = constant_value(node.inputs[position])
    return math.nan if tensor is None else float(np.asarray(tensor.numpy()).reshape(-1)[0])


def _softmax_axis(scene: Scene) -> int:
    """The default axis, which opset 13 changed from 1 to the last."""
    return -1 if scene.graph.opset_imports.get("", 13) >= 13 else 1


def _part(reference: np.ndarray, candidate: np.ndarray, places: np.ndarray) -> float:
    """The part of the squared error that lies where the promise is broken; all of it where errors have no size."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = (candidate.astype(np.float64) - reference.astype(np.float64)) ** 2
    if error.ndim != places.ndim or not np.isfinite(error).all() or not error.sum():
        return 1.0
    return float(error[np.broadcast_to(places, error.shape)].sum() / error.sum())


def _finding(scene: Scene, tensor: str, op_type: str, broken: Broken, evidence: Evidence) -> Finding:
    suspects = scene.localization.suspects if scene.localization else ()
    share = next((one.share for one in suspects if one.site.tensor == tensor), None)
    if share is not None and scene.lab is not None:
        share *= _part(scene.lab.reference(tensor), scene.lab.candidate(tensor), broken.places)
    site = scene.places.get(tensor) or Site(tensor=tensor, node="", op_type=op_type, index=-1)
    return Finding(
        code=_CODE,
        title=_TITLE,
        role="cause" if share is not None and share >= _ONE_PLACE else "contributing",
        claim=f"{evidence.because[0].upper()}{evidence.because[1:]}. No arithmetic does that.",
        confidence=1.0,
        confidence_from="the operator's definition",
        site=site,
        share=share,
        evidence=(evidence,),
        repairs=(
            OfferedRepair(
                repair="do_not_fuse",
                text=f"keep {site.node or op_type} from being fused, or write its bounds as Min and Max; update the runtime",
            ),
        ),
        details={"tensor": tensor, "op_type": op_type, "count": broken.count, "index": list(broken.index)},
    )


_SOFT = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y) { y = Softmax(x) }"""
_BEST = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (int64[2,1] k, float[2,8] y) {
  y = Tanh(x)
  k = ArgMax<axis = 1>(y)
}"""
_RNG = np.random.default_rng(71)
_X = _RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
_ROWS = _RNG.normal(size=(2, 8)).astype(np.float32)

CHECK = Check(
    code=_CODE,
    title=_TITLE,
    propose=_propose,
    holds=(
        Example(model=CLIP, inputs={"x": _X}, fault=("b", unclipped(_X)), site="b", constants=CLIP_CONSTANTS),
        Example(
            model=_SOFT,
            inputs={"x": _ROWS},
            outputs_fault=lambda samples: [{"y": each["y"] * np.float32(0.3)} for each in samples],
            site="y",
        ),
        Example(
            model=_BEST,
            inputs={"x": _ROWS},
            outputs_fault=lambda samples: [{**each, "k": (each["k"] + 1) % 8} for each in samples],
            site="k",
        ),
    ),
    holds_not=(
        Example(model=CLIP, inputs={"x": _X}, fault=("a", halved), constants=CLIP_CONSTANTS),
        Example(model=CLIP, inputs={"x": _X}, constants=CLIP_CONSTANTS, candidate="sim:bf16", declared="f32"),
        Example(model=_SOFT, inputs={"x": _ROWS}, candidate="sim:bf16", declared="f32"),
        Example(model=_BEST, inputs={"x": _ROWS}, candidate="sim:bf16", declared="f32"),
    ),
)
