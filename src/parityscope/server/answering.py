"""The pages and what they are asked: addresses -> the index, a study's folder, a comparison.

A study is asked for by its identity alone, and only what the index holds is opened: no part of an address becomes a
part of a path.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.report.studies import (
    list_page,
    refusal_page,
    series_page,
    study_page,
    trends_page,
    upload_page,
    with_way_back,
)
from parityscope.running_note import read_running_note
from parityscope.server.finding import mark_of, open_document
from parityscope.server.guarding import guard_app
from parityscope.server.index import list_series, list_studies, points_of_series, study_by_identity
from parityscope.server.uploading import DECLARED, SentFile, start_comparison

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.server.guarding import App, Guard
    from parityscope.server.index import StudyIndex
    from parityscope.server.uploading import Comparisons

_PAGE = 50  # studies of a list; chosen
_SERIES = 25  # trends of a page; chosen
_SPARK = 40  # studies of a small line
_TREND = 400  # studies of a chart
_MOST_DOING = 30  # studies in the making that are told of
_MOST_REQUESTS = 200  # at once; chosen
_PARTS = ("model", "candidate", "reference", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served: the folder, its index, who may ask, and the comparisons of what was uploaded."""

    root: Path
    index: StudyIndex
    guard: Guard
    comparisons: Comparisons


def make_server(served: Served) -> Any:
    """Uvicorn's server of the application, behind its guard."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            guard_app(_make_app(served), served.guard),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http="h11",
            limit_concurrency=_MOST_REQUESTS,
            timeout_graceful_shutdown=5,
        )
    )


def _make_app(served: Served) -> App:
    from starlette.applications import Starlette
    from starlette.routing import Route

    places: tuple[tuple[str, Any, list[str]], ...] = (
        ("/", _show_list, ["GET"]),
        ("/doing", _tell_doing, ["GET"]),
        ("/trends", _show_trends, ["GET"]),
        ("/trend", _show_series, ["GET"]),
        ("/study/{identity}", _show_study, ["GET"]),
        ("/study/{identity}/study.json", _send_document, ["GET"]),
        ("/compare", _show_changes, ["GET"]),
        ("/upload", _show_upload, ["GET"]),
        ("/upload", _take_upload, ["POST"]),
    )
    routes = [Route(place, functools.partial(act, served), methods=methods) for place, act, methods in places]
    handlers: dict[Any, Any] = {404: _tell_absent, ParityError: _tell_error, Exception: _tell_bug}
    app: App = Starlette(routes=routes, exception_handlers=handlers)
    return app


def make_ready() -> None:
    """Loads what the first page needs, and, while that is looked at, what a study needs."""
    refusal_page(404, "")
    threading.Thread(target=importlib.import_module, args=("parityscope.study",), daemon=True).start()


def _show_list(served: Served, request: Any) -> Any:
    asked = _asked_of(request)
    page = _page_of(asked)
    before = _known_study(served, asked["before"]) if asked.get("before") else None
    served.index.ask_refresh()
    rows, whole = list_studies(served.index, asked, first=(page - 1) * _PAGE, most=_PAGE)
    live, paging = _doing_now(served), (page, _PAGE, whole)
    return _answer(list_page(str(served.root), rows, asked, paging=paging, live=live, before=before))


def _tell_doing(served: Served, request: Any) -> Any:
    from starlette.responses import Response

    del request
    served.index.ask_refresh()
    return Response(json.dumps(_doing_now(served)), media_type="application/json")


def _show_trends(served: Served, request: Any) -> Any:
    page = _page_of(_asked_of(request))
    served.index.ask_refresh()
    series, whole = list_series(served.index, first=(page - 1) * _SERIES, most=_SERIES, points=_SPARK)
    return _answer(trends_page(str(served.root), series, paging=(page, _SERIES, whole)))


def _show_series(served: Served, request: Any) -> Any:
    asked = _asked_of(request)
    model, target = asked.get("model", ""), asked.get("target", "")
    points = points_of_series(served.index, model, target, most=_TREND)
    if not points:
        raise ParityError("there is no study of this model on this target", fix="go back to the trends")
    return _answer(series_page(str(served.root), model, target, points))


def _show_study(served: Served, request: Any) -> Any:
    row = _known_study(served, request.path_params["identity"])
    folder, mark = _folder_of(served, row)
    return _answer(study_page(row["identity"], lambda: _drawn_study(str(folder), mark)))


def _send_document(served: Served, request: Any) -> Any:
    from starlette.responses import FileResponse

    row = _known_study(served, request.path_params["identity"])
    # A file to keep, and nothing that a browser opens as a page.
    headers = {"Content-Disposition": 'attachment; filename="study.json"'}
    folder, _ = _folder_of(served, row)
    return FileResponse(folder / "study.json", media_type="application/json", headers=headers)


def _show_changes(served: Served, request: Any) -> Any:
    from parityscope.report.diff import FORMS, changes_document
    from parityscope.study import as_written, list_errors, load_study
    from parityscope.study.changes.comparing import compare_studies

    asked = _asked_of(request)
    if not (asked.get("before") and asked.get("after")):
        raise ParityError("two studies are compared", fix="choose an earlier and a later one in the list")
    folders = [_folder_of(served, _known_study(served, asked[side]))[0] for side in ("before", "after")]
    studies = [load_study(folder) for folder in folders]
    with as_written():
        first, second = (list_errors(one.document, one.folder) for one in studies)
        found = compare_studies(first, second)
        places = (str(folders[0]), str(folders[1]))
        held = changes_document(found, first, second, places=places)
        return _answer(with_way_back(lambda: FORMS.render(held, "html")))


def _show_upload(served: Served, request: Any) -> Any:
    return _upload_form(served, request, None)


async def _take_upload(served: Served, request: Any) -> Any:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import RedirectResponse

    async with request.form(max_files=len(_PARTS), max_fields=len(_PARTS), max_part_size=1 << 16) as form:
        sent = {
            name: SentFile(name=part.filename, content=part.file)
            for name in _PARTS
            if getattr(part := form.get(name), "filename", "")
        }
        declared = form.get("declared", "f32")
        try:
            await run_in_threadpool(start_comparison, served.comparisons, sent, str(declared))
        except ParityError as error:
            return _upload_form(served, request, error)
    return RedirectResponse("/", status_code=303)


def _upload_form(served: Served, request: Any, error: ParityError | None) -> Any:
    form = served.guard.form_token(request.scope["session"])
    problem = None if error is None else {"problem": error.problem, "fix": error.fix}
    page = upload_page(str(served.root), form, DECLARED, served.guard.largest, problem)
    return _answer(page, 200 if error is None else 422)


def _doing_now(served: Served) -> dict[str, Any]:
    """What the page's script shows: studies in the making, comparisons that failed, and how far the folder was read."""
    index = served.index
    doing = [
        {"name": one.name, "state": "failed", "began": "", "line": one.told, "told": []}
        for one in served.comparisons.held
        if one.ended and one.told
    ]
    for place in index.running[:_MOST_DOING]:
        note = read_running_note(Path(os.fsdecode(os.path.join(index.root, place))))  # noqa: PTH118 - of bytes
        if note is not None:
            state = "running" if note.alive else "interrupted"
            name = _study_of_scratch(os.fsdecode(place))
            doing.append(
                {"name": name, "state": state, "began": note.began, "line": note.line, "told": list(note.told)}
            )
    return {"doing": doing, "read": index.read, "wanted": index.wanted, "newest": index.changes}


