"""Fuzzes the readers of data: `python -m proving.fuzz [READER ...] [--processes N] [--minutes M] [--seed N]`; exit 0 or 1.

Inputs are guided by the lines that they reach: with atheris (libFuzzer for Python) if it is installed, else by a trace of ours.
Whatever is no `ParityError`, takes five seconds of processor or a gigabyte is a finding; each place in the code is told once,
with a file that shows it, and the fuzzing goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proving.fuzz import guiding
from proving.fuzz.readers import READERS, prepare_right
from proving.fuzz.seeds import seeds_of
from proving.fuzz.watching import Watch, execute
from proving.spreading import spread

if TYPE_CHECKING:
    from collections.abc import Callable

_REPLAY_S = 60.0  # for counting the lines of a reader's corpus


def main() -> int:
    """Exit code 1 with findings."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as held:
        place = Path(held)
        if asked.again:
            return _read_again(asked, place)
        corpora = {reader: Path(asked.corpus or place / "corpus") / reader for reader in asked.reader}
        for reader, corpus in corpora.items():
            corpus.mkdir(parents=True, exist_ok=True)
            for number, seed in enumerate(seeds_of(reader)):
                (corpus / f"seed-{number}").write_bytes(seed)
        processes = max(asked.processes, len(corpora))
        figures: list[dict[str, Any]] = []
        ended = spread(lambda number, say: _work(number, corpora, place, asked, say), processes, figures.append)
        counted: dict[str, tuple[int, int]] = {}
        ended += spread(lambda number, say: _count(number, corpora, place, say), len(corpora), counted.update)
    _print_table(asked, figures, counted)
    for problem in ended:
        print(f"FAILED {problem}")
    return int(bool(ended) or len(figures) < processes or any(one["found"] for one in figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proving.fuzz", description=__doc__)
    parser.add_argument("reader", nargs="*", help=f"of {', '.join(READERS)}; all of them if none is named")
    parser.add_argument("--processes", type=int, default=1, help="how many work side by side; at least one a reader")
    parser.add_argument("--minutes", type=float, help="by the clock, of every process")
    parser.add_argument("--seconds", type=float, default=60, help="the same in seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the first process; each has its own")
    parser.add_argument("--corpus", help="a folder where inputs that reach new code are kept, and found again")
    parser.add_argument("--findings", default="fuzz-findings", help="a folder for inputs that show a finding")
    parser.add_argument("--again", nargs="+", help="files to read again, without fuzzing")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    asked = parser.parse_args()
    asked.reader = list(dict.fromkeys(asked.reader)) or list(READERS)
    if unknown := set(asked.reader) - set(READERS):
        parser.error(f"no reader: {', '.join(sorted(unknown))}")
    asked.seconds = asked.seconds if asked.minutes is None else 60 * asked.minutes
    asked.plain = asked.plain or importlib.util.find_spec("atheris") is None
    return asked


def _read_again(asked: argparse.Namespace, place: Path) -> int:
    watch = Watch(Path(asked.findings) / "again", float("inf"))
    right = prepare_right(place)
    for path in asked.again:
        for reader in asked.reader:
            execute(READERS[reader], place, right, Path(path).read_bytes(), watch)
    return int(bool(watch.found))


def _work(
    number: int, corpora: dict[str, Path], place: Path, asked: argparse.Namespace, say: Callable[[Any], None]
) -> None:
    """Fuzzes one reader: the processes take them in turn, and those of one reader share its corpus."""
    reader = list(corpora)[number % len(corpora)]
    own = place / str(number)
    own.mkdir()
    instrument = contextlib.nullcontext() if asked.plain else _instrument()
    with instrument:
        guiding.watched_files()
    right = prepare_right(own)
    watch = Watch(Path(asked.findings).resolve() / f"{reader}-{number}", time.monotonic() + asked.seconds)

    def told() -> None:
        say({"reader": reader, "seconds": time.monotonic() - watch.begun, **watch.figures()})

    if asked.plain:
        guiding.fuzz(READERS[reader], corpora[reader], own, right, watch, asked.seed + number)
        told()
    else:

        def run(content: bytes) -> None:
            execute(READERS[reader], own, right, content, watch)
            if watch.over:
                told()
                os._exit(0)

        _fuzz_with_atheris(run, corpora[reader], watch.folder, asked.seed + number)


def _instrument() -> contextlib.AbstractContextManager[Any]:
    """What is imported meanwhile tells atheris the way that it takes."""
    import atheris

    readers = ["parityscope.case", "parityscope.logs", "parityscope.backends.saved", "zipfile", "json.decoder"]
    held: contextlib.AbstractContextManager[Any] = atheris.instrument_imports(include=readers)
    return held


def _fuzz_with_atheris(run: Callable[[bytes], None], corpus: Path, findings: Path, seed: int) -> None:
    """Never comes back, because libFuzzer does not: `run` ends the process."""
    import atheris

    findings.mkdir(parents=True, exist_ok=True)
    options = [f"-seed={seed + 1}", "-timeout=120", "-rss_limit_mb=3000", f"-max_len={guiding.MOST}", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={findings}/", str(corpus)], run)
    atheris.Fuzz()


def _count(number: int, corpora: dict[str, Path], place: Path, say: Callable[[Any], None]) -> None:
    """The lines of the readers' files that the seeds reach, and those that the whole corpus reaches."""
    reader, corpus = list(corpora.items())[number]
    own = place / f"count-{number}"
    own.mkdir()
    right, watch = prepare_right(own), Watch(own / "found", time.monotonic() + _REPLAY_S)
    lines = guiding.Lines(guiding.watched_files())
    seeds = 0
    for path in sorted(corpus.iterdir(), key=lambda path: (not path.name.startswith("seed-"), path.name)):
        if not path.name.startswith("seed-"):
            seeds = seeds or len(lines.lines)
            if watch.over:
                break
        with contextlib.redirect_stdout(sys.stderr):
            execute(READERS[reader], own, right, path.read_bytes(), watch, lines.within)
    shutil.rmtree(own)
    say({reader: (seeds or len(lines.lines), len(lines.lines))})


def _print_table(asked: argparse.Namespace, figures: list[dict[str, Any]], counted: dict[str, tuple[int, int]]) -> None:
    print("\n| reader | processes | minutes together | executions | refused | findings | lines of the seeds | lines |")
    print("| --- " * 8 + "|")
    for reader in [*asked.reader, "all"]:
        held = [one for one in figures if reader in {one["reader"], "all"}]
        minutes = sum(one["seconds"] for one in held) / 60
        runs, refused = (sum(one[key] for one in held) for key in ("runs", "refused"))
        found = len({kind for one in held for kind in one["found"]})
        seeds, lines = counted.get(reader, ("", ""))
        print(f"| {reader} | {len(held)} | {minutes:.1f} | {runs} | {refused} | {found} | {seeds} | {lines} |")
    print(f"\nguided by {'a trace of lines' if asked.plain else 'atheris'}, seed {asked.seed}")


if __name__ == "__main__":
    sys.exit(main())
