"""The backend `torch`: a network before its conversion as reference and as candidate.

What needs PyTorch is skipped where it is not installed. What reads exported graphs is tested on graphs written by hand in
the two ways that exporters name them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from command_line import in_a_process
from parityscope.backends import Capture, backend_named
from parityscope.backends.contract import check_backend
from parityscope.backends.opening import open_target
from parityscope.backends.pytorch.binding import input_order
from parityscope.backends.pytorch.capturing import fx_operators, scopes_of
from parityscope.backends.pytorch.loading import LoadedNetwork, Parameter
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Model

# conv+bn (folded by the exporter), GELU of several nodes, a Linear that is called under its own name, and a step between.
OLDER = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] image, float[N, 4] mask) => (float[N, 4] y) {
    [/body/body.0/conv/MatMul] c = MatMul(image, w)
    [/body/body.0/act/Div] d = Div(c, s)
    [/body/body.0/act/Erf] e = Erf(d)
    [/body/body.0/act/Mul] a = Mul(c, e)
    [/fc/Gemm] f = Gemm <transB = 1> (a, v)
    [/Mul] y = Mul(f, mask)
}"""
NETWORK = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)
        self.act = torch.nn.ReLU(inplace=True)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.act(self.bn(self.conv(x))))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(Block(), torch.nn.Conv2d(4, 4, 1))
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, image, mask):
        h = self.body(image).mean((2, 3))
        return self.fc(h) * mask, h

def make():
    torch.manual_seed(0)
    net = Net()
    net.body[0].bn.running_mean += 0.25
    net.body[0].bn.running_var *= 3.0
    return net

def number():
    return 3

def broken():
    raise ValueError("no weights here")
