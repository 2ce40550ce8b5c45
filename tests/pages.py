"""The pages of the documentation: their fenced blocks, and their commands as a reader runs them.

Markers in the Markdown, just before a block and invisible to the reader:

* `<!-- file: NAME -->`             the block is the file NAME, which all pages may use;
* `<!-- not run: REASON -->`        the block is not run with its page;
* `<!-- not run (WORD): REASON -->` commands of the block that begin with WORD are not run;
* `<!-- output -->`                 the `text` block is what the block before it prints on stdout, exactly.

A page whose diagnosis a test looks at more closely is worked through by that test: `work_through`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from command_line import exit_status

ROOT = Path(__file__).resolve().parents[1]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
PAGES = (ENGLISH, *sorted(page for page in (ROOT / "docs").glob("*.md") if not page.name.endswith(".zh.md")))
BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>(?:file|not run|output)\b.*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = {"console", "python", "bash", "sh", "shell"}
OUTCOMES = {0: "within policy, or done", 1: "beyond policy", 3: "something was not judged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block and the marker before it."""

    page: str
    language: str
    code: str
    marker: str

    @property
    def file(self) -> str:
        return self.marker.removeprefix("file: ") if self.marker.startswith("file: ") else ""

    def shown(self) -> list[str]:
        """All commands of the block."""
        return re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.code, re.MULTILINE)

    def commands(self) -> list[str]:
        """The commands that are to be run with the page."""
        left_out = ["make"]
        if named := re.match(r"not run \((\w+)\): ", self.marker):
            left_out.append(named[1])
        elif self.marker.startswith("not run: "):
            return []
        return [command for command in self.shown() if command.split()[0] not in left_out]


def blocks(page: Path) -> list[Block]:
    return [
        Block(page=page.name, language=found["language"], code=found["code"], marker=found["marker"] or "")
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`command` in a shell that finds the programs of this environment first; the shell does no more than that."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": search},
    )
    sweep_studies(folder)
    return done


def sweep_studies(folder: Path) -> None:
    """Takes away the studies that nobody named: two in one second would be called alike."""
    for study in folder.glob("parityscope-*"):
        shutil.rmtree(study)


def own_words(command: str) -> list[str]:
    """What follows `parityscope` in a command for which a shell does no more than part words; else nothing."""
    joined = command.replace("\\\n", " ")
    unquoted = re.sub(r"""'[^']*'|"[^"$`\\]*\"""", " ", joined)
    plain = command.startswith("parityscope ") and not re.search(r'[|<>;&$`"*~#(\[{\\]', unquoted)
    return shlex.split(joined)[1:] if plain else []


def work_through(page: Path, folder: Path, command: str, *words: str) -> int:
    """What the page's only command that begins with `command` ends with, more `words` behind it, in `folder`.

    The page's files are written there and its scripts run before it.
    """
    shown = []
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            (folder / "page.py").write_text(block.code, encoding="utf-8")
            done = run("python page.py", folder)
            assert done.returncode == 0, f"{page.name}: {done.stderr}"
        shown += [each for each in block.shown() if each.startswith(command)]
    (wanted,) = shown
    with contextlib.chdir(folder):
        return exit_status(*own_words(wanted), *words)
