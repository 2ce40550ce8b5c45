"""The page of twelve first screens: what it shows is what its commands print, and no screen is longer than it may be."""

from __future__ import annotations

import json
import lzma
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pages import ROOT, blocks, run
from parityscope.languages import LANGUAGES, OWN, say_in_language, speak_language
from parityscope.languages.catalogue import entries_of
from parityscope.report.as_html import render_html
from parityscope.report.as_text import render_first_screen
from parityscope.report.view import view_answer, view_study
from parityscope.study import name_files_from_here
from proving.browser import Browser, find_violations, open_browser, open_page, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PAGE = ROOT / "docs" / "first-screens.md"
LINES = 15
NBYTES, ALL_NBYTES = 150_000, 2_500_000
DOCUMENTS = ROOT / "tests" / "golden" / "first-screens"
BOXES = ROOT / "tests" / "golden" / "first-screen-boxes.json"
NAMES = sorted(path.name.partition(".")[0] for path in DOCUMENTS.iterdir())
WIDTHS = (1280, 700, 400)
# Words of those who wrote the tool, which nobody else knows.
JARGON = (
    *("above the floor", "accounted for", "channels above", "judged by derivative", "planted", "target/build"),
    *("tensor marked", "tensors marked", "want of budget", "nodes in FP32: "),
)
# How a sentence ends that has no end.
BROKEN = re.compile(r"(…|\.\.\.|[,;:，；：(\[]|\b(a|an|the|of|at|in|is|which|and|or|to))$")  # noqa: RUF001
SHOWN = 800  # pixels from the top: the first screen
# Made again in seconds, with nothing that has to be fetched.
CHEAP = ("island",)


def parts() -> list[str]:
    return re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]


def screens() -> list[str]:
    return [block.code for block in blocks(PAGE) if block.language == "text"]


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import first_cases

    yield first_cases
    sys.modules.pop("first_cases", None)


def test_twelve_cases_are_shown_with_their_cause(cases: ModuleType) -> None:
    found = parts()
    assert len(found) == len(cases.CASES) == len(screens()) == 12
    for part, screen, case in zip(found, screens(), cases.CASES.values(), strict=True):
        assert part.startswith(f"{case.title}\n")
        assert f"$ {case.command}\n" in part
        assert len(screen.splitlines()) <= LINES
        assert screen[0] == ("✕" if case.cause else "✓")
        assert not case.cause or f"[{case.cause}," in screen


def test_the_pictures_are_there_and_small(cases: ModuleType) -> None:
    folder = ROOT / "docs" / "pictures" / "first-screens"
    named = {f"{name}{way}.png" for name in cases.CASES for way in ("", "-dark", "-400", "-zh")}
    assert {path.name for path in folder.iterdir()} == named
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) < NBYTES
    assert sum(sizes) < ALL_NBYTES


