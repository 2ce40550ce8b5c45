"""The documents as a site: no warning, nothing fetched from elsewhere, a page of each code, Chinese twins that are whole."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pages import ROOT
from parityscope.catalogue import whole_catalogue

if TYPE_CHECKING:
    from pathlib import Path

TRANSLATED = sorted((ROOT / "docs").glob("*.zh.md"))
CODE = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs_static_i18n", reason="the group `site` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
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