def _study_of_scratch(place: str) -> str:
    """The study that a scratch folder becomes."""
    folder, slash, name = place.rpartition("/")
    shown = f"{folder}{slash}{name.removeprefix('.').removesuffix('.part')}"
    return shown.encode("utf-8", "backslashreplace").decode()


@functools.lru_cache(maxsize=16)
def _drawn_study(folder: str, mark: str) -> str:
    """The report of a study, drawn anew from its document: a page that lies in the folder may be anybody's."""
    del mark  # another one is another document
    from parityscope.report.as_html import render_html
    from parityscope.report.kinds import KINDS, forms_of
    from parityscope.study import as_written, load_study, name_files_from_here

    document = dict(load_study(Path(folder), kinds=("", *KINDS)).document)
    with as_written(Path(folder)):
        if forms := forms_of(document):
            return forms.as_html(document)
        return render_html(name_files_from_here(document, Path(folder)))


def _known_study(served: Served, identity: str) -> dict[str, Any]:
    row = study_by_identity(served.index, identity)
    if row is None:
        raise ParityError("there is no such study here", fix="go back to the list: it may have been removed")
    return row


def _folder_of(served: Served, row: Mapping[str, Any]) -> tuple[Path, str]:
    """The folder of a study, which is still there and below the root, and the mark of its document as it is now."""
    try:
        document = open_document(served.index.root, row["place"])
    except OSError as error:
        raise ParityError("the folder of this study has gone", fix="go back to the list") from error
    try:
        mark = mark_of(os.fstat(document))
    finally:
        os.close(document)
    return Path(os.fsdecode(os.path.join(served.index.root, row["place"]))), mark  # noqa: PTH118 - of bytes


def _asked_of(request: Any) -> dict[str, str]:
    return {name: value[:1000] for name, value in request.query_params.items()}


def _page_of(asked: Mapping[str, str]) -> int:
    text = asked.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


def _answer(page: tuple[str, str], status: int = 200) -> Any:
    from starlette.responses import HTMLResponse

    text, policy = page
    body = text.encode("utf-8", "backslashreplace")
    return HTMLResponse(body, status_code=status, headers={"Content-Security-Policy": policy})


def _tell_absent(request: Any, error: Any) -> Any:
    del request, error
    return _answer(refusal_page(404, "there is nothing at this address"), 404)


def _tell_error(request: Any, error: ParityError) -> Any:
    del request
    return _answer(refusal_page(422, error.problem, error.fix), 422)


def _tell_bug(request: Any, error: Exception) -> Any:
    del request, error
    return _answer(refusal_page(500, "this is a bug of Parityscope; the terminal of the server tells more"), 500)