@pytest.mark.parametrize("name", CHEAP)
def test_a_screen_is_what_its_command_prints(
    name: str, cases: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # as it was drawn: where lines are longer, fewer are needed
    case = cases.CASES[name]
    case.prepare(tmp_path)
    done = run(f"{sys.executable} -m {case.command} --study study --quiet", tmp_path)
    assert done.returncode == 1, done.stderr
    shown = screens()[list(cases.CASES).index(name)]
    assert " ".join(done.stdout.split()) == " ".join(shown.split())


def document_of(name: str) -> dict[str, Any]:
    """The case's document as `bench/pictures.py` kept it, as somebody has it who stands beside its folder `study`."""
    held = json.loads(lzma.decompress((DOCUMENTS / f"{name}.json.xz").read_bytes()))
    return name_files_from_here(held, Path("study"))


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_is_what_is_drawn_of_its_document(name: str, cases: ModuleType) -> None:
    text = render_first_screen(document_of(name), where="study/report.html", width=100)
    shown = screens()[list(cases.CASES).index(name)]
    assert text.split() == shown.split(), "python bench/pictures.py --studies FOLDER writes it again"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_every_sentence_of_a_screen_is_whole_and_in_words_of_its_readers(name: str, language: str) -> None:
    with speak_language(language):
        text = render_first_screen(document_of(name), width=100)
        rows = view_answer(document_of(name))["first_screen"]["rows"]
        # A colon stands in front of a command.
        told = [say_in_language(row["text"]).rstrip(":：" if row["command"] else "") for row in rows]  # noqa: RUF001
        told += [say_in_language(row["note"]) for row in rows]
        told.append(say_in_language(view_answer(document_of(name))["first_screen"]["title"]))
    assert language == OWN or not [part for part in told if part and not re.search("[\u2e80-\u9fff]", part)]
    # Three words on end are a sentence that was left as it is; names are one word.
    left = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}")
    assert language == OWN or not [part for part in told if left.search(part) or "tried)" in part]
    assert len(text.splitlines()) <= LINES
    assert not [part for part in told if BROKEN.search(part.rstrip())]
    assert not [words for words in JARGON if words in text]


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_tells_one_error_before_and_one_after(name: str) -> None:
    """What was measured is told where it is said what is wrong, and once more where it is said what a repair left."""
    document = document_of(name)
    screen = view_answer(document)["first_screen"]
    percent = re.compile(r"[\d.]+ %")
    before = set(percent.findall(screen["title"]))
    effects = [row["note"].partition(" -> ") for row in screen["rows"] if row["note"].startswith("tried")]
    others = [row["text"] for row in screen["rows"] if row["label"] in {"Why", "Where", "Sure"}]
    assert {each for start, _, _ in effects for each in percent.findall(start)} <= before
    assert not {each for text in others for each in percent.findall(text)}


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = view_answer(document_of(name))["first_screen"]["rows"]
    return rows


def row_of(name: str, label: str) -> dict[str, Any]:
    return next((row for row in rows_of(name) if row["label"] == label), {"text": "", "command": "", "note": ""})


def cause_of(name: str) -> dict[str, Any]:
    return next((one for one in document_of(name)["findings"] if one["role"] == "cause"), {})


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_fix_names_the_file_that_it_writes_or_uses(name: str) -> None:
    fix, then = row_of(name, "Fix"), row_of(name, "Then")
    files = [
        *re.findall(r"\S+\.fixed\.onnx(?=[\"'\s]|$)", fix["command"]),
        *re.findall(r"^use (\S+?\.onnx)", fix["text"]),
    ]
    for file in (one.strip("\"'") for one in files):
        assert f"deploy {file}, " in then["text"]
    if "one more output" in fix["text"]:
        assert files


@pytest.mark.parametrize("name", NAMES)
def test_a_fix_says_what_is_left_beside_the_limit_and_what_to_do_about_it(name: str) -> None:
    note = row_of(name, "Fix")["note"]
    # What is off for a reason that nobody knows has no error with it put right, and nothing that could be tried.
    tried = ("tried: ", "tried in simulation: ", "not tried, but ")
    assert note.startswith(tried) == (cause_of(name).get("code") not in {None, "DAT007"})
    assert "explains" not in note  # one limit, by the word that the title has for what it is made of
    limit = r"the limit [\d.]+ % \(\d times FP\d\d's expected error: engines vary\)"
    assert note.count("the limit ") == len(re.findall(limit, note)) <= 1
    left = "more than the limit" in note.replace("no more", "")
    asked = [row for row in rows_of(name) if row["text"].startswith("look for the rest, which nothing")]
    assert len(asked) == left
    assert all(" diagnose " in row["command"] and "-again" in row["command"] for row in asked)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_proved_and_what_was_tried_are_told_apart(name: str) -> None:
    rows = rows_of(name)
    assert not [row for row in rows if re.search(r"\[[A-Z]{3}\d{3}, proved", row["text"])]
    tried = {one["text"]: bool(one["trial"]) for one in view_study(document_of(name))["repairs"]}
    others = [row["text"] for row in rows if row["label"] == "or" and not row["command"]]
    told = [re.fullmatch(r"(.*) \((not tried|tried: .* -> .*)\)", text) for text in others]
    assert all(told)
    assert all((one[2] != "not tried") == tried.get(one[1], one[2] != "not tried") for one in told if one)


