"""The pages in a real browser: used by mouse and by keyboard alone, narrow, dark and in the other language, under axe-core.

Golden boxes are rewritten by `UPDATE_GOLDEN=1 pytest tests/test_page.py`.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import exit_status
from golden import documents
from parityscope.languages import speak_language
from parityscope.report import as_html
from proving.browser import AXE, BROWSER, find_violations, open_browser, open_page, press_key, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proving.browser import Browser

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")

HERE = Path(__file__).parent
BOXES = HERE / "golden" / "boxes.json"
SILENCE = """window.seen = [];
addEventListener("error", (event) => seen.push(String(event.message || event.target.tagName)), true);
for (const kind of ["error", "warn"]) console[kind] = (...said) => seen.push(said.join(" "));"""
QUIET = """[seen.join("; "), performance.getEntriesByType("resource").length,
  document.documentElement.scrollWidth > innerWidth]"""
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
normal (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)
<float[1] one = {1}, float[1] zero = {0}, float[1] variance = {90000000}> {
  a = Relu(x)  h = BatchNormalization(a, one, zero, zero, variance)  y = Mul(h, one)
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def detector() -> str:
    return as_html.render_html(documents.detector())


# By mouse and script


def test_the_page_works_in_a_browser(browser: Browser, detector: str) -> None:
    with open_page(browser, detector, before=SILENCE) as page:
        found = run_script(
            page,
            """(() => {
  const note = {}, table = document.getElementById("all");
  const rows = () => Array.from(table.tBodies[0].rows).filter((row) => row.id);
  const press = (name) => Array.from(table.querySelectorAll("thead button")).find((head) => head.textContent === name).click();
  note.first = rows()[0].id;
  press("index");
  note.byIndex = rows().map((row) => row.id).slice(0, 3);
  press("index");
  note.byIndexDown = rows()[0].id;
  const form = document.getElementById("filter");
  form.elements.text.value = "SIGMOID";
  form.dispatchEvent(new Event("input"));
  note.filtered = rows().length;
  form.elements.text.value = "";
  form.dispatchEvent(new Event("input"));
  note.drawn = rows().length;
  const strip = document.getElementById("strip"), opened = document.getElementById("node");
  const key = (name) => strip.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  note.opened = opened.textContent;
  key("ArrowRight");
  note.stepped = strip.getAttribute("aria-valuetext");
  key("End");
  note.end = strip.getAttribute("aria-valuenow");
  const search = document.getElementById("search");
  search.value = "sigmoid";
  search.dispatchEvent(new Event("input"));
  note.found = document.getElementById("found").textContent;
  search.form.requestSubmit();
  note.searched = strip.getAttribute("aria-valuenow");
  note.graph = document.querySelectorAll("#around g").length;
  const svg = document.getElementById("depth"), box = svg.getBoundingClientRect();
  const at = 72 / 1120 * box.width + box.left + 2;
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: at, clientY: box.top + 50 }));
  note.tip = document.getElementById("tip").textContent;
  note.copies = document.querySelectorAll(".command .copy").length;
  return note;
})()""",
        )
        assert run_script(page, QUIET) == ["", 0, False]
    assert found["first"] == "t1"  # sorted by introduced error: the BatchNormalization leads
    assert found["byIndex"] == ["t0", "t1", "t2"]
    assert found["byIndexDown"] == "t305"
    assert found["filtered"] == 1
    assert 0 < found["drawn"] < 100  # of 306: only what is looked at
    assert "p2o.BatchNormalization.1" in found["opened"]  # the map opens at the cause
    assert "introduces error; the cause is here" in found["opened"]
    assert found["stepped"].startswith("node #3 of #0 to #671, ")
    assert found["end"] == "672"
    assert found["found"] == "1 found"
    assert found["searched"] == "611"
    assert found["graph"] > 1
    assert "batch_norm_0.tmp_3" in found["tip"]
    assert found["copies"] == 4  # the first screen's two, one repair with a command, and how it was run


def test_hostile_names_do_nothing_in_a_narrow_browser(browser: Browser) -> None:
    document = documents.incomplete()
    with open_page(browser, as_html.render_html(document), width=400, before=SILENCE) as page:
        assert run_script(page, QUIET) == ["", 0, False]
        # NaN counts as the worst.
        assert run_script(page, "document.querySelector('#all tbody tr[id]').id") == "t1"
        names = run_script(page, "rows.name.map((name, i) => [name, nodeOf(i)])")
    held = [[row["name"], row.get("node") or row["name"]] for row in view_rows(document)]
    assert names == held


def view_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    from parityscope.report.view import view_study

    return list(view_study(document)["tensors"])


# By keyboard alone


def test_everything_is_reached_and_used_by_keyboard(browser: Browser) -> None:
    focus = "(document.activeElement.id || document.activeElement.textContent).trim()"
    with open_page(browser, as_html.render_html(documents.large(60)), before=SILENCE) as page:
        reached: list[str] = []
        wanted = {"Copy", "Network", "All tensors", "search", "Next match", "Whole", "strip"}
        while len(reached) < 60 and not wanted <= set(reached):
            press_key(page, "Tab")
            reached.append(run_script(page, focus))
        assert reached[0] == "language"
        assert wanted <= set(reached)
        for _ in reached:
            if run_script(page, focus) == "strip":
                break
            press_key(page, "Tab", shift=True)
        press_key(page, "ArrowRight", "ArrowRight", "End")
        assert run_script(page, "document.getElementById('strip').getAttribute('aria-valuenow')") == "60"
        wide = "document.getElementById('strip').getAttribute('aria-valuetext')"
        press_key(page, "Home", "+", "-", "ArrowRight")
        assert run_script(page, wide).startswith("node #1 of #0 to #59, ")
        press_key(page, "Enter")
        assert run_script(page, focus) == "node"  # what is opened is told next
        for _ in range(12):
            press_key(page, "Tab")
            if run_script(page, "document.activeElement.closest('#around') !== null"):
                break
        box = "document.querySelector('#around svg').getAttribute('viewBox').split(' ').map(Number)"
        before = run_script(page, box)
        press_key(page, "ArrowRight", "ArrowDown", "+")
        after = run_script(page, box)
        assert after[0] > before[0]
        assert after[1] > before[1]
        assert after[2] < before[2]
        press_key(page, "Tab", "Enter")  # the graph goes from node to node
        assert run_script(page, "document.activeElement.matches('#around .open')")
        press_key(page, "/")
        press_key(page, *"_59", "Enter")
        assert run_script(page, "document.getElementById('found').textContent") == "1 found"
        assert run_script(page, wide).startswith("node #59 of #0 to #59, ")
        assert run_script(page, QUIET) == ["", 0, False]


def test_what_was_sorted_filtered_and_opened_is_in_the_address(browser: Browser) -> None:
    text = as_html.render_html(documents.large(60))
    state = """[document.getElementById("strip").getAttribute("aria-valuenow"), document.getElementById("search").value,
      document.getElementById("found").textContent, document.getElementById("filter").elements.text.value,
      document.querySelector("#filter output").textContent, document.querySelector("#all tbody tr[id]").id,
      document.querySelector("[aria-sort]").textContent, document.querySelector("[aria-sort]").ariaSort]"""
    with open_page(browser, text) as page:
        first = run_script(page, state)
        run_script(
            page,
            """(() => {
  const type = (field, text) => { field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); };
  document.querySelectorAll("#all thead button")[1].click();
  document.querySelectorAll("#all thead button")[1].click();
  type(document.getElementById("search"), "Sigmoid");
  type(document.getElementById("filter").elements.text, "Conv");
  document.getElementById("strip").dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
})()""",
        )
        used, address = run_script(page, state), run_script(page, "location.search")
    assert used != first
    with open_page(browser, text, query=address) as page:
        assert run_script(page, state) == used
    with open_page(browser, text, query="?sort=99d&node=-3&another=%00") as page:
        assert run_script(page, state) == first


# In two languages


def test_the_page_changes_its_language_and_back(browser: Browser) -> None:
    with speak_language("zh"):
        text = as_html.render_html(documents.detector())
    said = """[document.querySelector(".tile h2").textContent, document.querySelector("nav a").textContent,
      document.querySelector("#node .state").textContent, document.getElementById("search").placeholder,
      document.querySelector("#all tbody button").title].join("|")"""
    name = 'document.querySelector("#outputs h3 code").textContent'
    change = "new Promise((done) => { document.getElementById('language').click(); setTimeout(done); })"
    chinese = "模型使用者看到的|网络| 引入误差; 原因在此|名称或算子|在网络图上显示"
    with open_page(browser, text) as page:
        assert run_script(page, said) == chinese
        assert run_script(page, "document.documentElement.lang") == "zh"
        named = run_script(page, name)
        run_script(page, change)
        english = ("What users of the model see", "Network", " introduces error; the cause is here", "name or operator")
        assert run_script(page, said) == "|".join((*english, "show on the map"))
        assert run_script(page, "document.documentElement.lang") == "en"
        assert run_script(page, name) == named
        run_script(page, change)
        assert run_script(page, said) == chinese


# For everybody


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A page of each kind, by what wrote it."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: as_html.render_html(getattr(documents, name)()) for name in ("within", "incomplete")}
    found["detector"] = as_html.render_html(documents.detector(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PARITYSCOPE_NO_FORK", "1")
        onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
        np.savez("x.npz", x=np.random.default_rng(0).normal(size=(1, 1, 2, 2)).astype(np.float32))
        given = ("m.onnx", "--inputs", "x.npz", "--quiet")
        assert exit_status("lint", "m.onnx", "--quiet", "-o", "lint.html") in {0, 1}
        assert exit_status("predict", *given, "-o", "predict.html") in {0, 1}
        assert exit_status("repair", *given, "--low", "f16", "-o", "fixed.onnx", "-o", "repair.html") in {0, 1, 3}
        sides = ("--before", "sim:f16", "--after", "sim:f16?model=fixed.onnx")
        assert exit_status("verify", *given, *sides, "--no-timing", "--study", "verify") in {0, 1, 3}
        for name in ("f16", "bf16"):
            assert exit_status("compare", *given, "--candidate", f"sim:{name}", "--study", name) in {0, 1, 3}
        assert exit_status("diff", "f16", "bf16", "--quiet", "-o", "diff.html") in {0, 1, 3}
        Path("build.log").write_text(LOG, encoding="utf-8")
        assert exit_status("log", "build.log", "-o", "log.html") in {0, 1, 3}
        Path("parityscope.toml").write_text(CHECK, encoding="utf-8")
        assert exit_status("check", "parityscope.toml", "--quiet", "-o", "check.html") in {0, 1, 3}
        assert exit_status("look", *given, "-o", "look.html") in {0, 1}
        assert exit_status("list", "-o", "list.html") == 0
        assert exit_status("explain", "RNG001", "-o", "explain.html") == 0
        if find_spec("tensorrt_rtx"):
            assert exit_status("network", "m.onnx", "--quiet", "-o", "network.html") in {0, 1}
    files = {path.stem: path for path in folder.glob("*.html")} | {"verify": folder / "verify" / "report.html"}
    return found | {name: path.read_text("utf-8") for name, path in files.items()}


LOG = """[W] [TRT] Detected layernorm nodes in FP16.
[W] [TRT] Running layernorm after self-attention with FP16 Reduce or Pow may cause overflow.
[I] Engine built in 12.3 sec.
"""
CHECK = """[[check]]
name = "one"
model = "m.onnx"
candidate = "sim:f16"
inputs = "x.npz"
"""
KINDS = (
    *("check", "log", "detector", "within", "incomplete", "lint", "predict", "repair", "verify", "diff"),
    *("look", "list", "explain", "network"),
)


@pytest.mark.skipif(AXE is None, reason="no axe-core: make develop, or AXE_CORE=path/to/axe.min.js")
@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_on_any_page(name: str, browser: Browser, pages: dict[str, str]) -> None:
    if name not in pages:
        pytest.skip("tensorrt-rtx is not installed")
    # Narrow and dark finds what wide and light does not; the other language, what is named in one alone.
    for width, other in ((400, False), (1280, True))[: 2 if name in {"detector", "verify"} else 1]:
        with open_page(browser, pages[name], width=width, dark=not other) as page:
            if other:
                run_script(page, "document.getElementById('language').click()")
            assert find_violations(page) == []
            assert run_script(page, "document.documentElement.scrollWidth <= innerWidth")
            run_script(page, "localStorage.clear()")


# What is where


@pytest.mark.parametrize("width", [1280, 400])
def test_what_is_asked_first_is_on_the_first_screen(width: int, browser: Browser, detector: str) -> None:
    places = {
        "verdict": ".verdict",
        "title": "h1",
        "fix": ".answers .command",
        "sections": "nav.sections",
        "tile": ".tile",
        "last tile": ".tile:last-child",
        "strip": "#strip",
    }
    asked = f"""Object.fromEntries(Object.entries({json.dumps(places)}).map(([name, place]) => {{
      const box = document.querySelector(place).getBoundingClientRect();
      return [name, [box.left, box.top, box.width, box.height].map(Math.round)];
    }}))"""
    with open_page(browser, detector, width=width) as page:
        found = run_script(page, asked)
    held = json.loads(BOXES.read_text("utf-8")) if BOXES.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        BOXES.write_text(json.dumps({**held, str(width): found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    # Lines are as high as this machine's fonts, and a text may take one more: three lines on a wide screen, six on a narrow one.
    lines = 75 if width > 1000 else 150
    for name, (left, top, wide, high) in held[str(width)].items():
        assert found[name][0] == pytest.approx(left, abs=12), name
        assert found[name][1] == pytest.approx(top, abs=lines), name
        assert found[name][2] == pytest.approx(wide, abs=12 if name != "verdict" else 40), name
        assert found[name][3] == pytest.approx(high, abs=60), name
    if width > 1000:
        assert found["strip"][1] + found["strip"][3] <= 800
