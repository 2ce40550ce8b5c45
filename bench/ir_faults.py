"""Faults drawn at random in OpenVINO IRs of trained models, and what the comparison of graphs says first of each.

    python bench/ir_faults.py pitch ocr-cls vad-seq --seeds 1 8

Each seed draws an operator, an attribute or a constant of the IR and an edit of its kind. What OpenVINO refuses, or what moves no
output by more than 1e-5 (relative L2), is drawn again. Asked is the comparison of graphs alone; who reads the words judges them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import openvino as ov
from openvino import opset13 as ops

from parityscope.backends.openvino_ir.translating import translated_file
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph import SideOutputs, compare_graphs
from proving.models.fetching import fetch
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = np.random.Generator

_MOVED = 1e-5  # relative L2: what moves no output by more is no fault
_TRIES = 40
_UNARY: dict[str, Callable[[Any], Any]] = {
    "Relu": ops.relu,
    "Sigmoid": ops.sigmoid,
    "Tanh": ops.tanh,
    "HSwish": ops.hswish,
    "Sqrt": ops.sqrt,
    "Exp": ops.exp,
    "Abs": ops.abs,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": ops.add,
    "Subtract": ops.subtract,
    "Multiply": ops.multiply,
    "Maximum": ops.maximum,
    "Minimum": ops.minimum,
}
_ATTRIBUTES = (
    "axis",
    "pads_begin",
    "pads_end",
    "dilations",
    "eps",
    "epsilon",
    "keep_dims",
    "exclude-pad",
    "transpose_b",
)


def _put(old: Any, new: Any) -> None:
    new.get_node().set_friendly_name(old.get_node().get_friendly_name())
    for reader in list(old.get_target_inputs()):
        reader.replace_source_output(new)


def _edit_operator(model: Any, draw: Draw) -> str:
    nodes = [one for one in model.get_ordered_ops() if one.get_type_name() in {*_UNARY, *_BINARY}]
    node = nodes[draw.integers(len(nodes))]
    table: Any = _UNARY if node.get_type_name() in _UNARY else _BINARY
    kind = draw.choice([one for one in table if one != node.get_type_name()])
    _put(node.output(0), table[kind](*(node.input_value(place) for place in range(node.get_input_size()))).output(0))
    return f"operator {node.get_friendly_name()}: {node.get_type_name()} -> {kind}"


def _edit_constant(model: Any, draw: Draw) -> str:
    held = [
        one
        for one in model.get_ordered_ops()
        if one.get_type_name() == "Constant"
        and one.get_element_type().get_type_name() == "f32"
        and np.size(one.data) > 3
    ]
    node = held[draw.integers(len(held))]
    array = np.array(node.data)
    axis = int(draw.choice([place for place, size in enumerate(array.shape) if size > 1]))
    one, other = (int(each) for each in draw.choice(array.shape[axis], 2, replace=False))
    moved = np.moveaxis(array, axis, 0)
    kind = str(draw.choice(["exchange", "scale", "scale one", "roll", "zero one", "shift", "negate one"]))
    factor = float(draw.uniform(1.2, 3))
    if kind == "exchange":
        moved[[one, other]] = moved[[other, one]]
    elif kind == "roll":
        moved[:] = np.roll(moved, 1, axis=0)
    elif kind == "zero one":
        moved[one] = 0
    elif kind == "negate one":
        moved[one] *= -1
    elif kind == "scale one":
        moved[one] *= factor
    elif kind == "scale":
        array *= factor
    else:
        array += float(factor * np.abs(array).mean())
    _put(node.output(0), ops.constant(array).output(0))
    readers = [each.get_node().get_friendly_name() for each in node.output(0).get_target_inputs()]
    return f"constant {node.get_friendly_name()} {array.shape} of {readers}: {kind}, axis {axis}, {one}, {other}, {factor:.3g}"


def _edit_attribute(model: Any, draw: Draw) -> str:
    found = [(node, name) for node in model.get_ordered_ops() for name in node.get_attributes() if name in _ATTRIBUTES]
    node, name = found[draw.integers(len(found))]
    before = node.get_attributes()[name]
    if isinstance(before, bool):
        after: Any = not before
    elif isinstance(before, float):
        after = before * 10 ** int(draw.integers(2, 5))
    elif isinstance(before, int):
        after = before + int(draw.choice([-1, 1]))
    else:
        after = list(before)
        after[draw.integers(len(after))] += 1
    node.set_attribute(name, after)
    model.validate_nodes_and_infer_types()
    return f"attribute {name} of {node.get_type_name()} {node.get_friendly_name()}: {before} -> {after}"


_KINDS = (_edit_operator, _edit_constant, _edit_attribute)


def _run_ir(path: Path, feeds: list[np.ndarray]) -> list[np.ndarray]:
    compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(feeds)
    return [np.array(found[place]) for place in range(len(compiled.outputs))]


def _draw_fault(
    plain: Path, folder: Path, seed: int, feeds: list[np.ndarray], wanted: list[np.ndarray]
) -> tuple[str, Path, Any]:
    """What was edited, the edited IR, and what that gives."""
    draw = np.random.default_rng(seed)
    kind = _KINDS[seed % len(_KINDS)]
    for _ in range(_TRIES):
        model, path = ov.Core().read_model(plain), folder / f"{plain.stem}-{seed}.xml"
        try:
            told = kind(model, draw)
            ov.save_model(model, path, compress_to_fp16=False)
            given = _run_ir(path, feeds)
        except (RuntimeError, ValueError, TypeError):
            continue
        if any(one.shape != other.shape for one, other in zip(given, wanted, strict=True)):
            continue
        pairs = [[np.asarray(side, np.float64) for side in pair] for pair in zip(given, wanted, strict=True)]
        if max(np.linalg.norm(one - other) / (np.linalg.norm(other) or 1.0) for one, other in pairs) > _MOVED:
            return told, path, given
    return "nothing drawn moves an output", plain, None


def main() -> None:
    """Draws, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seeds", nargs=2, type=int, default=(1, 6))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as held:
        for identity in asked.models:
            reference = fetch(identity)
            sample = sample_of(identity)
            session = ort.InferenceSession(str(reference))
            names = [one.name for one in session.get_outputs()]
            wanted = session.run(None, {one.name: sample[one.name] for one in session.get_inputs()})
            plain = Path(held) / f"{identity}.xml"
            ov.save_model(ov.convert_model(str(reference)), plain, compress_to_fp16=False)
            feeds = [sample[one.name] for one in session.get_inputs()]
            own = _run_ir(plain, feeds)
            opset = max(
                one.version for one in onnx.load(reference, load_external_data=False).opset_import if not one.domain
            )
            for seed in range(asked.seeds[0], asked.seeds[1] + 1):
                told, path, given = _draw_fault(plain, Path(held), seed, feeds, own)
                print(f"{identity} {seed}: {told}", flush=True)
                if given is None:
                    continue
                sides = SideOutputs(
                    inputs=sample,
                    reference=dict(zip(names, wanted, strict=True)),
                    candidate=dict(zip(names, given, strict=True)),
                )
                try:
                    decision = compare_graphs(
                        load_model(reference), load_model(translated_file(path, opset)), [sides]
                    ).decision
                except ParityError as error:
                    print(f"    {error.problem}", flush=True)
                    continue
                for unit, share in decision.causes[:2]:
                    print(f"    {share:.3f} {unit.differences[0].words[:400]}", flush=True)


if __name__ == "__main__":
    main()
