"""`parityscope serve`: the index of a folder, who is answered, what is uploaded, and the pages in a real browser."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from golden import documents
from parityscope.cli import run_command
from parityscope.errors import ParityError
from parityscope.report.studies import list_page, trends_page
from parityscope.running_note import keep_running_note, note_running_step, read_running_note
from parityscope.server.answering import Served, make_server
from parityscope.server.finding import FoundStudy
from parityscope.server.guarding import Guard, owner_of_peer
from parityscope.server.index import StudyIndex, list_series, list_studies, open_index
from parityscope.server.summary import summarize_study
from parityscope.server.uploading import Comparisons, SentFile, start_comparison
from parityscope.testing.networks import write_network
from proving.browser import (
    AXE,
    BROWSER,
    choose_file,
    find_violations,
    follow_link,
    open_address,
    open_browser,
    open_window,
    run_script,
    set_window,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

# Machines that tests run on are busy: nobody is hurried.
Client = functools.partial(httpx.Client, timeout=None)
fetched = functools.partial(httpx.get, timeout=None)
HOSTILE = "<script>window.owned = 1</script>"
TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { t = Tanh(x) y = Mul(t, t) }'
EVERYWHERE = "0.0.0.0"  # noqa: S104 - with a token
RIGHT = "a token of some length"
PACKINGS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
AWAY = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}


def small_study(**changes: Any) -> dict[str, Any]:
    held: dict[str, Any] = {
        "schema": "parityscope/1",
        "verdict": "within",
        "created": "2026-01-01T00:00:00Z",
        "model": {"name": "m"},
        "candidate": {"target": "sim:f16", "version": "1.0"},
        "outputs": [{"name": "y", "rel_l2": 0.001}],
    }
    return {**held, **changes}


def write_study(folder: Path, document: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


@contextlib.contextmanager
def indexed(root: Path, scratch: Path) -> Iterator[StudyIndex]:
    with open_index(root, scratch) as index:
        until(lambda: index.whole)
        yield index


def until(happened: Any) -> None:
    """Waits for what a thread or a process does; pytest's own limit ends what never happens."""
    while not happened():
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@contextlib.contextmanager
def serving(root: Path, scratch: Path, *, token: str = "") -> Iterator[tuple[str, Served]]:
    """A server of this process on a free port: its address, and what it serves."""
    with socket.create_server(("127.0.0.1", 0)) as listening, indexed(root, scratch) as index:
        port = listening.getsockname()[1]
        guard = Guard(token=token, port=port, largest=1 << 20)
        served = Served(root=root, index=index, guard=guard, comparisons=Comparisons(root=root, largest=1 << 20))
        server = make_server(served)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://localhost:{port}", served
        finally:
            server.should_exit = True
            thread.join()
            served.comparisons.end_all()


def identities(index: StudyIndex) -> dict[str, str]:
    rows, _ = list_studies(index, {}, first=0, most=1000)
    return {os.fsdecode(row["place"]): row["identity"] for row in rows}


# The index


