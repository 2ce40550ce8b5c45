"""Every lint rule against its own examples, files of every kind, trained models, and the command."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parityscope.arithmetic import FORMATS
from parityscope.arithmetic.scanning import float_numbers
from parityscope.checks import known_checks
from parityscope.cli import run_command
from parityscope.errors import ParityError
from parityscope.linting import known_rules, lint, rule_page
from parityscope.linting.contract import check_examples, findings_of, write_example
from parityscope.testing.networks import parse_network
from proving.models.fetching import require

if TYPE_CHECKING:
    from parityscope.records import Finding

PARTS = (
    "What goes wrong:",
    "How it shows:",
    "How we test for it:",
    "What it is confused with:",
    "How to repair:",
    "Sources:",
)
ROLES = {"cause", "contributing", "information"}


def parsed(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    return parse_network(text, constants)


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def found(path: Path, code: str, formats: tuple[str, ...] = ("f16",)) -> list[Finding]:
    return [one for one in lint(path, formats).findings if one.code == code]


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_command(list(words))
    return int(status), out.getvalue(), err.getvalue()


# Rules


@pytest.mark.parametrize("code", sorted(known_rules()))
def test_examples_are_judged_right(code: str, tmp_path: Path) -> None:
    check_examples(known_rules()[code], tmp_path)


@pytest.mark.parametrize("code", sorted(known_rules()))
def test_a_rule_has_its_page_and_examples(code: str) -> None:
    assert [part for part in PARTS if part not in rule_page(code)] == []
    assert known_rules()[code].holds
    assert known_rules()[code].holds_not


@pytest.mark.parametrize("code", sorted(known_rules()))
def test_findings_are_whole(code: str, tmp_path: Path) -> None:
    rule = known_rules()[code]
    for number, example in enumerate(rule.holds):
        for one in findings_of(rule, example, tmp_path / str(number)):
            assert one.code == code
            assert one.title == rule.title
            assert one.role in ROLES
            assert one.claim
            assert one.evidence[0].because
            assert one.repairs or one.role != "cause"


@pytest.mark.parametrize("code", sorted(known_rules()))
def test_other_rules_bear_the_examples(code: str, tmp_path: Path) -> None:
    # Any file that one rule knows must not trip another one.
    for number, example in enumerate((*known_rules()[code].holds, *known_rules()[code].holds_not)):
        lint(write_example(example, tmp_path / f"{number}.onnx"), tuple(FORMATS))


def test_codes_are_of_their_own() -> None:
    assert not set(known_rules()) & set(known_checks())
    assert all(code[:3].isupper() and code[3:].isdigit() and int(code[3:]) > 100 for code in known_rules())


# Scan


@given(
    hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)),
)
def test_counts_agree_with_numpy_and_ml_dtypes(array: np.ndarray) -> None:
    numbers = float_numbers([array], (FORMATS["f16"], FORMATS["bf16"]))
    finite = array[np.isfinite(array)]
    assert numbers.nan == int(np.isnan(array).sum())
    assert numbers.infinite == int(np.isinf(array).sum())
    for name, dtype, smallest in (("f16", np.float16, 2.0**-14), ("bf16", ml_dtypes.bfloat16, 2.0**-126)):
        with np.errstate(over="ignore", under="ignore"):
            rounded = finite.astype(dtype).astype(np.float64)
        loss = numbers.losses[name]
        assert loss.beyond == int(np.isinf(rounded).sum())
        assert loss.vanished == int(((rounded == 0) & (finite != 0)).sum())
        small = (np.abs(finite.astype(np.float64)) < smallest) & (rounded != 0)
        assert loss.subnormal == int(small.sum())


def test_underflow_is_the_relative_change() -> None:
    # 3 and 4 are normal in FP16; 2^-26 rounds to 0: the change is 2^-26 of a norm of 5.
    numbers = float_numbers([np.array([3, 4, 2.0**-26], np.float32)], (FORMATS["f16"],))
    assert numbers.losses["f16"].underflow == pytest.approx(2.0**-26 / 5, rel=1e-12)
    assert (numbers.losses["f16"].vanished, numbers.losses["f16"].subnormal) == (1, 0)


def test_blocks_add_up() -> None:
    array = np.full(200_001, 1.0, np.float32)
    array[[0, 65_535, 65_536, 200_000]] = [1e5, -2e5, 1e-9, 3e5]
    numbers = float_numbers([array], (FORMATS["f16"],))
    assert (numbers.losses["f16"].beyond, numbers.losses["f16"].vanished) == (3, 1)
    assert (numbers.lowest, numbers.highest) == (-2e5, 3e5)


# Files of every kind

BODY = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64 n, bool c) => (float[4] y) {
  y = Loop (n, c, x) <body = b (int64 i, bool go, float[4] s) => (bool out, float[4] next) {
    out = Identity(go)
    w = Constant <value_float = 100000.0> ()
    next = Div(s, w)
  }>
}"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[4] x) => (float[4] y) { y = own.Far(x) }
<domain: "own", opset_import: ["" : 17]> Far (a) => (b) {
  w = Constant <value_floats = [70000.0, 1.0, 1.0, 1.0]> ()
  b = Mul(a, w)
}"""