"""
SAMPLE = Sample(
    index=0,
    name="first",
    arrays={
        "image": np.random.default_rng(70).normal(size=(2, 3, 8, 8)).astype(np.float32),
        "mask": np.linspace(0.5, 1.5, 10, dtype=np.float32).reshape(2, 5),
    },
)


def graph_of(text: str) -> ir.Model:
    """A graph whose nodes have the names that stand in brackets before them; the parser takes no slashes there."""
    model = onnx.parser.parse_model(re.sub(r"\[/\S+\]", "", text))
    for node, name in zip(model.graph.node, re.findall(r"\[(/\S+)\]", text), strict=True):
        node.name = name
    for name, shape in {"w": (3, 4), "s": (), "v": (4, 4)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    return ir.from_proto(model)


MODULES = frozenset({"body", "body.0", "body.0.conv", "body.0.bn", "body.0.act", "body.0.drop", "fc"})


def test_results_of_modules_are_found_by_the_older_exporters_names() -> None:
    found = scopes_of(graph_of(OLDER), MODULES)
    # `a` leaves act, and block and body around it; the innermost is named. d and e never leave act.
    assert found.results == {"c": "body.0.conv", "a": "body.0.act", "f": "fc"}
    assert "body.0.bn" not in found.named
    assert found.reasons["d"] == "inside a module, which gives only its result"
    assert "outside of all modules" in found.reasons["y"]


def test_a_module_that_is_called_twice_has_no_single_result() -> None:
    graph = graph_of(OLDER.replace("[/Mul] y = Mul(f, mask)", "[/fc_1/Gemm] y = Gemm(f, v)"))
    # The older exporter counts calls in the name, and there is no module fc_1.
    assert scopes_of(graph, MODULES).results == {"c": "body.0.conv", "a": "body.0.act", "f": "fc"}
    again = graph_of(OLDER.replace("[/Mul] y = Mul(f, mask)", "[/fc/Gemm_1] k = Gemm(a, v) [/Mul] y = Mul(f, k)"))
    assert "fc" not in scopes_of(again, MODULES).results.values()


def test_the_newer_exporters_scopes_are_read_from_the_nodes() -> None:
    graph = graph_of(OLDER)
    scopes = ["body.0.bn", "body.0.act", "body.0.act", "body.0.act", "fc", ""]
    for node, path in zip(list(graph.graph), scopes, strict=True):
        parts = path.split(".") if path else []
        above = ["", *(".".join(parts[: depth + 1]) for depth in range(len(parts)))]
        node.metadata_props["pkg.torch.onnx.name_scopes"] = repr([*above, "op"])
    # The convolution with its normalization folded in carries the normalization's scope.
    assert scopes_of(graph, MODULES).results == {"c": "body.0.bn", "a": "body.0.act", "f": "fc"}


def test_a_step_that_the_node_behind_may_have_taken_over_is_not_mapped() -> None:
    # A module that ends in a transposition, which the exporter moved into Gemm, would be compared before it.
    graph = graph_of(OLDER.replace("transB = 1", "transA = 1"))
    found = scopes_of(graph, MODULES)
    assert "a" not in found.results
    assert "moved" in found.reasons["a"]


def test_nodes_of_a_program_are_told_by_name_and_operator() -> None:
    graph = graph_of(OLDER)
    nodes = list(graph.graph)
    key = "pkg.torch.onnx.fx_node"
    nodes[0].metadata_props[key] = "%c : [num_users=1] = call_function[target=torch.ops.aten.mm.default](args = ())"
    nodes[4].metadata_props[key] = "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default]()"
    assert fx_operators(graph) == {"c": "aten.mm.default"}


def loaded(*names: str, optional: tuple[str, ...] = ()) -> LoadedNetwork:
    parameters = [Parameter(name=name, needed=True) for name in names]
    parameters += [Parameter(name=name, needed=False) for name in optional]
    return LoadedNetwork(
        kind="module",
        where="net.py:make",
        network=None,
        call=print,
        parameters=tuple(parameters),
        half=None,
        compiled=False,
    )


@pytest.fixture
def model(tmp_path: Path) -> Model:
    onnx.save(ir.to_proto(graph_of(OLDER)), tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


def test_inputs_go_by_name_or_by_order_and_never_by_both(model: Model) -> None:
    by_name = input_order(loaded("mask", "image"), model, "")
    assert by_name.words == "by name"
    assert by_name.arranged({"image": 1, "mask": 2}) == ([2, 1], {})
    # A parameter between them that is not given: what comes behind it goes by its name.
    between = input_order(loaded("image", optional=("scale", "mask")), model, "")
    assert between.arranged({"image": 1, "mask": 2}) == ([1], {"mask": 2})
    by_order = input_order(loaded("x", "m"), model, "")
    assert by_order.words == "by order: image -> x, mask -> m"
    assert by_order.arranged({"image": 1, "mask": 2}) == ([1, 2], {})
    asked = input_order(loaded("x", "m"), model, "mask,image")
    assert asked.arranged({"image": 1, "mask": 2}) == ([2, 1], {})


@pytest.mark.parametrize(
    ("parameters", "asked", "problem"),
    [
        (("image", "m"), "", r"only some inputs .*\(image\)"),
        (("x",), "", "the model has 2 inputs"),
        (("x", "m", "z"), "", "the model has 2 inputs"),
        (("x", "m"), "image", "are not the model's inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    model: Model, parameters: tuple[str, ...], asked: str, problem: str
) -> None:
    with pytest.raises(ParityError, match=problem) as refusal:
        input_order(loaded(*parameters), model, asked)
    assert refusal.value.fix


def test_without_pytorch_the_backend_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    probe = backend_named("torch").probe()
    assert "torch" in probe.problem
    assert probe.fix == "pip install 'parityscope[torch]'"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """net.py, and the network as new.onnx, old.onnx, net.pt2 and net.pt."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    folder = tmp_path_factory.mktemp("torch")
    (folder / "net.py").write_text(NETWORK, encoding="utf-8")
    space: dict[str, object] = {}
    exec(compile(NETWORK, "net.py", "exec"), space)  # noqa: S102 - the text above
    net = space["make"]().eval()  # type: ignore[operator]
    args = tuple(torch.from_numpy(array) for array in SAMPLE.arrays.values())
    names = {"input_names": ["image", "mask"], "output_names": ["y", "h"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, which are not what is tested
        torch.export.save(torch.export.export(net, args), folder / "net.pt2")
        torch.jit.trace(net, args).save(str(folder / "net.pt"))
        torch.onnx.export(net, args, str(folder / "old.onnx"), dynamo=False, **names)
        if importlib.util.find_spec("onnxscript"):
            torch.onnx.export(net, args, str(folder / "new.onnx"), dynamo=True, external_data=False, **names)
    return folder


def run(folder: Path, file: str, text: str, tensors: tuple[str, ...] = ()) -> Mapping[str, np.ndarray]:
    with open_target(load_model(folder / file), parse_target(text), Capture(tensors=tensors)) as session:
        return {name: np.array(array) for name, array in session.run(SAMPLE).items()}


@pytest.mark.parametrize("source", ["module={}/net.py:make", "program={}/net.pt2", "script={}/net.pt"])
def test_pytorch_keeps_the_contract(exported: Path, source: str) -> None:
    option = source.format(exported)
    for precision in ("", ":bf16") if source.startswith("module") else ("",):
        target = parse_target(f"torch{precision}?{option}")
        check_backend(backend_named("torch"), load_model(exported / "old.onnx"), SAMPLE, target)


@pytest.mark.parametrize("file", ["old.onnx", "new.onnx"])
def test_every_module_agrees_with_its_onnx_value(exported: Path, file: str) -> None:
    if not (exported / file).exists():
        pytest.skip("the newer exporter needs onnxscript")
    tensors = tuple(load_model(exported / file).sites)
    ours = run(exported, file, "ort", tensors)
    theirs = run(exported, file, f"torch?module={exported}/net.py:make", tensors)
    # The convolution with the normalization folded in, the activation (in place), the second convolution, the product.
    assert len(theirs) == len(ours) == 6
    for name, array in theirs.items():
        # Sums of at most 27 products each, in another order: 27 units in the last place of float32 of the largest.
        assert np.abs(array - ours[name]).max() <= 27 * 2.0**-23 * np.abs(ours[name]).max(), name


def test_a_program_shows_the_nodes_that_kept_their_names(exported: Path) -> None:
    if not (exported / "new.onnx").exists():
        pytest.skip("the newer exporter needs onnxscript")
    theirs = run(exported, "new.onnx", f"torch?program={exported}/net.pt2", ("conv2d_1", "linear", "getitem"))
    assert set(theirs) == {"y", "h", "conv2d_1", "linear"}


def test_modes_are_kept_apart(exported: Path) -> None:
    text = f"torch?module={exported}/net.py:make"
    plain, batch = run(exported, "old.onnx", text), run(exported, "old.onnx", f"{text}&mode=batch-statistics")
    assert np.array_equal(run(exported, "old.onnx", f"{text}&mode=eval")["y"], plain["y"])
    # The running statistics were set far from those of the batch; Dropout stays out, so it repeats.
    assert np.abs(batch["y"] - plain["y"]).max() > 0.01
    assert np.array_equal(run(exported, "old.onnx", f"{text}&mode=batch-statistics")["y"], batch["y"])


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        ("torch", "torch needs one network", "torch?module=file.py:function"),
        ("torch?program=none.pt2", "there is no program", "torch?program=PATH"),
        ("torch?module={}/net.py:number", "gave a int, not a torch.nn.Module", "return the module"),
        ("torch?module={}/net.py:broken", "no weights here", "mend it"),
        ("torch?program={}/net.pt2&mode=eval", "mode= is for module=", "leave mode= out"),
        ("torch?module={}/net.py:make&mode=asleep", "'asleep' is not known", "mode=eval|train"),
        ("torch?module={}/net.py:make&device=cuda:64", "there is no cuda:64", "device=cpu|CUDA"),
        ("torch:tf32?module={}/net.py:make", "CUDA devices only", "device=cuda"),
        ("torch?program={}/net.pt", "PyTorch failed while loading it", "PyTorch alone"),
    ],
)
def test_what_cannot_run_is_one_error(exported: Path, text: str, problem: str, fix: str) -> None:
    with pytest.raises(ParityError) as refusal:
        run(exported, "old.onnx", text.format(exported))
    assert problem in refusal.value.problem
    assert any(word in refusal.value.fix for word in fix.split("|"))


