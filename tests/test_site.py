"""The documents as a site: no warning, nothing fetched from elsewhere, a page of each code, Chinese twins that are whole."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import onnxruntime
import pytest

from pages import ROOT
from parityscope.catalogue import whole_catalogue
from parityscope.checks import known_checks
from parityscope.report.words import format_figure
from parityscope.testing.check_contract import findings_of, prepare_example
from proving.browser import AXE, BROWSER, find_violations, open_address, open_browser, open_window, set_window

if TYPE_CHECKING:
    from pathlib import Path

TRANSLATED = sorted((ROOT / "docs").glob("*.zh.md"))
CODE = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, examined: Path) -> Path:
    pytest.importorskip("mkdocs_static_i18n", reason="the group `site` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "EXAMINED_EXAMPLES": str(examined)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_code_has_a_page_that_the_search_finds(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text("utf-8")
    for code, entry in whole_catalogue().items():
        page = (site / "codes" / f"{code}.html").read_text("utf-8")
        assert f"{code} {entry.title.split('`')[0]}" in html.unescape(page), code
        assert 'lang="en"' in page
        assert f"codes/{code}.html" in index, code


@pytest.mark.parametrize("language", ["", "zh"])
def test_each_code_has_a_picture_of_its_own_example(site: Path, language: str) -> None:
    for code in whole_catalogue():
        page = (site / language / "codes" / f"{code}.html").read_text("utf-8")
        (figure,) = re.findall(r'<figure class="example".*?</figure>', page, re.DOTALL)
        drawn = ET.fromstring(figure)  # noqa: S314 a page that was made here
        pictures = [one for one in drawn if one.tag.endswith("svg")]
        assert pictures, code
        for one in pictures:
            named = one.attrib["aria-labelledby"].split()
            texts = {each.attrib.get("id"): "".join(each.itertext()) for each in one.iter()}
            assert one.attrib["role"] == "img"
            assert all(texts[name].strip() for name in named), code
        assert "".join(drawn.find("figcaption").itertext()).strip(), code


@pytest.mark.parametrize("code", ["RNG003", "PRE001", "BND001", "BND003", "FUS014"])
def test_the_picture_of_a_check_shows_what_its_example_computes(
    site: Path, code: str, tmp_path: Path, examined: Path
) -> None:
    """The finding's own sentence, its place, and the values that the model gives when its example is run again."""
    example = known_checks()[code].holds[0]
    made = examined / code / "holds-0" / "study.json"
    findings = (
        json.loads(made.read_text("utf-8"))["findings"] if made.is_file() else findings_of(example, tmp_path / "run")
    )
    found = next(one for one in findings if one["code"] == code)
    figure = figure_of(site, code)
    assert found["claim"] in figure
    site_node = (found["site"] or {}).get("op_type")
    marked = re.findall(r'<g class="node[^"]* suspect"><title>[^<]*</title>.*?</g>', figure)
    assert not site_node or any(site_node.lower() in one.lower() for one in marked)
    asked = prepare_example(example, tmp_path / "again")
    (sample, *_), name = list(asked.case.inputs), asked.case.model.outputs[0].name
    given = onnxruntime.InferenceSession(asked.case.model.path).run([name], dict(sample.arrays))[0]
    row = re.search(rf"output {name}: reference ([^;]+);", figure)
    assert row is not None
    assert set(row[1].split(", ")) <= {format_figure(float(one)) for one in given.ravel()}


def test_the_picture_of_a_constant_shows_what_the_format_makes_of_it(site: Path) -> None:
    figure = figure_of(site, "RNG103")
    assert re.search(r"epsilon: as stored 1e-12; in F16 0\.", figure) or "as stored 1.00e-12; in F16 0." in figure


def test_the_picture_of_a_log_marks_the_lines_that_decide(site: Path) -> None:
    figure = figure_of(site, "RNG201")
    assert figure.count('class="line deciding"') == 2
    assert "bn.weight, bn.bias" in figure
    failed = figure_of(site, "RUN202")
    assert failed.count('class="line deciding"') < failed.count('class="line') == 3


def figure_of(site: Path, code: str) -> str:
    page = (site / "codes" / f"{code}.html").read_text("utf-8")
    return html.unescape(re.findall(r'<figure class="example".*?</figure>', page, re.DOTALL)[0])


@pytest.mark.skipif(
    AXE is None or BROWSER is None, reason="no axe-core or no Chromium: make develop, apt-get install chromium"
)
@pytest.mark.parametrize("place", ["codes/RNG003.html", "zh/door-nan.html"])
def test_axe_finds_nothing_on_pages_of_the_site(place: str, site: Path) -> None:
    with open_browser() as browser, open_window(browser) as page:
        for dark in (False, True):
            set_window(page, width=1280, height=800, dark=dark)
            open_address(page, (site / place).as_uri())
            assert find_violations(page) == []


def test_the_functions_of_the_package_are_described(site: Path) -> None:
    page = (site / "api.html").read_text("utf-8")
    for name in ("diagnose", "compare", "assert_parity", "load_study"):
        assert f'id="parityscope.{name}"' in page, name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["'](?:https?:)?//[^"']+""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 150
    assert [(page.name, one) for page in pages for one in fetched.findall(page.read_text("utf-8"))] == []


def test_every_page_of_the_guide_and_every_story_has_its_translation() -> None:
    shelf = re.compile(r"^  - (?:Start here|Stories|Guide):\n((?: {6}- .*\n)+)", re.MULTILINE)
    pages = re.findall(r"([\w-]+)\.md$", "".join(shelf.findall((ROOT / "mkdocs.yml").read_text("utf-8"))), re.MULTILINE)
    assert len(pages) > 30
    assert [page for page in pages if not (ROOT / "docs" / f"{page}.zh.md").is_file()] == []


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_translation_shows_all_code_of_its_page(page: Path, site: Path) -> None:
    text = page.read_text("utf-8")
    english = (ROOT / "docs" / page.name.replace(".zh.md", ".md")).read_text("utf-8")
    placed = [int(one) for one in re.findall(r"^<!-- block (\d+) -->$", text, re.MULTILINE)]
    if page.name != "index.zh.md":
        assert placed == list(range(1, len(CODE.findall(english)) + 1))
    assert CODE.findall(text) == []
    built = (site / "zh" / page.name.replace(".zh.md", ".html")).read_text("utf-8")
    assert 'lang="zh"' in built
    assert "<!-- block" not in built
    assert built.count("<pre") == len(placed)