def test_constants_in_bodies_are_read(tmp_path: Path) -> None:
    (one,) = found(saved(tmp_path, parsed(BODY)), "RNG101")
    assert one.role == "cause"
    assert one.details["inside"].endswith("body")
    assert one.site is not None
    assert one.site.scope == "Loop#0/body"
    assert one.site.index == 0


def test_constants_in_functions_are_read(tmp_path: Path) -> None:
    (one,) = found(saved(tmp_path, parsed(FUNCTION)), "RNG101")
    assert one.site is not None
    assert (one.site.op_type, one.site.scope) == ("Mul", "Far")
    assert one.details["beyond"] == {"f16": 1}


def test_a_constant_behind_moves_is_followed(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) {
      a = Identity(w)
      b = Transpose(a)
      y = MatMul(x, b)
    }"""
    path = saved(tmp_path, parsed(text, w=np.array([[1, 2], [3, 1e6]], np.float32)))
    (one,) = found(path, "RNG101")
    assert one.site is not None
    assert one.site.op_type == "MatMul"
    assert one.details["role"] == "weight"


def test_a_filled_mask_is_followed(tmp_path: Path) -> None:
    fill = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [-3.0e38])
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x, bool[2,2] k) => (float[2,2] y) {
      low = ConstantOfShape(size)
      a = Where(k, x, low)
      y = Softmax(a)
    }"""
    model = parsed(text, size=np.array([2, 2], np.int64))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("value", fill))
    path = saved(tmp_path, model)
    assert [one.role for one in found(path, "RNG104")] == ["contributing"]
    assert found(path, "RNG101") == []