def test_switches_of_tf32_come_back(exported: Path) -> None:
    torch = pytest.importorskip("torch")
    from parityscope.backends.pytorch.switches import set_tf32, torch_facts

    before = torch_facts(torch)
    with set_tf32(torch, tf32=before["default TF32 of products"] != "on"):
        assert torch_facts(torch)["default TF32 of products"] != before["default TF32 of products"]
    assert torch_facts(torch) == before


def test_the_module_at_which_network_and_file_part_is_named(exported: Path) -> None:
    np.savez(exported / "in.npz", **SAMPLE.arrays)
    changed = onnx.load(exported / "old.onnx")
    # The second convolution's weights were those of another checkpoint when the file was written.
    (weight,) = (tensor for tensor in changed.graph.initializer if tensor.name == "body.1.weight")
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.5), weight.name))
    onnx.save(changed, exported / "changed.onnx")
    network = f"torch?module={exported}/net.py:make"

    def diagnosed(*sides: str) -> dict[str, Any]:
        where = [str(exported / "changed.onnx"), "--inputs", str(exported / "in.npz")]
        where += ["--study", str(exported / f"study-{len(sides)}"), "--format", "json", "--quiet"]
        # A program of its own: the command line forks, and PyTorch's threads do not survive that once they have run here.
        done = in_a_process("diagnose", *where, *sides)
        assert done.returncode == 1, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    parted = diagnosed("--candidate", network)
    assert parted["suspects"][0]["site"]["scope"] == "body/body.1"
    cause = parted["findings"][0]
    assert (cause["code"], cause["role"], cause["site"]["scope"]) == ("EXP005", "cause", "body/body.1")
    assert "constant body.1.weight of Conv" in cause["claim"]
    assert "times 0.66" in cause["claim"]
    assert "EXP001" not in {finding["code"] for finding in parted["findings"]}
    placed = diagnosed("--reference", network, "--candidate", "ort?optimization=disabled")
    first = placed["findings"][0]
    assert (first["code"], first["site"]["scope"]) == ("EXP001", "body/body.1")
    assert "constant body.1.weight of Conv" in first["claim"]