@pytest.mark.story
def test_ten_thousand_studies_are_listed_at_once(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    text = json.dumps(small_study(created="2026-NUMBER", model={"name": "model-MODEL"}))
    for team in range(7):
        (root / str(team)).mkdir(parents=True)
    for number in range(10_000):
        folder = f"{root}/{number % 7}/s{number:05d}"
        os.mkdir(folder)  # noqa: PTH102 - ten thousand times
        told = text.replace("NUMBER", f"{number:05d}").replace("MODEL", str(number % 50))
        file = os.open(f"{folder}/study.json", os.O_WRONLY | os.O_CREAT)
        os.write(file, told.encode())
        os.close(file)
    with serving(root, tmp_path) as (address, served), Client(base_url=address) as client:
        assert list_studies(served.index, {}, first=0, most=1)[1] == 10_000
        for page, asked in ((1, {}), (200, {}), (1, {"words": "model-7 s0"})):
            began = time.thread_time()
            rows, whole = list_studies(served.index, asked, first=(page - 1) * 50, most=50)
            list_page(str(root), rows, asked, paging=(page, 50, whole), live={}, before=None)
            assert time.thread_time() - began < 0.5
        began = time.thread_time()
        series, _ = list_series(served.index, first=0, most=25, points=40)
        trends_page(str(root), series, paging=(1, 25, 50))
        assert time.thread_time() - began < 0.5
        first, last = client.get("/").text, client.get("/?page=200").text
        assert "s09999" in first
        assert first.count("/study/") == 50
        assert "10,000" in first
        assert client.get("/trends?page=2").text.count("/trend?") == 25
        assert "s00000" in last
        assert 'href="/?page=199"' in last


def test_the_index_follows_the_folder_and_can_be_made_again(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    one = write_study(root / "a", small_study(verdict="beyond"))
    write_study(
        root / "deep" / "er" / "b", small_study(model={"name": "other"}, outputs=[{"name": "y", "rel_l2": "NaN"}])
    )
    write_study(one / "inner", small_study())  # what lies in a study is part of it
    with indexed(root, tmp_path) as index:
        file = index.file
        assert identities(index).keys() == {"a", "deep/er/b"}
        (row,), whole = list_studies(index, {"verdict": "beyond"}, first=0, most=10)
        assert (row["model"], row["target"], row["error"], whole) == ("m", "sim:f16", 0.001, 1)
        (row,), _ = list_studies(index, {"words": "OTHER er"}, first=0, most=10)
        assert row["error"] == float("inf")
        (one / "study.json").write_text(json.dumps(small_study(verdict="within", model={"name": "renamed"})), "utf-8")
        write_study(root / "c", small_study())
        index.ask_refresh()
        until(lambda: "c" in identities(index))
        assert list_studies(index, {"verdict": "beyond"}, first=0, most=10)[1] == 0
        series, whole = list_series(index, first=0, most=10, points=5)
        assert (whole, {each["model"] for each in series}) == (3, {"m", "other", "renamed"})
    for damage in (b"no database at all" * 100, b""):
        file.write_bytes(damage)
        with indexed(root, tmp_path) as index:
            assert index.file == file
            assert len(identities(index)) == 3


def test_what_is_no_study_is_a_line_that_says_why(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    for name, text in {
        "broken": "{",
        "list": "[]",
        "newer": '{"schema": "parityscope/9"}',
        "big": '{"x": 1e999}',
    }.items():
        (root / name).mkdir(parents=True)
        (root / name / "study.json").write_text(text, "utf-8")
    odd = {"candidate": 3, "outputs": {"a": 1}, "model": {"name": ["x"]}, "verdict": None, "headline": "\ud800\x1b[31m"}
    write_study(root / "odd", small_study(**odd))
    write_study(root / "huge", small_study(outputs=[{"name": "y", "rel_l2": 10**400}, None]))
    with indexed(root, tmp_path) as index:
        rows, _ = list_studies(index, {}, first=0, most=10)
    problems = {os.fsdecode(row["place"]): row["problem"] for row in rows}
    assert {name for name, problem in problems.items() if problem} == {"broken", "list", "newer", "big", "huge"}
    assert "\x1b" not in str([row["headline"] for row in rows])


def test_a_time_that_no_calendar_has_stops_nothing(tmp_path: Path) -> None:
    root = os.fsencode(write_study(tmp_path / "root" / "s", small_study(created="")).parent)
    found = FoundStudy(identity="1", place=b"s", changed=1e12)  # what some file systems keep of a broken clock
    assert (summarize_study(root, found).model, summarize_study(root, found).created) == ("m", "")


# Names and places


def test_hostile_names_are_text_and_nothing_outside_is_read(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    secret = write_study(tmp_path / "secret", small_study(headline="SECRET", model={"name": "SECRET"}))
    names = [HOSTILE, '"onmouseover=alert(1) x="', "new\nline", "%2e%2e%2f", "&lt;b&gt;", "x..."]
    for name in names:
        folder = root / name.replace("/", "\u2215")
        write_study(folder, small_study(model={"name": HOSTILE}, candidate={"target": HOSTILE, "version": "</title>"}))
    (root / os.fsdecode(b"not \xff utf-8")).mkdir()
    (root / os.fsdecode(b"not \xff utf-8") / "study.json").write_text(json.dumps(small_study()), "utf-8")
    (root / "link").symlink_to(secret)
    (root / "file").mkdir()
    (root / "file" / "study.json").symlink_to(secret / "study.json")
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "study.json")
    (root / "circle").symlink_to(root)
    with serving(root, tmp_path) as (address, served), Client(base_url=address) as client:
        known = identities(served.index)
        assert len(known) == len(names) + 1
        pages = [client.get(place).text for place in ("/", "/trends", "/?words=<script>", "/?model=%3Cb%3E", "/upload")]
        pages += [client.get(f"/study/{identity}").text for identity in known.values()]
        pages.append(client.get("/trend", params={"model": HOSTILE, "target": HOSTILE}).text)
        for page in pages:
            assert HOSTILE not in page
            assert "SECRET" not in page
            assert '"onmouseover' not in re.sub(r"(?s)<script.*?</script>", "", page)
        # A folder that has become a link since it was listed is not followed.
        moved = next(place for place in known if place.startswith("%2e"))
        (root / moved).rename(tmp_path / "away")
        (root / moved).symlink_to(secret)
        for place in (f"/study/{known[moved]}", f"/study/{known[moved]}/study.json"):
            answer = client.get(place)
            assert (answer.status_code, "SECRET" in answer.text) == (422, False)
        # Nor is a document that has become one.
        (root / "x..." / "study.json").unlink()
        (root / "x..." / "study.json").symlink_to(secret / "study.json")
        for place in (f"/study/{known['x...']}", f"/study/{known['x...']}/study.json"):
            answer = client.get(place)
            assert (answer.status_code, "SECRET" in answer.text) == (422, False)


def test_a_study_that_was_made_again_is_shown_as_it_is_now(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "root" / "s", documents.within())
    with serving(tmp_path / "root", tmp_path) as (address, served), Client(base_url=address) as client:
        place = f"/study/{identities(served.index)['s']}"
        assert "made-again" not in client.get(place).text
        again = documents.within()
        again["model"]["name"] = "made-again"
        (folder / "study.json").write_text(json.dumps(again), "utf-8")
        assert "made-again" in client.get(place).text


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/study/../../../etc/passwd", "/study/%2e%2e%2f%2e%2e%2fetc%2fpasswd/study.json",
        "/study/..%5c..%5cetc/study.json", "//etc/passwd", "/study/%00/study.json", "/compare?before=../../etc&after=/etc",
        "/?page=99999999999999999999", "/?page=-1", "/?before=../x", "/study/x/../../study.json", "/trend?model=../&target=",
    ],
)  # fmt: skip
def test_no_address_leads_out_of_the_folder(path: str, quiet_server: tuple[str, Served]) -> None:
    told = raw_answer(quiet_server[0], path)
    assert "root:" not in told
    assert told.startswith(("HTTP/1.1 200", "HTTP/1.1 404", "HTTP/1.1 422"))


def raw_answer(address: str, path: str) -> str:
    """What is answered to a path that no client tidies first."""
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def quiet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Served]]:
    place = tmp_path_factory.mktemp("serve")
    write_study(place / "studies" / "a", small_study())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        with serving(place / "studies", place) as served:
            yield served


