"""How often the explanation of a layer is right: planted arithmetics and faults, and clean layers that must not be blamed.

    python bench/explanations.py [--planted N] [--clean N] [--seed S]

N planted layers of every kind and N clean ones in all (FP32 in another order, TF32, FP16, BF16). A planted layer is
computed apart from what is tested: its numbers are rounded by ml_dtypes' casts and integer masks, its products are summed
in another order (the contracted axis is permuted), and another function is another ONNX model run by ONNX Runtime. Faults
are planted on top of FP32, TF32, FP16 or BF16. A plant whose effect is below twenty times FP32's rounding of the result is
drawn again: nothing could find it. Prints the confusion matrix, the share named rightly (a set that holds the truth counts) and
how many clean layers were called a bug.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
from onnx import numpy_helper

from parityscope.explanation import Explanation, explain
from parityscope.explanation.records import Options
from parityscope.explanation.running import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Arrays = Mapping[str, np.ndarray]

LEAST_EFFECT = 20 * 2.0**-24
CLEAN = ("f32_reordered", "tf32_nearest", "f16_inputs_output", "bf16_inputs_output")
DECLARED = {"f32_reordered": "f32", "tf32_nearest": "tf32", "f16_inputs_output": "f16", "bf16_inputs_output": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer in ONNX text, its parameters and inputs; `products` are (activation, weight, bias or "") by name."""

    text: str
    parameters: Arrays
    feeds: Arrays
    operands: tuple[str, ...] = ()
    contracted: tuple[tuple[str, int], ...] = ()
    opset: int = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A layer as the model says it, and what the candidate gave; `truth` is the hypothesis that made it so."""

    truth: str
    layer: Layer
    candidate: np.ndarray
    feeds: Arrays
    base: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", type=int, default=20)
    parser.add_argument("--clean", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    right, table = score(arguments.planted, arguments.seed)
    total = sum(table.values())
    print(
        f"planted layers: {right} of {total} named rightly ({right / total:.4f}), {time.perf_counter() - started:.0f} s"
    )
    show(table)
    started = time.perf_counter()
    blamed = clean_layers(arguments.clean, arguments.seed)
    print(
        f"clean layers: {sum(blamed.values())} of {arguments.clean} called a bug, {time.perf_counter() - started:.0f} s"
    )
    for (truth, named), count in blamed.items():
        print(f"  {truth}: {named} x{count}")


def score(count: int, seed: int, kinds: tuple[str, ...] = ()) -> tuple[int, Counter[tuple[str, str]]]:
    """How many plants were named rightly, and the confusion matrix (truth, named)."""
    right = 0
    table: Counter[tuple[str, str]] = Counter()
    runner = Runner()
    for truth in kinds or tuple(PLANTS):
        generator = np.random.default_rng([seed, *truth.encode()])
        for _ in range(count):
            plant = planted(truth, generator)
            found = examined(plant, runner)
            held = {each.hypothesis for each in found.by}
            good = truth in held
            right += good
            table[truth, named(found) + ("+" if good and named(found) != truth else "")] += 1
    return right, table


def clean_layers(count: int, seed: int) -> Counter[tuple[str, str]]:
    """Honest layers that were called a bug: (arithmetic, what they were called)."""
    blamed: Counter[tuple[str, str]] = Counter()
    generator = np.random.default_rng(seed)
    runner = Runner()
    makers = [*LINEAR, *POINTWISE]
    for number in range(count):
        truth = CLEAN[number % len(CLEAN)]
        layer = makers[int(generator.integers(len(makers)))](generator)
        found = examined(honest(layer, truth, generator), runner)
        if found.is_bug:
            blamed[truth, f"{named(found)}: {layer.text.splitlines()[1].strip()}"] += 1
    return blamed


def examined(plant: Plant, runner: Runner) -> Explanation:
    options = Options(declared=DECLARED.get(plant.base, ""))
    return explain(region(plant.layer), plant.feeds, plant.candidate, options, runner)


def named(found: Explanation) -> str:
    return found.by[0].hypothesis if found.by else found.status


def show(table: Counter[tuple[str, str]]) -> None:
    truths = list(dict.fromkeys(truth for truth, _ in table))
    for truth in truths:
        row = {name: count for (each, name), count in table.items() if each == truth}
        print(
            f"  {truth:<24} " + ", ".join(f"{name} {count}" for name, count in sorted(row.items(), key=lambda x: -x[1]))
        )


# Layers, as the model says them.


def region(layer: Layer) -> ir.Model:
    return ir.from_proto(proto(layer))


def proto(layer: Layer) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {layer.opset}]> {layer.text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in layer.parameters.items())
    return model


def run(layer: Layer, feeds: Arrays) -> np.ndarray:
    """The layer in ONNX Runtime's FP32."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto(layer).SerializeToString(), options)
    return np.asarray(session.run(None, dict(feeds))[0])


