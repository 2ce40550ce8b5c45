"""Nodes inside If, Loop and Scan that are low or kept by themselves: predicted, written, and searched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parityscope.arithmetic.typed import typed_model
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.sizing import tensor_shapes
from parityscope.case import Sample, load_inputs, load_model
from parityscope.case.graph import bodies_of_node
from parityscope.case.model import read_graph
from parityscope.cli import main
from parityscope.evaluation.switching import Switchboard
from parityscope.repairs.search.costs import H200
from parityscope.repairs.search.inside import sizes_within
from parityscope.repairs.search.network import network_of, price_assignment
from parityscope.repairs.search.staging import apply_edits
from proving.models.fetching import require
from proving.models.samples import sample_of
from simulated import detype, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# With one thread ONNX Runtime takes other kernels for weights that it cannot pack, as those inside branches.
THREADS = 2
UNARY = ("Sin", "Exp", "Relu", "Transpose", "Identity", "Neg")
BINARY = ("Add", "Mul", "MatMul", "Max", "Sub")


class Draw:
    """Random bodies over 3 x 3 tensors; every node has a name of its own."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.made = 0
        self.constants: list[onnx.TensorProto] = []

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def nodes(self, values: list[str], depth: int) -> list[onnx.NodeProto]:
        """Nodes that read and add to `values`."""
        found = []
        for _ in range(self.data.draw(st.integers(1, 4))):
            kind = self.data.draw(st.sampled_from([*UNARY, *BINARY, *(["If", "Loop", "Scan"] if depth else [])]))
            found.append(self.node(kind, values, depth))
            values.extend(found[-1].output[:1])
        return found

    def node(self, kind: str, values: Sequence[str], depth: int) -> onnx.NodeProto:
        name, given = self.name("n"), self.name("v")
        first, second = (self.data.draw(st.sampled_from([*values, "constant"])) for _ in range(2))
        first, second = (self.constant() if one == "constant" else one for one in (first, second))
        helper = onnx.helper
        if kind in UNARY:
            return helper.make_node(kind, [first], [given], name=name)
        if kind in BINARY:
            return helper.make_node(kind, [first, second], [given], name=name)
        if kind == "If":
            bodies = {f"{one}_branch": self.body([], list(values), depth) for one in ("then", "else")}
            return helper.make_node("If", ["c"], [given], name=name, **bodies)
        carried = self.name("h")
        if kind == "Loop":
            number, go = self.name("i"), self.name("g")
            body = self.body([number, go, carried], [*values, carried], depth)
            return helper.make_node("Loop", ["three", "yes", first], [given], name=name, body=body)
        row = self.name("r")
        body = self.body([carried, row], [*values, carried], depth)
        return helper.make_node("Scan", [first, "rows"], [given], name=name, body=body, num_scan_inputs=1)

    def constant(self) -> str:
        name = self.name("k")
        array = np.random.default_rng(self.made).normal(size=(3, 3)).astype(np.float32)
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def body(self, inputs: Sequence[str], values: list[str], depth: int) -> onnx.GraphProto:
        """A body that carries and gives one tensor; `inputs` are those of an If (none), a Loop (3) or a Scan (2)."""
        helper, kinds = onnx.helper, onnx.TensorProto
        nodes = self.nodes(values, depth - 1)
        made = self.name("o")
        # What is given is bounded, so that nothing overflows and every rounding shows.
        nodes.append(helper.make_node("Sin", [nodes[-1].output[0]], [made], name=self.name("n")))
        outputs = [helper.make_tensor_value_info(made, kinds.FLOAT, [3, 3])]
        known = []
        if len(inputs) == 3:
            on = self.name("on")
            nodes.append(helper.make_node("Identity", [inputs[1]], [on], name=self.name("n")))
            outputs.insert(0, helper.make_tensor_value_info(on, kinds.BOOL, []))
            types = ((kinds.INT64, []), (kinds.BOOL, []), (kinds.FLOAT, [3, 3]))
            known = [helper.make_tensor_value_info(name, *one) for name, one in zip(inputs, types, strict=True)]
        elif inputs:
            known = [helper.make_tensor_value_info(name, kinds.FLOAT, [3, 3]) for name in inputs[:1]]
            known.append(helper.make_tensor_value_info(inputs[1], kinds.FLOAT, [3]))
        return helper.make_graph(nodes, self.name("b"), known, outputs)

    def model(self) -> ir.Model:
        helper, kinds = onnx.helper, onnx.TensorProto
        values = ["x", "z"]
        nodes = self.nodes(values, 0)
        kind = self.data.draw(st.sampled_from(["If", "Loop", "Scan"]))
        nodes.append(self.node(kind, values, 2))
        values.append(nodes[-1].output[0])
        nodes += self.nodes(values, 0)
        outputs = dict.fromkeys([nodes[-1].output[0], values[-1]])
        rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        fixed = [("three", np.array(3)), ("yes", np.array(True)), ("rows", rows)]
        held = [*self.constants, *(onnx.numpy_helper.from_array(array, name) for name, array in fixed)]
        inputs = [helper.make_tensor_value_info(name, kinds.FLOAT, [3, 3]) for name in ("x", "z")]
        inputs.append(helper.make_tensor_value_info("c", kinds.BOOL, []))
        made = [helper.make_tensor_value_info(name, kinds.FLOAT, [3, 3]) for name in outputs]
        graph = helper.make_graph(nodes, "g", inputs, made, initializer=held)
        return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def ran(model: ir.Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return open_session(model, optimization="disabled", threads=THREADS)(arrays)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), low=st.sampled_from(["f16", "bf16"]))