# Who is answered


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"host": "127.0.0.1:1"}, 200),
        ("GET", {"host": "[::1]"}, 200),
        ("GET", {"host": "rebound.example"}, 400),
        ("GET", {"host": "localhost.example"}, 400),
        ("GET", {"host": "localhost@example"}, 400),
        ("GET", {"host": ""}, 400),
        ("GET", AWAY, 403),
        ("GET", {**AWAY, "sec-fetch-site": "same-site"}, 403),
        ("GET", {**AWAY, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ("GET", {**AWAY, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ("DELETE", {}, 405),
        ("PUT", {"content-length": "0"}, 405),
        ("POST", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": "null"}, 403),
        ("POST", {}, 403),
        ("POST", {"origin": "OWN", "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_other_sites_are_refused(
    method: str, headers: dict[str, str], status: int, quiet_server: tuple[str, Served]
) -> None:
    address, _ = quiet_server
    given = {name: value.replace("OWN", address) for name, value in headers.items()}
    with Client(base_url=address) as client:
        form = client.get("/upload").text.partition("/upload?form=")[2].partition('"')[0]
        assert len(form) == 64
        place = f"/upload?form={form}" if method == "POST" else "/upload"
        assert client.request(method, place, headers=given).status_code == status


def test_more_than_is_taken_is_refused_before_it_is_sent(quiet_server: tuple[str, Served]) -> None:
    address, _ = quiet_server
    for header, status in ((b"Content-Length: 1099511627776", b"413"), (b"Transfer-Encoding: chunked", b"411")):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as connection:
            connection.sendall(b"POST /upload HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 " + status)


def test_a_form_is_taken_from_our_own_page_alone(quiet_server: tuple[str, Served]) -> None:
    address, _ = quiet_server
    with Client(base_url=address, headers={"origin": address}) as client, Client(base_url=address) as other:
        page = client.get("/upload")
        form = page.text.partition("/upload?form=")[2].partition('"')[0]
        assert "SameSite=Strict" in page.headers["set-cookie"]
        assert "HttpOnly" in page.headers["set-cookie"]
        # The token of a form belongs to the session that it was given to.
        foreign = other.get("/upload").text.partition("/upload?form=")[2].partition('"')[0]
        for wrong in ("", "x", foreign):
            assert client.post(f"/upload?form={wrong}", content=b"").status_code == 403
        told = client.post(f"/upload?form={form}", data={"declared": "f32"})
        assert (told.status_code, "was not sent" in told.text) == (422, True)


def test_what_every_answer_says_to_a_browser(quiet_server: tuple[str, Served]) -> None:
    for place in ("/", "/doing", "/nothing", "/study/x"):
        headers = fetched(f"{quiet_server[0]}{place}").headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_another_user_of_the_machine_is_refused(
    quiet_server: tuple[str, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = quiet_server
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert owner_of_peer(connection.getsockname(), connection.getpeername()) == os.geteuid()
        assert owner_of_peer(("127.0.0.1", 1), connection.getpeername()) is None
    mapped = ("::ffff:127.0.0.1", 1)
    assert owner_of_peer(mapped, ("::ffff:127.0.0.1", port)) is None
    assert fetched(address).status_code == 200
    monkeypatch.setattr("parityscope.server.guarding.owner_of_peer", lambda *_: os.geteuid() + 1)
    answer = fetched(address)
    assert (answer.status_code, "PARITYSCOPE_TOKEN" in answer.text) == (403, True)
    monkeypatch.setattr("parityscope.server.guarding.owner_of_peer", lambda *_: None)
    assert fetched(address).status_code == 403


def test_a_token_is_asked_for_and_leaves_the_address(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    with serving(tmp_path / "studies", tmp_path, token=RIGHT) as (address, _):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": f"parityscope-{address[-5:]}=a.b"}):
            assert fetched(address, headers=headers).status_code == 401
        assert fetched(f"{address}/?token=wrong").status_code == 401
        assert fetched(address, headers={"authorization": f"Bearer {RIGHT}"}).status_code == 200
        with Client(base_url=address) as client:
            first = client.get("/trends", params={"token": RIGHT, "page": "2"})
            assert (first.status_code, first.headers["location"]) == (303, "/trends?page=2")
            assert client.get("/trends").status_code == 200
            # A machine that is reached under its own name answers to it: the token is what keeps others out.
            assert client.get("/", headers={"host": "build-machine:80"}).status_code == 200


def test_the_command_says_where_and_ends_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path / "studies" / "a", small_study())
    words = [
        sys.executable,
        "-m",
        "parityscope",
        "serve",
        str(tmp_path / "studies"),
        "--port",
        "0",
        "--host",
        EVERYWHERE,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().replace(EVERYWHERE, "127.0.0.1")
        assert "/?token=" in address
        answer = fetched(address, follow_redirects=True)
        assert fetched(address.partition("?")[0]).status_code == 401
        process.send_signal(2)
        assert process.wait() == 0
    assert (answer.status_code, "<h1>" in answer.text) == (200, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run_command(["serve", str(tmp_path), "--port", port]) == 2
    assert run_command(["serve", str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    assert f"nobody can listen on 127.0.0.1:{port}" in told
    assert "there is no folder" in told


# What is being made


def test_what_is_being_made_is_told_and_what_was_killed_is_not_alive(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    scratch, killed = root / ".new.part", root / "team" / ".old.part"
    scratch.mkdir(parents=True)
    killed.mkdir(parents=True)
    with keep_running_note(scratch):
        note_running_step("outputs: beyond", lasting=True)
        note_running_step("step 1")  # within a second of the one before: not written
        found = read_running_note(scratch)
        assert found is not None
        assert (found.alive, found.told, found.line) == (True, ("outputs: beyond",), "")
        held = json.loads((scratch / "running.json").read_text("utf-8"))
        (killed / "running.json").write_text(json.dumps({**held, "started": "1", "line": HOSTILE}), "utf-8")
        with serving(root, tmp_path) as (address, _):
            doing = fetched(f"{address}/doing").json()["doing"]
            assert HOSTILE not in fetched(address).text
    told = [(one["name"], one["state"], one["told"]) for one in doing]
    assert told == [("new", "running", ["outputs: beyond"]), ("team/old", "interrupted", ["outputs: beyond"])]
    for text in ("{", "[]", '{"process": -1, "told": 3}', '{"process": 1e99, "told": [{}]}'):
        (killed / "running.json").write_text(text, "utf-8")
        broken = read_running_note(killed)
        assert broken is None or not broken.alive


# Uploads


def archive(members: Mapping[str, bytes], *, link: str = "", packing: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", packing) as written:
        for name, content in members.items():
            written.writestr(name, content)
        if link:
            entry = zipfile.ZipInfo("link.npz")
            entry.external_attr = 0o120777 << 16
            written.writestr(entry, link)
    held.seek(0)
    return held


def damaged(packing: int) -> io.BytesIO:
    """An archive whose directory is whole, and whose member was not copied well."""
    held = archive({"a.npy": bytes(range(256)) * 8}, packing=packing)
    held.getbuffer()[40:60] = b"\xff" * 20
    return held


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"../out.npz": b"x"}, "outside of itself"),
        ({"a/../../out.npz": b"x"}, "outside of itself"),
        ({"/etc/out.npz": b"x"}, "outside of itself"),
        ({"..\\out.npz": b"x"}, "outside of itself"),
        ({"c:out.npz": b"x"}, "outside of itself"),
        ({"bomb.npz": b"\0" * (3 << 20)}, "more than this server takes"),
        ({"a": b"x", "a/b": b"x"}, "two members of one name"),
    ],
)
def test_an_archive_writes_nothing_elsewhere(members: Mapping[str, bytes], told: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    held = Comparisons(root=root, largest=1 << 20)
    sent = {
        "model": SentFile(name="m.onnx", content=io.BytesIO(b"")),
        "candidate": SentFile(name="r.zip", content=archive(members)),
    }
    with pytest.raises(ParityError, match=told):
        start_comparison(held, sent, "f32")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert held.held == []


def test_what_was_sent_must_be_something(tmp_path: Path) -> None:
    held = Comparisons(root=tmp_path, largest=1 << 20)
    model = SentFile(name="../../m.onnx", content=io.BytesIO(b"x"))
    cases: list[tuple[dict[str, SentFile], str, str]] = [
        ({}, "f32", "model"),
        ({"model": model}, "f32", "candidate"),
        ({"model": model, "candidate": SentFile(name="x.pkl", content=io.BytesIO(b""))}, "f32", "no recording"),
        ({"model": model, "candidate": SentFile(name="x.npz", content=io.BytesIO(b""))}, "f32", "holds none"),
        ({"model": model, "candidate": SentFile(name="x.zip", content=io.BytesIO(b"no"))}, "f32", "cannot be unpacked"),
        *(
            ({"model": model, "candidate": SentFile(name="x.zip", content=content)}, "f32", "cannot be unpacked")
            for content in (*map(damaged, PACKINGS), archive({f"{'a' * 300}.npy": b"x"}))
        ),
        ({"model": model, "candidate": model}, "--help", "no arithmetic"),
        ({"model": model, "candidate": SentFile(name="x.zip", content=archive({}, link="/etc"))}, "f32", "holds none"),
    ]
    for sent, declared, told in cases:
        for each in sent.values():
            each.content.seek(0)
        with pytest.raises(ParityError, match=told):
            start_comparison(held, sent, declared)
    assert list(tmp_path.glob("uploads/*")) == []


def test_a_folder_that_macos_packed_is_that_folder(tmp_path: Path) -> None:
    held = Comparisons(root=tmp_path, largest=1 << 20)
    packed = archive({"rec/outputs/0.npz": b"x", "rec/inputs/0.npz": b"x", "__MACOSX/rec/._outputs": b"x"})
    model = SentFile(name="m.onnx", content=io.BytesIO(b"no model"))
    started = start_comparison(held, {"model": model, "candidate": SentFile(name="r.zip", content=packed)}, "f32")
    until(lambda: started.ended)
    (folder,) = tmp_path.glob("uploads/*/candidate")
    assert {path.name for path in folder.iterdir()} == {"inputs", "outputs"}


# In a browser


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.story
def test_studies_are_found_compared_and_uploaded_in_a_browser(tmp_path: Path) -> None:
    root = tmp_path / "studies"
    for number in range(3):
        document = documents.within() if number else documents.detector(16)
        document["model"]["name"] = HOSTILE if number == 0 else "resnet"
        document["created"] = f"2026-01-0{number + 1}T10:00:00Z"
        write_study(root / f"s{number}", document)
    (root / ".running.part").mkdir()
    write_network(tmp_path / "net.onnx", TEXT, {})
    x = np.linspace(-1, 1, 16, dtype=np.float32)[None]
    buffers = {}
    for name, arrays in (("inputs/0.npz", {"x": x}), ("outputs/0.npz", {"y": np.tanh(x) ** 2 + 0.25})):
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        buffers[f"recording/{name}"] = buffer.getvalue()
    (tmp_path / "recording.zip").write_bytes(archive(buffers).getvalue())
    with serving(root, tmp_path) as (address, served), open_browser() as browser, open_window(browser) as page:
        places = [address, f"{address}/trends", f"{address}/upload", f"{address}/nothing"]
        known = identities(served.index)
        places += [f"{address}/study/{known['s1']}", f"{address}/trend?model=resnet&target=ort"]
        for width, dark in ((1200, False), (400, True)):
            set_window(page, width=width, height=900, dark=dark)
            for place in places if dark else places[:1]:
                open_address(page, place)
                assert run_script(page, "document.documentElement.scrollWidth") <= width, place
                assert run_script(page, "document.getElementById('language').textContent") == "中文"  # our script ran
                if AXE is not None and dark:
                    assert find_violations(page) == [], place
        # No name became markup, and what does not come from us does not run.
        open_address(page, f"{address}/study/{known['s0']}")
        assert run_script(page, "window.owned") is None
        run_script(
            page, "document.body.append(Object.assign(document.createElement('script'), {text: 'window.foreign = 1'}))"
        )
        assert run_script(page, "window.foreign") is None
        # What is being made comes to the page by itself, in the language that was chosen.
        open_address(page, address)
        with keep_running_note(root / ".running.part"):
            note_running_step("where: conv_1", lasting=True)
            served.index.ask_refresh()
            run_script(page, text_comes("#doing li", "conv_1"))
            run_script(page, "document.getElementById('language').click()")
            assert run_script(page, "document.documentElement.lang") == "zh"
            run_script(page, "document.getElementById('language').click()")
        # Two are compared.
        run_script(page, f"document.querySelector('[name=before][value=\"{known['s1']}\"]').click()")
        run_script(page, f"document.querySelector('[name=after][value=\"{known['s2']}\"]').click()")
        follow_link(page, "document.querySelector('.compare button').click()")
        assert "nothing changed beyond noise" in run_script(page, "document.querySelector('.verdict').textContent")
        # A recording is uploaded, and its study comes to the list.
        open_address(page, f"{address}/upload")
        choose_file(page, "#model", tmp_path / "net.onnx")
        choose_file(page, "#candidate", tmp_path / "recording.zip")
        follow_link(page, "document.querySelector('form button').click()")
        assert run_script(page, "location.pathname") == "/"
        until(lambda: all(one.ended for one in served.comparisons.held))
        assert [one.told for one in served.comparisons.held] == [""]
        served.index.ask_refresh()
        run_script(page, text_comes("#reading a", ""))
        follow_link(page, "document.querySelector('#reading a').click()")
        follow_link(
            page, "[...document.querySelectorAll('.studies tbody a')].find(one => one.textContent == 'net').click()"
        )
        assert run_script(page, "document.querySelector('.top').className") == "top beyond"


def text_comes(selector: str, text: str) -> str:
    """A script that ends when an element with this text is on the page."""
    return (
        "new Promise(done => { const look = () => { const found = document.querySelector("
        f"{json.dumps(selector)}); found && found.textContent.includes({json.dumps(text)}) ? done(1) : setTimeout(look, 50);"
        " }; look(); })"
    )
