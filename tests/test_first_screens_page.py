"""The page of twelve first screens: what it shows is what its commands print, and no screen is longer than it may be."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from pages import ROOT, blocks, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PAGE = ROOT / "docs" / "first-screens.md"
LINES = 18  # of the answer, with a title and a reason that take more than one line each
NBYTES, ALL_NBYTES = 150_000, 2_500_000
# Made again in seconds, with nothing that has to be fetched.
CHEAP = ("island", "lost-bound")


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
def test_a_screen_is_what_its_command_prints(name: str, cases: ModuleType, tmp_path: Path) -> None:
    case = cases.CASES[name]
    case.prepare(tmp_path)
    done = run(f"{sys.executable} -m {case.command} --study study --quiet", tmp_path)
    assert done.returncode == 1, done.stderr
    shown = screens()[list(cases.CASES).index(name)]
    assert " ".join(done.stdout.split()) == " ".join(shown.split())