def numbers(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers, or what a Relu leaves of them."""
    array = generator.normal(0.0, scale, shape).astype(np.float32)
    return np.maximum(array, 0) if generator.random() < 0.3 else array


ACTIVATIONS = ("", "Relu(t)", "Clip(t, low, high)", "LeakyRelu<alpha = 0.1>(t)", "Sigmoid(t)", "Tanh(t)")


def conv(generator: np.random.Generator, activation: str = "any", pads: str = "") -> Layer:
    channels, filters = int(generator.integers(3, 17)), int(generator.integers(2, 17))
    size, kernel = int(generator.integers(6, 14)), int(generator.choice([1, 3]))
    pads = pads or ("[1, 1, 1, 1]" if kernel == 3 else "[0, 0, 0, 0]")
    kernel = 3 if pads != "[0, 0, 0, 0]" else kernel
    weight = generator.normal(0, 1 / np.sqrt(channels * kernel**2), (filters, channels, kernel, kernel))
    return _linear(
        generator,
        f"Conv<pads = {pads}>(x, w, b)",
        numbers(generator, 1, channels, size, size),
        weight.astype(np.float32),
        (("x", 1), ("w", 1)),
        activation,
        filters,
    )


def gemm(generator: np.random.Generator, activation: str = "any") -> Layer:
    rows, length, columns = (int(generator.integers(low, high)) for low, high in ((4, 20), (8, 200), (4, 40)))
    weight = generator.normal(0, 1 / np.sqrt(length), (columns, length)).astype(np.float32)
    feeds = numbers(generator, rows, length)
    return _linear(generator, "Gemm<transB = 1>(x, w, b)", feeds, weight, (("x", 1), ("w", 1)), activation, columns)


def matmul(generator: np.random.Generator, activation: str = "any") -> Layer:
    rows, length, columns = (int(generator.integers(low, high)) for low, high in ((4, 20), (8, 400), (4, 40)))
    weight = generator.normal(0, 1 / np.sqrt(length), (length, columns)).astype(np.float32)
    feeds = numbers(generator, 2, rows, length)
    return _linear(generator, "MatMul(x, w)", feeds, weight, (("x", 2), ("w", 0)), activation, columns)


def _linear(
    generator: np.random.Generator,
    product: str,
    image: np.ndarray,
    weight: np.ndarray,
    contracted: tuple[tuple[str, int], ...],
    activation: str,
    outputs: int,
) -> Layer:
    activation = str(generator.choice(ACTIVATIONS)) if activation == "any" else activation
    steps = [product, *(["Add(t, b)"] if product.startswith("MatMul") else []), *([activation] if activation else [])]
    parameters = {"w": weight, "b": generator.normal(0, 0.5, outputs).astype(np.float32)}
    if "Clip" in activation:
        parameters |= {
            "low": np.array(0.0, np.float32),
            "high": np.array(float(generator.uniform(0.3, 1.0)), np.float32),
        }
    return Layer(
        text=chain(steps, image.ndim),
        parameters=parameters,
        feeds={"x": image},
        operands=("x", "w"),
        contracted=contracted,
    )


def chain(steps: list[str], rank: int, result: int | None = None, kind: str = "float") -> str:
    """Steps that read `t` (the first one `x`) as a graph's text."""
    lines = []
    for number, step in enumerate(steps):
        before = f"t{number - 1}"
        after = "y" if number == len(steps) - 1 else f"t{number}"
        lines.append(f"{after} = {step.replace('(t', f'({before}')}")
    shape = ",".join("NCHWD"[axis] for axis in range(rank))
    given = ",".join("ABEFG"[axis] for axis in range(rank if result is None else result))
    return f"g ({kind}[{shape}] x) => ({kind}[{given}] y) {{\n" + "\n".join(lines) + "\n}"


def normalization(generator: np.random.Generator) -> Layer:
    width = int(generator.integers(8, 100))
    parameters = {
        "scale": generator.normal(1, 0.3, width).astype(np.float32),
        "shift": generator.normal(0, 0.3, width).astype(np.float32),
    }
    feeds = {"x": generator.normal(0, 0.05, (2, int(generator.integers(3, 20)), width)).astype(np.float32)}
    return Layer(
        text=chain(["LayerNormalization<epsilon = 1e-5>(x, scale, shift)"], 3), parameters=parameters, feeds=feeds
    )


def depthwise(generator: np.random.Generator) -> Layer:
    channels, size = int(generator.integers(4, 17)), int(generator.integers(8, 16))
    parameters = {
        "w": generator.normal(0, 0.2, (channels, 1, 5, 5)).astype(np.float32),
        "b": generator.normal(0, 0.5, channels).astype(np.float32),
    }
    return Layer(
        text=chain([f"Conv<group = {channels}, pads = [2, 2, 2, 2]>(x, w, b)"], 4),
        parameters=parameters,
        feeds={"x": numbers(generator, 1, channels, size, size)},
    )


def division(generator: np.random.Generator) -> Layer:
    divisor = np.array(float(generator.choice([3.0, 6.0, 7.0, 0.3])), np.float32)
    feeds = {"x": generator.normal(0, 1, (2, 9, 32)).astype(np.float32)}
    return Layer(text=chain(["Div(x, divisor)"], 3), parameters={"divisor": divisor}, feeds=feeds)


def batch_normalization(generator: np.random.Generator) -> Layer:
    channels = int(generator.integers(3, 17))
    parameters = {
        "scale": generator.uniform(0.5, 2, channels).astype(np.float32),
        "shift": generator.normal(0, 0.5, channels).astype(np.float32),
        "mean": generator.normal(0, 0.5, channels).astype(np.float32),
        "variance": generator.uniform(0.01, 2, channels).astype(np.float32),
    }
    text = chain(["BatchNormalization<epsilon = 1e-5>(x, scale, shift, mean, variance)"], 4)
    return Layer(text=text, parameters=parameters, feeds={"x": numbers(generator, 2, channels, 7, 7)})


def pool(
    generator: np.random.Generator, step: str = "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
) -> Layer:
    size = int(generator.integers(6, 14))
    feeds = {"x": generator.normal(0, 1, (1, int(generator.integers(2, 9)), size, size)).astype(np.float32)}
    return Layer(text=chain([step], 4), parameters={}, feeds=feeds)


def resize(generator: np.random.Generator) -> Layer:
    mode = str(generator.choice(["nearest", "linear", "cubic"]))
    way = str(generator.choice(["half_pixel", "asymmetric", "align_corners"]))
    rounding = str(generator.choice(["round_prefer_floor", "floor", "ceil"]))
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{way}", nearest_mode = "{rounding}"'
    size, target = int(generator.integers(5, 9)), int(generator.integers(11, 20))
    return Layer(
        text=chain([f"Resize<{attributes}>(x, , , sizes)"], 4),
        parameters={"sizes": np.array([1, 3, target, target], np.int64)},
        feeds={"x": generator.normal(0, 1, (1, 3, size, size)).astype(np.float32)},
    )


GELU = {
    "exact": ["Div(x, root)", "Erf(t)", "Add(t, one)", "Mul(x, t)", "Mul(t, half)"],
    "tanh": [
        "Mul(x, x)",
        "Mul(t, x)",
        "Mul(t, cubic)",
        "Add(x, t)",
        "Mul(t, outer)",
        "Tanh(t)",
        "Add(t, one)",
        "Mul(x, t)",
        "Mul(t, half)",
    ],
}


def gelu(generator: np.random.Generator, form: str = "") -> Layer:
    form = form or str(generator.choice(list(GELU)))
    known = {"root": 2**0.5, "one": 1.0, "half": 0.5, "cubic": 0.044715, "outer": (2 / np.pi) ** 0.5}
    steps = [step.replace("(x, t", "(x, t") for step in GELU[form]]
    text = chain(steps, 3)
    for number in range(len(steps)):
        text = text.replace(f"t{number} = Mul(x, t)", f"t{number} = Mul(x, t{number - 1})")
        text = text.replace(f"t{number} = Add(x, t)", f"t{number} = Add(x, t{number - 1})")
    parameters = {name: np.array(value, np.float32) for name, value in known.items() if name in text}
    return Layer(text=text, parameters=parameters, feeds={"x": generator.normal(0, 1.5, (2, 9, 32)).astype(np.float32)})


def activation(generator: np.random.Generator) -> Layer:
    step = str(
        generator.choice(
            ["Relu(x)", "Sigmoid(x)", "LeakyRelu<alpha = 0.1>(x)", "Tanh(x)", "Exp(x)", "Softmax<axis = -1>(x)"]
        )
    )
    return Layer(
        text=chain([step], 3), parameters={}, feeds={"x": generator.normal(0, 1, (2, 9, 32)).astype(np.float32)}
    )


LINEAR = (conv, gemm, matmul)
POINTWISE = (normalization, batch_normalization, pool, resize, gelu, activation)


# Arithmetics, by other means than the hypotheses': ml_dtypes' casts, integer masks, ONNX Runtime on a permuted axis.


def cast(dtype: object) -> Callable[[np.ndarray], np.ndarray]:
    def convert(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return array.astype(np.dtype(dtype)).astype(np.float32) if array.dtype == np.float32 else array

    return convert


def tf32_nearest(array: np.ndarray) -> np.ndarray:
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(
        np.float32
    )


def tf32_cut(array: np.ndarray) -> np.ndarray:
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def same(array: np.ndarray) -> np.ndarray:
    return array


f16, bf16 = cast(np.float16), cast(ml_dtypes.bfloat16)


def emulated(
    layer: Layer,
    feeds: Arrays,
    generator: np.random.Generator,
    operands: Callable[[np.ndarray], np.ndarray] = same,
    stored: Callable[[np.ndarray], np.ndarray] = same,
    output: Callable[[np.ndarray], np.ndarray] = same,
) -> np.ndarray:
    """The layer with its numbers rounded and its products summed in another order."""
    arrays = {**layer.parameters, **feeds}
    arrays = {name: stored(array) for name, array in arrays.items()}
    arrays = {name: operands(array) if name in layer.operands else array for name, array in arrays.items()}
    if layer.contracted:
        name, axis = layer.contracted[0]
        order = generator.permutation(arrays[name].shape[axis])
        for name, axis in layer.contracted:
            arrays[name] = np.ascontiguousarray(np.take(arrays[name], order, axis))
    changed = replace(layer, parameters={name: arrays[name] for name in layer.parameters})
    return output(run(changed, {name: arrays[name] for name in feeds}))


STORAGE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"f16_inputs_output": f16, "bf16_inputs_output": bf16}


def arithmetic(layer: Layer, feeds: Arrays, truth: str, generator: np.random.Generator) -> np.ndarray:
    """`layer` in the arithmetic called `truth`."""
    if truth in STORAGE:
        return emulated(layer, feeds, generator, stored=STORAGE[truth], output=STORAGE[truth])
    if truth == "tf32_nearest":
        return emulated(layer, feeds, generator, operands=tf32_nearest)
    return emulated(layer, feeds, generator)


def entering(layer: Layer, truth: str, generator: np.random.Generator) -> Arrays:
    """What the candidate's layer reads: in FP16 and BF16 engines already on the grid, most of the time."""
    if truth in STORAGE and generator.random() < 0.7:
        return {name: STORAGE[truth](array) for name, array in layer.feeds.items()}
    return layer.feeds


def honest(layer: Layer, truth: str, generator: np.random.Generator) -> Plant:
    feeds = entering(layer, truth, generator)
    return Plant(
        truth=truth, layer=layer, feeds=feeds, candidate=arithmetic(layer, feeds, truth, generator), base=truth
    )


def linear(generator: np.random.Generator) -> Layer:
    return LINEAR[int(generator.integers(len(LINEAR)))](generator)


def plain_linear(generator: np.random.Generator) -> Layer:
    return LINEAR[int(generator.integers(len(LINEAR)))](generator, activation="")


def _operands(rounding: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.random.Generator], Plant]:
    def plant(generator: np.random.Generator) -> Plant:
        layer = linear(generator)
        return Plant(
            truth="",
            layer=layer,
            feeds=layer.feeds,
            candidate=emulated(layer, layer.feeds, generator, operands=rounding),
        )

    return plant


