"""The renderers: known answers, laws of the wording, golden files, and the page in a real browser.

Golden files are rewritten by `UPDATE_GOLDEN=1 pytest tests/test_report.py`; the differences are then reviewed.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import documents
from parityscope.errors import ParityError
from parityscope.report import (
    Renderer,
    as_html,
    as_json,
    as_node_data,
    as_node_data_total,
    as_text,
    known_renderers,
    renderer_named,
    svg,
)
from parityscope.report.offered import view_repairs
from parityscope.report.view import view_study
from parityscope.report.words import (
    as_number,
    clean,
    format_count,
    format_figure,
    format_percent,
    format_ratio,
    format_shape,
    shorten_name,
)

GOLDEN = Path(__file__).with_name("golden")
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
EXAMPLES = {
    # Forty tensors: the page of all 306 says nothing more and is three times as long to review.
    "detector": lambda: documents.detector(40),
    "within": documents.within,
    "incomplete": documents.incomplete,
}
# Entries with every optional key left out.
SPARSE: dict[str, Any] = {
    "schema": "parityscope/1",
    "verdict": "beyond",
    "outputs": [{"name": "y"}],
    "tensors": [{"name": "y"}],
    "suspects": [{"site": {}}, {}],
    "findings": [{"code": "X1", "repairs": [{"trial": {}}], "evidence": [{}]}],
    "refuted": [{}],
    "skipped": [{}],
    "localization": {},
}
# What a page holds of files of ours, word for word: the Chinese, which is the catalogue's, and our style sheets and programs.
TONGUE = re.compile(r'<script type="application/json" id="language-data">.*?</script>\n')
OURS = re.compile(r"(?<=<style>\n).*?(?=</style>)|(?<=<script>\n).*?(?=</script>)", re.DOTALL)
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def strict(text: str) -> Any:
    """Parses JSON and refuses the NaN and Infinity that Python writes and reads by default."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


# Wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.74, "0.740"),
        (20.9, "20.9"),
        (0.0017, "0.00170"),
        (0.00099949, "9.99e-4"),  # below 10^-3 an exponent is written
        (0.0009999, "0.00100"),  # rounds to three digits first, and then is 10^-3
        (-1234.0, "-1,230"),
        (999499.0, "999,000"),
        (1e6, "1.00e6"),
        (0, "0"),
        (-0.0, "0"),
        ("NaN", "NaN"),
        ("Infinity", "∞"),
        ("-Infinity", "-∞"),
        (None, "\N{EN DASH}"),
    ],
)
def test_figures_have_three_significant_digits(value: object, text: str) -> None:
    assert format_figure(value) == text


@given(FINITE.filter(lambda x: abs(x) > 1e-300))
def test_a_figure_is_the_number_to_half_a_unit_of_its_third_digit(x: float) -> None:
    # Three significant digits: at most half a unit of the third, which is at most 1/2 in 100 of the number.
    assert math.isclose(float(format_figure(x).replace(",", "")), x, rel_tol=0.00501)


def test_a_word_that_stands_for_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'nan' is not a number"):
        as_number("nan")
    with pytest.raises(TypeError):
        as_number([1.0])


def test_quantities() -> None:
    assert format_percent(0.74) == "74.0 %"
    assert format_percent("NaN") == "NaN"
    assert format_count(97903600.0) == "97,903,600"
    assert format_shape([1, "N", None]) == "1\N{MULTIPLICATION SIGN}N\N{MULTIPLICATION SIGN}?"
    assert format_shape([]) == "scalar"
    assert format_ratio(0.74, 0.0046) == "161 times smaller"  # 0.74 / 0.0046 = 160.87
    assert format_ratio(0.1, 0.2) == "2.00 times larger"
    assert format_ratio("Infinity", 1.0) == format_ratio(0.0, 1.0) == ""