def test_anchors_that_end_in_a_sigmoid_are_no_cause(tmp_path: Path) -> None:
    # As DETR-like detectors mark invalid anchors: FP32's largest number, then a sum and a Sigmoid.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x, bool[2,2] k) => (float[2,2] y) {
      a = Where(k, x, far)
      b = Add(a, x)
      y = Sigmoid(b)
    }"""
    path = saved(tmp_path, parsed(text, far=np.array(np.finfo(np.float32).max)))
    assert not lint(path).broken
    assert [one.role for one in found(path, "RNG104")] == ["information"]


def test_external_data_is_read_and_a_missing_file_is_a_skip(tmp_path: Path) -> None:
    weight = np.eye(64, dtype=np.float32)
    weight[3, 3] = 1e6
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }"""
    path = tmp_path / "model.onnx"
    onnx.save(parsed(text, w=weight), path, save_as_external_data=True, location="model.bin", size_threshold=0)
    result = lint(path)
    assert result.broken
    assert result.skipped == ()
    assert result.sheet.nbytes == path.stat().st_size + weight.nbytes
    (tmp_path / "model.bin").write_bytes(weight.tobytes()[:100])
    truncated = lint(path)
    assert [skip.what for skip in truncated.skipped] == ["constant w"]
    (tmp_path / "model.bin").unlink()
    assert [skip.what for skip in lint(path).skipped] == ["constant w"]
    status, out, _ = run("lint", str(path), "--format", "json")
    assert status == 3
    assert json.loads(out)["verdict"] == "incomplete"


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8])
def test_every_type_of_weight_is_read(dtype: type[np.generic], tmp_path: Path) -> None:
    model = parsed('<ir_version: 10, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2]).astype(dtype), "w"))
    result = lint(saved(tmp_path, model), tuple(FORMATS))
    assert result.skipped == ()
    assert {one.code for one in result.findings} == {"EXP102", "EXP103"}


def test_empty_and_string_constants_are_no_trouble(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }"""
    model = parsed(text, e=np.zeros((0, 3), np.float32), i=np.zeros(0, np.int64))
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [1], [b"word"]))
    result = lint(saved(tmp_path, model))
    assert result.skipped == ()
    assert not result.broken


@pytest.mark.parametrize("code", sorted(known_rules()))
def test_damaged_graphs_are_read_without_a_crash(code: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, example in enumerate(known_rules()[code].holds):
        path = write_example(example, tmp_path / f"{number}.onnx")
        model = onnx.load(path)
        for node in model.graph.node:
            for part in (node.input, node.attribute, node.output):
                if part and rng.random() < 0.4:
                    del part[int(rng.integers(len(part)))]
        path.write_bytes(model.SerializeToString())
        with contextlib.suppress(ParityError):  # a graph without an output at all
            lint(path, tuple(FORMATS))


def test_epsilon_bites_in_one_format_only(tmp_path: Path) -> None:
    rule = known_rules()["RNG103"]
    example = rule.holds[0]
    path = write_example(example, tmp_path / "m.onnx")
    both = [one for one in lint(path, ("f16", "bf16")).findings if one.role == "cause"]
    assert [(one.code, one.details["format"]) for one in both] == [("RNG103", "f16")]
    assert both[0].details["becomes"] == 0.0


def test_fp8_is_judged_by_range_alone(tmp_path: Path) -> None:
    # FP8 is for the scaled inputs of products: an epsilon of 1e-3 is far below its smallest number and does not matter.
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
      floor = Relu(x)
      safe = Add(floor, epsilon)
      y = Log(safe)
    }"""
    path = saved(tmp_path, parsed(text, epsilon=np.array(1e-3, np.float32)))
    assert not lint(path, ("f8e4m3", "f8e5m2")).broken


def test_the_command_that_names_nodes_works(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        parsed('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }'),
    )
    (one,) = found(path, "EXP102")
    command = one.repairs[0].command.replace("python ", f"{sys.executable} ", 1)
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - as a user would paste it
    assert found(tmp_path / "model.named.onnx", "EXP102") == []


# Trained models


@pytest.mark.model
def test_the_detectors_running_variance_is_the_cause() -> None:
    path = require("ocr-det")
    (cause,) = [one for one in lint(path).findings if one.role == "cause"]
    assert cause.code == "RNG101"
    assert cause.site is not None
    assert cause.site.node == "p2o.BatchNormalization.1"
    assert cause.details["role"] == "running variance"
    assert cause.details["value"] == 97_903_600
    assert cause.details["beyond"] == {"f16": 24}
    assert not lint(path, ("bf16",)).broken


@pytest.mark.model
def test_the_recogniser_runs_in_fp16_and_has_no_cause() -> None:
    result = lint(require("ocr-rec"))
    assert not result.broken
    (norm,) = [one for one in result.findings if one.code == "RNG105"]
    assert norm.role == "contributing"
    assert norm.details["part_of"] == "LayerNormalization"
    assert norm.details["overflows_from"] == pytest.approx(65504**0.5)


# The command


def test_command_gives_strict_json_and_its_exit_code(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Mul(x, w) }"""
    path = saved(tmp_path, parsed(text, w=np.array([1e6, 1], np.float32)))
    status, out, err = run("lint", str(path), "--format", "json")
    assert status == 1
    assert err == "1 cause, 0 contributing, 1 information\n"

    def refuse(word: str) -> None:
        raise AssertionError(word)

    document = json.loads(out, parse_constant=refuse)
    assert list(document)[:2] == ["schema", "kind"]
    assert (document["schema"], document["kind"], document["verdict"]) == ("parityscope/1", "lint", "beyond")
    first = document["findings"][0]
    assert first["code"] == "RNG101"
    assert first["details"]["becomes"] == {"f16": "Infinity"}
    assert {"role", "site", "claim", "evidence", "repairs"} <= set(first)
    assert first["repairs"][-1]["command"].startswith("parityscope diagnose ")
    assert run("lint", str(path), "--formats", "bf16", "--quiet")[0] == 0


@pytest.mark.parametrize(
    "body",
    [
        "y = Softmax<axis = 99>(x)",
        "y = Concat<axis = -7>(x, x)",
        "y = MaxPool<kernel_shape = [2], strides = [0]>(x)",
        "w = Constant<value_floats = [1.0, 2.0, 3.0]>() y = MatMul(x, w)",
        "c = Cast<to = 7>(x) y = Add(x, c)",
        "y = Frobnicate(x)",
        'y = Softmax<axis = "zero">(x)',
        "i = Constant<value_ints = [99]>() y = Unsqueeze(x, i)",
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(body: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 4] x) => (float y) {{ {body} }}'
    model = parsed(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    status, out, err = run("lint", str(saved(tmp_path, model)))
    assert (status, out) == (2, "")
    assert "ONNX Runtime cannot load the model" in err
    assert "  fix:   " in err


@pytest.mark.parametrize("external", [False, True])
def test_weights_are_not_needed_to_see_that_a_file_loads(external: bool, tmp_path: Path) -> None:
    """Large ones are left out, small ones that lie in another file are read: the shape of a Reshape is one."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 64] x) => (float[8, 8] y)
    { h = MatMul(x, w) y = Reshape(h, s) }"""
    model = parsed(text, w=np.ones((64, 64), np.float32), s=np.array([8, 8]))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=external, size_threshold=0)
    assert run("lint", str(path), "--quiet")[0] == 0


def test_what_the_runtime_lacks_itself_leaves_it_open(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "my.own" : 1]> g (float[4] x) => (float[4] y) { y = my.own.Twist(x) }"""
    status, out, _ = run("lint", str(saved(tmp_path, parsed(text))))
    assert status == 3
    assert "it needs a library with my.own::Twist" in " ".join(out.split())


def test_command_writes_a_page_that_no_name_can_break(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Mul(x, w) }"""
    model = parsed(text, w=np.array([1e6, 1], np.float32))
    model.graph.node[0].name = "</script><b>\x1b[31mname"
    path = saved(tmp_path, model)
    page = tmp_path / "page.html"
    status, out, _ = run("lint", str(path), "-o", str(page))
    assert status == 1
    assert "RNG101" in out
    assert "\x1b" not in out
    html = page.read_text(encoding="utf-8")
    assert html.count("</script>") == html.count("<script")
    assert "<b>\\x1b" not in html
    assert "http" not in html.replace("http-equiv", "")
    assert run("lint", str(path), "-o", str(page))[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lint", "nowhere.onnx"), "there is no model at nowhere.onnx"),
        (("lint", "{model}", "--formats", "f17"), "there is no number format 'f17'"),
        (("lint", "{model}", "--formats", ","), "--formats names none"),
        (("lint", "{model}", "--format", "node-data"), "lint has no format 'node-data'"),
        (("lint", "{junk}"), "the model is damaged, or no ONNX model at all"),
    ],
)
def test_mistakes_are_said_with_a_way_out(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }"""
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"not a model at all")
    names = {"model": saved(tmp_path, parsed(text)), "junk": junk}
    status, _, err = run(*(word.format(**names) for word in words))
    assert status == 2
    assert said in err
    assert "fix:" in err


def test_pages_and_the_list_are_reachable() -> None:
    status, page, _ = run("explain", "RNG101")
    assert status == 0
    assert "running variance" in page
    status, listed, _ = run("list", "rules")
    assert status == 0
    assert sorted(line.split()[0] for line in listed.splitlines() if line.startswith("  ")) == sorted(known_rules())


def test_the_document_lists_every_rule_with_the_roles_it_gives(tmp_path: Path) -> None:
    page = Path(__file__).parents[1].joinpath("docs", "lint.md").read_text(encoding="utf-8")
    for code, rule in known_rules().items():
        given = set()
        for number, example in enumerate(rule.holds):
            given |= {one.role for one in findings_of(rule, example, tmp_path / code / str(number))}
        roles = ", ".join(role for role in ("cause", "contributing", "information") if role in given)
        assert f"| `{code}` | {rule.title} | {roles} |" in page
