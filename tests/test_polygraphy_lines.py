"""The lines of Polygraphy's that the documents give are lines that Polygraphy takes."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "polygraphy.md"
LINES = re.findall(r"(?m)^polygraphy .+$", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", LINES)
def test_polygraphy_takes_the_line(line: str) -> None:
    tools = pytest.importorskip("polygraphy.tools.registry", reason="Polygraphy is not installed")
    words = shlex.split(line)
    parser = argparse.ArgumentParser(prog="polygraphy")
    subparsers = parser.add_subparsers()
    next(tool for tool in tools.TOOL_REGISTRY if tool.name == words[1]).setup_parser(subparsers)
    _, unknown = parser.parse_known_args(words[1:])
    assert unknown == []


def test_there_are_lines() -> None:
    assert len(LINES) == 7
