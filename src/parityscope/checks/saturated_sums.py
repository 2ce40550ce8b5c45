"""Sums of eight-bit products saturate in 16 bits: the processor has no instruction for them, and the weights use all eight bits.

What goes wrong: activations of eight bits and weights in int8 are what quantizers write by default. Without the VNNI
instructions a processor multiplies such numbers in pairs and adds each pair in 16 bits (`vpmaddubsw`): 255 * 127 + 255 * 127 is
64,770, and 32,767 is the largest number there. The sum is cut off in silence.

How it shows: the file is right in float arithmetic, with its optimizer off, and on newer processors; on this one it is wrong by
far more than the steps of eight bits, layer for layer.

How we test for it: a side's own file is copied with one thing changed, which changes no value: each int8 weight of a product is
written as uint8, 128 higher, with its zero point 128 higher too (and activations likewise, which runtimes do to signed ones by
themselves). That takes another kernel, whose sums are 32 bits wide. The same side runs the copy; what is gone of the error was
saturation. It may be the reference's: a file that is quantized already is right on a GPU, and wrong here.

What it is confused with: an optimizer that rewrites layers wrongly (FUS011), which is right as well with the optimizer off;
layers that seem to compute another function (FUS002), which a sum that is cut off resembles.

How to repair: quantize again with weights of seven bits (`reduce_range=True`), or with unsigned weights
(`weight_type=QuantType.QUInt8`); or run it on a processor with VNNI.

Sources: ONNX Runtime's documentation of quantization ("U8S8 ... saturation issue", `reduce_range`); Intel's Software Developer's
Manual, VPMADDUBSW; oneDNN's documentation of int8 computation, "Processors with the Intel AVX2 or Intel AVX-512 Support".
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.case.graph import constant_input
from parityscope.checks import Check, Claim, Example, Prediction, Shown
from parityscope.checks._common import format_percent
from parityscope.checks._reproducing import RUN_S, Misfit, measure_misfit, show_refuted, tell_trial
from parityscope.operators import of_kind
from parityscope.records import OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.bench import Bench
    from parityscope.examination import Examination

# What multiplies: (where it reads the activation's zero point, the weight, its scale, and its zero point), for each weight. An
# activation that it quantizes itself is unsigned, and a weight without a scale beside it has one zero point.
_INTEGER = {
    "QLinearConv": ((2, 3, 4, 5),),
    "QLinearMatMul": ((2, 3, 4, 5),),
    "ConvInteger": ((2, 1, None, 3),),
    "MatMulInteger": ((2, 1, None, 3),),
    "MatMulIntegerToFloat": ((4, 1, 3, 5),),
    "DynamicQuantizeMatMul": ((None, 1, 2, 3),),
    "DynamicQuantizeLSTM": ((None, 1, 8, 9), (None, 2, 10, 11)),
    "QGemm": ((2, 3, 4, 5),),
    "QAttention": ((6, 1, 4, 7),),
}
_FLOAT = of_kind("product")
_SIDES: tuple[Literal["reference", "candidate"], ...] = ("reference", "candidate")
_SEVEN_BITS = 64  # 255 * 64 * 2 is 32,640, the largest sum of a pair that 16 bits hold
_OFFSET = 128
_WIDE = ("avx512_vnni", "avx_vnni")  # instructions that add such products in 32 bits
_LEAST = 0.1  # of the squared error, chosen: below that another cause is the story


def _propose_claims(known: Examination, bench: Bench) -> Iterator[Claim]:
    for side, environment in zip(_SIDES, known.environments, strict=True):
        features = environment.get("cpu features", "").split()
        if side not in bench.rewritten or "avx2" not in features or set(_WIDE) & set(features):
            continue
        yield Claim(
            words="sums of eight-bit products saturate in 16 bits"
            + ("" if side == "candidate" else ": the reference's"),
            predicts=Prediction(
                change="write int8 weights as uint8 with the same values, which takes a kernel with wide sums",
                measure="worst relative L2 error of the outputs",
                if_true="it falls, though the file says the same",
                if_false="it stays",
            ),
            cost_s=RUN_S * 2 * len(bench.samples),
            runs=side,
            test=partial(_test_claim, known, bench, side),
        )


def _test_claim(known: Examination, bench: Bench, side: str) -> Shown:
    changed: list[str] = []

    def edit(model: ir.Model) -> bool:
        changed.extend(_unsign_weights(model))
        return bool(changed)

    run = bench.rewritten[side]("unsigned", edit)
    if run is None:
        return show_refuted(None, "no product of eight-bit numbers has weights of more than seven bits")
    before: list[Misfit] = []
    after: list[Misfit] = []
    wrong = {pair.site.tensor for pair in known.beyond}  # where steps of eight bits err more, saturation may not show
    for index in bench.samples:
        sides = {"reference": bench.reference(index), "candidate": bench.candidate(index)}
        for seen, each in ((before, sides), (after, {**sides, side: run(bench.inputs(index))})):
            reference = {name: array for name, array in each["reference"].items() if name in wrong}
            seen.append(measure_misfit(known, reference, each["candidate"]))
    worst, left = (_worst_of(each) for each in (before, after))
    share = 1.0 - (math.hypot(*(one.error for one in after)) / math.hypot(*(one.error for one in before))) ** 2
    because = (
        f"with the weights of {len(changed)} products written unsigned, of the same values, the error falls from "
        f"{format_percent(worst.error)} to {format_percent(left.error)}"
    )
    if not share >= _LEAST:
        return show_refuted(worst, because, after=left.error)
    names = {other: name for name, other in known.names.items()} if side == "candidate" else {}
    first = next((known.places[one] for name in changed if (one := names.get(name, name)) in known.places), None)
    where = "in the candidate" if side == "candidate" else "in the reference, which is wrong"
    return Shown(
        because=because,
        before=worst.error,
        after=left.error,
        sentence=f"Sums of eight-bit products saturate in 16 bits {where}, on a processor without VNNI: {because}.",
        confidence=share,
        confidence_from="the share of the error, in squares, that is gone with wide sums and nothing else changed",
        share=share,
        site=first,
        repairs=(_offer_repair(side, worst, left),),
        details={"products": changed, "side": side},
    )


def _offer_repair(side: str, worst: Misfit, left: Misfit) -> OfferedRepair:
    trial = tell_trial(worst, left, "the same file with unsigned weights")
    again = (
        "quantize again with reduce_range=True (weights of seven bits), or with unsigned weights "
        "(weight_type=QuantType.QUInt8); processors with VNNI do not need it"
    )
    if side == "reference":
        again = f"judge it on a processor with VNNI, or against a file that holds everywhere: {again}"
    return OfferedRepair(repair="quantize_again", text=again, trial=trial)


def _worst_of(misfits: list[Misfit]) -> Misfit:
    return max(misfits, key=lambda one: one.error)


def _unsign_weights(model: ir.Model) -> list[str]:
    """Writes int8 weights of products with uint8 as uint8 of the same values; gives what these products give, in order."""
    graph, made, changed = model.graph, {}, []
    _unsign_activations(model)
    for product, (holder, weight, scale, zero) in [(each, found) for each in graph for found in _find_weights(each)]:
        source = holder.inputs[weight]
        values = constant_input(holder, weight)
        if (
            source is None
            or values is None
            or values.dtype != np.int8
            or int(np.abs(values.astype(int)).max(initial=0)) <= _SEVEN_BITS
        ):
            continue
        key = (source, None if scale is None else holder.inputs[scale])
        if key not in made:
            held = constant_input(holder, zero)
            scales = None if scale is None else constant_input(holder, scale)
            zeros = np.zeros(() if scales is None else scales.shape, np.int8) if held is None else held
            made[key] = tuple(
                add_constant(graph, (one.astype(np.int16) + _OFFSET).astype(np.uint8), f"{source.name}::{what}")
                for one, what in ((values, "unsigned"), (zeros, "zero"))
            )
        if len(holder.inputs) <= zero:
            holder.resize_inputs(zero + 1)
        holder.replace_input_with(weight, made[key][0])
        holder.replace_input_with(zero, made[key][1])
        changed.append(str(product.outputs[0].name))
    return list(dict.fromkeys(changed))


def _unsign_activations(model: ir.Model) -> None:
    """Writes what is quantized to int8 and read as numbers alone as uint8: a runtime does that to signed activations, too."""
    for node in list(model.graph):
        point = node.inputs[2] if node.op_type == "QuantizeLinear" and len(node.inputs) > 2 else None
        zero = constant_input(node, 2)
        readers = [user for user, _ in node.outputs[0].uses()]
        if point is None or zero is None or zero.dtype != np.int8 or not readers:
            continue
        if all(one.op_type == "DequantizeLinear" and len(one.inputs) > 2 for one in readers):
            raised = add_constant(
                model.graph, (zero.astype(np.int16) + _OFFSET).astype(np.uint8), f"{point.name}::raised"
            )
            for each in (node, *readers):
                each.replace_input_with(2, raised)


def _find_weights(node: ir.Node) -> Iterator[tuple[ir.Node, int, int | None, int]]:
    """The nodes that hold a product's int8 weights, and where: (node, weight, scale, zero point)."""
    for zero, weight, scale, its_zero in _INTEGER.get(node.op_type, ()):
        point = None if zero is None else constant_input(node, zero)
        if point is None or point.dtype == np.uint8:
            yield node, weight, scale, its_zero
    if node.op_type not in _FLOAT:
        return
    left, right = (value.producer() if value is not None else None for value in node.inputs[:2])
    if left is None or right is None or {left.op_type, right.op_type} != {"DequantizeLinear"}:
        return
    point = constant_input(left, 2)
    # Without a zero point its type is uint8, unless the quantizer says otherwise.
    if point is None or point.dtype == np.uint8:
        yield right, 0, 1, 2


