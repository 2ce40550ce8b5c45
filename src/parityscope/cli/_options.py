"""Options that several subcommands share, and what they mean as records."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.errors import ParityError
from parityscope.plain_numbers import plain_number, plain_share
from parityscope.private_folders import scratch_folder
from parityscope.times import stamp_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.records import Budget

ModelArgument = Annotated[Path, typer.Argument(help="The reference model (.onnx).", show_default=False)]
CandidateOption = Annotated[
    str, typer.Option(help="backend[:precision][?key=value&...], e.g. openvino:f16 (docs/targets.md).")
]
ReferenceOption = Annotated[str, typer.Option(help="The reference's target.")]
InputsOption = Annotated[str, typer.Option(help="Real samples: .npz, a folder, ... (docs/inputs.md) [generated].")]
PreprocessOption = Annotated[str, typer.Option(help="file.py:function, a recipe (.toml) or a processor's folder.")]
StackedOption = Annotated[bool, typer.Option("--stacked", help="Each .npz holds samples stacked on axis 0.")]
ShapesOption = Annotated[list[str] | None, typer.Option(help="name:1x3x224x224, for raw blobs and generated inputs.")]
SamplesOption = Annotated[int | None, typer.Option(help="At most so many samples.")]
SeedOption = Annotated[int, typer.Option(help="Seed of generated inputs.")]
StudyOption = Annotated[Path | None, typer.Option(help="Folder of the study [parityscope-<model>-<UTC time>].")]
FormatOption = Annotated[str, typer.Option("--format", help="What stdout gets: text, json, html, node-data, ...")]
OutputOption = Annotated[
    list[Path] | None,
    typer.Option("-o", "--output", help="A file as well: .html, .json, .md, .xml (JUnit), .sarif or .txt; repeatable."),
]
# Of documents that are no studies.
PageFormatOption = Annotated[str, typer.Option("--format", help="What stdout gets: text, json, html, markdown, ...")]
PageOption = Annotated[
    list[Path] | None,
    typer.Option("-o", "--output", help="A file as well, by its ending: .html, .json, .md, .txt, ..."),
]
KeptOption = Annotated[Path | None, typer.Option("--study", help="Folder that keeps the answer, its page and data.")]
DeclaredOption = Annotated[str, typer.Option(help="Arithmetic the candidate declares: f32, tf32, f16, bf16 or int8.")]
BudgetOption = Annotated[
    list[str] | None, typer.Option("--budget", help="METRIC=VALUE or OUTPUT:METRIC=VALUE; repeatable.")
]
PolicyOption = Annotated[Path | None, typer.Option(help="What counts as within: a .toml file (docs/policy.md).")]
MapOption = Annotated[list[str] | None, typer.Option("--map", help="reference_name=candidate_name; repeatable.")]
MemoryOption = Annotated[str, typer.Option(help="Memory for tensors, e.g. 512MiB.")]
WorkersOption = Annotated[
    str, typer.Option(help="Who shares the samples: 8 processes, ray://HOST:10001, or auto (docs/many-machines.md).")
]
AllowSkippedOption = Annotated[str, typer.Option(help="Share of samples that may be damaged or hold NaN, e.g. 1%.")]
UntilSureOption = Annotated[
    str,
    typer.Option(help="Draw samples until it is sure, e.g. 95%, whether they keep their budgets.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="Print everything that was found, not the answer alone.")]
LadderOption = Annotated[bool, typer.Option("--ladder", help="Show which tensors exceed which tolerance.")]
PeerOption = Annotated[
    str, typer.Option(help="Another target of the candidate's precision to hold it against (default: its simulation).")
]
TimeOption = Annotated[str, typer.Option(help="Time for experiments, e.g. 60s.")]
RealOption = Annotated[str, typer.Option(help="Real samples to hold the inputs against, as --inputs takes them.")]
StateOption = Annotated[list[str] | None, typer.Option(help="OUTPUT=INPUT fed back between calls; repeatable.")]
ThoroughOption = Annotated[
    bool, typer.Option("--thorough", help="Go on where the answer is known: every layer, suspect and experiment.")
]
LoopOption = Annotated[str, typer.Option(help="How outputs are fed back: a .toml file or file.py:function.")]
StepsOption = Annotated[int, typer.Option(help="Calls with --state [samples, at least 20].", show_default=False)]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress and no summary line.")]
KeepOption = Annotated[bool, typer.Option("--keep-tensors", help="Keep the captured tensors in the study.")]
MatchOption = Annotated[str, typer.Option(help="Outputs whose rows have no order, e.g. boxes,logits: paired first.")]
DecideOption = Annotated[
    list[str] | None, typer.Option(help="OUTPUT=0.3, classes, top3, ctc or none: what it decides; repeatable.")
]
ImagesOption = Annotated[Path | None, typer.Option(help="The images that the samples were made from.")]
OwnOption = Annotated[Path | None, typer.Option(help="Recorded inputs of the deployment's own model.")]
RedactOption = Annotated[bool, typer.Option("--redact", help="Leave paths, host and weights out of the study.")]


_MOST_NBYTES = 1 << 40  # chosen: no machine that this runs on has more
_MOST_DIGITS = 18  # of a size: below 2^63
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def workers_of(text: str) -> str:
    """Who shares the work, as it was typed, if that can be."""
    from parityscope.workers.choosing import check_workers

    check_workers(text)
    return text


def size_of(text: str) -> int:
    """A size in bytes: "512MiB", "2GB", "1048576"."""
    number = text.strip().rstrip("BbKkMmGgIi")
    unit = text.strip()[len(number) :].upper()
    value = plain_number(number) * _UNITS.get(unit, math.nan)
    if not 1 << 20 <= value <= _MOST_NBYTES:
        raise ParityError(f"--memory {text!r} is not a size from 1MiB to 1024GiB", fix="write --memory 512MiB")
    return int(value)


def share_of(text: str) -> float:
    """A share from 0 to 1: "1%", "0.01"."""
    value = plain_share(text)
    if not 0 <= value <= 1:
        raise ParityError(f"--allow-skipped {text!r} is no share", fix="write --allow-skipped 1%")
    return value


def confidence_of(text: str) -> float:
    """How sure is sure: "95%", "0.95"; 0 when empty."""
    value = plain_share(text) if text else 0.5
    if not 0.5 <= value < 1:
        raise ParityError(f"--until-sure {text!r} is no confidence", fix="write --until-sure 95%")
    return value if text else 0.0


def seconds_of(text: str) -> float:
    """A time in seconds: "60s", "5m", "1.5"; infinity when empty."""
    if not text:
        return float("inf")
    factor = 60.0 if text.endswith("m") else 1.0
    value = plain_number(text.removesuffix("m" if factor > 1 else "s")) * factor
    if not value > 0:
        raise ParityError(f"--time {text!r} is not a time", fix="write --time 60s")
    return value


def states_of(items: list[str] | None, steps: int, *, driven: bool = False) -> dict[str, str]:
    """`OUTPUT=INPUT` items as input -> output.

    Raises:
        ParityError: an item is not of that form, one input is fed twice, or there are calls and nothing to feed back.
    """
    found: dict[str, str] = {}
    for item in items or []:
        output, equals, name = item.rpartition("=")
        if not (output and equals and name):
            raise ParityError(f"--state {item!r} is not OUTPUT=INPUT", fix="write --state next_h=h")
        if name in found:
            raise ParityError(f"--state feeds {name!r} twice", fix="keep one of them")
        found[name] = output
    if found and driven:
        raise ParityError("--state and --loop both say what is fed back", fix="keep one of them")
    if steps < 0 or (steps and not found and not driven):
        raise ParityError(
            f"--steps {steps} says how often and nothing says what is fed back", fix="add --state OUTPUT=INPUT"
        )
    return found


def loop_of(text: str) -> tuple[dict[str, str], int, str]:
    """What `--loop` says: input -> the line that feeds it, how many calls (0: not said), and the function that drives instead.

    Raises:
        ParityError: it is neither a function nor a file that says how the calls go on.
    """
    from parityscope.case.formats.loader import is_function
    from parityscope.plain_documents import read_toml_file

    if not text:
        return {}, 0, ""
    if is_function(text):
        return {}, 0, text
    held, example = read_toml_file(text, "the loop"), "see docs/calls.md for an example"
    feed, steps, drive = held.get("feed", {}), held.get("steps", 0), held.get("drive", "")
    if strange := sorted(set(held) - {"feed", "steps", "drive"}):
        raise ParityError(f"a loop has no {strange[0]!r}", where=text, fix=f"it has feed, steps and drive; {example}")
    if not isinstance(feed, dict) or not all(isinstance(line, str) and line for line in feed.values()):
        raise ParityError("feed is no table of lines", where=text, fix=f'write h = "next_h" under [feed]; {example}')
    if type(steps) is not int or steps < 0:
        raise ParityError(f"steps is {steps!r}, not a count", where=text, fix="write steps = 40")
    if not isinstance(drive, str) or bool(drive) == bool(feed) or (drive and not is_function(drive)):
        raise ParityError(
            "it says not once how the calls go on",
            where=text,
            fix=f'write [feed], or drive = "drive.py:next"; {example}',
        )
    beside = Path(text).parent / drive
    return dict(feed), steps, str(beside) if drive and not Path(drive).is_absolute() else drive


def mapping_of(items: list[str] | None) -> dict[str, str]:
    """`old=new` items as a mapping."""
    found = {}
    for item in items or []:
        old, equals, new = item.partition("=")
        if not (old and equals and new):
            raise ParityError(f"--map {item!r} is not old=new", fix="write --map reference_name=candidate_name")
        found[old] = new
    return found


def decisions_of(items: list[str] | None) -> dict[str, str]:
    """`OUTPUT=WHAT` items as a mapping; a name may hold an equals sign."""
    found = {}
    for item in items or []:
        output, _, what = item.rpartition("=")
        if not output or not what:
            raise ParityError(f"--decide {item!r} is not OUTPUT=WHAT", fix="write --decide scores=0.3")
        found[output] = what
    return found


def budgets_of(items: list[str] | None) -> tuple[Budget, ...]:
    """`METRIC=VALUE` and `OUTPUT:METRIC=VALUE` items as budgets.

    Raises:
        ParityError: an item is not of that form, or there is no such metric.
    """
    if not items:
        return ()
    from parityscope.study import stated_budget

    found: dict[tuple[str, str], Budget] = {}
    for item in items:
        head, equals, value = item.rpartition("=")
        limit = plain_number(value)
        if not equals or not head or math.isnan(limit):
            raise ParityError(f"--budget {item!r} is not METRIC=VALUE", fix="write --budget rel_l2=1e-3")
        budget = stated_budget(head, limit, "--budget")
        if (budget.output, budget.metric) in found:
            raise ParityError(f"--budget gives {head} twice", fix="keep one of them")
        found[budget.output, budget.metric] = budget
    return tuple(found.values())


def names_of(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(name for name in text.split(",") if name)


def shapes_of(items: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`name:1x3x224x224` items as shapes."""
    found = {}
    for item in items or []:
        name, _, dims = item.rpartition(":")
        parts = dims.split("x")
        if not name or not all(part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS for part in parts):
            raise ParityError(f"--shapes {item!r} is not name:1x3x224x224", fix="write --shapes x:1x3x224x224")
        found[name] = tuple(int(part) for part in parts)
    return found


def formats_of(text: str) -> list[str]:
    """The number formats of a list with commas: "f16,bf16", "FP16, bfloat16"."""
    from parityscope.arithmetic.formats import format_word

    names = [format_word(name) for name in text.split(",") if name.strip()]
    if not names:
        raise ParityError("--formats names none", fix="write --formats f16,bf16")
    return names


@contextlib.contextmanager
def spool_folder() -> Iterator[Path]:
    """A scratch folder for samples that can be read only once."""
    with scratch_folder("spool") as folder:
        yield Path(folder)


def folder_for(name: str, study: Path | None) -> Path:
    """Where what is written of a model or by a verb goes; of two in one second, `prepare_folder` gives the later one a number."""
    return study or Path(f"parityscope-{name}-{stamp_now()}")
