"""The first screens of studies as pictures for people: what somebody sees who opens the report.

    python bench/pictures.py FOLDER STUDY [STUDY ...]

Each becomes FOLDER/NAME.png after its study's folder: 1280x800 as a window shows it, in the colours that a page needs (24). A
study named with ":dark", ":zh" or ":400" behind it is shown so ("pitch-nan:dark").
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from parityscope.languages import speak_language  # noqa: E402 from this tree
from parityscope.report.as_html import render_html  # noqa: E402
from parityscope.study import load_study, name_files_from_here  # noqa: E402
from proving.browser import open_browser, open_page, take_picture  # noqa: E402

_COLOURS = 24


def main() -> None:
    target, *words = sys.argv[1:]
    Path(target).mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        for word in words:
            place, _, way = word.partition(":")
            document = load_study(Path(place)).document
            with speak_language("zh" if way == "zh" else "en"):
                text = render_html(name_files_from_here(document, Path(place)))
            width = int(way) if way.isdecimal() else 1280
            with open_page(browser, text, width=width, dark=way == "dark") as page:
                whole = Image.open(io.BytesIO(take_picture(page))).convert("RGB")
            path = Path(target, f"{Path(place).name}{f'-{way}' if way else ''}.png")
            whole.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
            print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
