"""Rows of the comparison, kept as JSON lines, and as the Markdown of docs/comparison.md."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

_HEAD = (
    "| model, format, budget | method | claims | unseen samples that miss | worst | FP32 nodes | FLOPs in FP32 | Casts "
    "| evaluations | plain inferences a sample | CPU s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
_GRANTED = 0.05  # the share that may miss under a certificate of 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One method on one subject. `problem` says why there is no model of it; `worst` is in units of the budget.

    `claims` is whether the method says that its model meets the budget; `onnxruntime` is the worst excess on the search
    samples that ONNX Runtime's CPU provider shows of the same file, NaN where it refuses it. `passes` are evaluations of all
    search samples: runs of the simulation, divided by their number; `excused` of them went into sensitivities and the `flagged`
    nodes; `inferences` is what the search costs for each search sample, in runs of the plain FP32 model. They are NaN where
    nobody counts. `seconds` are of CPU.
    """

    subject: str
    budget: str
    method: str
    problem: str = ""
    claims: bool = False
    said: str = ""
    worst: float = math.nan
    misses: int = 0
    fresh: int = 0
    onnxruntime: float = math.nan
    full: int = 0
    nodes: int = 0
    flops: float = math.nan
    casts: int = 0
    evaluations: int = 0
    flagged: int = 0
    passes: float = math.nan
    excused: float = math.nan
    inferences: float = math.nan
    seconds: float = math.nan

    @property
    def meets(self) -> bool:
        """Whether there is a model and every unseen sample meets the budget."""
        return not self.problem and self.fresh > 0 and not self.misses


def keep(row: Row, path: Path) -> None:
    """Appends a row to the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def kept_rows(path: Path) -> list[Row]:
    """The rows of the file; a later row of one subject and method takes an earlier one's place."""
    found: dict[tuple[str, str], Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = Row(**json.loads(line))
        found[row.subject, row.method] = row
    return list(found.values())


def markdown(rows: Iterable[Row]) -> str:
    """The table, one line a row; a subject is named in its first one."""
    lines, last = [_HEAD], ""
    for row in rows:
        name = "" if row.subject == last else f"{row.subject}, {row.budget}"
        last = row.subject
        lines.append(f"| {name} | {row.method} | " + " | ".join(_cells(row)) + " |")
    return "\n".join(lines)


def tallied(rows: Sequence[Row]) -> str:
    """For each method: on how many subjects it gave a model, met the budget on every unseen sample, and claimed to.

    Of those that claim it: where an unseen sample misses, and where more than one in twenty does, which is beyond what a
    certificate of 95 % grants.
    """
    lines = [
        "| method | subjects | models | meet the budget | claim to | of these, one misses | more than 5 % miss |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        models = [row for row in own if not row.problem]
        claims = [row for row in models if row.claims]
        some, many = (sum(row.misses > share * row.fresh for row in claims) for share in (0.0, _GRANTED))
        meets = sum(row.meets for row in own)
        lines.append(f"| {method} | {len(own)} | {len(models)} | {meets} | {len(claims)} | {some} | {many} |")
    return "\n".join(lines)


def against(rows: Sequence[Row], ours: str, others: Collection[str]) -> str:
    """What is kept in FP32 beside the best of `others` that meets the budget: fewest FLOPs, then fewest Casts."""
    lines = [f"| subject | {ours}: FLOPs in FP32, Casts | best of the tools that meets it | its FLOPs in FP32, Casts |"]
    lines.append("| --- | --- | --- | --- |")
    pairs: list[tuple[Row, Row]] = []
    for own in rows:
        if own.method != ours:
            continue
        met = [row for row in rows if row.subject == own.subject and row.method in others and row.meets]
        best = min(met, key=lambda row: (row.flops, row.casts), default=None)
        said = f"{own.flops:.1%}, {own.casts}" if own.meets else "not met"
        if best is None:
            lines.append(f"| {own.subject} | {said} | none | |")
            continue
        lines.append(f"| {own.subject} | {said} | {best.method} | {best.flops:.1%}, {best.casts} |")
        pairs.append((own, best))
    return "\n".join([*lines, "", _summed(pairs)])


def _summed(pairs: Sequence[tuple[Row, Row]]) -> str:
    """Medians over all subjects on which one of the others meets the budget; a budget that is missed counts as infinitely far."""
    ratios = [_ratio(own, best) for own, best in pairs]
    some = [ratio for ratio, (own, best) in zip(ratios, pairs, strict=True) if own.flops or best.flops or not own.meets]
    more = [own.casts - best.casts if own.meets else math.inf for own, best in pairs]
    half, beyond, dearer = (
        sum(held) for held in ([r <= 0.5 for r in ratios], [r > 1 for r in ratios], [m > 0 for m in more])
    )
    return (
        f"Over the {len(pairs)} subjects where a tool meets the budget: at most half of its FLOPs on {half} (0 % against 0 % "
        f"counts, as nothing is less), more than its FLOPs on {beyond}, median ratio {_middle(ratios):.2f} (0 for 0 % against "
        f"0 %); over the {len(some)} of them where one of the two keeps any, {_middle(some):.2f}. Casts: {_middle(more):+.0f} "
        f"in the median, more on {dearer}."
    )


def _ratio(own: Row, best: Row) -> float:
    if not own.meets:
        return math.inf
    return own.flops / best.flops if best.flops else 0.0 if not own.flops else math.inf


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def spending(rows: Sequence[Row], ours: str) -> str:
    """What the searches cost: assignments, evaluations of all search samples, and runs of the plain model for each sample."""
    head = (
        "subject",
        "flagged nodes",
        "assignments",
        "evaluations",
        "of them sensitivities and flagged nodes",
        "others",
    )
    lines = [
        f"| {' | '.join((*head, 'plain inferences a sample', 'CPU s'))} |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.subject} | {row.flagged} | {row.evaluations} | {row.passes:.1f} | {row.excused:.1f} | "
        f"{row.passes - row.excused:.1f} | {row.inferences:.0f} | {row.seconds:.0f} |"
        for row in rows
        if row.method == ours and math.isfinite(row.passes)
    ]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem:
        return (
            "no model: " + row.problem.replace("|", "/"),
            "",
            "",
            "",
            "",
            "",
            _number(row.evaluations),
            _inferences(row),
            f"{row.seconds:.0f}",
        )
    missed = f"{row.misses} of {row.fresh}"
    return (
        row.said or "nothing",
        f"**{missed}**" if row.claims and row.misses else missed,
        f"{row.worst:.2f}" if row.worst < 100 else f"{row.worst:.0f}" if math.isfinite(row.worst) else "not finite",
        f"{row.full} of {row.nodes}",
        f"{row.flops:.1%}",
        str(row.casts),
        _number(row.evaluations),
        _inferences(row),
        f"{row.seconds:.1f}" if row.seconds < 10 else f"{row.seconds:.0f}",
    )


def _inferences(row: Row) -> str:
    return f"{row.inferences:.0f}" if math.isfinite(row.inferences) else ""


def _number(count: int) -> str:
    return str(count) if count else ""