def test_what_is_written_computes_what_is_predicted(data: st.DataObject, low: str) -> None:
    """Any nodes kept, inside and outside of bodies: the written model and the switchable graph agree bit for bit."""
    model = Draw(data).model()
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 3)).astype(np.float32) for name in ("x", "z")}
    arrays["c"] = np.array(data.draw(st.booleans()))
    board = Switchboard(model.clone(), low, threads=THREADS, inside=True)
    names = [node.name for node in board.graph.nodes]
    assert len(set(names)) == len(names)
    known = typed_model(model.clone(), low, {}, inside=True).formats
    chosen = set(data.draw(st.lists(st.sampled_from(names), unique=True)))
    typed = typed_model(model.clone(), low, dict.fromkeys(chosen & set(known), "f32"), inside=True)
    onnx.checker.check_model(ir.to_proto(typed.model), full_check=True)
    wanted = np.array([typed.formats.get(name, low if name not in chosen else "f32") == low for name in names])
    sample = Sample(index=0, name="s", arrays=arrays)
    same(detype(typed.model)(arrays, threads=THREADS), board.run(sample, wanted))
    everything = np.ones(len(names), np.bool_)
    same(simulate(model.clone(), low)(arrays, threads=THREADS), board.run(sample, everything))
    same(ran(model.clone(), arrays), board.run(sample, ~everything))


@pytest.mark.model
def test_a_trained_model_inside_branches() -> None:
    """All of this voice detector is in branches; kept nodes are drawn from inside them."""
    path = require("vad-18")
    arrays = sample_of("vad-18")
    model = apply_edits(read_graph(path), ())
    board = Switchboard(model.clone(), "f16", threads=THREADS, inside=True)
    names = [node.name for node in board.graph.nodes]
    assert len(names) > 20
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3):
        kept = {name: "f32" for name in names if rng.random() < share}
        typed = typed_model(model.clone(), "f16", kept, inside=True)
        onnx.checker.check_model(ir.to_proto(typed.model), full_check=True)
        wanted = np.array([typed.formats.get(name) == "f16" for name in names])
        found = detype(typed.model)(arrays, threads=THREADS)
        same(found, board.run(Sample(index=0, name="s", arrays=dict(arrays)), wanted))


HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
# Adding 64 and taking it off again loses six bits; the products around it lose nothing that counts.
INNER = """[product] v = MatMul(h, w1)  [bounded] b = Tanh(v)  [shifted] p = Add(b, big)  [back] d = Sub(p, big)
    [scaled] q = Mul(d, small)  [second] s = MatMul(q, w2)"""
BODIES = {
    "If": f"""[around] r = If (c) <
        then_branch = t () => (float[16,128] o) {{ h = Identity(a) {INNER} o = Tanh(s) }},
        else_branch = e () => (float[16,128] u) {{ [other] u = MatMul(a, w1) }}>""",
    "Loop": f"""[around] r = Loop (three, yes, a) <
        body = b (int64 i, bool go, float[16,128] h) => (bool on, float[16,128] n) {{
        on = Identity(go) {INNER} n = Tanh(s) }}>""",
    "Scan": f"""[around] last, r = Scan (a, rows) <num_scan_inputs = 1,
        body = b (float[16,128] h, float[16,128] row) => (float[16,128] n, float[16,128] o) {{
        {INNER} m = Add(s, row)  n = Tanh(m)  o = Identity(n) }}>""",
}
FED = {"If": "bool c, ", "Loop": "", "Scan": "float[4,16,128] rows, "}
FIXED = "<int64 three = {3}, bool yes = {1}, float big = {64}, float small = {0.7}>"


