"""What CONTRIBUTING.md says that a change costs, done from outside of the package; new plug-ins are in test_new.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from parityscope.api.catalogues import CATALOGUES
from parityscope.arithmetic.fusion import profile_named
from parityscope.arithmetic.fusion.patterns import fused_by
from parityscope.catalogue import whole_catalogue
from parityscope.checks import Check, Example, known_checks
from parityscope.checks.asking import ask_check, describe_mistyped
from parityscope.cli.scaffolding import KINDS
from parityscope.comparison.metric import all_metrics
from parityscope.errors import ParityError
from parityscope.linting import known_rules
from parityscope.records import Evidence, Experiment, Finding, Site, Skip, Suspect
from parityscope.study.schema import study_schema
from parityscope.testing.check_contract import check_examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.bench import Bench
    from parityscope.records import Pair, Verdict

ROOT = Path(__file__).resolve().parents[1]

# x / (1 + |x|), by the name of its operator.
_SOFTSIGN = '''"""Softsign: `x / (1 + |x|)`."""

from parityscope.arithmetic.fusion.matching import MatchedRegion
from parityscope.arithmetic.fusion.patterns import Pattern


def match(node, order):
    """The Softsign that ends in `node`."""
    if node.op_type != "Div" or node.inputs[1] is None:
        return None
    added = node.inputs[1].producer()
    size = None if added is None or added.op_type != "Add" else added.inputs[0].producer()
    if size is None or size.op_type != "Abs" or size.inputs[0] is not node.inputs[0]:
        return None
    nodes = tuple(sorted((size, added, node), key=order.__getitem__))
    return MatchedRegion(kind="MySoftsign", nodes=nodes, entries=(node.inputs[0],), output=node.outputs[0])


PATTERNS = (Pattern(kind="MySoftsign", match=match, engines=frozenset({"tensorrt"}), is_activation=True),)
'''
_NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y) <float one = {1.0}> {
  m = Abs(x) a = Add(m, one) y = Div(x, a)
}"""
# The kurtosis of the error, from a moment that no metric had before.
_TAIL = '''"""How heavy the tail of the error is: E[e^4] / E[e^2]^2."""

from parityscope.comparison import Metric
from parityscope.records import Measurement


def _finish(statistics):
    floats = statistics.floats
    if floats is None:
        return None
    square, fourth = floats.moments.error2, floats.moments.error4
    value = float("inf") if floats.disagreeing else floats.finite * fourth / square**2 if square else 0.0
    return Measurement(metric="error_tail", value=value, unit="ratio", count=floats.finite)


METRIC = Metric(name="error_tail", unit="ratio", better="lower", perfect=0.0, finish=_finish)
'''
_NEW_MOMENT = (
    ("    product: float = _sum_of(2)\n", "    product: float = _sum_of(2)\n    error4: float = _sum_of(4)\n"),
    ("    sums[7] += (r * c).sum()\n", "    sums[7] += (r * c).sum()\n    sums[8] += (e**4).sum()\n"),
    ("        rc += r * c\n", "        rc += r * c\n        e4 += e * e * e * e\n"),
    ("c2 = rc = 0.0\n", "c2 = rc = e4 = 0.0\n"),
    ("    sums[7] += rc\n", "    sums[7] += rc\n    sums[8] += e4\n"),
)
_MEASURES_TAIL = """
import numpy as np
from parityscope.comparison import measure_all, measure_pair, merge_statistics
from parityscope.comparison.moments import SUMS, loop_over_moments
reference, candidate = np.zeros(5), np.array([1.0, 1, 1, 1, 3])  # squares: 4 + 9; fourth powers: 4 + 81
pair = measure_pair(reference, candidate, channel_axis=None)
huge = measure_pair(reference, candidate * 2.0**500, channel_axis=None)
both = merge_statistics(pair, pair)
sums = np.zeros(SUMS)
loop_over_moments(reference, candidate, candidate, sums)
print([measure_all(one)["error_tail"].value for one in (pair, huge, both)], sums[-1])
"""
# What a user reports -> the file in which it is to be mended, to be found from ARCHITECTURE.md and the listing of the tree alone.
TEN_THINGS = {
    "the worst channel is off by infinity: it is zero, and one rounding error is in it": "comparison/_channels.py",
    "the trtexec line that builds the repaired file lacks --stronglyTyped": "report/nvidia.py",
    "the strip of all nodes is drawn from right to left; the page's data are in order": "report/templates/map.js",
    "images resized by area differ from OpenCV's at the border": "case/imaging/kernels.py",
    "the line of a log that says who switched TF32 off is not explained": "logs/_meanings_tf32.py",
    "a study written with --redact still holds the seed": "study/study.schema.json",
    "LSTM's recurrent weight is told to be no weight": "operators/products.py",
    "what the candidate's program started outlives a killed parityscope": "backends/_guardian.py",
    "an error 40 times what FP16's rounding makes has the grade f16": "expectation/grades.py",
    "a tensor that two low nodes read is charged for two Casts": "repairs/search/cut.py",
}
_OLD_CHECK = """from parityscope.checks import Check, Example, Proposal, Result
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Puts an outside package with one plug-in of a group beside the installed ones."""

    def installed(group: str, name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        all_metrics.cache_clear()  # a process looks for them once

    return installed


def test_a_fused_pattern_is_one_file(install: Callable[[str, str, str], None]) -> None:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(_NETWORK))
    alone = profile_named("openvino").predict(model, "bf16")
    install("parityscope.arithmetic.fusion.patterns", "outside_softsign", _SOFTSIGN)
    assert "MySoftsign" in fused_by("tensorrt")
    assert "MySoftsign" not in fused_by("openvino")
    fusion = profile_named("tensorrt").predict(model, "f16")
    assert fusion is not None
    assert [set(kernel.values) for kernel in fusion.kernels] == [{"m", "a", "y"}]
    assert [kernel.kind for kernel in fusion.kernels] == ["MySoftsign"]
    assert profile_named("openvino").predict(model, "bf16") == alone