@pytest.mark.parametrize("name", NAMES)
def test_both_runtimes_are_named_with_their_versions(name: str) -> None:
    screen, document = view_answer(document_of(name))["first_screen"], document_of(name)
    assert re.search(r"against ONNX Runtime \d+\.\d+", screen["basis"])
    if document["candidate"]["backend"] != "sim":
        assert re.search(r"\(.*(\d+\.\d+\.\d+|runtime unknown)\): ", screen["title"])


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_is_accused_or_acquitted_that_was_not_looked_at(name: str) -> None:
    document = document_of(name)
    view = view_study(document)
    where = next((one["value"] for one in view["tiles"] if one["label"] == "Where"), "")
    assert ("no layer stands out" in where) <= (len(document["tensors"]) > 1)
    if where.startswith(("no single layer", "before the network", "behind the network")):
        page = render_html(document)
        state = json.loads(re.findall(r'"states":(\[[^]]*\])', page)[0]).index("introduces error")
        assert str(state) not in re.findall(r'"state":"(\d*)"', page)[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_place_says_why_what_is_not_finite_before_it_is_not_the_cause(name: str) -> None:
    site = cause_of(name).get("site")
    lost = [one["index"] for one in document_of(name)["tensors"] if one["nonfinite"]["candidate"]] if site else []
    earlier = [index for index in lost if index < site["index"]]
    told = row_of(name, "Where")["text"]
    assert ("NaN or infinity at #" in told) == bool(earlier)
    assert not earlier or f"at #{min(earlier)} (" in told
    assert not earlier or "changes the outputs less" in told


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_is_called_one_and_the_real_one_is_asked_about_next(name: str) -> None:
    predicted = document_of(name)["candidate"]["backend"] == "sim"
    title, then = view_answer(document_of(name))["first_screen"]["title"], row_of(name, "Then")
    assert ("(a prediction)" in title) == ("so far a prediction" in then["text"]) == predicted
    assert (" --candidate recorded-outputs --declared f16 " in then["command"]) == predicted


@pytest.mark.parametrize("name", NAMES)
def test_nodes_are_counted_and_names_are_shortened_in_one_way(name: str) -> None:
    told = [row["text"] for row in rows_of(name)]
    numbers = re.findall(r"node #([\d,]+) of #0 to #([\d,]*\d)", row_of(name, "Where")["text"])
    site = cause_of(name).get("site")
    if numbers and site:
        assert numbers == [(f"{site['index']:,}", f"{document_of(name)['model']['nodes'] - 1:,}")]
        unnamed = re.fullmatch(r"\w+#(\d+)", site["node"])
        assert not unnamed or unnamed[1] == numbers[0][0]
    told += [tile["note"] for tile in view_study(document_of(name))["tiles"]]
    ends = {word.strip("',;").rpartition("…")[2] for text in told for word in text.split() if "…" in word}
    assert not [(one, other) for one in ends for other in ends - {one} if other.endswith(one)]
    assert max((len(word) for text in told for word in text.split()), default=0) <= 44


def test_elements_that_are_off_are_counted_and_judged_by_the_reference() -> None:
    place, then = row_of("outlier", "Where")["text"], row_of("outlier", "Next")["command"]
    assert row_of("outlier", "Next")["text"] == "record it again, and this tells whether it is wrong again:"
    assert place == "no single layer, but elements of an output: y, 1 of 2,363,392, at [0, 77, 2526]"
    assert then.startswith("parityscope verify encoder.onnx --before encoder-y.npz --after encoder-y-again.npz ")
    assert "against ONNX Runtime" in view_answer(document_of("outlier"))["first_screen"]["basis"]


def test_an_advice_is_in_words_and_commands_of_its_readers() -> None:
    # What was tried comes before what was not: a later version of the runtime is told with all else.
    texts = [row["text"] for row in rows_of("old-optimizer")]
    assert any(text.startswith("switch the optimizer off") and "(tried: 10.3 % -> " in text for text in texts)
    told = [one["text"] for finding in document_of("old-optimizer")["findings"] for one in finding["repairs"]]
    assert any(
        re.match(r"update ONNX Runtime 1\.22\.1 to \d.*, which optimizes this file rightly$", one) for one in told
    )
    assert row_of("lost-bound", "Fix")["text"].startswith("make 'c' (which Conv#0 gives) one more output")
    commands = [row["command"] for name in NAMES for row in rows_of(name)]
    assert not [command for command in commands if "%20" in command]
    used = [row["text"] for name in NAMES for row in rows_of(name) if "; the change in it: " in row["text"]]
    assert used
    assert not [text for text in used if " or " in text]


def test_what_nobody_misses_is_no_gap() -> None:
    rests = [view_answer(document_of(name))["first_screen"]["rest"] for name in NAMES]
    assert not [rest for rest in rests if "test" in rest or "layers" in rest]
    document = document_of("island")
    claim = "the order of the sums is another one"
    document["skipped"] = [
        {"what": f"experiment SUM001-1: {claim}", "reason": "the time is spent", "fix": "raise --time"}
    ]
    assert view_answer(document)["first_screen"]["rest"].endswith(f"not examined: whether {claim}.")


def test_what_a_fix_writes_is_read_and_gives_the_same(cases: ModuleType, tmp_path: Path) -> None:
    cases.CASES["lost-bound"].prepare(tmp_path)
    done = run(row_of("lost-bound", "Fix")["command"].replace("python", sys.executable, 1), tmp_path)
    assert done.returncode == 0, done.stderr
    compared = (
        f"{sys.executable} -m parityscope compare clip.onnx --inputs clip-x.npz --candidate clip.fixed.onnx --quiet"
    )
    assert run(compared, tmp_path).returncode == 0


def test_no_sentence_that_people_are_told_holds_jargon() -> None:
    told = [text for code in LANGUAGES if code != OWN for text in entries_of(code)]
    assert len(told) > 1000
    assert not [(words, text) for words in JARGON for text in told if words in text]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_and_the_map_are_on_the_first_screen(name: str, browser: Browser) -> None:
    """Boxes are as high as this machine's fonts make them: what must not move is in the golden file, with room for that."""
    text = render_html(document_of(name))
    asked = """Object.fromEntries([["title", "h1"], ["answers", ".answers"], ["strip", "#strip"]].flatMap(([name, place]) => {
      const box = document.querySelector(place)?.getBoundingClientRect();
      return box ? [[name, [box.left, box.top, box.width, box.height].map(Math.round)]] : [];
    }))"""
    found = {}
    for width in WIDTHS:
        with open_page(browser, text, width=width) as page:
            found[str(width)] = run_script(page, asked)
            if width == WIDTHS[-1] and name in NAMES[::4]:  # tests/test_page.py asks it of every kind of page
                assert find_violations(page) == []
    held = json.loads(BOXES.read_text("utf-8")) if BOXES.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        BOXES.write_text(json.dumps({**held, name: found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        held = {name: found}
    for width, boxes in held[name].items():
        assert found[width].keys() == boxes.keys()
        for place, (left, top, wide, _) in boxes.items():
            assert found[width][place][0] == pytest.approx(left, abs=12), (width, place)
            assert found[width][place][1] == pytest.approx(top, abs=150), (width, place)
            assert found[width][place][2] == pytest.approx(wide, abs=12), (width, place)
        if "strip" in boxes:
            assert found[width]["strip"][1] + found[width]["strip"][3] <= SHOWN, width