def _output(rounding: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.random.Generator], Plant]:
    def plant(generator: np.random.Generator) -> Plant:
        layer = linear(generator)
        return Plant(
            truth="", layer=layer, feeds=layer.feeds, candidate=emulated(layer, layer.feeds, generator, output=rounding)
        )

    return plant


def _honest(truth: str) -> Callable[[np.random.Generator], Plant]:
    return lambda generator: honest(linear(generator), truth, generator)


def scaled_cast(dtype: object, largest: float) -> Callable[[np.ndarray], np.ndarray]:
    def convert(array: np.ndarray) -> np.ndarray:
        scale = np.float32(np.abs(array).max() / np.float32(largest))
        return cast(dtype)((array / scale).astype(np.float32)) * scale

    return convert


def int8(array: np.ndarray) -> np.ndarray:
    scale = np.abs(array).max() / 127
    return (np.clip(np.rint(array / scale), -127, 127) * scale).astype(np.float32)


def _accumulated(truth: str) -> Callable[[np.random.Generator], Plant]:
    """Step by step over the contracted axis of a MatMul, in float16 or in a float32 that is cut toward zero."""

    def plant(generator: np.random.Generator) -> Plant:
        layer = matmul(generator, activation="")
        cut = truth == "f32_truncated"
        while cut and layer.parameters["w"].shape[0] < 200:  # shorter sums of a truncating FP32 stay within the floor
            layer = matmul(generator, activation="")
        width = 1 if cut else int(generator.choice([1, 4, 8, 16]))
        image, weight = layer.feeds["x"], layer.parameters["w"]
        if truth == "f16_accumulation":
            image, weight = f16(image), f16(weight)
        else:
            image = np.abs(image)
            layer = replace(layer, parameters={**layer.parameters, "w": np.abs(weight)})
            weight = np.abs(weight)
        total = np.zeros((*image.shape[:2], weight.shape[1]))
        for start in range(0, weight.shape[0], width):
            block = slice(start, start + width)
            total = total + image[..., block].astype(np.float64) @ weight[block].astype(np.float64)
            if truth == "f16_accumulation":
                total = total.astype(np.float16).astype(np.float64)
            else:
                near = total.astype(np.float32)
                total = np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near).astype(
                    np.float64
                )
        candidate = total.astype(np.float32) + layer.parameters["b"]
        feeds = layer.feeds if truth == "f16_accumulation" else {"x": image}
        return Plant(truth=truth, layer=layer, feeds=feeds, candidate=candidate.astype(np.float32))

    return plant


