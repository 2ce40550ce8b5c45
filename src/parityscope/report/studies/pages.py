"""Each page of a folder of studies: what an index gave, worded, drawn and laid out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from parityscope.report._page import TEMPLATES, content_policy, embedded_json, laid_out, leading_markup, text_of
from parityscope.report._page import trusted_markup as trusted
from parityscope.report.studies.draw import draw_spark, draw_trend
from parityscope.report.studies.view import view_pages, view_row, view_series, view_versions
from parityscope.report.words import clean, shorten_name
from parityscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HERE = Path(__file__).parent
_WIDEST = 90
_VERDICTS = ("within", "beyond", "incomplete")
_Page = tuple[str, str]


def list_page(
    folder: str,
    rows: Sequence[Mapping[str, Any]],
    asked: Mapping[str, str],
    *,
    paging: tuple[int, int, int],
    live: Mapping[str, Any],
    before: Mapping[str, Any] | None,
) -> _Page:
    """The list: `paging` is (page, size, how many studies), `before` a study that another is to be compared with.

    `live` is what the page's script goes on from.
    """
    pages = view_pages(*paging)
    values = {
        "rows": [view_row(row) for row in rows],
        "asked": {name: asked.get(name, "") for name in ("words", "model", "target", "verdict")},
        "verdicts": _VERDICTS,
        "pages": pages,
        "newer": _address(asked, pages["before"], before),
        "older": _address(asked, pages["behind"], before),
        "first": view_row(before) if before else None,
        "data": embedded_json(live),
        "live": text_of(TEMPLATES / "live.js"),
    }
    return _lay_out("list.html.j2", folder, values)


def trends_page(folder: str, series: Sequence[Mapping[str, Any]], *, paging: tuple[int, int, int]) -> _Page:
    """Every model on every target, with its last errors as a line."""
    pages = view_pages(*paging)
    rows = [{**view_series(one), "drawn": trusted(draw_spark(one["points"]))} for one in series]
    for row in rows:
        row["address"] = f"/trend?{urlencode(row['asked'])}"
    values = {
        "rows": rows,
        "pages": pages,
        "newer": _address({}, pages["before"], None, "/trends"),
        "older": _address({}, pages["behind"], None, "/trends"),
    }
    return _lay_out("trends.html.j2", folder, values)


def series_page(folder: str, model: str, target: str, points: Sequence[Mapping[str, Any]]) -> _Page:
    """One model on one target: the chart, its versions, and its studies, each with the one before it."""
    rows = [view_row(point) for point in points]
    for row, earlier in zip(rows[1:], rows, strict=False):
        if row["readable"] and earlier["readable"]:
            row["against"] = f"/compare?{urlencode({'before': earlier['identity'], 'after': row['identity']})}"
    values = {
        "model": shorten_name(model, _WIDEST) or "?",
        "target": shorten_name(target, _WIDEST) or "?",
        "drawn": trusted(draw_trend(points)),
        "versions": view_versions(points),
        "rows": rows[::-1],
    }
    return _lay_out("series.html.j2", folder, values)


def upload_page(
    folder: str, form: str, declared: Sequence[str], largest: int, problem: Mapping[str, str] | None
) -> _Page:
    """The form for recordings; `form` is the token that it is sent back with, `problem` why the last one was not taken."""
    told = None if problem is None else {name: clean(problem[name]) for name in ("problem", "fix")}
    values = {"form": form, "declared": tuple(declared), "largest": f"{largest >> 20} MiB", "problem": told}
    return _lay_out("upload.html.j2", folder, values)


def refusal_page(status: int, why: str, fix: str = "") -> _Page:
    """Why something is not shown."""
    return _lay_out("refusal.html.j2", "", {"status": status, "why": clean(why), "fix": clean(fix)})


def study_page(identity: str, draw: Callable[[], str]) -> _Page:
    """A study's own report with the way back on top."""
    return with_way_back(draw, identity=identity)


def with_way_back(draw: Callable[[], str], *, identity: str = "") -> _Page:
    """A report that `draw` lays out, with links to the list on top, and of a study to what can be done with it."""
    links = [("/", "All studies"), ("/trends", "Trends")]
    if identity:
        links += [(f"/?before={identity}", "Compare with another"), (f"/study/{identity}/study.json", "study.json")]
    items = "".join(f'<a href="{address}">{told}</a>' for address, told in links)
    with leading_markup(trusted(f'<nav class="wide" aria-label="Studies">{items}</nav>')):
        page = draw()
    return page, content_policy(page)


def _address(
    asked: Mapping[str, str], page: int | None, before: Mapping[str, Any] | None, place: str = "/"
) -> str | None:
    """Where another page of a list is; None where there is none."""
    if page is None:
        return None
    kept = {name: value for name, value in asked.items() if value and name in {"words", "model", "target", "verdict"}}
    if before:
        kept["before"] = before["identity"]
    return f"{place}?{urlencode({**kept, 'page': page})}"


def _lay_out(template: str, folder: str, values: Mapping[str, Any]) -> _Page:
    style = text_of(TEMPLATES / "style.css", _HERE / "studies.css")
    shared: dict[str, Any] = {
        "folder": shorten_name(folder, _WIDEST),
        "style": style,
        "tool": f"parityscope {__version__}",
    }
    here = template.partition(".")[0]
    shared["current"] = {
        name: trusted(' aria-current="page"' if name == here else "") for name in ("list", "trends", "upload")
    }
    page = laid_out(_HERE / template, {**shared, **values})
    return page, content_policy(page)
