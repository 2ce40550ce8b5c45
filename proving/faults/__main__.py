"""`python -m proving.faults`: lists the planted faults, and runs the diagnosis on them and on their clean twins."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import guard_exit_code
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proving.faults import Fault, Outcome


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Faults to run (default: all).")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="Only list the faults.")] = False,
    sample: Annotated[int, typer.Option(help="Cases of each fault, each with its clean twin.")] = 1,
    family: Annotated[str, typer.Option(help="Only a family, or codes that begin so (BND, PRE, ...).")] = "",
    part: Annotated[str, typer.Option(help="all, tuning, or held-out (kept apart while checks are tuned).")] = "all",
    small: Annotated[bool, typer.Option("--small", help="Only on the small networks: nothing is fetched.")] = False,
    no_clean: Annotated[bool, typer.Option("--no-clean", help="Leave the clean twins out.")] = False,
    results: Annotated[Path | None, typer.Option(help="A file that outcomes are added to, and resumed from.")] = None,
    processes: Annotated[int, typer.Option(help="Processes at once.", min=1)] = 1,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text or json.")] = "text",
) -> int:
    """Plants known faults and scores the diagnosis; exit code 1 if one is not named first or a clean twin is blamed."""
    from proving.faults import chosen_faults
    from proving.faults.cases import cases
    from proving.faults.results import run_all

    if format_name not in {"text", "json"}:
        raise ParityError(f"there is no format {format_name!r} here", fix="use --format text or json")
    if part not in {"all", "tuning", "held-out"}:
        raise ParityError(f"there is no part {part!r}", fix="use --part all, tuning or held-out")
    faults = chosen_faults(names or (), family)
    if listed:
        _list(faults, format_name)
        return Exit.WITHIN
    every = cases(faults, sample, clean=not no_clean, trained=not small)
    chosen = [case for case in every if part == "all" or (part == "tuning") == (not case.held)]
    found = run_all(chosen, faults, path=results, processes=processes, told=_tell)
    _show(found, format_name)
    return Exit.BEYOND if any(_wrong(one) for one in found) else Exit.WITHIN


def _list(faults: Mapping[str, Fault], format_name: str) -> None:
    rows = [(name, one.family, one.expected, one.title) for name, one in faults.items()]
    if format_name == "json":
        print(json.dumps([dict(zip(("name", "family", "expected", "title"), row, strict=True)) for row in rows]))
        return
    for name, group, code, title in sorted(rows, key=lambda row: (row[1], row[0])):
        print(f"{group:<14} {code}  {name:<36} {title}")


def _tell(outcome: Outcome) -> None:
    """One line a case on stderr."""
    said = ", ".join(f"{code} {role}" for code, role, _ in outcome.findings[:3]) or "nothing"
    mark = "WRONG" if _wrong(outcome) else "skipped" if outcome.error else "ok"
    line = f"{mark:<7} {outcome.case.key}: {outcome.error or f'{outcome.words} -> {said}'} ({outcome.seconds:.1f} s)"
    print(line, file=sys.stderr, flush=True)


def _wrong(outcome: Outcome) -> bool:
    return not outcome.error and (bool(outcome.blamed) if outcome.case.clean else not outcome.first)


def _show(outcomes: Sequence[Outcome], format_name: str) -> None:
    from proving.faults.tables import Share, figures

    found = figures(outcomes)
    if format_name == "json":
        print(json.dumps({"figures": found, "outcomes": [asdict(one) for one in outcomes]}, default=asdict))
        return
    for part, row in found.items():
        print(f"{part}: {row['faulty']} faulty, {row['clean']} clean, {row['not examined']} not examined")
        for name, value in row.items():
            if isinstance(value, Share) and value.count:
                share = value.hits / value.count
                print(
                    f"  {name:<15} {value.hits:4d} of {value.count:4d}  {share:6.1%}  [{value.low:.1%}, {value.high:.1%}]"
                )
        median, ninth, most = row["seconds"]
        print(f"  seconds         median {median:.1f}, ninth decile {ninth:.1f}, most {most:.1f}")


def main(arguments: list[str] | None = None) -> None:
    """Runs the suite from the command line, with the exit codes of `parityscope`."""
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    application.command()(command)
    sys.exit(
        guard_exit_code(
            lambda: application(args=arguments, prog_name="python -m proving.faults", standalone_mode=False)
        )
    )


if __name__ == "__main__":
    main()
