"""Planted differences between two ONNX files, beside other people's tools: the table of docs/other-graphs.md.

    python bench/graph_diffs.py [--diffonnx PATH] [--onnxdiff PATH] [MODEL ...]

`PATH` are the commands of the packages `diffonnx` and `onnxdiffer`, each in an environment of its own (their dependencies
exclude each other). Every pair holds one difference that moves an output by more than 1e-3 (relative L2) and two that move it by
less than 1e-5. A difference counts as found where an answer names its node or tensor; as the cause where it says that this makes
the error; as harmless where it says that it does not. Every node has a name, as exporters give it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from parityscope.case.formats.npz import write_npz
from proving.models.fetching import require
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[onnx.ModelProto, int], "Planted"]

_MODELS = ("ocr-cls",)
_MOVES, _STAYS = 1e-3, 1e-5  # relative L2 of the outputs


@dataclass(frozen=True)
class Planted:
    """A difference, and by which names an answer may call it."""

    words: str
    names: tuple[str, ...]


def _exchange_channels(model: onnx.ModelProto, place: int) -> Planted:
    tensor = _weights(model)[place]
    array = numpy_helper.to_array(tensor).copy()
    array[[0, 1]] = array[[1, 0]]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return Planted("two channels of a weight exchanged", _called(model, tensor.name))


def _scale_weight(model: onnx.ModelProto, place: int) -> Planted:
    tensor = _weights(model)[place]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(3), tensor.name))
    return Planted("a weight times 3", _called(model, tensor.name))


def _other_operator(model: onnx.ModelProto, place: int) -> Planted:
    node = [one for one in model.graph.node if one.op_type in {"Relu", "Sigmoid", "Tanh"}][place]
    node.op_type = "Softplus" if node.op_type == "Relu" else "Erf"
    return Planted("another activation", (node.name, node.output[0]))


def _scaled_result(model: onnx.ModelProto, place: int) -> Planted:
    return _put_behind(model, place, "Mul", 3.0, "a result times 3")


def _identity(model: onnx.ModelProto, place: int) -> Planted:
    return _put_behind(model, place, "Identity", None, "an Identity added")


def _add_little(model: onnx.ModelProto, place: int) -> Planted:
    return _put_behind(model, place, "Mul", 1 + 2**-22, "a product with 1 + 2^-22 added")


def _jitter(model: onnx.ModelProto, place: int) -> Planted:
    tensor = _weights(model)[place]
    array = numpy_helper.to_array(tensor)
    signs = np.where(np.arange(array.size).reshape(array.shape) % 2, 1, -1)
    tensor.CopyFrom(numpy_helper.from_array((array * (1 + 1e-7 * signs)).astype(np.float32), tensor.name))
    return Planted("the last bits of a weight", _called(model, tensor.name))


HARMFUL = (_exchange_channels, _scale_weight, _other_operator, _scaled_result)
HARMLESS = ((_identity, _jitter), (_add_little, _identity), (_jitter, _add_little), (_identity, _jitter))


def _weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Constants of products, in the order of the file."""
    read = [
        one.input[1] for one in model.graph.node if one.op_type in {"Conv", "MatMul", "Gemm"} and len(one.input) > 1
    ]
    held = {one.name: one for one in model.graph.initializer if one.data_type == one.FLOAT and len(one.dims) > 1}
    return [held[name] for name in dict.fromkeys(read) if name in held and held[name].dims[0] > 1]


def _called(model: onnx.ModelProto, tensor: str) -> tuple[str, ...]:
    return (tensor, *(one.name for one in model.graph.node if tensor in one.input))


def _put_behind(model: onnx.ModelProto, place: int, op_type: str, number: float | None, words: str) -> Planted:
    """A node behind the result of a product, which all its readers read."""
    makers = [one for one in model.graph.node if one.op_type in {"Conv", "MatMul", "Gemm", "Relu"}]
    maker = makers[place]
    inner, name = f"{maker.output[0]}_before", f"planted_{op_type}_{place}"
    inputs = [inner]
    if number is not None:
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), f"{name}_by"))
        inputs.append(f"{name}_by")
    node = helper.make_node(op_type, inputs, [maker.output[0]], name=name)
    index = [one.name for one in model.graph.node].index(maker.name)
    maker.output[0] = inner
    model.graph.node.insert(index + 1, node)
    return Planted(words, (name, f"{name}_by", node.output[0], maker.name))


def _named(path: Path) -> onnx.ModelProto:
    """The model, its Constants as initializers, each node with a name of its own."""
    model = onnx.load(path)
    for place, node in reversed([*enumerate(model.graph.node)]):
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = onnx.TensorProto.FromString(node.attribute[0].t.SerializeToString())
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
            del model.graph.node[place]
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_n{place}"
    return model


def _outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(ort.InferenceSession(model.SerializeToString()).run(None, feeds))


@dataclass(frozen=True)
class _Yardstick:
    """What the reference gives for a sample; how far a copy of it may and must be off."""

    feeds: dict[str, np.ndarray]
    before: list[np.ndarray]

    def moved(self, model: onnx.ModelProto) -> float:
        """The largest relative L2 distance of an output."""
        after = _outputs(model, self.feeds)
        return max(float(np.linalg.norm(b - a) / np.linalg.norm(b)) for b, a in zip(self.before, after, strict=True))


