"""How a verb hands over what it found: on stdout, in files whose endings say their form, and in a folder that keeps it.

A command takes an `Answer` as its parameter `answer`, or as `told` where it keeps nothing or keeps its study itself; the options
follow by themselves (`_requesting.spread_options`). `WITHOUT` lists the verbs that lack an option of these, with the reason.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.api.saving import write_file, write_folder
from parityscope.cli.shell.output import claim_report, print_document
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.report.forms import format_of_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.report.forms import Forms

_MACHINE = "it tells of what is installed here, of no model"
_READ = "it reads a study, and adds nothing to one"
# Of each option the verbs for which it has no meaning. Every other verb has it.
WITHOUT: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "--output": {
            "completion": "the script goes where the shell looks for it, or to stdout",
            "mcp": "it answers an assistant until it is ended; each of its tools takes what its verb takes",
            "new": "it writes one file, of the name that it is given",
            "open": "what it shows is in the study already; parityscope report STUDY -o FILE writes it",
            "serve": "it answers a browser until it is ended",
        },
        "--study": {
            **dict.fromkeys(("completion", "doctor", "explain", "list", "mcp", "new"), _MACHINE),
            **dict.fromkeys(("experiment", "open", "report", "serve"), _READ),
            "run": "what it makes is a recording, which -o names",
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What stdout gets (a format's name), files as well, and a folder that keeps the answer; None for no folder."""

    format_name: str = "text"
    output: tuple[Path, ...] = ()
    quiet: bool = False
    kept: Path | None = None

    @property
    def place(self) -> str:
        """Where the answer is written to, as a summary line goes on; "" for nowhere."""
        files = [*self.output, *([self.kept / "report.html"] if self.kept else [])]
        return f"; the report is {files[0]}" if files else ""

    def take_file(self, named: Sequence[Path]) -> tuple[Path | None, Answer]:
        """Of the files that -o names the one that is no report by its ending, which the verb makes; the answer with the others.

        Raises:
            ParityError: there are two.
        """
        made = [path for path in named if not format_of_file(path)]
        if len(made) > 1:
            raise ParityError(f"-o names two files to make: {made[0]} and {made[1]}", fix="keep one of them")
        return (made[0] if made else None), replace(self, output=tuple(path for path in named if path not in made))

    def claim(self, forms: Forms) -> None:
        """Refuses, before the work is done, what could not be written behind it.

        Raises:
            ParityError: there is no such format, an ending says none of these forms, or a place is taken.
        """
        forms.check(self.format_name)
        for path in self.output:
            claim_report(path, "-o", forms)
        if self.kept is not None:
            from parityscope.study import refuse_taken

            refuse_taken(self.kept)
            if not self.kept.parent.is_dir():
                raise ParityError(f"there is no folder {self.kept.parent}", fix=f"mkdir -p {self.kept.parent}")

    def write(self, forms: Forms, document: Mapping[str, Any]) -> None:
        """Writes the files and the folder."""
        for path in self.output:
            write_file(forms, document, path)
        if self.kept is not None:
            write_folder(forms, document, self.kept)

    def hand_over(self, forms: Forms, document: Mapping[str, Any]) -> None:
        """Writes all, and prints the document."""
        self.write(forms, document)
        print_document(forms, document, self.format_name)

    def summarize(self, words: str) -> None:
        """One line on stderr: how it ended, and where it is written; nothing where quiet was asked for."""
        if not self.quiet:
            print(f"{words}{self.place}", file=sys.stderr)
