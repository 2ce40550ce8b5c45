"""Localization against independent ways to the same numbers: single-node runs, planted errors, windows."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from one_sample import one_sample
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import parse_target
from parityscope.case import Inputs, load_model
from parityscope.case.graph import sites_of_values
from parityscope.evaluation.evaluating import run_world
from parityscope.evaluation.program import compile_program
from parityscope.evaluation.sessions import Sessions
from parityscope.evaluation.worlds import World
from parityscope.localization import LocalizationOptions, Sides, inject_errors, localize, narrow_regions
from parityscope.localization.injection import Added
from parityscope.localization.keeping import Programs
from parityscope.localization.replay import observed_tensors, replayed_values
from parityscope.testing.networks import parse_network, write_network
from parityscope.trace import Trace
from proving.models.fetching import ocr_rec_input, rendered_line, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Model
    from parityscope.records import Localization

# FP32 evaluations of one operator differ by the order of their sums: sqrt(K) * 2^-24 for K terms that round
# independently, and K is at most 5,000 in the recogniser.
FLOOR = 5000**0.5 * 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """One model and sample with both sides' tensors."""

    model: Model
    inputs: Inputs
    reference: Trace
    candidate: Trace

    @property
    def pairing(self) -> dict[str, str]:
        return {name: name for name in self.reference.names}

    @property
    def sides(self) -> Sides:
        return Sides(
            model=self.model,
            inputs=self.inputs,
            reference=self.reference,
            candidate=self.candidate,
            pairing=self.pairing,
        )

    def localize(self) -> Localization:
        return localize(self.model, self.inputs, self.reference, self.candidate, self.pairing)


def recorded(model: Model, inputs: Inputs, target: str, folder: Path) -> Trace:
    request = RecordingRequest(
        samples=(0,), tensors=tuple(observable_tensors(model)), folder=folder, label=target.partition("?")[0]
    )
    return record_trace(model, inputs, parse_target(target), request)


def planted(model: Model, inputs: Inputs, reference: Trace, tensor: str, error: np.ndarray) -> Trace:
    """The reference's own arithmetic with `error` added to one tensor, as a candidate's trace."""
    program = compile_program(prepare_copy(model.graph(), OLDEST))
    disturbed = World(name="disturbed", program=program, stored={tensor: Added(error)})
    arrays = run_world(disturbed, inputs.sample(0).arrays, list(reference.names))
    return Trace(
        target=parse_target("ort"),
        environment={},
        samples=(0,),
        names=reference.names,
        outputs=reference.outputs,
        disturbs="outputs marked",
        tensors={(0, name): array for name, array in arrays.items()},
    )


def distance(wanted: np.ndarray, found: np.ndarray) -> float:
    """Relative L2."""
    size = float(np.linalg.norm(wanted.astype(np.float64)))
    return float(np.linalg.norm(found.astype(np.float64) - wanted.astype(np.float64))) / (size or 1.0)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Inputs, Trace]:
    """The recogniser, a line of text, and every tensor that ONNX Runtime shows on it."""
    model = load_model(require("ocr-rec"))
    inputs = one_sample(ocr_rec_input(rendered_line("Parity in 2024")))
    return model, inputs, recorded(model, inputs, "ort", tmp_path_factory.mktemp("line"))