def test_a_moment_that_no_metric_had_is_one_file_beside_its_metric(tmp_path: Path) -> None:
    package = tmp_path / "parityscope"
    package.mkdir()
    for part in (ROOT / "src" / "parityscope").iterdir():
        if part.name == "comparison":
            shutil.copytree(part, package / part.name)
        else:
            (package / part.name).symlink_to(part)
    moments = package / "comparison" / "moments.py"
    text = moments.read_text(encoding="utf-8")
    for line, with_more in _NEW_MOMENT:
        assert text.count(line) == 1
        text = text.replace(line, with_more)
    moments.write_text(text, encoding="utf-8")
    (package / "comparison" / "metrics" / "error_tail.py").write_text(_TAIL, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURES_TAIL], env=environment, capture_output=True, text=True, check=False
    )
    tail = 5 * 85 / 13**2
    assert done.stdout.split() == [*f"[{tail}, {tail}, {tail}]".split(), "85.0"], done.stdout + done.stderr


@pytest.mark.parametrize("record", [Suspect, Finding, Evidence, Experiment, Site, Skip])
def test_a_record_that_the_document_holds_whole_stands_in_the_schema(record: type) -> None:
    form = study_schema()["definitions"][record.__name__.lower()]
    assert {one.name for one in fields(record)} <= set(form["properties"])


@pytest.mark.parametrize("report", TEN_THINGS)
def test_where_ten_things_are_to_be_mended(report: str) -> None:
    """The file is there, and its folder is told of in ARCHITECTURE.md."""
    path = Path("src/parityscope") / TEN_THINGS[report]
    assert (ROOT / path).is_file()
    tree = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert f"{path.parts[2]}/" in tree


def test_a_check_of_the_old_form_is_told_the_new_one(install: Callable[[str, str, str], None]) -> None:
    install("parityscope.checks", "outside_old_check", _OLD_CHECK)
    with pytest.raises(ParityError, match=r"outside_old_check cannot be imported.*Proposal") as told:
        known_checks()
    assert "Claim(words, predicts, test, site)" in told.value.fix


