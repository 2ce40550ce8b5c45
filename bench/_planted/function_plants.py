"""Layers that compute another function: another ONNX model, or other parameters, on top of an honest arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from _planted.arithmetics import CLEAN, arithmetic, entering
from _planted.layer import Layer, chain
from _planted.linear_layers import LINEAR, conv, linear, matmul
from _planted.other_layers import batch_normalization, gelu, normalization, pool, resize
from _planted.plant import Plant


def clip_bound(generator: np.random.Generator) -> Plant:
    maker = LINEAR[int(generator.integers(len(LINEAR)))]
    layer = maker(generator, activation="Clip(t, low, high)")
    way = int(generator.integers(6))
    if way < 3:
        return _text_changed(layer, generator, ", low, high)", ("()", ", low)", ", , high)")[way].replace("()", ")"))
    if way == 3:
        return _parameter_changed(layer, generator, "high", layer.parameters["high"] * np.float32(0.6))
    if way == 4:
        return _parameter_changed(layer, generator, "high", layer.parameters["high"] * np.float32(1.4))
    relu = maker(generator, activation="Relu(t)")
    if generator.random() < 0.5:
        return _text_changed(relu, generator, "Relu(", "Identity(")
    kept = Layer(
        text=relu.text.replace("Relu(", "Clip(").replace(")\n}", ", low, high)\n}"),
        parameters={**relu.parameters, "low": np.array(0, np.float32), "high": np.array(0.5, np.float32)},
        feeds=relu.feeds,
        operands=relu.operands,
        contracted=relu.contracted,
    )
    return _changed(relu, generator, kept)


def activation_before_bias(generator: np.random.Generator) -> Plant:
    step = str(generator.choice(["Relu(t)", "Sigmoid(t)", "Tanh(t)", "LeakyRelu<alpha = 0.1>(t)"]))
    layer = matmul(generator, activation=step)
    other = layer.text.replace("Add(t0, b)", "SECOND").replace(step.replace("(t)", "(t1)"), "Add(t1, b)")
    other = other.replace("SECOND", step.replace("(t)", "(t0)"))
    return _changed(layer, generator, replace(layer, text=other))


def gelu_form(generator: np.random.Generator) -> Plant:
    form = str(generator.choice(["exact", "tanh"]))
    layer = gelu(generator, form)
    other = gelu(generator, "tanh" if form == "exact" else "exact")
    return _changed(layer, generator, replace(other, feeds=layer.feeds))


def epsilon(generator: np.random.Generator) -> Plant:
    old, new = generator.permutation(["1e-5", "1e-6", "1e-3", "1e-12"])[:2]
    layer = normalization(generator)
    layer = replace(layer, text=layer.text.replace("1e-5", str(old)))
    return _text_changed(layer, generator, str(old), str(new))


def bias_dropped(generator: np.random.Generator) -> Plant:
    layer = linear(generator)
    return _parameter_changed(layer, generator, "b", np.zeros_like(layer.parameters["b"]))


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
        return _changed(layer, generator, changed_layer)
    layer = conv(generator, pads="[0, 1, 2, 1]")
    if generator.random() < 0.5:
        return _text_changed(layer, generator, "pads = [0, 1, 2, 1]", "pads = [2, 1, 0, 1]")
    mode = str(generator.choice(["edge", "reflect"]))
    other = layer.text.replace("Conv<pads = [0, 1, 2, 1]>(x,", "Conv(padded,").replace(
        "{\n", f'{{\npadded = Pad<mode = "{mode}">(x, amounts)\n', 1
    )
    amounts = {**layer.parameters, "amounts": np.array([0, 0, 0, 1, 0, 0, 2, 1], np.int64)}
    return _changed(layer, generator, replace(layer, text=other, parameters=amounts))


def another_resize(generator: np.random.Generator) -> Plant:
    layer = resize(generator)
    other = resize(generator)
    line = next(line for line in layer.text.splitlines() if "Resize" in line)
    its = next(line for line in other.text.splitlines() if "Resize" in line)
    mode = 'mode = "' + line.split('mode = "')[1].split('"')[0] + '"'
    its = its.replace('mode = "' + its.split('mode = "')[1].split('"')[0] + '"', mode, 1)
    return _text_changed(layer, generator, line, its)


def average_pool(generator: np.random.Generator) -> Plant:
    layer = pool(generator)
    old, new = "pads = [1, 1, 1, 1]>", "pads = [1, 1, 1, 1], count_include_pad = 1>"
    if generator.random() < 0.5:
        return _text_changed(replace(layer, text=layer.text.replace(old, new)), generator, new, old)
    return _text_changed(layer, generator, old, new)


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
        return _text_changed(layer, generator, "[0, 2, 1, 3]", "[0, 1, 2, 3]")
    if way == 1:
        layer = Layer(
            text="g (float[N,C,H] x, float[N,C,H] z) => (float[N,D,H] y) {\ny = Concat<axis = 1>(x, z)\n}",
            parameters={},
            feeds={name: generator.normal(0, 1, (2, 5, 7)).astype(np.float32) for name in ("x", "z")},
        )
        return _text_changed(layer, generator, "(x, z)\n", "(z, x)\n")
    layer = conv(generator)
    base = str(generator.choice(CLEAN))
    feeds = entering(layer, base, generator)
    exchanged = {"x": np.ascontiguousarray(feeds["x"][:, ::-1])}
    return Plant(truth="", layer=layer, feeds=feeds, candidate=arithmetic(layer, exchanged, base, generator), base=base)


def channel_scaled(generator: np.random.Generator) -> Plant:
    layer = conv(generator, activation=str(generator.choice(["", "Relu(t)"])))
    weight = np.array(layer.parameters["w"])
    weight[int(generator.integers(len(weight)))] *= np.float32(generator.choice([0.5, 0.9, 1.02, 2.0]))
    return _parameter_changed(layer, generator, "w", weight)


def statistics(generator: np.random.Generator) -> Plant:
    layer = batch_normalization(generator)
    old, new = (("mean, variance", "variance, mean"), ("scale, shift", "shift, scale"))[int(generator.integers(2))]
    if "variance, mean" in new:
        layer = replace(
            layer, parameters={**layer.parameters, "mean": np.abs(layer.parameters["mean"]) + np.float32(0.1)}
        )
    return _text_changed(layer, generator, old, new)


def slope(generator: np.random.Generator) -> Plant:
    layer = conv(generator, activation="LeakyRelu<alpha = 0.1>(t)")
    return _text_changed(layer, generator, "alpha = 0.1", f"alpha = {generator.choice([0.01, 0.2, 0.3, 1.0])}")


def _changed(layer: Layer, generator: np.random.Generator, other: Layer) -> Plant:
    """`other` is what was computed in place of `layer`, in one of four arithmetics."""
    base = str(generator.choice(CLEAN))
    feeds = entering(layer, base, generator)
    return Plant(truth="", layer=layer, feeds=feeds, candidate=arithmetic(other, feeds, base, generator), base=base)


def _text_changed(layer: Layer, generator: np.random.Generator, old: str, new: str) -> Plant:
    if old not in layer.text:
        raise ValueError(f"{old} is not in {layer.text}")
    return _changed(layer, generator, replace(layer, text=layer.text.replace(old, new)))


def _parameter_changed(layer: Layer, generator: np.random.Generator, name: str, array: np.ndarray) -> Plant:
    return _changed(layer, generator, replace(layer, parameters={**layer.parameters, name: array.astype(np.float32)}))