@given(st.text())
def test_a_clean_name_is_printable_and_on_one_line(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(), st.integers(5, 40))
def test_a_short_name_fits_and_keeps_both_ends(text: str, limit: int) -> None:
    cut = shorten_name(text, limit)
    assert len(cut) <= max(limit, 0)
    assert cut == clean(text) or (clean(text).startswith(cut[0]) and clean(text).endswith(cut[-1]))


# Drawing


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_labels_spread_apart(positions: list[float]) -> None:
    # Six labels 14 apart need 70 of the 100 there are, so that there is always room.
    moved = sorted(svg.spread_apart(positions, 14, 0, 100))
    assert moved[0] >= -1e-9
    assert moved[-1] <= 100 + 1e-9
    assert all(after - before >= 14 - 1e-9 for before, after in pairwise(moved))


def test_a_line_breaks_where_a_point_is_missing() -> None:
    assert svg.line_path([(0.0, 1.0), (2.0, 3.0), None, (4.0, 5.55)]) == "M0,1L2,3M4,5.5"


def test_attributes_and_text_of_drawings_are_escaped() -> None:
    assert svg.svg_element("a", {"b": '"<'}) == '<a b="&quot;&lt;"/>'
    assert "<b>" not in svg.svg_text(0, 0, documents.HOSTILE)


def test_ticks_are_round_and_inside() -> None:
    assert svg.list_ticks(0, 600, 12) == [50.0 * i for i in range(13)]
    assert svg.list_decades(-8, 2) == [-8, -6, -4, -2, 0, 2]


# The view model


def test_the_view_leads_with_verdict_cause_and_a_tried_repair() -> None:
    model = view_study(documents.detector())
    assert model["verdict"]["label"] == "Beyond the budget"
    (cause,) = model["causes"]
    assert cause["code"] == "RNG001"
    assert ("value", "97,903,600") in cause["details"]
    assert ("parameter", "batch_norm2d_0.w_2") in cause["details"]
    assert model["suspects"][0]["node"] == "p2o.BatchNormalization.1"
    assert (model["suspects"][0]["introduced"], model["suspects"][0]["inherited"]) == ("20.9", "0.00170")
    trial = model["repairs"][0]["trial"]
    assert (trial["before"], trial["after"], trial["verdict"]) == ("74.0 %", "0.460 %", "within")
    assert [item["outcome"] for item in model["experiments"]] == ["supports", "supports", "refutes"]


def test_a_repair_that_was_tried_and_failed_comes_after_untried_ones() -> None:
    document = documents.detector(16)
    repairs = document["findings"][0]["repairs"]
    repairs[0]["trial"]["verdict"] = "beyond"
    assert [repair["repair"] for repair in view_study(document)["repairs"]] == [
        repairs[1]["repair"],
        repairs[0]["repair"],
    ]


def test_the_same_advice_of_several_findings_is_given_once() -> None:
    offered = {"repair": "reduce", "text": "report it", "command": "", "trial": None}
    document = {"findings": [{"code": "FUS003", "repairs": [offered]}] * 3 + [{"code": "RNG004", "repairs": [offered]}]}
    texts = [(repair["code"], repair["text"]) for repair in view_repairs(document)]
    assert texts == [("FUS003, RNG004", "report it (4 findings)")]


def test_advice_that_was_tried_with_one_result_is_given_once() -> None:
    document = documents.detector(16)
    document["findings"].append({**document["findings"][0], "code": "RNG002"})
    once = view_study(documents.detector(16))["repairs"]
    twice = view_study(document)["repairs"]
    assert [repair["repair"] for repair in twice] == [repair["repair"] for repair in once]
    assert twice[0]["code"] == "RNG001, RNG002"


