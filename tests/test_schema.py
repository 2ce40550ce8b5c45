"""The form of a study: our reading of the schema against a library's, what is refused, and what a redacted study keeps."""

from __future__ import annotations

import copy
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastjsonschema
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import exit_status
from parityscope import load_study
from parityscope.errors import ParityError
from parityscope.study.schema import problem_of, study_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = json.loads((Path(__file__).parent / "golden" / "detector.json").read_text(encoding="utf-8"))
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
network (float[1, 4] x) => (float[1, 4] y) <float[4] secret_weight = {1, 2, 3, 4}> { h = Mul(x, secret_weight)  y = Exp(h) }"""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    for key, held in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(held, (*at, key))


@settings(max_examples=150, deadline=None)
@given(
    place=st.sampled_from([one for one in places(GOLDEN) if one]),
    put=st.sampled_from([None, True, 0, -1, 2.5, "NaN", "text", [], [1], {}, {"site": None}, "left out"]),
)
def test_a_document_is_refused_where_a_library_refuses_it(place: tuple[Any, ...], put: Any) -> None:
    document = copy.deepcopy(GOLDEN)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if put == "left out":
        del inner[place[-1]]
    else:
        inner[place[-1]] = put
    try:
        LIBRARY(document)
    except fastjsonschema.JsonSchemaException:
        assert problem_of(document)
    else:
        assert problem_of(document) == ""


LIBRARY = fastjsonschema.compile(dict(study_schema()), use_default=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"schema": "parityscope/2", "tool": {"version": "9.1"}},
            "newer Parityscope (9.1): its schema is parityscope/2",
        ),
        ({"schema": "parityscope/0"}, "not a study of schema parityscope/1 but of 'parityscope/0'"),
        (
            {"outputs": [{"name": "y", "verdict": "beyond", "rel_l2": "much"}]},
            "outputs[0].rel_l2 is 'much', not a number",
        ),
        ({"suspects": [{"site": {"node": "n"}, "introduced": 1, "inherited": 0}]}, "suspects[0].site has no tensor"),
        ({"verdict": "good"}, "verdict is 'good', not one of within, beyond, incomplete"),
        ({"findings": {}}, "findings is an object, not a list"),
    ],
)
def test_what_is_not_of_the_form_is_named_by_its_place(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    (tmp_path / "study.json").write_text(json.dumps(GOLDEN | change), encoding="utf-8")
    with pytest.raises(ParityError) as raised:
        load_study(tmp_path)
    assert said in raised.value.problem
    assert raised.value.fix


TEXT = json.dumps(GOLDEN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("parityscope/1", "parityscope/2"), "written by a newer Parityscope.*its schema is parityscope/2"),
        (TEXT.replace("parityscope/1", "parityscope/0"), "but of 'parityscope/0'"),
        (TEXT.replace("parityscope/1", "parityscope/\u00b2"), "is not a study of schema"),
        (TEXT.replace('"parityscope/1"', '["parityscope/1"]'), "is not a study of schema"),
        (TEXT[:-1] + ', "verdict": "within"}', "'verdict' stands twice"),
        (TEXT[:-1] + f', "more": {10**400}}}', "an integer has 401 digits"),
        (TEXT[:-1] + f', "more": {"9" * 10_000}}}', "an integer has 10000 digits"),
        (TEXT[:-1] + ', "more": ' + '{"a":' * 50_000 + "1" + "}" * 50_001, "nested too deep"),
        (TEXT[: len(TEXT) // 2], "no whole JSON"),
        ("null", "is not a study of schema"),
    ],
    ids=range(10),
)
def test_what_is_no_study_of_this_version_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "study.json").write_text(text, encoding="utf-8")
    with pytest.raises(ParityError, match=said) as refused:
        load_study(tmp_path)
    assert "\n" not in refused.value.problem
    assert refused.value.fix


def test_keys_that_a_later_version_added_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(GOLDEN | {"added": {"later": 1}}), encoding="utf-8")
    assert load_study(tmp_path).document["added"] == {"later": 1}


def test_a_redacted_study_has_the_form_and_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "customer"
    place.mkdir()
    onnx.save(onnx.parser.parse_model(MODEL), place / "acme_detector.onnx")
    onnx.save(onnx.parser.parse_model(MODEL.replace("Exp(h)", "Abs(h)")), place / "acme_deployed.onnx")
    np.savez(place / "acme_inputs.npz", x=np.float32([[1, -2, 0.3, -0.9]]))
    monkeypatch.chdir(place)
    words = ["diagnose", "acme_detector.onnx", "--inputs", "acme_inputs.npz", "--quiet", "--redact"]
    assert exit_status(*words, "--candidate", "ort?model=acme_deployed.onnx", "--study", "shared") == 1
    text = (place / "shared" / "study.json").read_text(encoding="utf-8")
    document = load_study(place / "shared").document
    assert not list(unwanted(text, ["acme", str(tmp_path), platform.node(), str(Path.home())]))
    # What a reader needs is there: names of tensors, the cause in words, numbers.
    assert {row["name"] for row in document["tensors"]} >= {"y"}
    assert any("Abs" in finding["claim"] for finding in document["findings"])
    assert document["outputs"][0]["rel_l2"] > 0


def unwanted(text: str, words: list[str]) -> Iterator[str]:
    return (word for word in words if len(word) > 1 and word in text)
