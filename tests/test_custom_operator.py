"""A custom operator that a side lacks: the graph is compared up to it, and what lies behind is a Skip."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

import parityscope
from command_line import in_a_process
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>'
# h -> a -> Foo -> y, and beside it h -> k -> z: Foo is in the middle of one of two branches.
MIDDLE = f"""{HEAD}
g (float[2,3] x) => (float[2,3] y, float[2,3] z) {{
  h = Relu(x)
  a = Exp(h)
  b = com.example.Foo(a)
  y = Neg(b)
  k = Sin(h)
  z = Abs(k)
}}"""
START = f"{HEAD} g (float[2,3] x) => (float[2,3] y) {{ b = com.example.Foo(x)  y = Neg(b) }}"
BRANCH = f"{HEAD} g (float[2,3] x) => (float[2,3] y, float[2,3] z) {{ y = com.example.Foo(x)  z = Neg(x) }}"
BODY = f"""{HEAD}
g (float[2,3] x) => (float[2,3] y) {{
  s = ReduceSum <keepdims = 0> (x)
  zero = Constant <value_float = 0.0> ()
  positive = Greater(s, zero)
  h = Exp(x)
  y = If (positive) <
    then_branch = yes () => (float[2,3] p) {{ p = com.example.Foo(h) }},
    else_branch = no () => (float[2,3] q) {{ q = Neg(h) }}
  >
}}"""
FIX = "give the library with ort?custom_ops=lib.so"
X = np.array([[-1.0, -0.5, 0.25], [0.5, 1.0, 2.0]], np.float32)


def save(folder: Path, text: str, name: str = "m.onnx") -> Path:
    path = folder / name
    onnx.save(onnx.parser.parse_model(text), path)
    write_npz(folder / "x.npz", {"x": X})
    return path


def names(document: Any, table: str = "outputs") -> list[str]:
    return [one["name"] for one in document[table]]


def skip(document: Any, what: str) -> dict[str, Any]:
    return next(one for one in document["skipped"] if one["what"] == what)


@pytest.mark.parametrize(
    "verb",
    [
        parityscope.compare,
        lambda *words, **options: parityscope.compare(*words, all_tensors=True, **options),
        parityscope.localize,
        parityscope.diagnose,
    ],
)
def test_it_is_compared_up_to_the_operator(verb: Callable[..., Any], tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    document = verb(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    assert names(document) == ["z", "a"]
    assert [one["verdict"] for one in document["outputs"]] == ["within", "within"]
    assert document["verdict"] == "incomplete"
    behind = skip(document, "output y")
    # Foo is the third node, so its index is 2; it has no name of its own.
    assert behind["reason"].startswith("behind the custom operator com.example::Foo of node Foo#2")
    assert behind["asked"]
    assert FIX in behind["fix"]
    assert document["model"]["path"] == str(path)
    assert document["model"]["sha256"] == load_model(path).sha256
    assert document["candidate"]["target"] == "ort?optimization=disabled"


def test_intermediate_tensors_in_front_are_compared_and_localized(tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    document = parityscope.localize(path, candidate="sim:f16", inputs=tmp_path / "x.npz").document
    assert set(names(document, "tensors")) == {"h", "a", "k", "z"}
    # Nodes keep the numbers that they have in the whole graph: Sin and Abs stand behind Foo#2 and Neg#3.
    assert {one["site"]["node"] for one in document["suspects"]} == {"Relu#0", "Exp#1", "Sin#4", "Abs#5"}


def test_the_exit_code_is_that_of_something_not_judged(tmp_path: Path) -> None:
    save(tmp_path, MIDDLE)
    words = ["compare", "m.onnx", "--candidate", "ort", "--inputs", "x.npz", "--study", "s", "--format", "json"]
    done = in_a_process(*words, folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["verdict"] == "incomplete"


def test_nothing_remains(tmp_path: Path) -> None:
    path = save(tmp_path, START)
    with pytest.raises(
        ParityError, match=r"nothing of m\.onnx can be compared.*com\.example::Foo of node Foo#0"
    ) as told:
        parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz")
    assert FIX in told.value.fix


def test_another_branch_remains(tmp_path: Path) -> None:
    path = save(tmp_path, BRANCH)
    document = parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    assert names(document) == ["z"]
    assert skip(document, "output y")["asked"]


def test_inside_a_body_the_node_around_it_is_cut(tmp_path: Path) -> None:
    path = save(tmp_path, BODY)
    document = parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    # What the If reads: its condition, and the tensor that its bodies capture.
    assert set(names(document)) == {"positive", "h"}
    assert "com.example::Foo of node If#" in skip(document, "output y")["reason"]


def test_a_function_of_the_model_is_no_custom_operator(tmp_path: Path) -> None:
    text = f"""{MIDDLE}
    <opset_import: ["" : 17], domain: "com.example"> Foo (i) => (o) {{ o = Tanh(i) }}"""
    path = save(tmp_path, text)
    document = parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    assert document["verdict"] == "within"
    assert names(document) == ["y", "z"]


def test_a_function_that_calls_one_is_cut(tmp_path: Path) -> None:
    text = f"""{MIDDLE}
    <opset_import: ["" : 17, "org.example" : 1], domain: "com.example"> Foo (i) => (o) {{ o = org.example.Bar(i) }}"""
    path = save(tmp_path, text)
    model = onnx.load(path)
    model.opset_import.append(onnx.helper.make_opsetid("org.example", 1))
    onnx.save(model, path)
    document = parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    assert names(document) == ["z", "a"]
    assert "org.example::Bar of node Foo#2" in skip(document, "output y")["reason"]


def test_weights_in_another_file(tmp_path: Path) -> None:
    text = MIDDLE.replace("h = Relu(x)", "h = Add(x, w)")
    path = save(tmp_path, text.replace("float[2,3] z) {", "float[2,3] z) <float[2,3] w = {1, 2, 3, 4, 5, 6}> {"))
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    document = parityscope.diagnose(path, candidate="ort?optimization=disabled", inputs=tmp_path / "x.npz").document
    assert [one["verdict"] for one in document["outputs"]] == ["within", "within"]


def recorded(folder: Path, *, without: tuple[str, ...] = (), **changes: np.ndarray) -> str:
    """What a deployment that has the operator (Foo = 2 x + 1) would have recorded."""
    h = np.maximum(X, 0)
    a = changes.get("a", np.exp(h))
    b = 2 * a + 1
    held = {"h": h, "a": a, "b": b, "y": -b, "k": np.sin(h), "z": np.abs(np.sin(h))}
    write_npz(folder / "out.npz", {name: array for name, array in held.items() if name not in without})
    return f"saved?path={folder / 'out.npz'}"


def test_a_recording_may_hold_more(tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    document = parityscope.diagnose(path, candidate=recorded(tmp_path), inputs=tmp_path / "x.npz").document
    assert names(document) == ["z", "a"]
    assert document["verdict"] == "incomplete"
    # b and y were recorded, and the only thing said about them is that they lie behind the operator.
    assert [one["what"] for one in document["skipped"] if one["what"].split()[-1] in {"b", "y"}] == ["output y"]


def test_an_error_in_front_of_it_is_found_in_a_recording(tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    wrong = np.exp(np.maximum(X, 0)) * np.float32(1.5)
    document = parityscope.localize(path, candidate=recorded(tmp_path, a=wrong), inputs=tmp_path / "x.npz").document
    assert document["verdict"] == "beyond"
    first = document["suspects"][0]
    assert first["site"]["tensor"] == "a"
    assert first["introduced"] == pytest.approx(0.5, rel=1e-6)  # |1.5 a - a| / |a|
    assert first["inherited"] < 1e-6
    assert first["share"] == pytest.approx(1.0, abs=1e-6)


def test_a_border_that_was_not_recorded_is_no_output_that_is_missing(tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    candidate = recorded(tmp_path, without=("a", "b"))
    document = parityscope.compare(path, candidate=candidate, inputs=tmp_path / "x.npz").document
    assert names(document) == ["z"]
    assert [one["what"] for one in document["skipped"] if one["asked"]] == ["output y"]


def test_a_program_that_gives_only_what_lies_behind(tmp_path: Path) -> None:
    path = save(tmp_path, f"{HEAD} g (float[2,3] x) => (float[2,3] y) {{ a = Exp(x)  y = com.example.Foo(a) }}")
    program = tmp_path / "infer.py"
    program.write_text(
        f"#!{sys.executable}\nimport sys, numpy as np\n"
        "x = np.load(sys.argv[1] + '/000000.npz')['x']\n"
        "np.savez(sys.argv[2] + '/000000.npz', y=2 * np.exp(x) + 1)\n",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ParityError, match=r"nothing in front of the custom operator could be compared") as told:
        parityscope.compare(path, candidate=f"command?run={program}", inputs=tmp_path / "x.npz")
    assert FIX in told.value.fix


def test_openvino_in_front_of_it(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = save(tmp_path, MIDDLE)
    document = parityscope.compare(path, candidate="openvino", inputs=tmp_path / "x.npz").document
    assert names(document) == ["z", "a"]
    assert {one["verdict"] for one in document["outputs"]} == {"within"}


def test_another_refusal_stays_an_error(tmp_path: Path) -> None:
    path = save(
        tmp_path, '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { y = MatMul(x, x) }'
    )
    with pytest.raises(ParityError, match="ONNX Runtime"):
        parityscope.compare(path, candidate="ort", inputs=tmp_path / "x.npz")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("library") / "libfoo.so"
    source = Path(__file__).with_name("custom_operator.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(source)], check=True)
    return path


def test_the_reference_has_the_operator(library: Path, tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    reference = f"ort?custom_ops={library}"
    candidate = recorded(tmp_path)
    document = parityscope.localize(path, candidate=candidate, inputs=tmp_path / "x.npz", reference=reference).document
    assert names(document) == ["y", "z"]
    assert document["verdict"] == "within"
    assert "b" in names(document, "tensors")
    assert not [one for one in document["skipped"] if one["asked"]]


def test_an_error_behind_the_operator_is_found_with_its_library(library: Path, tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    wrong = np.exp(np.maximum(X, 0)) * np.float32(1.5)
    document = parityscope.localize(
        path, candidate=recorded(tmp_path, a=wrong), inputs=tmp_path / "x.npz", reference=f"ort?custom_ops={library}"
    ).document
    assert document["verdict"] == "beyond"
    assert document["suspects"][0]["site"]["tensor"] == "a"
    assert document["suspects"][0]["share"] == pytest.approx(1.0, abs=1e-6)


def test_only_the_candidate_has_the_operator(library: Path, tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    candidate = f"ort?custom_ops={library}"
    document = parityscope.compare(path, candidate=candidate, inputs=tmp_path / "x.npz").document
    assert names(document) == ["z", "a"]
    assert document["candidate"]["target"] == candidate


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = save(tmp_path, MIDDLE)
    bad = tmp_path / "bad.so"
    bad.write_bytes(b"not a library")
    with pytest.raises(ParityError, match="library cannot be loaded") as told:
        parityscope.compare(path, candidate="ort", inputs=tmp_path / "x.npz", reference=f"ort?custom_ops={bad}")
    assert told.value.where == str(bad)