def test_a_weak_claim_gives_no_advice_beside_a_proved_cause() -> None:
    def finding(code: str, role: str, confidence: float) -> dict[str, Any]:
        repairs = [{"repair": code, "text": f"do {code}", "command": "", "trial": None}]
        return {"code": code, "role": role, "confidence": confidence, "repairs": repairs}

    def advising(*findings: dict[str, Any]) -> list[str]:
        return [repair["code"] for repair in view_study({"findings": list(findings)})["repairs"]]

    weak, likely = finding("FUS003", "contributing", 0.06), finding("FUS002", "contributing", 0.7)
    assert advising(finding("BND001", "cause", 0.99), weak, likely) == ["BND001", "FUS002"]
    assert advising(finding("ACC001", "cause", 0.6), weak) == ["ACC001", "FUS003"]
    assert advising(weak, likely) == ["FUS003", "FUS002"]


def test_details_are_whole_facts() -> None:
    document = documents.detector(16)
    document["findings"][0]["details"] = {"index": [0, 3, 11], "ratio": 0.12345, "all": list(range(14)), "new": True}
    assert view_study(document)["causes"][0]["details"] == [
        ("all", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … 2 more]"),
        ("index", "[0, 3, 11]"),
        ("new", "yes"),
        ("ratio", "0.123"),
    ]


def test_without_a_cause_the_view_says_so() -> None:
    assert "no cause was looked for" in view_study(documents.within())["no_cause"]
    document = documents.detector(16)
    document["findings"] = []
    told = view_study(document)["no_cause"]
    assert (
        "the smallest region that holds the error is p2o.BatchNormalization.1 (BatchNormalization), which makes 99.8 %"
        in told
    )
    assert (
        "Ruled out by experiment: The epsilon of the normalisation becomes zero in FP16 (would have shown: the error"
        in told
    )
    assert "Next: reduce it to this layer with its input" in told
    first = document["suspects"][0]
    first["explanation"] = {"nearest": [{"words": "index 2 of axis 1 multiplied by 0.26", "share": 0.31}]}
    first["region"] = ["one", "two", "three"]
    told = view_study(document)["no_cause"]
    assert "one of 3 nodes, from one to three" in told
    assert "which is no cause: 31.0 % of the error: index 2 of axis 1 multiplied by 0.26" in told
    assert "record what two gives: whether it is right halves the region" in told
    document["suspects"] = []
    assert "any of 672 nodes can hold the error" in view_study(document)["no_cause"]


def test_a_comparison_names_the_command_that_asks_why() -> None:
    document = documents.detector(16)
    document["findings"] = []
    document["question"] = {"asked": {"depth": "outputs"}}
    asked = "page.onnx --candidate 'openvino:f16' --ladder --inputs page.npz --study 'a study' -o s.html"
    document["command"] = f"parityscope compare {asked}"
    view = view_study(document)
    assert "this command compares outputs alone and makes no experiments" in view["no_cause"]
    commands = [row["command"] for row in view["first_screen"]["rows"]]
    assert "parityscope diagnose page.onnx --candidate 'openvino:f16' --inputs page.npz" in commands


def test_nonfinite_values_are_said_and_sort_as_the_worst() -> None:
    row = view_study(documents.incomplete())["tensors"][1]
    assert [cell["text"] for cell in row["errors"]] == ["not finite"] * 3
    assert [cell["key"] for cell in row["errors"]] == ["Infinity"] * 3
    assert row["nonfinite"][0] == "12 candidate"
    assert view_study(documents.incomplete())["tiles"][0]["value"] == "not finite"


def test_what_was_asked_for_leads_what_was_not_examined() -> None:
    document = documents.detector(16)
    document["skipped"].append({"what": "sample 3", "reason": "NaN", "fix": "", "asked": True})
    document["localization"]["skipped"] = [document["skipped"][0]]
    shown = view_study(document)["skipped"]
    assert shown[0]["what"] == "sample 3"
    assert len(shown) == 3  # what is said twice is shown once


def test_several_samples_are_shown_with_their_spread() -> None:
    document = documents.within()
    document["outputs"][0] |= {"samples": 4, "per_sample": [4e-7, 1e-7, 2e-7, "NaN"], "worst_sample": 3}
    facts = dict(view_study(document)["outputs"][0]["facts"])
    # Median of four: the mean of the two in the middle, (2e-7 + 4e-7) / 2.
    assert facts["samples"] == "4: relative L2 from 1.00e-7 over 3.00e-7 (median) to not finite, worst is sample 3"


