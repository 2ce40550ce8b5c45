"""The first screens of twelve real cases, as text and as pictures: what somebody sees whose answer they are.

    python bench/pictures.py [--studies FOLDER] [CASE ...]        all of `first_cases.CASES` where none are named

Makes each case's study in FOLDER/CASE (one that is there is taken as it is), its pictures in docs/pictures/first-screens (light,
dark and in Chinese at 1280x800, and 400 pixels wide), its document in tests/golden/first-screens, and, of all,
docs/first-screens.md. Chinese needs a font with its signs (fonts-wqy-microhei).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

from first_cases import CASES  # noqa: E402 from this tree

from pages import run  # noqa: E402 from this tree
from parityscope.languages import speak_language  # noqa: E402 from this tree
from parityscope.report.as_html import render_html  # noqa: E402
from parityscope.report.as_text import render_first_screen  # noqa: E402
from parityscope.study import load_study, name_files_from_here  # noqa: E402
from proving.browser import open_browser, open_page, take_picture  # noqa: E402

if TYPE_CHECKING:
    from proving.browser import Browser

_PICTURES = ROOT / "docs" / "pictures" / "first-screens"
_DOCUMENTS = ROOT / "tests" / "golden" / "first-screens"
_PAGE = ROOT / "docs" / "first-screens.md"
_COLOURS = 32
_WAYS = ("", "dark", "400", "zh")
_HEAD = """# First screens

What somebody sees first, of twelve real cases: what the command prints, and the report at 1280x800. What is wrong in each is
known.
`python bench/pictures.py` makes them all: the cases (`bench/first_cases.py`), their studies, the pictures and this page.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    asked = parser.parse_args()
    _refuse_without_font()
    _PICTURES.mkdir(parents=True, exist_ok=True)
    _DOCUMENTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, open_browser() as browser:
        studies = (asked.studies or Path(scratch)).resolve()
        for name in asked.cases or CASES:
            folder = studies / name
            if not (folder / "study" / "study.json").is_file():
                make_study(name, folder)
            picture_study(browser, name, folder / "study")
            keep_document(name, folder / "study")
        if not asked.cases:
            _PAGE.write_text(_HEAD + "\n".join(show_case(name, studies / name / "study") for name in CASES), "utf-8")


def _refuse_without_font() -> None:
    """Ends where no font has Chinese: its characters would be drawn as boxes."""
    listed = subprocess.run(["fc-list", ":lang=zh"], capture_output=True, text=True, check=False)
    if not listed.stdout.strip():
        raise SystemExit("no font here has Chinese; on Debian and Ubuntu: apt-get install fonts-wqy-zenhei")


def make_study(name: str, folder: Path) -> None:
    """Runs the case's command in `folder`; what it has to name is held against what it names first."""
    case = CASES[name]
    folder.mkdir(parents=True)
    case.prepare(folder)
    command = case.command.replace("parityscope", f"{shlex.quote(sys.executable)} -m parityscope", 1)
    done = run(f"{command} --study study --quiet", folder)
    if done.returncode not in {0, 1}:
        raise SystemExit(f"{name}: {done.stderr}")
    document = json.loads((folder / "study" / "study.json").read_text(encoding="utf-8"))
    codes = [one["code"] for one in document["findings"] if one["role"] == "cause"]
    if codes[:1] != ([case.cause] if case.cause else []):
        raise SystemExit(f"{name}: the first cause is {codes[:1]}, not {case.cause!r}")


def picture_study(browser: Browser, name: str, study: Path) -> None:
    with contextlib.chdir(study.parent):  # as somebody sees it who typed the command there
        document = name_files_from_here(load_study(study).document, Path(study.name))
    for way in _WAYS:
        with speak_language("zh" if way == "zh" else "en"):
            text = render_html(document)
        with open_page(browser, text, width=int(way) if way.isdecimal() else 1280, dark=way == "dark") as page:
            whole = Image.open(io.BytesIO(take_picture(page))).convert("RGB")
        path = _PICTURES / f"{name}{f'-{way}' if way else ''}.png"
        whole.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} KB", flush=True)


def keep_document(name: str, study: Path) -> None:
    """The study's document, from which a test draws the screens again; where it was made is left out."""
    document = json.loads((study / "study.json").read_text(encoding="utf-8"))
    text = json.dumps(document, sort_keys=True).replace(str(study.parent.resolve()), ".")
    (_DOCUMENTS / f"{name}.json.xz").write_bytes(lzma.compress(text.encode()))


def show_case(name: str, study: Path) -> str:
    """The case's part of the page."""
    case = CASES[name]
    with contextlib.chdir(study.parent):
        document = name_files_from_here(load_study(study).document, Path(study.name))
    text = render_first_screen(document, where="study/report.html", width=100)
    others = ", ".join(f"[{say}](pictures/first-screens/{name}-{way}.png)" for say, way in _OTHERS.items())
    return (
        f"## {case.title}\n\nWhat is true: {case.truth}.\n\n<!-- not run: bench/first_cases.py makes its files -->\n```console\n"
        f"$ {case.command}\n```\n\n<!-- not run: what it prints -->\n```text\n{text.rstrip()}\n```\n\n"
        f"![The report's first screen](pictures/first-screens/{name}.png)\n\nThe same {others}.\n"
    )


_OTHERS = {"in the dark": "dark", "400 pixels wide": "400", "in Chinese": "zh"}


if __name__ == "__main__":
    main()
