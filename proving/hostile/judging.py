"""What is wrong with how a case ended; nothing, if all promises were kept."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from proving.hostile.running import WALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proving.hostile.cases import Ask, Ending
    from proving.hostile.running import Place

CPU_S = 10.0  # of a refusal
ANSWER_CPU_S = 60.0  # of an answer about networks of a few nodes
MEMORY = 1 << 30
MOST_LINES, MOST_CHARACTERS = 14, 4000  # of one clear error
MOST_NOISE = 60  # lines on stderr of an answer
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What rich writes on a terminal for colours and progress, and parts of names that are of the same kind.
_COLOURS = re.compile(r"\r\n|\r(\x1b\[2?K)?|\x1b\[(\d*[AK]|\?25[lh]|[\d;]*m)")
_OBEYED = ("\x1b[1;31mred", "\r\x1b[Kwithin")
_NAMES = {0: "0 within", 1: "1 beyond", 2: "2 refused", 3: "3 incomplete", 101: "101 bug", 130: "130 interrupted"}


def outcome_of(ending: Ending) -> str:
    """Its column in the table."""
    if ending.stopped:
        return "stopped"
    return _NAMES.get(ending.code, "other")


def faults_of(ask: Ask, ending: Ending, place: Place) -> list[str]:
    """Every promise that it broke, in words."""
    if ending.stopped:
        return [ending.stopped, *ending.events, *_left(ask, ending)]
    found = [*_endings(ask, ending), *_costs(ending), *_said(ask, ending), *_left(ask, ending), *ending.events]
    if ask.after is not None:
        wrong = ask.after(place.work, ending)
        found += [wrong] if wrong else []
    return found


def _endings(ask: Ask, ending: Ending) -> Iterator[str]:
    if ending.code not in ask.right:
        yield f"ended with {ending.code}, not with {' or '.join(str(code) for code in sorted(ask.right))}"
    nothing = ending.code == 3 and b"nothing could be compared: " in ending.err  # an error, and no verdict
    if (ending.code == 2 or nothing) and ask.stderr == "file" and ask.stdout != "terminal":
        yield from _error(ending.err.decode(errors="replace"))
    silent = ask.words[:1] in {("run",), ("new",), ("repair",)} or ask.stdout != "file"
    if ending.code in {0, 1, 3} and not nothing and not ending.out.strip() and not silent:
        yield "an answer without a word"
    if ending.code in {0, 1, 3} and not nothing and "--format json" in " ".join(ask.words) and ask.stdout == "file":
        yield from _strict(ending.out)


def _error(said: str) -> Iterator[str]:
    """An error is one: it names the problem and the fix, and does not go on and on."""
    lines = said.splitlines()
    problems = [line for line in lines if line.startswith("parityscope: ")]
    if len(problems) != 1:
        yield f"{len(problems)} errors instead of one"
    if not any(line.strip().startswith("fix:") for line in lines):
        yield "an error without a fix"
    if len(lines) > MOST_LINES or len(said) > MOST_CHARACTERS:
        yield f"an error of {len(lines)} lines and {len(said)} characters"
    if any(line.rstrip() == "parityscope:" for line in lines):
        yield "an error without words"


def _strict(out: bytes) -> Iterator[str]:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(out, parse_constant=refuse)
    except ValueError as error:
        yield f"no strict JSON: {error}"


def _costs(ending: Ending) -> Iterator[str]:
    refused = ending.code not in {0, 1, 3}
    if ending.cpu_s > (CPU_S if refused else ANSWER_CPU_S):
        yield f"{ending.cpu_s:.1f} s of processor"
    clock = ending.wall_s - ending.waited_s
    if clock > (WALL_S if refused else 2 * WALL_S):
        yield f"{clock:.1f} s by the clock"
    if ending.memory > MEMORY:
        yield f"{ending.memory / 2**30:.1f} GiB of memory"


def _said(ask: Ask, ending: Ending) -> Iterator[str]:
    for name, stream, kind in (("stdout", ending.out, ask.stdout), ("stderr", ending.err, ask.stderr)):
        text = stream.decode("utf-8", errors="replace")
        if kind == "terminal":
            yield from (f"the terminal was told {part!r}" for part in _OBEYED if part in text)
            text = _COLOURS.sub("", text)
        if "Traceback (most recent call last)" in text or "this is a bug of Parityscope" in text:
            yield f"a traceback on {name}: {text.strip().splitlines()[-2:]}"[:400]
        found = _CONTROL.search(text)
        if found and kind != "coded":
            around = text[max(0, found.start() - 30) : found.end() + 30]
            yield f"control characters on {name}: {around!r}"
        if "�" in text and b"\xef\xbf\xbd" not in stream and kind != "coded":
            yield f"{name} is not UTF-8"
        if "SECRET OF ANOTHER USER" in text:
            yield f"{name} holds what belongs to another user"
    if ending.code in {0, 1, 3} and ending.err.count(b"\n") > MOST_NOISE:
        yield f"{len(ending.err.splitlines())} lines on stderr"


def _left(ask: Ask, ending: Ending) -> Iterator[str]:
    for process in ending.left:
        yield f"a process was left: {process[:200]}"
    for path in ending.written:
        area, _, name = path.partition("/")
        if not name:
            continue
        if area == "outside":
            yield f"changed what belongs to others: {name}" if "ran" not in name else f"CODE RAN: {name}"
        elif area == "tmp":
            if ask.address_space:  # nobody had the memory to take it away: the next command does
                continue
            yield f"left in TMPDIR: {name}"
        elif not _may_write(name, ask):
            yield f"wrote {name}"


def _may_write(name: str, ask: Ask) -> bool:
    """Whether a path below the case's folder was the command's to write: what it was told to, or a study."""
    top = name.split("/", maxsplit=1)[0].lstrip(".")
    return any(top.startswith(allowed) for allowed in (*ask.writes, "parityscope-"))