# Every renderer


def test_the_renderers_are_found_and_named() -> None:
    assert {"html", "json", "node-data", "node-data-total", "text"} <= set(known_renderers())
    assert renderer_named("json").suffix == ".json"
    with pytest.raises(ParityError, match="no report format 'pdf'"):
        renderer_named("pdf")


@pytest.mark.parametrize("name", sorted(known_renderers()))
def test_every_renderer_writes_every_document_and_leaves_it_alone(name: str) -> None:
    found = known_renderers()[name]
    assert isinstance(found, Renderer)
    for document in (
        documents.detector(16),
        documents.within(),
        documents.incomplete(),
        {},
        SPARSE,
    ):
        before = copy.deepcopy(document)
        text = found.render(document)
        assert text.endswith("\n")
        assert document == before
        assert found.render(document) == text


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("suffix", [".txt", ".json", ".html"])
def test_golden(name: str, suffix: str) -> None:
    render = {".txt": as_text.render_text, ".json": as_json.render_json, ".html": as_html.render_html}[suffix]
    text = OURS.sub("", TONGUE.sub("", render(EXAMPLES[name]())))
    path = GOLDEN / f"{name}{suffix}"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == text, "rewrite with UPDATE_GOLDEN=1 and review the difference"


# JSON


def test_json_is_strict_sorted_and_has_the_documented_keys() -> None:
    document = documents.detector(16)
    parsed = strict(as_json.render_json(document))
    plots = {"tensors", "plots", "graph_views", "wiring", "localization", "ladder", "calls"}
    assert list(parsed) == ["schema", *sorted(document.keys() - plots - {"schema"})]
    assert parsed["suspects"][0]["site"]["node"] == "p2o.BatchNormalization.1"
    assert parsed["suspects"][0]["introduced"] > 100 * parsed["suspects"][0]["inherited"]
    assert list(parsed["findings"][0]) == sorted(parsed["findings"][0])
    assert "executed_layers" not in parsed["candidate"]


def test_nonfinite_floats_become_their_strings() -> None:
    document = {"outputs": [{"rel_l2": math.inf, "max_abs": -math.inf, "cosine": math.nan}], "unexplained": None}
    assert strict(as_json.render_json(document))["outputs"] == [
        {"cosine": "NaN", "max_abs": "-Infinity", "rel_l2": "Infinity"}
    ]


# Model Explorer


def test_overlays_name_nodes_as_the_onnx_adapter_does() -> None:
    document = documents.detector(16)
    introduced, total = (
        strict(as_node_data.render_node_data(document)),
        strict(as_node_data_total.render_node_data_total(document)),
    )
    assert introduced["results"]["p2o.BatchNormalization.1"] == {"value": 20.9}
    assert total["results"]["[value] sigmoid_0.tmp_0"]["value"] == pytest.approx(0.7399, rel=1e-3)
    values = [item["value"] for item in introduced["thresholds"]]
    assert values == sorted(values)
    assert "introduced" in introduced["name"]


def test_an_overlay_shows_the_worst_output_of_a_node_and_says_what_is_not_finite() -> None:
    rows = [
        {"name": "a", "node": "n", "rel_l2": 0.1},
        {"name": "b", "node": "n", "rel_l2": 0.3},
        {"name": "c", "node": "m", "rel_l2": "NaN"},
        {"name": "d", "node": "", "rel_l2": 1.0},
    ]
    parsed = strict(as_node_data.render_node_data({"tensors": rows}))
    assert parsed["results"]["n"] == {"value": 0.3}
    assert parsed["results"]["m"]["value"] == "NaN"
    assert set(parsed["results"]) == {"n", "m"}
    assert "nothing was localized" in parsed["name"]


# Text


