"""Runs the corpus: `python -m proving.hostile [--processes N] [--family F] [--quick] [--seed N] [--case NAME]`; exit 0 or 1."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proving.hostile.cases import Case, Family, cases_of
from proving.hostile.families import every_family
from proving.hostile.judging import faults_of, outcome_of
from proving.hostile.making import warming
from proving.hostile.running import measure_base, remove, run_case, warm_up
from proving.spreading import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EACH = 125  # cases a family: 1,500 in twelve


def main() -> int:
    """Exit code 1 if a promise was broken."""
    asked = _arguments()
    cases = _chosen(asked)
    results: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()

    def tell(result: dict[str, Any]) -> None:
        results[result["case"]] = result
        _tell(result, asked, sys.stderr.isatty())

    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as held:
        place = Path(asked.keep).resolve() if asked.keep else Path(held)
        dealt = _dealt(cases, max(1, asked.processes))
        ended = spread(lambda number, say: _work(dealt[number], place / str(number), asked, say), len(dealt), tell)
    told = [results[case.name] for case in cases if case.name in results]
    if told:
        _print_table(told, time.monotonic() - begun)
    for problem in ended:
        print(f"FAILED {problem}")
    if len(told) < len(cases):
        print(f"FAILED {len(cases) - len(told)} cases were not run")
    if asked.json:
        Path(asked.json).write_text(json.dumps(told, indent=1), encoding="utf-8")
    return int(bool(ended) or len(told) < len(cases) or any(one["faults"] for one in told))


def _dealt(cases: Sequence[Case], processes: int) -> list[list[Case]]:
    """The cases of each process; shuffled, so that no process gets all turns of a rule that is slow."""
    order = list(cases)
    random.Random(0).shuffle(order)
    return [order[number::processes] for number in range(min(processes, max(1, len(cases))))]


def _work(cases: Sequence[Case], folder: Path, asked: argparse.Namespace, say: Callable[[Any], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    base = _prepare(folder, 1 if asked.case else 3)
    for case in cases:
        say(_examine(case, folder, base, asked))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proving.hostile", description=__doc__)
    parser.add_argument("--family", action="append", help="only this family; repeatable")
    parser.add_argument("--rule", help="only the rules whose name begins so")
    parser.add_argument("--case", action="append", help="only the case of this name; repeatable")
    parser.add_argument("--quick", action="store_true", help="the first case of every second rule, of all families")
    parser.add_argument("--processes", type=int, default=1, help="how many work side by side, each on two cores")
    parser.add_argument("--seed", type=int, default=0, help="another corpus of the same rules")
    parser.add_argument("--each", type=int, default=EACH, help="cases a family")
    parser.add_argument("--keep", help="a folder where the cases' files stay")
    parser.add_argument("--json", help="a file for the outcome of every case")
    return parser.parse_args()


def _chosen(asked: argparse.Namespace) -> list[Case]:
    families = [one for one in every_family() if not asked.family or one.name in asked.family]
    if asked.case:
        return [_named(name, families, asked.seed) for name in asked.case]
    cases = [case for family in families for case in cases_of(family, asked.each, asked.seed)]
    if asked.rule:
        cases = [case for case in cases if case.rule.__name__.startswith(asked.rule)]
    if asked.quick:
        cases = [case for case in cases if case.number == 0][::2]
    return cases


def _named(name: str, families: list[Family], seed: int) -> Case:
    family, rule, number = name.split("/")
    held = next(one for one in families if one.name == family)
    return Case(family, next(one for one in held.rules if one.__name__ == rule), int(number), seed)


def _prepare(folder: Path, warming_commands: int) -> int:
    """A home of our own, everything imported, caches filled; and the memory that is nobody's fault."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    os.environ["HOME"] = str(home)
    os.environ.pop("XDG_CACHE_HOME", None)
    warm_up()
    for number in range(warming_commands):
        _, ending, place = run_case(Case("warm", warming, number, 0), folder, 0)
        if ending.code not in {0, 1, 3}:
            sys.exit(f"a command that is right ended with {ending.code}:\n{ending.err.decode(errors='replace')}")
        remove(place)
    return measure_base(folder)


def _examine(case: Case, folder: Path, base: int, asked: argparse.Namespace) -> dict[str, Any]:
    ask, ending, place = run_case(case, folder, base)
    faults = faults_of(ask, ending, place)
    result = {
        "case": case.name,
        "family": case.family,
        "words": list(ask.words),
        "outcome": outcome_of(ending),
        "cpu_s": round(ending.cpu_s, 3),
        "wall_s": round(ending.wall_s, 3),
        "waited_s": round(ending.waited_s, 3),
        "memory": ending.memory,
        "faults": faults,
        "said": ending.err.decode(errors="replace")[-2000:],
    }
    if asked.case:
        print(f"$ parityscope {' '.join(ask.words)!r}\n{_visible(ending.out)}{_visible(ending.err)}", flush=True)
    if not asked.keep:
        remove(place)
    return result


def _visible(stream: bytes) -> str:
    """What was printed, with what a terminal would obey in words."""
    text = stream.decode(errors="backslashreplace")
    return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text)


def _tell(result: dict[str, Any], asked: argparse.Namespace, terminal: bool) -> None:  # noqa: FBT001
    if result["faults"]:
        seed = f" --seed {asked.seed}" if asked.seed else ""
        print(f"FAILED {result['case']}: {'; '.join(result['faults'])[:1500]!r}", flush=True)
        print(f"       parityscope {' '.join(result['words'])[:300]!r}", flush=True)
        print(f"       python -m proving.hostile{seed} --case {result['case']}", flush=True)
    elif terminal:
        print(f"\r\x1b[K{result['case']}", end="", file=sys.stderr, flush=True)


def _print_table(results: list[dict[str, Any]], seconds: float) -> None:
    outcomes = sorted({one["outcome"] for one in results})
    families = list(dict.fromkeys(one["family"] for one in results))
    print("\n| family | cases | " + " | ".join(outcomes) + " | failed | most CPU s | most s | most MiB |")
    print("| --- " * (len(outcomes) + 6) + "|")
    for name in [*families, "all"]:
        held = [one for one in results if name in {one["family"], "all"}]
        counts = Counter(one["outcome"] for one in held)
        failed = sum(bool(one["faults"]) for one in held)
        cells = [str(counts[outcome]) for outcome in outcomes]
        clock = max(one["wall_s"] - one["waited_s"] for one in held)
        most = (
            f"{max(one['cpu_s'] for one in held):.1f} | {clock:.1f} | {max(one['memory'] for one in held) / 2**20:.0f}"
        )
        print(f"| {name} | {len(held)} | {' | '.join(cells)} | {failed} | {most} |")
    kept = sum(not one["faults"] for one in results)
    print(f"\n{kept} of {len(results)} cases ended as promised, in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