_RNG = np.random.default_rng(44)
_PLAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,8,8,8] y)
<float ws = {0.007874015748031496}> {
  f = Cast<to = 1>(w)
  v = Mul(f, ws)
  y = Conv<pads = [1, 1, 1, 1]>(x, v)
}"""
# Steps of 1 / 255 and 1 / 127, as a quantizer writes a product.
_STEPPED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,8,8,8] y)
<float xs = {0.00392156862745098}, uint8 xz = {0}, float ws = {0.007874015748031496}, int8 wz = {0},
 float ys = {0.7}, uint8 yz = {128}> {
  q = QuantizeLinear(x, xs, xz)
  d = DequantizeLinear(q, xs, xz)
  v = DequantizeLinear(w, ws, wz)
  p = Conv<pads = [1, 1, 1, 1]>(d, v)
  r = QuantizeLinear(p, ys, yz)
  y = DequantizeLinear(r, ys, yz)
}"""
_FULL = {
    "w": _RNG.integers(40, 128, size=(8, 16, 3, 3)).astype(np.int8)
    * _RNG.choice([-1, 1], 8).astype(np.int8)[:, None, None, None]
}
_SEVEN = {"w": _FULL["w"] // 2}
# A file of integers is the reference, as a quantizer leaves it; the other says the same in sums of 24 bits.
_COUNTED = """<ir_version: 8, opset_import: ["" : 17]> g (uint8[4,64] x) => (float[4,8] y) {
  n = MatMulInteger(x, k)
  y = Cast<to = 1>(n)
}"""
_IN_FLOATS = """<ir_version: 8, opset_import: ["" : 17]> g (uint8[4,64] x) => (float[4,8] y) {
  a = Cast<to = 1>(x)
  b = Cast<to = 1>(k)
  y = MatMul(a, b)
}"""
_COUNTS = {"k": _RNG.integers(40, 128, size=(64, 8)).astype(np.int8)}
_LARGE = {"x": _RNG.integers(180, 256, size=(4, 64)).astype(np.uint8)}
_BRIGHT = {"x": _RNG.uniform(0.7, 1.0, size=(1, 16, 8, 8)).astype(np.float32)}

CHECK = Check(
    code="RNG005",
    title="Sums of eight-bit products saturate",
    propose=_propose_claims,
    holds=(
        Example(model=_PLAIN, candidate_model=_STEPPED, inputs=_BRIGHT, constants=_FULL, candidate="ort"),
        Example(model=_COUNTED, candidate_model=_IN_FLOATS, inputs=_LARGE, constants=_COUNTS, candidate="ort"),
    ),
    holds_not=(
        # Seven bits hold; and an error of another kind in a file that would saturate.
        Example(model=_PLAIN, candidate_model=_STEPPED, inputs=_BRIGHT, constants=_SEVEN, candidate="ort"),
        Example(
            model=_PLAIN,
            candidate_model=_STEPPED.replace("uint8 xz = {0}", "uint8 xz = {90}"),
            inputs=_BRIGHT,
            constants=_SEVEN,
            candidate="ort",
        ),
    ),
)