@pytest.mark.parametrize("width", [44, 80, 160])
def test_text_keeps_to_the_width_but_never_wraps_a_command(width: int) -> None:
    document = documents.detector(16)
    commands = {document["command"], *document["findings"][0]["repairs"][0]["command"].splitlines()}
    lines = as_text.render_text(document, width=width).splitlines()
    assert [line for line in lines if len(line) > width and line.strip() not in commands] == []
    assert commands <= {line.strip() for line in lines}


def test_text_has_colour_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in as_text.render_text(documents.detector(16))
    assert "\x1b[1;31m" in as_text.render_text(documents.detector(16), color=True)


def test_no_name_reaches_the_terminal_as_an_escape_code() -> None:
    document = documents.incomplete()
    document["headline"] = documents.HOSTILE_ESCAPE
    document["command"] = documents.HOSTILE_ESCAPE
    document["findings"][0]["repairs"][0]["command"] = documents.HOSTILE_ESCAPE
    text = as_text.render_text(document)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    assert r"red \x1b[31mname" in text


# HTML


class Page(HTMLParser):
    """Elements with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.ids: list[str] = []
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "script":
            self._script = str(found.get("id") or "code")
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] += data


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_page_holds_everything_and_asks_the_network_for_nothing(name: str) -> None:
    text = as_html.render_html(EXAMPLES[name]())
    page = Page(text)
    links = [
        str(value)
        for _, attributes in page.elements
        for key, value in attributes.items()
        if key in {"src", "href", "srcset", "action", "data", "xlink:href", "poster"}
    ]
    assert [link for link in links if not link.startswith(("#", "data:,"))] == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(page.ids)


def test_hostile_names_stay_text() -> None:
    page = Page(as_html.render_html(documents.incomplete()))
    assert sum(tag == "script" for tag, _ in page.elements) == 4
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert any(
        attributes.get("title", "") == f"{documents.HOSTILE} from node of {documents.HOSTILE}"
        for _, attributes in page.elements
    )
    assert strict(page.scripts["study-data"])["model"]["name"] == documents.HOSTILE
    assert "<" not in page.scripts["study-data"]


def test_a_node_more_costs_a_large_page_little() -> None:
    sizes, drawn = [], []
    for nodes in (1000, 4000):
        text = as_html.render_html(documents.large(nodes))
        sizes.append(len(text.encode()))
        drawn.append(sum(map(len, re.findall(r"(?s)<svg.*?</svg>", text))))
    assert (
        sizes[1] - sizes[0]
    ) / 3000 < 200  # 20,000 nodes: below 6 MB by far, though each name alone has 60 characters
    assert drawn[1] < 4 * drawn[0]
    assert drawn[1] < 500_000


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99)), max_size=80))
def test_a_line_and_dots_that_are_thinned_keep_their_outline(points: list[tuple[int, int]]) -> None:
    held = sorted((x + 0.25 * (place % 4), float(y)) for place, (x, y) in enumerate(points))
    for thin, most in ((svg.thin_line, 4), (svg.thin_dots, 6)):
        found = [point for point in thin(held) if point is not None]
        assert set(found) <= set(held)
        for column in range(13):
            before, after = ([y for x, y in one if int(x) == column] for one in (held, found))
            assert len(after) == min(len(before), len(after)) <= most
            assert (min(before, default=0), max(before, default=0)) == (min(after, default=0), max(after, default=0))


def test_a_line_stays_broken_where_it_is() -> None:
    line = [(0.1, 1.0), None, (0.2, 2.0), None, *((1.0 + i / 50, float(i)) for i in range(40))]
    assert svg.thin_line(line) == [(0.1, 1.0), None, (0.2, 2.0), None, (1.0, 0.0), (1.78, 39.0)]


def test_drawings_are_named_for_screen_readers() -> None:
    page = Page(as_html.render_html(documents.detector(16)))
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(drawings) == 8  # depth; values, errors and channels of two tensors; one graph
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set(str(drawing["aria-labelledby"]).split()) <= set(page.ids)