def shuffled(layer: Layer, generator: np.random.Generator) -> Plant:
    """A depthwise convolution in FP16 whose accumulator is FP16 too, its taps in a random order."""
    feeds = {"x": f16(layer.feeds["x"])}
    padded = np.pad(feeds["x"].astype(np.float64), [(0, 0), (0, 0), (2, 2), (2, 2)])
    weight = f16(layer.parameters["w"]).astype(np.float64)
    rows, columns = feeds["x"].shape[2:]
    total = np.zeros(feeds["x"].shape)
    for tap in generator.permutation(25):
        row, column = divmod(int(tap), 5)
        window = padded[:, :, row : row + rows, column : column + columns]
        total = (total + window * weight[None, :, 0, row, column, None, None]).astype(np.float16).astype(np.float64)
    bias = f16(layer.parameters["b"]).astype(np.float64)
    candidate = (total + bias[:, None, None]).astype(np.float16).astype(np.float32)
    return Plant(truth="f16_accumulation", layer=layer, feeds=feeds, candidate=candidate, base="f16_inputs_output")


def tensor_core(image: np.ndarray, weight: np.ndarray, block: int = 8) -> np.ndarray:
    """(m, k) times (k, n) in TF32 as Hopper's tensor cores: 25 fraction bits after alignment, then cut to FP32."""
    image, weight = tf32_nearest(image).astype(np.float64), tf32_nearest(weight).astype(np.float64)
    total = np.zeros((image.shape[0], weight.shape[1]))
    for start in range(0, image.shape[1], block):
        terms = [image[:, [k]] * weight[[k]] for k in range(start, min(start + block, image.shape[1]))]
        terms = np.stack([*terms, total])
        unit = 2.0 ** (np.frexp(np.abs(terms).max(axis=0))[1] - 1.0 - 25.0)
        exact = (np.trunc(terms / unit) * unit).sum(axis=0)
        near = exact.astype(np.float32)
        total = np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near).astype(np.float64)
    return total.astype(np.float32)


