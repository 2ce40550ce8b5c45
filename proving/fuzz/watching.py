"""One execution, judged: what is no `ParityError`, takes long or much memory is a finding, each place in the code once."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proving.fuzz.readers import Right

SLOW_S = 5.0  # of processor
HANGS_S = 60.0
MEMORY = 1 << 30


@dataclass
class Watch:
    """What was run and found."""

    folder: Path
    until: float
    begun: float = field(default_factory=time.monotonic)
    runs: int = 0
    refused: int = 0
    found: dict[str, str] = field(default_factory=dict)

    def note(self, kind: str, content: bytes, words: str) -> None:
        """A finding, if this place was not found before."""
        if kind in self.found:
            return
        self.found[kind] = words
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"found-{len(self.found):03d}"
        path.write_bytes(content)
        print(f"FOUND {kind}\n{words}\n      {path}", flush=True)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until

    def figures(self) -> dict[str, Any]:
        """What is told of it."""
        return {"runs": self.runs, "refused": self.refused, "found": sorted(self.found)}


class _Hangs(BaseException):
    """No reader catches it."""


def execute(
    read: Callable[[Path, Right, bytes], None],
    place: Path,
    right: Right,
    content: bytes,
    watch: Watch,
    within: Callable[[Callable[[], None]], None] = lambda work: work(),
) -> None:
    """Reads `content`; `within` calls the reader, and may look at what it does meanwhile."""
    from parityscope.errors import ParityError

    watch.runs += 1
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, HANGS_S)
    begun = time.process_time()
    try:
        within(lambda: read(place, right, content))
    except ParityError as error:
        watch.refused += 1
        if not error.fix or not error.problem:
            watch.note(f"an error without words or fix: {error.problem[:60]!r}", content, str(error)[:300])
    except (Exception, _Hangs) as error:  # noqa: BLE001 - whatever else it is, is what is looked for
        calls = traceback.extract_tb(error.__traceback__)
        where = next((one for one in reversed(calls) if "parityscope" in one.filename), calls[-1])
        words = traceback.format_exc()[-1500:]
        watch.note(f"{type(error).__name__} at {where.filename}:{where.lineno}", content, words)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if time.process_time() - begun > SLOW_S:
        _time_alone(read, place, right, content, watch)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if held > MEMORY:
        watch.note(f"memory: {held >> 28} times 256 MiB", content, f"{held >> 20} MiB for {len(content)} bytes")


def _time_alone(
    read: Callable[[Path, Right, bytes], None], place: Path, right: Right, content: bytes, watch: Watch
) -> None:
    """What it takes when nobody looks at its lines."""
    begun = time.process_time()
    with contextlib.suppress(Exception):  # it was judged before
        read(place, right, content)
    spent = time.process_time() - begun
    if spent > SLOW_S:
        watch.note(f"slow: {int(spent)} s", content, f"{spent:.1f} s for {len(content)} bytes")


def _give_up(*_: object) -> None:
    raise _Hangs(f"did not end in {HANGS_S:.0f} s of processor")
