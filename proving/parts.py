"""`python -m proving.parts FIRST LAST`: parts, moves and grids drawn in small networks, looked for from the outputs alone.

Of each seed and network of `proving.drawn` three faults: a part of a result (a run, a rest by a period, a tile) scaled, shifted,
zero or constant; a result moved along an axis, mirrored or not; a constant on a grid. All is drawn from the seed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from parityscope.hypotheses.from_outputs.searching import KnownOutputs, search_outputs
from parityscope.hypotheses.from_outputs.telling import told_of
from parityscope.hypotheses.grids import SYMMETRIC, ZERO_POINT, Grid, Sharing
from proving.drawn.networks import SMALL, Network, Sample, network, run

_KINDS = ("part", "move", "grid")
_LEAST = 1e-4  # relative: what changes the outputs less is not counted
_NOISE = 1e-5
_ALL = slice(None)


def _change_part(array: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    axes = [axis for axis, length in enumerate(array.shape) if length > 3]
    axis, where = int(draw.choice(axes)), [_ALL] * array.ndim
    kind = draw.integers(3)
    if kind == 0:
        where[axis] = _run_of(array.shape[axis], draw)
    elif kind == 1:
        period = int(draw.integers(2, 6))
        where[axis] = slice(int(draw.integers(period)), None, period)
    else:
        for one in axes[-2:]:
            where[one] = _run_of(array.shape[one], draw)
    value = round(float(draw.uniform(0.2, 1.8)), 1)
    changed = array.copy()
    part = changed[tuple(where)]
    changed[tuple(where)] = (value * part, part + value / 2, 0 * part, 0 * part + value / 2)[draw.integers(4)]
    return changed


def _run_of(length: int, draw: np.random.Generator) -> slice:
    start = int(draw.integers(0, length - 2))
    return slice(start, start + int(draw.integers(2, max(3, length // 2))))


def _move(array: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    axes = [axis for axis, length in enumerate(array.shape) if length > 6]
    axis = int(draw.choice(axes))
    by = int(draw.integers(2, array.shape[axis] // 2 + 1)) * int(draw.choice([-1, 1]))
    kind = draw.integers(3)
    moved = np.roll(np.flip(array, axis) if kind == 2 else array, by, axis)
    if kind == 1:
        moved[(*[_ALL] * axis, slice(by) if by > 0 else slice(by, None))] = 0
    return moved


def _put_on_grid(array: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    bits, axis = int(draw.choice([8, 4, 4, 3])), int(draw.integers(array.ndim))
    sharing = (Sharing(), Sharing(axis=axis), Sharing(axis=axis, block=int(draw.choice([16, 32]))))[draw.integers(3)]
    rule = ZERO_POINT if sharing.axis is None and draw.integers(2) else SYMMETRIC
    return Grid(bits=bits, sharing=sharing, rule=rule).apply(array)


def _deploy(net: Network, kind: str, draw: np.random.Generator) -> tuple[str, list[Sample]]:
    """The tensor at which a fault was drawn, and what the deployment gives."""
    if kind == "grid":
        weights = net.weights(48)
        node, place = weights[draw.integers(len(weights))]
        name, other = node.input[place], onnx.ModelProto()
        other.CopyFrom(net.model)
        held = {one.name: one for one in other.graph.initializer}
        held |= {one.output[0]: one.attribute[0].t for one in other.graph.node if one.op_type == "Constant"}
        made = _put_on_grid(net.constants[name], draw).astype(np.float32)
        held[name].CopyFrom(numpy_helper.from_array(made, held[name].name))
        return node.output[0], run(other, net.inputs)
    names = [node.output[0] for node in net.nodes if max(np.shape(net.values[node.output[0]]), default=0) > 6]
    tensor, seed = names[draw.integers(len(names))], int(draw.integers(1 << 30))
    front, behind = _split_at(net.model, tensor)
    found = []
    for sample, known in zip(net.inputs, run(front, net.inputs), strict=True):
        change = _change_part if kind == "part" else _move
        changed = change(known[tensor], np.random.default_rng(seed)).astype(np.float32)
        fed = {**known, **sample, tensor: changed}
        given = run(behind, [{one.name: fed[one.name] for one in behind.graph.input}])[0]
        found.append({one.name: given.get(one.name, known[one.name]) for one in net.model.graph.output})
    return tensor, found


def _split_at(model: onnx.ModelProto, tensor: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The model with all that it computes as outputs, and what is computed from a tensor, which gives that back too."""
    front, behind = onnx.ModelProto(), onnx.ModelProto()
    front.CopyFrom(model)
    behind.CopyFrom(model)
    had = {value.name for value in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name]
    front.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made if name not in had)
    names, nodes = {tensor}, []
    for node in model.graph.node:
        if names & set(node.input):
            names |= set(node.output)
            nodes.append(node)
    nodes.append(helper.make_node("Identity", [tensor], [f"{tensor}::given"]))
    held = {one.name for one in model.graph.initializer}
    given = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in held | given)
    types = {value.name: value for value in model.graph.input}
    del behind.graph.node[:], behind.graph.input[:], behind.graph.output[:], behind.graph.value_info[:]
    behind.graph.node.extend(nodes)
    behind.graph.input.extend(
        types[name] if name in types else helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in read
    )
    behind.graph.output.extend(helper.make_empty_tensor_value_info(f"{tensor}::given") for _ in (0,))
    behind.graph.output.extend(value for value in model.graph.output if value.name in given)
    return front, behind


def _search(name: str, kind: str, seed: int) -> str:
    """What is said of one case: empty where the fault changes nothing."""
    net, draw = network(name), np.random.default_rng([seed, zlib.crc32(f"{name} {kind}".encode())])
    tensor, outputs = _deploy(net, kind, draw)
    errors = [
        np.linalg.norm(one[key] - known[key]) / (np.linalg.norm(known[key]) + 1e-30)
        for one, known in zip(outputs, net.reference, strict=True)
        for key in one
    ]
    if not max(errors) > _LEAST:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(net.model, path)
        begun = time.process_time()
        told = told_of(
            search_outputs(
                KnownOutputs(model=path, feeds=net.inputs, candidate=outputs, noise=dict.fromkeys(outputs[0], _NOISE))
            )
        )
    best = told.members[0] if told.members else told.nearest
    said = "found" if told.members and told.exact else "missed"
    words = "" if best is None else f"{best.output}: {best.words} ({best.share:.4f})"
    return f"{said} {name} {kind} at {tensor}: {words} {time.process_time() - begun:.1f} s"


def main() -> None:
    """All cases of some seeds, a line each, and how many were found."""
    parser = argparse.ArgumentParser(prog="python -m proving.parts", description=__doc__)
    parser.add_argument("seeds", type=int, nargs=2)
    asked = parser.parse_args()
    for kind in _KINDS:
        lines = [_search(name, kind, seed) for seed in range(*asked.seeds) for name in SMALL]
        told = [line for line in lines if line]
        print(*told, sep="\n", flush=True)
        print(f"{kind}: {sum(line.startswith('found') for line in told)} of {len(told)}", flush=True)


if __name__ == "__main__":
    main()