def reciprocal(generator: np.random.Generator) -> Plant:
    layer = division(generator)
    rounding = f16 if generator.random() < 0.5 else bf16
    feeds = {"x": rounding(layer.feeds["x"])}
    factor = rounding(np.float32(1) / rounding(layer.parameters["divisor"]))
    return Plant(truth="", layer=layer, feeds=feeds, candidate=rounding((feeds["x"] * factor).astype(np.float32)))


def saturated(generator: np.random.Generator) -> Plant:
    layer = batch_normalization(generator)
    variance = np.array(layer.parameters["variance"])
    variance[int(generator.integers(variance.size))] = np.float32(10.0 ** generator.uniform(5.0, 8.0))
    layer = replace(layer, parameters={**layer.parameters, "variance": variance})
    clamped = replace(
        layer, parameters={name: np.clip(array, -65504, 65504) for name, array in layer.parameters.items()}
    )
    half = generator.random() < 0.5
    rounding = f16 if half else same
    candidate = emulated(clamped, layer.feeds, generator, stored=rounding, output=rounding)
    return Plant(truth="", layer=layer, feeds=layer.feeds, candidate=candidate)


def flushed(generator: np.random.Generator) -> Plant:
    layer = plain_linear(generator)
    small = 2.0**-126 if generator.random() < 0.5 else 2.0**-14
    feeds = {"x": (layer.feeds["x"] * np.float32(small)).astype(np.float32)}
    layer = replace(layer, feeds=feeds, parameters={**layer.parameters, "b": np.zeros_like(layer.parameters["b"])})
    weight = layer.parameters["w"]

    def flush(array: np.ndarray) -> np.ndarray:
        return np.where(np.abs(array) < np.float32(small), np.float32(0), array)

    layer = replace(
        layer, parameters={**layer.parameters, "w": np.where(np.abs(weight) < small, np.float32(0), weight)}
    )
    return Plant(
        truth="", layer=layer, feeds=feeds, candidate=emulated(layer, feeds, generator, stored=flush, output=flush)
    )