# A CPU without AVX512-FP16 executes f16 in bfloat16. The laws of the replay hold for whatever was executed, so f16 is
# not skipped there: it is then one more run of another precision hint.
@pytest.fixture(scope="module")
def recogniser(line: tuple[Model, Inputs, Trace], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """ONNX Runtime against OpenVINO in reduced precision, every tensor that they show."""
    pytest.importorskip("openvino")
    model, inputs, reference = line
    folder = tmp_path_factory.mktemp("recogniser")
    candidate = recorded(model, inputs, "openvino:f16", folder)
    return Both(model=model, inputs=inputs, reference=reference, candidate=candidate)


def cut_out(file: onnx.ModelProto, tensor: str, border: set[str]) -> tuple[onnx.ModelProto, list[str]]:
    """The nodes between `tensor` and `border` as a model of its own, cut from the file by hand, and its inputs."""
    maker = {name: node for node in file.graph.node for name in node.output}
    weights = {value.name: value for value in file.graph.initializer}
    given = {value.name for value in file.graph.input} - set(weights)
    members: list[str] = []
    reads: dict[str, None] = {}
    used: dict[str, None] = {}
    stack = list(maker[tensor].input)
    members.append(tensor)
    while stack:
        name = stack.pop()
        if name in weights:
            used.setdefault(name)
        elif name in border or name in given:
            reads.setdefault(name)
        elif name and name not in members:
            members.append(name)
            stack.extend(maker[name].input)
    chosen = {id(maker[name]) for name in members}
    graph = helper.make_graph(
        [node for node in file.graph.node if id(node) in chosen],
        "region",
        [],
        [helper.make_empty_tensor_value_info(tensor)],
        [weights[name] for name in used],
    )
    return helper.make_model(graph, opset_imports=file.opset_import, ir_version=file.ir_version), list(reads)


def run_alone(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The model on `feeds` in plain ONNX Runtime without optimizations."""
    for name, array in feeds.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, kind, [None] * array.ndim))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (array,) = session.run(None, dict(feeds))
    return np.asarray(array)


@pytest.mark.model
def test_the_replay_is_what_each_region_gives_when_it_is_run_alone(recogniser: Both) -> None:
    both = recogniser
    observed, _ = observed_tensors(both.sides)
    assert len(observed) >= 50
    programs = Programs.of(both.sides, observed)
    chosen = random.Random(2024).sample(observed, 50)
    replayed = dict(replayed_values(both.sides, programs, chosen, 0, Sessions()))
    file = onnx.load(both.model.path)
    image = both.inputs.sample(0).arrays
    for name in chosen:
        region, reads = cut_out(file, name, set(observed) - {name})
        assert {read for read in reads if read not in image} == set(programs.regions[name].reads)
        c_in = {
            read: image[read] if read in image else both.sides.candidate_tensor(0, read, reader=name) for read in reads
        }
        assert distance(run_alone(region, c_in), replayed[name]) <= FLOOR, name


@pytest.mark.model
def test_planted_noise_is_found_where_it_was_planted(line: tuple[Model, Inputs, Trace]) -> None:
    model, inputs, reference = line
    convolutions = [site for site in sites_of_values(model.graph()).values() if site.op_type == "Conv"]
    site = convolutions[len(convolutions) // 2]
    clean = np.array(reference.get(0, site.tensor))
    noise = np.random.default_rng(7).standard_normal(clean.shape)
    noise = (noise * 0.01 * np.linalg.norm(clean) / np.linalg.norm(noise)).astype(np.float32)
    candidate = planted(model, inputs, reference, site.tensor, noise)
    both = Both(model=model, inputs=inputs, reference=reference, candidate=candidate)
    found = both.localize()
    assert found.suspects[0].site == site
    assert found.suspects[0].introduced == pytest.approx(0.01, rel=1e-3)
    squares = [suspect.introduced**2 for suspect in found.suspects]
    assert squares[0] >= 0.99 * sum(squares)
    assert max(suspect.introduced for suspect in found.suspects[1:]) <= FLOOR
    judged = inject_errors(model, inputs, reference, candidate, both.pairing, found, 0, LocalizationOptions(injected=3))
    assert judged.suspects[0].site == site
    assert judged.suspects[0].share == pytest.approx(1.0, abs=1e-3)
    assert judged.unexplained == pytest.approx(0.0, abs=1e-3)
    assert all(abs(suspect.share) < 1e-2 for suspect in judged.suspects[1:] if suspect.share is not None)


# Both branches capture `h` from outside, so that a body reads a severed tensor.
IF_MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x, bool flag) => (float[4] y) {
    h = Mul(x, x)
    z = If (flag) <
        then_branch = yes () => (float[4] a) { a = Exp(h) },
        else_branch = no () => (float[4] b) { b = Neg(h) }>
    y = Add(z, x)
}"""


def loop_model() -> onnx.ModelProto:
    """s = h + h + h by a Loop of three steps whose body captures h = x * x; y = s * x."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "h"], ["after"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [4]),
        ],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "x"], ["h"]),
            helper.make_node("Loop", ["steps", "", "zero"], ["z"], body=body),
            helper.make_node("Mul", ["z", "x"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [
            numpy_helper.from_array(np.array(3, np.int64), "steps"),
            numpy_helper.from_array(np.zeros(4, np.float32), "zero"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def small(path: Path, arrays: Mapping[str, np.ndarray], tensor: str, error: np.ndarray) -> dict[str, Any]:
    """Suspects by tensor where `error` was planted at `tensor`."""
    model = load_model(path)
    inputs = one_sample(arrays)
    reference = recorded(model, inputs, "ort", path.parent)
    candidate = planted(model, inputs, reference, tensor, error)
    both = Both(model=model, inputs=inputs, reference=reference, candidate=candidate)
    judged = inject_errors(model, inputs, reference, candidate, both.pairing, both.localize(), 0)
    assert judged.suspects[0].site.tensor == tensor
    assert judged.suspects[0].share == pytest.approx(1.0, abs=1e-5)
    assert judged.unexplained == pytest.approx(0.0, abs=1e-5)
    return {suspect.site.tensor: suspect for suspect in judged.suspects}


X = np.array([1.0, 2.0, -1.0, 0.5], np.float32)


@pytest.mark.parametrize("flag", [True, False])
def test_bodies_of_an_if_read_the_severed_tensor(tmp_path: Path, flag: bool) -> None:
    onnx.save(onnx.parser.parse_model(IF_MODEL), tmp_path / "if.onnx")
    arrays = {"x": X, "flag": np.array(flag)}
    found = small(tmp_path / "if.onnx", arrays, "h", np.full(4, 0.5, np.float32))
    h = X.astype(np.float64) ** 2
    assert found["h"].introduced == pytest.approx(1.0 / np.linalg.norm(h), rel=1e-6)  # |0.5 * (1,1,1,1)| = 1
    clean, moved = (np.exp(h), np.exp(h + 0.5)) if flag else (-h, -h - 0.5)
    assert found["z"].introduced <= FLOOR
    assert found["z"].inherited == pytest.approx(np.linalg.norm(moved - clean) / np.linalg.norm(clean), rel=1e-5)
    assert found["y"].introduced == 0.0


def test_the_body_of_a_loop_reads_the_severed_tensor(tmp_path: Path) -> None:
    onnx.save(loop_model(), tmp_path / "loop.onnx")
    found = small(tmp_path / "loop.onnx", {"x": X}, "h", np.full(4, 0.5, np.float32))
    h = X.astype(np.float64) ** 2
    # Three steps add three times the error to three times the value.
    assert found["z"].inherited == pytest.approx(1.0 / np.linalg.norm(h), rel=1e-6)
    assert found["z"].introduced == found["y"].introduced == 0.0
    at_loop = small(tmp_path / "loop.onnx", {"x": X}, "z", np.full(4, 0.5, np.float32))
    assert at_loop["h"].introduced == at_loop["h"].inherited == 0.0


def test_weights_in_an_external_file(tmp_path: Path) -> None:
    weight = np.random.default_rng(1).standard_normal((4, 300)).astype(np.float32)
    model = parse_network(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 300] y) '
        "{ h = Tanh(x) m = MatMul(h, w) y = Relu(m) }",
        {"w": weight},
    )
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size >= weight.nbytes
    error = np.zeros((1, 4), np.float32)
    error[0, 2] = 0.25
    found = small(path, {"x": X[None]}, "h", error)
    h = np.tanh(X.astype(np.float64))
    assert found["h"].introduced == pytest.approx(0.25 / np.linalg.norm(h), rel=1e-5)
    # The error reaches m through the third row of the weight alone.
    wanted = 0.25 * np.linalg.norm(weight[2].astype(np.float64)) / np.linalg.norm(h @ weight.astype(np.float64))
    assert found["m"].inherited == pytest.approx(wanted, rel=1e-5)
    assert found["m"].introduced <= FLOOR


def blocks_model(blocks: int) -> str:
    """Blocks of six nodes with a skip connection over every two; `t` enters each of them, and each has shape arithmetic."""
    lines = ["t = Tanh(x)", "h0 = Mul(x, x)", "n0 = Abs(h0)"]
    for number in range(1, blocks + 1):
        lines += [
            f"a{number} = MatMul(h{number - 1}, w)",
            f"b{number} = Add(a{number}, t)",
            f"c{number} = Sigmoid(b{number})",
            f"s{number} = Shape(c{number})",
            f"r{number} = Reshape(c{number}, s{number})",
            f"h{number} = Add(r{number}, h{max(0, number - 2)})",
        ]
    lines += [f"p = Softmax(h{blocks})", f"y = Add(p, h{blocks // 2})", "z = Mul(n0, n0)"]
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[4,8] x) => (float[4,8] y, float[4,8] z)'
    return f"{head} {{ {chr(10).join(lines)} }}"


def test_each_tensor_that_is_asked_for_halves_what_one_fault_may_lie_in(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    weight = draw.normal(size=(8, 8)).astype(np.float32) / np.float32(2)
    model = load_model(write_network(tmp_path / "m.onnx", blocks_model(8), {"w": weight}))
    inputs = one_sample({"x": draw.normal(size=(4, 8)).astype(np.float32)})
    reference = recorded(model, inputs, "ort", tmp_path)
    numbers = [name for name in reference.names if reference.get(0, name).dtype.kind == "f" and name not in {"n0", "z"}]
    asked = []
    for tensor in random.Random(5).sample(numbers, 14):
        error = draw.normal(size=(4, 8)).astype(np.float32) / np.float32(10)
        whole = planted(model, inputs, reference, tensor, error)
        names, sizes = ["y", "z"], [len(model.sites)]
        while sizes[-1] > 1:
            shown = replace(whole, names=tuple(names), tensors={(0, name): whole.get(0, name) for name in names})
            mine = replace(reference, names=tuple(names))
            both = Both(model=model, inputs=inputs, reference=mine, candidate=shown)
            found = narrow_regions(both.sides, both.localize())
            first = found.suspects[0]
            assert model.sites[tensor].node in first.region
            sizes.append(len(first.region))
            if first.halving:
                assert first.halving not in names
                assert first.halving[0] != "s"  # of shapes alone
                names.append(first.halving)
        assert sizes[-1] == 1, sizes
        asked.append(len(names) - 2)
    # Every answer leaves about half: a third or two, where no tensor divides them evenly.
    assert max(asked) <= math.ceil(math.log(len(model.sites), 1.5))
    assert sum(asked) / len(asked) <= math.log2(len(model.sites)) + 1


MASKED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,8] x) => (float[4,8] y) {
  a = MatMul(x, w)
  b = Add(a, mask)
  y = Softmax(b)
}"""


def test_no_layer_is_said_to_amplify_what_a_masks_guards_hide(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    mask = np.zeros((4, 8), np.float32)
    mask[:, 6:] = np.finfo(np.float32).min
    constants = {"w": draw.normal(size=(8, 8)).astype(np.float32), "mask": mask}
    model = load_model(write_network(tmp_path / "m.onnx", MASKED, constants))
    inputs = one_sample({"x": draw.normal(size=(4, 8)).astype(np.float32)})
    reference = recorded(model, inputs, "ort", tmp_path)
    candidate = planted(model, inputs, reference, "a", np.full((4, 8), 0.5, np.float32) * mask.clip(-1, 0)[:, ::-1])
    both = Both(model=model, inputs=inputs, reference=reference, candidate=candidate)
    found = {suspect.site.tensor: suspect for suspect in both.localize().suspects}
    assert found["y"].inherited > 0.01
    assert math.isnan(found["y"].gain)