def test_a_rule_of_the_old_form_is_told_the_new_one(install: Callable[[str, str, str], None]) -> None:
    install("parityscope.linting", "outside_old_rule", "from parityscope.linting import Example, Rule\n")
    with pytest.raises(ParityError, match=r"outside_old_rule cannot be imported.*Example") as told:
        known_rules()
    assert "RuleExample" in told.value.fix


@pytest.mark.parametrize("kind", KINDS)
def test_a_plug_in_whose_value_was_made_for_another_version_is_told_what_it_takes_now(
    kind: str, install: Callable[[str, str, str], None]
) -> None:
    group, name = KINDS[kind].package, kind.capitalize()
    line = f"from {group.removesuffix('.metrics')} import {name}"
    install(group, f"outside_former_{kind}", f"{line}\n{kind.upper()} = {name}(formerly=1)\n")
    with pytest.raises(ParityError, match=rf"outside_former_{kind} does not fit this version: .*'formerly'") as told:
        CATALOGUES[KINDS[kind].catalogue]()
    assert f"{kind.upper()} = {name}(...), which takes " in told.value.fix


def test_a_check_that_asks_for_what_nobody_gives_is_told_what_there_is() -> None:
    def propose(wether: str) -> list[object]:
        return [wether]

    check = Check(code="USR001", title="", propose=propose, holds=(), holds_not=())  # type: ignore[arg-type]
    with pytest.raises(ParityError, match="USR001 asks for 'wether'") as told:
        list(ask_check(check, object()))  # type: ignore[arg-type]
    assert "bench" in told.value.fix
    assert "suspects" in told.value.fix


@pytest.mark.parametrize("code", sorted(known_checks()))
def test_a_check_says_of_what_it_asks_for_what_it_is(code: str) -> None:
    assert describe_mistyped(known_checks()[code]) == []


def test_a_check_that_takes_a_thing_for_another_is_told_what_it_is() -> None:
    def propose(
        outputs: dict[str, float], beyond: Sequence[Pair], bench: Bench | None = None, verdict: str | Verdict = ""
    ) -> list[object]:
        return [outputs, beyond, bench, verdict]

    check = Check(code="USR001", title="", propose=propose, holds=(), holds_not=())
    assert describe_mistyped(check) == ["USR001 takes outputs as dict[str, float]: it is tuple[Pair, ...]"]


@pytest.mark.parametrize("code", sorted(whole_catalogue()))
def test_every_page_has_its_example_cause_test_repair_and_source(code: str) -> None:
    entry = whole_catalogue()[code]
    page = entry.page()
    for part in ("What goes wrong:", "How it shows:", "How we test for it:", "How to repair:", "Sources:"):
        assert re.search(rf"(?m)^{part} *\n?\S", page), part
    # A log's example is the line that its page quotes; else it is a model that a test runs.
    assert entry.said_by == "log" or re.search(r"(?m)^Example: .*\n\n    .*ir_version", page)


def test_what_a_change_costs_is_said_of_each_kind() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind in (
        "a check",
        "a lint rule",
        "a metric",
        "a runtime",
        "a fused pattern",
        "a repair",
        "a new fact in the document",
    ):
        assert f"| {kind} |" in text


def test_a_contract_that_is_not_kept_says_what_became_of_the_claim(tmp_path: Path) -> None:
    quiet = known_checks()["DAT002"]
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }'
    example = Example(model=text, inputs={"x": np.ones((1, 4), np.float32)}, candidate="ort?optimization=disabled")
    with pytest.raises(AssertionError, match="DAT002: example 0 of holds is not found: it makes no claim here"):
        check_examples(replace(quiet, holds=(example,), holds_not=()), tmp_path / "quiet")
    with pytest.raises(AssertionError, match=r"USR001: example 0 .* it is not registered"):
        check_examples(replace(quiet, code="USR001", holds=(example,), holds_not=()), tmp_path / "unknown")