# Other functions: another ONNX model, on top of an arithmetic.


def changed(layer: Layer, generator: np.random.Generator, other: Layer) -> Plant:
    """`other` is what was computed in place of `layer`, in one of four arithmetics."""
    base = str(generator.choice(CLEAN))
    feeds = entering(layer, base, generator)
    return Plant(truth="", layer=layer, feeds=feeds, candidate=arithmetic(other, feeds, base, generator), base=base)


def text_changed(layer: Layer, generator: np.random.Generator, old: str, new: str) -> Plant:
    if old not in layer.text:
        raise ValueError(f"{old} is not in {layer.text}")
    return changed(layer, generator, replace(layer, text=layer.text.replace(old, new)))


def parameter_changed(layer: Layer, generator: np.random.Generator, name: str, array: np.ndarray) -> Plant:
    return changed(layer, generator, replace(layer, parameters={**layer.parameters, name: array.astype(np.float32)}))


def clip_bound(generator: np.random.Generator) -> Plant:
    maker = LINEAR[int(generator.integers(len(LINEAR)))]
    layer = maker(generator, activation="Clip(t, low, high)")
    way = int(generator.integers(6))
    if way < 3:
        return text_changed(layer, generator, ", low, high)", ("()", ", low)", ", , high)")[way].replace("()", ")"))
    if way == 3:
        return parameter_changed(layer, generator, "high", layer.parameters["high"] * np.float32(0.6))
    if way == 4:
        return parameter_changed(layer, generator, "high", layer.parameters["high"] * np.float32(1.4))
    relu = maker(generator, activation="Relu(t)")
    if generator.random() < 0.5:
        return text_changed(relu, generator, "Relu(", "Identity(")
    kept = Layer(
        text=relu.text.replace("Relu(", "Clip(").replace(")\n}", ", low, high)\n}"),
        parameters={**relu.parameters, "low": np.array(0, np.float32), "high": np.array(0.5, np.float32)},
        feeds=relu.feeds,
        operands=relu.operands,
        contracted=relu.contracted,
    )
    return changed(relu, generator, kept)


def activation_before_bias(generator: np.random.Generator) -> Plant:
    step = str(generator.choice(["Relu(t)", "Sigmoid(t)", "Tanh(t)", "LeakyRelu<alpha = 0.1>(t)"]))
    layer = matmul(generator, activation=step)
    other = layer.text.replace("Add(t0, b)", "SECOND").replace(step.replace("(t)", "(t1)"), "Add(t1, b)")
    other = other.replace("SECOND", step.replace("(t)", "(t0)"))
    return changed(layer, generator, replace(layer, text=other))


