"""What is read first: the help of the command line, every verb in one whole line; and the two READMEs, which are twins."""

from __future__ import annotations

import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parityscope import cli
from parityscope.cli import main
from parityscope.cli.shell.app import command
from parityscope.cli.shell.help import EXAMPLES
from parityscope.cli.shell.prepared import HELP_FILE, HELP_WIDTH

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "README.zh-CN.md")
MODULES = [one.name for one in pkgutil.iter_modules(cli.__path__) if not one.ispkg]
VERBS = sorted(name.rstrip("_") for name in MODULES if not name.startswith("_"))


def helped(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_every_verb_stands_in_one_line_that_is_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = helped([], capsys, monkeypatch).partition("Commands:")[2].partition("Start with:")[0]
    lines = [line for line in listed.splitlines() if line.strip()]
    assert sorted(line.split()[0] for line in lines) == VERBS
    assert not [line for line in lines if not re.fullmatch(r"  [a-z]+ +[A-Z].*\.", line) or line.endswith("...")]


@pytest.mark.parametrize("verb", VERBS)
def test_a_default_is_told_once(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = " ".join(helped([verb], capsys, monkeypatch).split())
    # An option whose help says its default in brackets shows no other one behind it.
    assert not re.findall(r" \[[^\]]*\]\. \[default: [^\]]*\]", told)


def test_the_prepared_help_is_what_is_made(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "src" / "parityscope" / "cli" / "shell" / HELP_FILE
    monkeypatch.setenv("COLUMNS", str(HELP_WIDTH))
    command(())(args=["--help"], prog_name="parityscope", standalone_mode=False)
    made = capsys.readouterr().out
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text("utf-8") == made, "write it again with UPDATE_GOLDEN=1"
    assert helped([], capsys, monkeypatch) == made


@pytest.mark.parametrize("verb", VERBS)
def test_examples_are_commands_that_can_be_typed(verb: str) -> None:
    for line in EXAMPLES[verb]:
        program, first, *words = shlex.split(line)
        assert program == "parityscope"
        assert first == verb or (verb == "look" and first.endswith(".onnx"))
        known: Any = command([verb])
        known.commands[verb].make_context(verb, words if first == verb else [first, *words])


@pytest.mark.parametrize("page", ["commands.md", "commands.zh.md"])
def test_every_verb_has_a_row_in_the_documents(page: str) -> None:
    table = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert not [verb for verb in VERBS if f"\n| `{verb}" not in table]


def test_options_are_grouped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = helped(["diagnose"], capsys, monkeypatch)
    heads = re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)
    groups = ["The samples", "What counts as the same", "What is written", "Time and memory"]
    assert heads == ["Examples", "Arguments", "Options", *groups]
    assert text.index("The samples:") < text.index("--inputs <str>") < text.index("What counts as the same:")


def test_version_and_help_load_no_command_line() -> None:
    for word in ("--version", "--help"):
        heavy = "assert not {'typer', 'rich'} & {*sys.modules}"
        program = f"import sys; from parityscope.cli import run_command; run_command([{word!r}]); {heavy}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "parityscope" in done.stdout


def test_the_version_is_a_plain_switch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--no-version" not in helped([], capsys, monkeypatch)


LATE = {
    "jinja2",
    "numba",
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "openvino",
    "pydantic",
    "rich",
    "scipy",
    "sympy",
    "torch",
}
LOOK = f"""
import sys
from parityscope.cli import run_command
for words in {[["--version"], ["--help"], *([verb, "--help"] for verb in VERBS)]!r}:
    run_command(words)
    loaded = {LATE!r} & {{name.partition(".")[0] for name in sys.modules}}
    assert not loaded, (words, loaded)
"""


def test_help_loads_nothing_that_takes_long() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: parityscope") == len(VERBS) + 1


def links(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return sorted(re.findall(r"\]\(([^)]+)\)", text))


def test_the_readmes_are_twins() -> None:
    english, chinese = (links(page) for page in ("README.md", "README.zh-CN.md"))
    assert [one for one in english if one != "README.zh-CN.md"] == [one for one in chinese if one != "README.md"]
    for pattern in (r"^#+ ", r"^\| ", r"^- ", r"`--[a-z-]+"):
        counts = [len(re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES]
        assert counts[0] == counts[1], pattern