def _plant(
    whole: onnx.ModelProto, edit: Edit, measured: _Yardstick, start: int, *, harmful: bool
) -> tuple[onnx.ModelProto, Planted]:
    """The first place from `start` on at which the edit does what it must."""
    for place in range(start, start + 40):
        model = onnx.ModelProto.FromString(whole.SerializeToString())
        try:
            planted = edit(model, place)
        except IndexError:
            break
        moved = measured.moved(model)
        if moved > _MOVES if harmful else moved < _STAYS:
            return model, planted
    raise SystemExit(f"no place for {edit.__name__}")


def _pairs(
    folder: Path, models: list[str]
) -> Iterator[tuple[str, Path, Path, dict[str, np.ndarray], Planted, list[Planted]]]:
    """Four pairs of each model: a harmful difference with two harmless ones."""
    for identity in models:
        whole, feeds = _named(require(identity)), dict(sample_of(identity))
        measured = _Yardstick(feeds, _outputs(whole, feeds))
        reference = folder / f"{identity}.onnx"
        onnx.save(whole, reference)
        for number, (harm, beside) in enumerate(zip(HARMFUL, HARMLESS, strict=True)):
            model, rest = whole, []
            for place, edit in enumerate(beside):
                model, planted = _plant(model, edit, measured, 2 * place, harmful=False)
                rest.append(planted)
            model, bad = _plant(model, harm, measured, 1 + number, harmful=True)
            candidate = folder / f"{identity}-{number}.onnx"
            onnx.save(model, candidate)
            yield identity, reference, candidate, feeds, bad, rest


def _names_it(text: str, planted: Planted) -> bool:
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text) for name in planted.names)


def _asked_of_us(reference: Path, candidate: Path, feeds: dict[str, np.ndarray], folder: Path) -> tuple[str, str]:
    """What the findings say makes the error, and what they say is harmless."""
    write_npz(folder / "samples" / "0.npz", feeds)
    line = [sys.executable, "-m", "parityscope", "diagnose", str(reference), "--inputs", str(folder / "samples")]
    line += ["--candidate", f"ort?model={candidate}", "--quiet", "--study", str(folder / "study")]
    subprocess.run(line, capture_output=True, check=False)
    findings = json.loads((folder / "study" / "study.json").read_text())["findings"]
    claims = [one["claim"] for one in findings if one["role"] == "cause"]
    parts = [re.split(r"\d+ other differences?, together", claim) for claim in claims]
    return " ".join(part[0] for part in parts), " ".join(text for part in parts for text in part[1:])


def main() -> None:
    """Prints a row for each tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*_MODELS], metavar="MODEL")
    parser.add_argument("--diffonnx", default="")
    parser.add_argument("--onnxdiff", default="")
    asked = parser.parse_args()
    others = {
        "diffonnx": lambda a, b: [asked.diffonnx, "-v", str(a), str(b)],
        "onnxdiffer": lambda a, b: [
            asked.onnxdiff,
            "--onnx_a",
            str(a),
            "--onnx_b",
            str(b),
            "--struct",
            "1",
            "--detial",
            "1",
        ],
    }
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (identity, reference, candidate, feeds, bad, rest) in enumerate(
            _pairs(Path(scratch), asked.models)
        ):
            started = time.perf_counter()
            cause, harmless = _asked_of_us(reference, candidate, feeds, Path(scratch) / str(number))
            every = f"{cause} {harmless}"
            seen = [_names_it(every, one) for one in (bad, *rest)]
            row = [sum(seen), _names_it(cause, bad), sum(_names_it(harmless, one) for one in rest)]
            row += [sum(_names_it(cause, one) for one in rest), time.perf_counter() - started]
            print(
                f"{identity}: {bad.words}; {', '.join(one.words for one in rest)}: {row}\n    {every[:300]}", flush=True
            )
            rows["parityscope"] = [a + b for a, b in zip(rows.get("parityscope", [0] * 5), row, strict=True)]
            for name, command in others.items():
                if not getattr(asked, "onnxdiff" if name == "onnxdiffer" else name):
                    continue
                started = time.perf_counter()
                said = subprocess.run(command(reference, candidate), capture_output=True, text=True, check=False).stdout
                row = [sum(_names_it(said, one) for one in (bad, *rest)), 0, 0, 0, time.perf_counter() - started]
                print(f"    {name}: {row}", flush=True)
                rows[name] = [a + b for a, b in zip(rows.get(name, [0] * 5), row, strict=True)]
    pairs = 4 * len(asked.models)
    print(
        f"| tool | of {3 * pairs} named | of {pairs} causes | of {2 * pairs} told harmless | harmless blamed | seconds a pair |"
    )
    for name, (found, cause, told, blamed, seconds) in rows.items():
        print(f"| {name} | {found:.0f} | {cause:.0f} | {told:.0f} | {blamed:.0f} | {seconds / pairs:.1f} |")


if __name__ == "__main__":
    main()