def gelu_form(generator: np.random.Generator) -> Plant:
    form = str(generator.choice(["exact", "tanh"]))
    layer = gelu(generator, form)
    other = gelu(generator, "tanh" if form == "exact" else "exact")
    return changed(layer, generator, replace(other, feeds=layer.feeds))


def epsilon(generator: np.random.Generator) -> Plant:
    old, new = generator.permutation(["1e-5", "1e-6", "1e-3", "1e-12"])[:2]
    layer = normalization(generator)
    layer = replace(layer, text=layer.text.replace("1e-5", str(old)))
    return text_changed(layer, generator, str(old), str(new))


def bias_dropped(generator: np.random.Generator) -> Plant:
    layer = linear(generator)
    return parameter_changed(layer, generator, "b", np.zeros_like(layer.parameters["b"]))


def padding(generator: np.random.Generator) -> Plant:
    if generator.random() < 0.3:
        layer = pool(generator, "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)")
        layer = replace(layer, feeds={"x": layer.feeds["x"] - np.float32(1)})
        other = "p = Pad(x, amounts)\ny = MaxPool<kernel_shape = [3, 3]>(p)"
        changed_layer = replace(
            layer,
            text=layer.text.replace("y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", other),
            parameters={"amounts": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)},
        )
        return changed(layer, generator, changed_layer)
    layer = conv(generator, pads="[0, 1, 2, 1]")
    if generator.random() < 0.5:
        return text_changed(layer, generator, "pads = [0, 1, 2, 1]", "pads = [2, 1, 0, 1]")
    mode = str(generator.choice(["edge", "reflect"]))
    other = layer.text.replace("Conv<pads = [0, 1, 2, 1]>(x,", "Conv(padded,").replace(
        "{\n", f'{{\npadded = Pad<mode = "{mode}">(x, amounts)\n', 1
    )
    amounts = {**layer.parameters, "amounts": np.array([0, 0, 0, 1, 0, 0, 2, 1], np.int64)}
    return changed(layer, generator, replace(layer, text=other, parameters=amounts))


def another_resize(generator: np.random.Generator) -> Plant:
    layer = resize(generator)
    other = resize(generator)
    line = next(line for line in layer.text.splitlines() if "Resize" in line)
    its = next(line for line in other.text.splitlines() if "Resize" in line)
    mode = 'mode = "' + line.split('mode = "')[1].split('"')[0] + '"'
    its = its.replace('mode = "' + its.split('mode = "')[1].split('"')[0] + '"', mode, 1)
    return text_changed(layer, generator, line, its)


def average_pool(generator: np.random.Generator) -> Plant:
    layer = pool(generator)
    old, new = "pads = [1, 1, 1, 1]>", "pads = [1, 1, 1, 1], count_include_pad = 1>"
    if generator.random() < 0.5:
        return text_changed(replace(layer, text=layer.text.replace(old, new)), generator, new, old)
    return text_changed(layer, generator, old, new)


def integers(generator: np.random.Generator) -> Plant:
    values = generator.integers(-(2**34), 2**34, (5, 40))
    way = int(generator.integers(3))
    step = ("Div(x, divisor)", "Add(x, divisor)", "Mul(x, divisor)")[way]
    layer = Layer(
        text=chain([step], 2, kind="int64"),
        parameters={"divisor": np.array(int(generator.integers(3, 90)), np.int64)},
        feeds={"x": values if way else values % 1000 - 500},
    )
    divisor = layer.parameters["divisor"]
    if way == 0:
        candidate = np.floor_divide(layer.feeds["x"], divisor)
    else:
        cut = layer.feeds["x"].astype(np.int32).astype(np.int64)
        candidate = cut + divisor if way == 1 else cut * divisor
    return Plant(truth="", layer=layer, feeds=layer.feeds, candidate=candidate)