def case_of(folder: Path, kind: str) -> list[str]:
    """A model whose body loses digits in two nodes, with samples; the words of a repair command."""
    made = "float[4,16,128] y" if kind == "Scan" else "float[16,128] y"
    text = f"{HEAD} g ({FED[kind]}float[16,128] x) => ({made}) {FIXED} {{"
    text += f" [first] f = MatMul(x, w0)  [entry] a = Tanh(f)  {BODIES[kind]}  [last] y = MatMul(r, w3) }}"
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(4)
    for number in range(4):
        array = (rng.normal(size=(128, 128)) / 11).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, f"w{number}"))
    onnx.save(proto, folder / "model.onnx")
    (folder / "data").mkdir()
    for number in range(6):
        arrays = {"x": rng.normal(size=(16, 128)).astype(np.float32)}
        arrays |= {"c": np.array(number % 3 != 0)} if kind == "If" else {}
        arrays |= {"rows": rng.normal(size=(4, 16, 128)).astype(np.float32)} if kind == "Scan" else {}
        np.savez(folder / "data" / f"{number}.npz", **arrays)
    words = ["repair", str(folder / "model.onnx"), "--inputs", str(folder / "data"), "--threads", "1", "--quiet"]
    return [*words, "--budget", "rel_l2=5e-3", "--search-samples", "4", "--format", "json"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_single_nodes_of_a_body_are_kept(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything low misses the budget; with the two nodes that lose digits in FP32, and all products in FP16, it is met."""
    words = case_of(tmp_path, kind)
    fixed, data = tmp_path / "fixed.onnx", tmp_path / "data"
    code, document = told(capsys, *words, "-o", str(fixed))
    assert code == 0  # within budget on every sample tried; two held-out ones certify little
    kept = {one["node"] for one in document["kept"]}
    assert {"shifted", "back"} <= kept <= {"bounded", "shifted", "back", "scaled"}
    assert document["all_low"] > 1
    assert document["chosen"]["flops"] == 0
    assert document["certificate"]["worst"] <= 1
    proto = onnx.load(fixed)
    onnx.checker.check_model(proto, full_check=True)
    around = next(node for node in ir.from_proto(proto).graph if node.op_type == kind)
    inside = {inner.name: inner for body in bodies_of_node(around) for inner in body}
    types = {name: inside[name].outputs[0].dtype for name in ("product", "shifted", "second")}
    low, full = ir.DataType.FLOAT16, ir.DataType.FLOAT
    assert types == {"product": low, "shifted": full, "second": low}
    assert around.outputs[0].dtype == low
    assert "format" in json.loads(ir.from_proto(proto).metadata_props["parityscope.kept"])["shifted"]
    # ONNX Runtime runs the file as it stands, and the faithful simulation of it meets the budget.
    for sample in sorted(data.iterdir()):
        arrays = dict(np.load(sample))
        reference = open_session(read_graph(tmp_path / "model.onnx"), threads=1)(arrays)["y"]
        found = open_session(ir.from_proto(proto), threads=1)(arrays)["y"]
        assert np.linalg.norm(found - reference) <= 5e-3 * np.linalg.norm(reference)
    asked = ["evaluate", str(fixed), "--reference", str(tmp_path / "model.onnx"), "--inputs", str(data), "--quiet"]
    budget = ["--budget", "rel_l2=5e-3", "--format", "json"]
    code, study = told(capsys, *asked, *budget, "--study", str(tmp_path / "study"))
    assert (code, study["verdict"]) == (0, "within")
    # The plan that was written says it again; edited to keep the border of the body in the place of a node, it misses.
    plan = tmp_path / "fixed.plan.toml"
    again = tmp_path / "again.onnx"
    assert told(capsys, *words, "--plan", str(plan), "-o", str(again))[0] == 0
    assert again.read_bytes() == fixed.read_bytes()
    only = tmp_path / "around.toml"
    only.write_text(plan.read_text(encoding="utf-8").replace('node = "shifted"', 'node = "around"'), encoding="utf-8")
    _, edited = told(capsys, *words, "--plan", str(only), "-o", str(tmp_path / "around.onnx"))
    assert edited["certificate"]["failures"] > 0


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_tensorrt_rtx_builds_a_body_with_casts_inside(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.backends.tensorrt.packages import find_package

    case_of(tmp_path, kind)
    model = apply_edits(read_graph(tmp_path / "model.onnx"), ())
    typed = typed_model(model, "f16", {"shifted": "f32", "back": "f32"}, inside=True).model
    ir.save(typed, tmp_path / "typed.onnx")
    view = network_view(tmp_path / "typed.onnx", find_package("rtx"))
    assert not view.problem
    assert view.nodes


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_the_cost_model_sees_into_bodies(kind: str, tmp_path: Path) -> None:
    """Casts are those that are written; products inside count as often as they are run (of two, one takes the branch)."""
    case_of(tmp_path, kind)
    onnx.save(ir.to_proto(apply_edits(read_graph(tmp_path / "model.onnx"), ())), tmp_path / "named.onnx")
    model = load_model(tmp_path / "named.onnx")
    samples = list(load_inputs(model, tmp_path / "data", spool=tmp_path / "spool"))[:2]
    sample = samples[0]
    board = Switchboard(model.graph(), "f16", threads=1, inside=True)
    names = [node.name for node in board.graph.nodes]
    shapes = tensor_shapes(model, sample, list(model.sites)) | {name: one.shape for name, one in sample.arrays.items()}
    network = network_of(model.graph(), names, shapes, H200, {}, sizes_within(model, samples, 1))
    product = 2.0 * 16 * 128 * 128
    ran_inside = {"If": 0.5, "Loop": 3, "Scan": 4}[kind]
    flops = {vertex.name: vertex.flops for vertex in network.vertices if vertex.flops}
    last = 4 * product if kind == "Scan" else product
    expected = {"first": product, "product": ran_inside * product, "second": ran_inside * product, "last": last}
    expected |= {"other": 0.5 * product} if kind == "If" else {}
    assert flops == expected
    rng = np.random.default_rng(1)
    for _ in range(20):
        low = rng.random(len(names)) < rng.random()
        kept = {name: "f32" for name, each in zip(names, low, strict=True) if not each}
        assert price_assignment(network, low).casts == typed_model(model.graph(), "f16", kept, inside=True).casts
