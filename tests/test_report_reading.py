"""What a reader finds in a report: lines to copy, one row for what has one reason, figures at the top, no noise."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from golden import documents
from parityscope.cli import main
from parityscope.report import as_html, as_text
from parityscope.report.draw_depth import draw_depth
from parityscope.report.view import view_study
from parityscope.report.words import format_bytes, format_percent

if TYPE_CHECKING:
    from pathlib import Path

EXCHANGED = {"input": "image", "layout": "NCHW", "raw_layout": "NCHW", "channels": [2, 1, 0], "raw_dtype": "float32"}


def wrong_channels() -> dict[str, Any]:
    """A study whose one cause is that the channels are exchanged, proved in a copy of the reference."""
    finding = {
        "code": "PRE001",
        "title": "The deployment prepares its inputs in another way",
        "role": "cause",
        "claim": "The deployment exchanges channels 0 and 2 (BGR for RGB).",
        "confidence": 1.0,
        "details": {**EXCHANGED, "runs": 80, "cannot_be_told_from": [], "fitted": None},
        "repairs": [{"repair": "preprocess_in_code", "text": "turn it", "command": "", "trial": None}],
        "evidence": [
            {
                "experiment": {"check": "PRE001", "identity": "PRE001-1", "measure": "distance", "if_true": "it falls"},
                "outcome": "supports",
                "before": 0.467,
                "after": 0.0,
                "because": "with it the reference reproduces the candidate",
            }
        ],
    }
    step = {"code": "PRE001", "before": 0.451, "after": 0.0, "share": 1.0, "correction": "is given other inputs"}
    return {
        "verdict": "beyond",
        "findings": [finding],
        "sequence": {"steps": [step], "samples": [0], "verdict": "within"},
        "policy": {"declared": "f32"},
        "outputs": [{"name": "logits", "rel_l2": 0.451, "expected": {"f16": 0.004, "f32": 2e-6}}],
    }


def test_the_lines_of_an_advice_stand_in_both_reports() -> None:
    for text in (as_text.render_text(wrong_channels()), as_html.render_html(wrong_channels())):
        assert "prepared = prepared.take([2, 1, 0], axis=1)" in text


@pytest.mark.parametrize(
    ("name", "details"),
    [
        ("preprocess_in_code", {"input": "image", "channels": ["two"]}),  # not a number
        ("preprocess_in_code", {"input": "image", "channels": 3}),  # not a list
        ("preprocess_in_code", {}),  # nothing to write
        ("no_such_repair", EXCHANGED),
        ("_preprocessing", EXCHANGED),  # a private module
        ("../etc", EXCHANGED),
        ("fold_batch_normalization", EXCHANGED),  # a change of the model, no advice
    ],
)
def test_what_cannot_be_written_gives_no_lines(name: str, details: dict[str, Any]) -> None:
    repair = {"repair": name, "text": "write it", "command": "", "trial": None}
    (shown,) = view_study({"findings": [{"code": "PRE001", "details": details, "repairs": [repair]}]})["repairs"]
    assert shown["code_lines"] == {}


def test_long_lines_of_advice_are_left_to_the_page() -> None:
    document = wrong_channels()
    finding = document["findings"][0]
    finding["details"] = {"inputs": ["a", "b"], "outputs": ["y"]}
    finding["repairs"] = [{"repair": "bind_by_name", "text": "bind by name"}]
    text = as_text.render_text(document)
    assert "set_tensor_address" not in text
    assert re.search(r"\d+ lines for it stand in the HTML report", text)
    assert "set_tensor_address" in as_html.render_html(document)


def test_a_cause_that_was_reproduced_stands_behind_a_repair_that_was_not_tried() -> None:
    (repair,) = view_study(wrong_channels())["repairs"]
    assert repair["cause"] == {"before": "45.1 %", "after": "0 %"}
    assert "not tried itself; the reference, given the same fault, goes from 45.1 % to 0 %" in as_text.render_text(
        wrong_channels(), width=160
    )
    twice = wrong_channels()
    twice["sequence"]["steps"] *= 2  # two steps of one code: which of them the repair is of cannot be said
    assert view_study(twice)["repairs"][0]["cause"] is None


def test_the_top_says_what_was_predicted_what_was_tried_and_what_was_left_out() -> None:
    shown = {one["label"]: one for one in view_study(documents.detector(16))["tiles"]}
    assert shown["What users of the model see"]["value"] == "74.0 % error"
    assert shown["What users of the model see"]["note"].endswith("FP16's expected rounding error is 0.400 %")
    assert shown["Where"]["value"] == "node #2 of #0 to #671"
    assert shown["Fix, tried"]["value"] == "74.0 % \N{RIGHTWARDS ARROW} 0.460 %"
    reproduced = {one["label"]: one["value"] for one in view_study(wrong_channels())["tiles"]}
    assert reproduced["Cause, put into the reference"] == "45.1 % \N{RIGHTWARDS ARROW} 0 %"


def test_a_cause_stands_with_its_prediction_and_its_measurement() -> None:
    text = as_text.render_text(wrong_channels(), width=160)
    predicted, measured = "predicted: distance: it falls", "measured: with it the reference reproduces the candidate"
    assert text.index(predicted) < text.index(measured)
    page = as_html.render_html(wrong_channels())
    assert page.index("predicted before it ran") < page.index("distance: it falls") < page.index("<h2>What to do</h2>")


def test_details_that_are_empty_or_said_already_are_not_repeated() -> None:
    (cause,) = view_study(wrong_channels())["causes"]
    told = dict(cause["unsaid"])
    assert "cannot be told from" not in told  # an empty list
    assert "fitted" not in told  # None
    assert told["runs"] == "80"
    document = documents.detector(16)
    assert "97,903,600" in view_study(document)["causes"][0]["claim"]
    assert "97,903,600" not in dict(view_study(document)["causes"][0]["unsaid"]).values()


def test_experiments_that_say_the_same_say_it_once() -> None:
    def tried(check: str, outcome: str, because: str) -> dict[str, Any]:
        return {"experiment": {"check": check, "claim": f"claim {check}"}, "outcome": outcome, "because": because}

    evidence = [tried("A", "refutes", "same"), tried("B", "refutes", "other"), tried("C", "refutes", "same")]
    document = {"refuted": [*evidence, tried("D", "inconclusive", "same"), tried("E", "refutes", "")]}
    lines = as_text.render_text(document).partition("Experiments")[2].split("\n")
    assert [line.strip() for line in lines if line.strip()] == [
        "\N{EN DASH} ruled out: A claim A",
        "\N{EN DASH} ruled out: C claim C",
        "same",
        "\N{EN DASH} ruled out: B claim B",
        "other",
        "? inconclusive: D claim D",
        "same",
        "\N{EN DASH} ruled out: E claim E",
        "\N{EN DASH}, then \N{EN DASH}",
    ]


# What was not examined


def fused(count: int) -> list[dict[str, Any]]:
    return [
        {
            "what": f"tensor t{place}",
            "reason": f"fused into layer Multiply_{place}",
            "fix": "observe=all",
            "asked": False,
        }
        for place in range(count)
    ]


def test_what_has_one_reason_is_one_row_and_nothing_is_lost() -> None:
    rows = view_study({"skipped": fused(91)})["skipped"]
    assert len(rows) == 1
    assert rows[0]["what"].startswith("91 tensors: t0, t1, t2, ")
    assert rows[0]["reason"] == "fused into layer \N{HORIZONTAL ELLIPSIS}"
    assert rows[0]["names"] == [f"t{place}" for place in range(91)]
    page = as_html.render_html({"skipped": fused(91)})
    assert all(f"t{place}" in page for place in range(91))
    assert as_text.render_text({"skipped": fused(91)}).count("fused into layer") == 1


def test_few_skips_and_other_reasons_stay_apart() -> None:
    assert len(view_study({"skipped": fused(3)})["skipped"]) == 3
    others = [
        {"what": f"tensor u{place}", "reason": "a complex number", "fix": "", "asked": False} for place in range(4)
    ]
    asked = [{**one, "asked": True} for one in others]
    assert [len(row["names"]) for row in view_study({"skipped": [*fused(5), *others, *asked]})["skipped"]] == [4, 5, 4]


def test_a_symptom_is_not_told_beside_its_reason() -> None:
    symptoms = [{"what": f"tensor t{place}", "reason": "the reference did not give it back"} for place in range(4)]
    rows = view_study({"skipped": fused(2), "localization": {"skipped": symptoms}})["skipped"]
    told = [(row["what"], row["reason"]) for row in rows]
    assert told == [
        ("tensor t0", "fused into layer Multiply_0"),
        ("tensor t1", "fused into layer Multiply_1"),
        # Of these two nothing else is known, so they stay.
        ("tensor t2", "the reference did not give it back"),
        ("tensor t3", "the reference did not give it back"),
    ]


# The command that writes the repair


def test_the_repair_command_is_given_the_same_samples() -> None:
    document = documents.detector(16)
    document["findings"][0]["repairs"][0]["command"] = ""
    asked = {
        "inputs": "my photos",
        "preprocess": "prepare.py:run",
        "stacked": True,
        "shapes": {"x": [1, 3, 8, 8]},
        "samples": 4,
        "seed": 3,
    }
    document["question"] = {"asked": asked}
    words = shlex.split(view_study(document)["repairs"][0]["command"])
    assert words[:2] == ["parityscope", "repair"]
    given = words[3:]
    assert given[: given.index("--low")] == [
        *("--inputs", "my photos", "--preprocess", "prepare.py:run", "--stacked", "--shapes", "x:1x3x8x8"),
        *("--samples", "4", "--seed", "3"),
    ]


# Answers that vary


def test_the_part_that_changes_from_run_to_run_is_told_with_the_spread() -> None:
    document = documents.detector(16)
    document["candidate"] |= {"spread": 0.1, "changing": 0.25}
    text = as_text.render_text(document, width=200)
    assert "two runs on one sample differ by 0.100 (relative L2). 25.0 % of the squared error differs from run" in text
    facts = dict(
        next(side for side in view_study(document)["running"]["sides"] if side["name"] == "candidate")["facts"]
    )
    assert facts["of the squared error, changing from run to run"] == "25.0 %"
    del document["candidate"]["changing"]  # a study of before it was measured
    assert "squared error differs" not in as_text.render_text(document, width=200)


# Numbers and suspects that hardly matter


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.99e-5, "< 0.01 %"), (1e-4, "0.0100 %"), (-1e-8, "about 0 %"), (0.0, "0 %"), (-0.02, "-2.00 %")],
)
def test_percentages_nobody_acts_on_are_not_spelt_out(value: float, text: str) -> None:
    assert format_percent(value) == text


def test_the_share_of_a_second_cause_is_told_however_small() -> None:
    document = wrong_channels()
    document["sequence"]["steps"][0]["share"] = 5.26e-5
    assert "0.00526 % of all of it" in as_text.render_text(document)


@pytest.mark.parametrize(
    ("value", "text"),
    [(950, "950 bytes"), (1023, "1,023 bytes"), (1536, "1.50 KiB"), (2**20, "1.00 MiB"), (None, "\N{EN DASH}")],
)
def test_small_files_have_small_sizes(value: float | None, text: str) -> None:
    assert format_bytes(value) == text


def test_suspects_that_hardly_reach_the_output_stand_behind_the_others() -> None:
    rows = [
        {"site": {"tensor": "a"}, "introduced": 0.2, "share": 0.99},
        {"site": {"tensor": "b"}, "introduced": 0.3, "share": -0.002},
        {"site": {"tensor": "c"}, "introduced": 0.3, "share": 1e-5},
        {"site": {"tensor": "d"}, "introduced": 1e-7, "share": None},
        {"site": {"tensor": "e"}, "introduced": 1e-2, "share": None},
        {"site": {"tensor": "f"}, "introduced": "NaN", "share": None},
    ]
    shown = view_study({"verdict": "beyond", "suspects": rows})["suspects"]
    assert [row["tensor"] for row in shown if not row["minor"]] == ["a", "b", "e", "f"]
    text = as_text.render_text({"verdict": "beyond", "suspects": rows})
    assert "and 2 more that hardly reach the output" in text


def test_a_failing_first_suspect_is_never_minor() -> None:
    rows = [{"site": {"tensor": "a"}, "introduced": 0.0, "share": 0.0}, {"site": {"tensor": "b"}, "introduced": 0.0}]
    assert [row["minor"] for row in view_study({"suspects": rows})["suspects"]] == [False, False]


def test_a_study_read_from_its_file_renders_as_before_it_was_written() -> None:
    document = documents.detector(16)
    stored = json.loads(json.dumps(document, sort_keys=True))
    assert [entry["format"] for entry in view_study(stored)["outputs"][0]["expected"]] == [
        "FP32",
        "TF32",
        "FP16",
        "BF16",
    ]


def test_the_words_beside_the_first_suspect_make_way_for_a_ring() -> None:
    def drawn(second: float) -> float:
        point = {"row": 0, "index": 0.0, "total": 1.0, "introduced": 1.0, "inherited": 0.1}
        suspects = [
            {"rank": 1, "index": 0.0, "introduced": 1.0, "name": "first", "text": "introduces 1"},
            {"rank": 2, "index": second, "introduced": 1.0, "name": "second", "text": "introduces 1"},
        ]
        points = [point, {**point, "row": 1, "index": 100.0}]
        text = draw_depth({"points": points, "floor": [None, None], "expected": [], "suspects": suspects})
        found = re.search(r'y="([\d.]+)"[^>]*>1 first', text)
        assert found is not None
        return float(found.group(1))

    # A hundred indices over 926 units: the tenth lies 93 units to the right, inside the 320 that the words take.
    assert drawn(90.0) - drawn(10.0) == 34


MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
normal (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)
<float[1] one = {1}, float[1] zero = {0}, float[1] variance = {90000000}> {
  y = BatchNormalization(x, one, zero, zero, variance)
}"""


@pytest.mark.parametrize("command", ["lint", "predict", "network"])
def test_commands_can_be_copied_from_the_other_pages_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "network":
        pytest.importorskip("tensorrt_rtx")
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    with pytest.raises(SystemExit) as ended:
        main([command, "m.onnx", "--format", "html", "--quiet"])
    assert ended.value.code in {0, 1}
    page = capsys.readouterr().out
    assert 'class="command"' in page
    assert page.count('document.querySelectorAll(".command")') == 1