def axis_order(generator: np.random.Generator) -> Plant:
    way = int(generator.integers(3))
    if way == 0:
        layer = Layer(
            text=chain(["Transpose<perm = [0, 2, 1, 3]>(x)"], 4),
            parameters={},
            feeds={"x": generator.normal(0, 1, (1, 6, 6, 4)).astype(np.float32)},
        )
        return text_changed(layer, generator, "[0, 2, 1, 3]", "[0, 1, 2, 3]")
    if way == 1:
        layer = Layer(
            text="g (float[N,C,H] x, float[N,C,H] z) => (float[N,D,H] y) {\ny = Concat<axis = 1>(x, z)\n}",
            parameters={},
            feeds={name: generator.normal(0, 1, (2, 5, 7)).astype(np.float32) for name in ("x", "z")},
        )
        return text_changed(layer, generator, "(x, z)\n", "(z, x)\n")
    layer = conv(generator)
    base = str(generator.choice(CLEAN))
    feeds = entering(layer, base, generator)
    exchanged = {"x": np.ascontiguousarray(feeds["x"][:, ::-1])}
    return Plant(truth="", layer=layer, feeds=feeds, candidate=arithmetic(layer, exchanged, base, generator), base=base)


def channel_scaled(generator: np.random.Generator) -> Plant:
    layer = conv(generator, activation=str(generator.choice(["", "Relu(t)"])))
    weight = np.array(layer.parameters["w"])
    weight[int(generator.integers(len(weight)))] *= np.float32(generator.choice([0.5, 0.9, 1.02, 2.0]))
    return parameter_changed(layer, generator, "w", weight)


def statistics(generator: np.random.Generator) -> Plant:
    layer = batch_normalization(generator)
    old, new = (("mean, variance", "variance, mean"), ("scale, shift", "shift, scale"))[int(generator.integers(2))]
    if "variance, mean" in new:
        layer = replace(
            layer, parameters={**layer.parameters, "mean": np.abs(layer.parameters["mean"]) + np.float32(0.1)}
        )
    return text_changed(layer, generator, old, new)


def slope(generator: np.random.Generator) -> Plant:
    layer = conv(generator, activation="LeakyRelu<alpha = 0.1>(t)")
    return text_changed(layer, generator, "alpha = 0.1", f"alpha = {generator.choice([0.01, 0.2, 0.3, 1.0])}")


PLANTS: dict[str, Callable[[np.random.Generator], Plant]] = {
    **{truth: _honest(truth) for truth in CLEAN},
    "tf32_truncated": _operands(tf32_cut),
    "f32_truncated": _accumulated("f32_truncated"),
    "f16_inputs": _operands(f16),
    "f16_output": _output(f16),
    "f16_accumulation": _accumulated("f16_accumulation"),
    "bf16_inputs": _operands(bf16),
    "bf16_output": _output(bf16),
    "f8e4m3": _operands(scaled_cast(ml_dtypes.float8_e4m3fn, 448)),
    "f8e5m2": _operands(scaled_cast(ml_dtypes.float8_e5m2, 57344)),
    "int8": _operands(int8),
    "reciprocal_division": reciprocal,
    "saturated_weights": saturated,
    "flushed_subnormals": flushed,
    "clip_bound": clip_bound,
    "activation_before_bias": activation_before_bias,
    "gelu_form": gelu_form,
    "epsilon": epsilon,
    "bias_dropped": bias_dropped,
    "padding": padding,
    "resize": another_resize,
    "average_pool_padding": average_pool,
    "integer_arithmetic": integers,
    "axis_order": axis_order,
    "channel_scaled": channel_scaled,
    "batch_normalization": statistics,
    "activation_slope": slope,
}


def planted(truth: str, generator: np.random.Generator) -> Plant:
    """A plant with an effect that could be found: on top of its arithmetic, above that arithmetic's own error."""
    for _ in range(100):
        plant = replace(PLANTS[truth](generator), truth=truth)
        if truth in CLEAN or (_stands_out(plant, generator) if plant.base else _effect(plant) > LEAST_EFFECT):
            return plant
    raise RuntimeError(f"no plant of {truth} has an effect")


def _effect(plant: Plant) -> float:
    exact = run(plant.layer, plant.feeds).astype(np.float64)
    error = np.linalg.norm(plant.candidate - exact)
    return float(error / (np.linalg.norm(exact) or 1.0))


def _stands_out(plant: Plant, generator: np.random.Generator) -> bool:
    """Whether the fault changes what its arithmetic gives, by more than the floor and a few ties."""
    alone = arithmetic(plant.layer, plant.feeds, plant.base, generator).astype(np.float64)
    size = float(np.linalg.norm(alone)) or 1.0
    unit = {"f16_inputs_output": 2.0**-11, "bf16_inputs_output": 2.0**-8}.get(plant.base, LEAST_EFFECT)
    return float(np.linalg.norm(plant.candidate - alone)) > unit * size


if __name__ == "__main__":
    main()
