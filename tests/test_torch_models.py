"""A network of torch wherever a model or a candidate is taken: exported with its inputs, and held against its own file."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import parityscope as ps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
X = np.random.default_rng(2).normal(size=(6, 2, 8)).astype(np.float32)


class Net(torch.nn.Module):
    """Two layers, and a Dropout that is only right in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.drop = torch.nn.Dropout(0.5)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        """(n, 8) -> (n, 4)."""
        return self.second(self.drop(torch.relu(self.first(x))))


class Scaled(torch.nn.Module):
    """What is left out in between, and what is given by its name alone; results by name."""

    def forward(self, image: Any, mask: Any = None, *, scale: Any = None) -> Any:
        """(n, 8) and (1,) -> (n, 8), twice."""
        scaled = image * scale if mask is None else image * mask
        return {"scaled": scaled, "squashed": torch.tanh(scaled)}


class Branching(torch.nn.Module):
    """What tracing makes a constant of: the sign of a mean."""

    def forward(self, x: Any) -> Any:
        """(n, 8) -> (n, 8)."""
        return x * 2 if float(x.mean()) > 0 else x * 3


@pytest.fixture
def net() -> Any:
    torch.manual_seed(1)
    return Net()


@pytest.fixture(params=["onnxscript", "TorchScript"])
def exporter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each exporter: without onnxscript it is the one of TorchScript."""
    if request.param == "onnxscript":
        pytest.importorskip("onnxscript")
    else:
        hide(monkeypatch, "onnxscript")
    return str(request.param)


def hide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted, *rest: None if wanted == name else real(wanted, *rest)
    )


def exchange_rows(network: Any) -> None:
    with torch.no_grad():
        network.second.weight[[1, 2]] = network.second.weight[[2, 1]]


def replace_bias(network: Any) -> None:
    with torch.no_grad():
        network.first.bias += 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [(exchange_rows, "exchanged"), (replace_bias, "plus 0.5"), (None, "")],
    ids=["a channel", "a bias", "nothing"],
)
def test_what_a_network_has_otherwise_than_its_file_is_named_first(
    net: Any, exporter: str, tmp_path: Path, change: Callable[[Any], None] | None, words: str
) -> None:
    path = tmp_path / f"{exporter}.onnx"
    torch.onnx.export(
        net.eval(),
        (torch.from_numpy(X[0]),),
        str(path),
        input_names=["x"],
        output_names=["y"],
        dynamo=exporter == "onnxscript",
    )
    if change is not None:
        change(net)
    study = ps.diagnose(path, candidate=net, inputs=[{"x": x} for x in X])
    causes = [one for one in study.document["findings"] if one["role"] == "cause"]
    if change is None:
        assert not causes
        return
    assert causes[0]["code"] == "EXP005"
    assert words in causes[0]["claim"]
    assert "put_back" not in {one["repair"] for one in causes[0]["repairs"]}


def streamed() -> Iterator[dict[str, Any]]:
    yield from ({"x": torch.from_numpy(x)} for x in X)


INPUTS = {
    "a dict": ({"x": X[0]}, 1),
    "tensors in order": ([(torch.from_numpy(x),) for x in X], 6),
    "a generator": (streamed, 6),
    "another name": ([{"image": x} for x in X], 6),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_module_is_a_model_with_inputs_of_any_form(name: str, net: Any, exporter: str) -> None:
    inputs, count = INPUTS[name]
    found = ps.compare(net, candidate="ort", inputs=inputs() if callable(inputs) else inputs)
    assert (found.verdict, found.document["inputs"]["samples"]) == ("within", count)
    assert found.document["reference"]["target"].startswith("torch?module=")
    assert net.training  # nobody's module is left in another mode


def test_inputs_go_by_the_names_of_parameters(exporter: str) -> None:
    samples = [{"image": x, "scale": np.float32([2])} for x in X]
    assert ps.compare(Scaled(), candidate="ort", inputs=samples).verdict == "within"
    (given, *_) = ps.run(Scaled(), inputs=samples)
    np.testing.assert_allclose(next(iter(given.values())), X[0] * 2, rtol=1e-6)


def test_sizes_that_vary_are_dynamic_in_the_file(net: Any, exporter: str) -> None:
    rows = [np.concatenate([x] * (place % 3 + 1)) for place, x in enumerate(X)]
    given = ps.run(net, inputs=rows)
    for one, row in zip(given, rows, strict=True):
        (output,) = one.values()
        with torch.no_grad():
            np.testing.assert_allclose(output, net.eval()(torch.from_numpy(row)).numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_program_is_a_model(net: Any) -> None:
    pytest.importorskip("onnxscript")
    program = torch.export.export(net.eval(), (torch.from_numpy(X[0]),))
    assert ps.compare(program, candidate="ort", inputs=list(X)).verdict == "within"
    assert ps.lint(program).verdict == "within"


def test_without_onnxscript_a_program_is_refused(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(net.eval(), (torch.from_numpy(X[0]),))
    hide(monkeypatch, "onnxscript")
    with pytest.raises(ps.ParityError, match="onnxscript, which is not installed"):
        ps.lint(program)


def test_a_module_without_inputs_is_refused(net: Any) -> None:
    for call in (lambda: ps.lint(net), lambda: ps.compare(net, candidate="ort", inputs="samples/")):
        with pytest.raises(ps.ParityError, match="exported with its inputs") as told:
            call()
        assert "fix:" in str(told.value)


def test_a_module_and_a_compiled_one_are_candidates(net: Any) -> None:
    other = Net()
    compiled = torch.compile(net.eval(), backend="eager")
    held = {"inputs": list(X)}
    assert ps.compare(net, candidate=net, **held).verdict == "within"
    assert ps.compare(net, candidate=compiled, **held).verdict == "within"
    assert ps.compare(net, candidate=other, **held).verdict == "beyond"


def test_an_export_that_differs_is_told_and_is_the_cause(exporter: str) -> None:
    if exporter == "onnxscript":
        pytest.skip("it refuses such a branch")
    inputs = [np.abs(X[0]), *(-np.abs(x) for x in X)]
    with pytest.warns(UserWarning, match="computes something else than the Branching"):
        ps.run(Branching(), inputs=inputs)
    found = ps.diagnose(Branching(), candidate="ort", inputs=inputs)
    assert found.verdict == "beyond"
    assert {one.code for one in found.findings if one.role == "cause"} & {"EXP001", "EXP003"}


def test_where_torch_is_not_imported_nothing_asks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        assert name.partition(".")[0] != "torch"
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ps.ParityError, match="there is no model"):
        ps.lint(tmp_path / "nowhere.onnx")


def test_a_module_in_training_mode_is_run_in_evaluation_mode_and_that_is_told(net: Any) -> None:
    told = "the module was in training mode; it was run in evaluation mode"
    held = {"candidate": "ort", "inputs": [{"x": x} for x in X]}
    trained = ps.diagnose(net.train(), **held)
    assert trained.verdict == "within"
    assert trained.document["reference"]["environment"]["note"] == told
    assert told in " ".join(str(trained).split())
    assert net.training
    assert told not in " ".join(str(ps.diagnose(net.eval(), **held)).split())


def test_outputs_that_an_exporter_named_are_paired_by_order(net: Any, tmp_path: Path) -> None:
    import onnxruntime

    net.eval()
    batch = torch.from_numpy(X[0])
    torch.onnx.export(net, (batch,), str(tmp_path / "net.onnx"), input_names=["x"], output_names=["y"], dynamo=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    inputs = [{"x": x} for x in X]

    def doubled(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"scores": 2 * session.run(None, given)[0]}

    with pytest.warns(UserWarning, match="paired by their order: .* is 'y'"):
        assert ps.compare(net, candidate=session, inputs=inputs).verdict == "within"
    with pytest.warns(UserWarning, match="is 'scores'"):
        wrong = ps.compare(net, candidate=doubled, inputs=inputs)
    assert wrong.verdict == "beyond"
    with pytest.raises(ps.ParityError, match="no output could be compared"):
        ps.compare(net, candidate=lambda given: {"scores": session.run(None, given)[0][:, :2]}, inputs=inputs)
    with pytest.warns(UserWarning, match="is 'y'"):
        proof = ps.verify(net, before=doubled, after=session, inputs=inputs, timing=0.0)
    assert proof.exit == 0
