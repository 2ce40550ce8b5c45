"""`parityscope verify`: before and after a repair on the undisturbed deployment; is it really repaired?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer
    from parityscope.request import Request
    from parityscope.verification import Chosen, VerificationSettings

__all__ = ["NAME", "command"]

NAME = "verify"

_EXITS = {
    "improved": Exit.WITHIN,
    "within": Exit.WITHIN,
    "worse": Exit.BEYOND,
    "beyond": Exit.BEYOND,
    "not proved": Exit.INCOMPLETE,
}
_METRIC_HELP = "NAME[?key=value&...] or file.py:function, which runs that code; repeatable (docs/verify.md)."


def command(
    model: o.ModelArgument,
    *,
    before: Annotated[str, typer.Option(help="The deployment as it was: backend[:precision][?key=value&...].")],
    after: Annotated[str, typer.Option(help="The repaired one, e.g. 'openvino:f16?model=FIXED.onnx'.")],
    data: o.Data,
    metric: Annotated[list[str] | None, typer.Option(help=_METRIC_HELP)] = None,
    labels: Annotated[
        Path | None, typer.Option(help="An .npz with a row a sample, or a folder of .npz [what DATA brings].")
    ] = None,
    budget: o.BudgetOption = None,
    policy: o.PolicyOption = None,
    match: o.MatchOption = "",
    floor: Annotated[float | None, typer.Option(help="Absolute floor of rel_l2 budgets, a root mean square.")] = None,
    reference: o.ReferenceOption = "ort",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap, and of generated inputs.")] = 0,
    time: Annotated[str, typer.Option(help="Time for measuring latency, e.g. 20s.")] = "20s",
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Measure no latency.")] = False,
    workers: o.WorkersOption = "",
    study: o.StudyOption = None,
    told: Answer,
    allow_skipped: o.AllowSkippedOption = "0",
) -> int:
    """Proves a repair: 0 improved or within budget, also on every sample tried; 1 worse or a budget missed; 3 not proved."""
    from parityscope.report.verification import FORMS, has_succeeded
    from parityscope.study import Request, folder_of, prepare_folder, write_study
    from parityscope.verification import VerificationSettings

    told.claim(FORMS)
    request = Request(
        model=model,
        candidate=after,
        reference=reference,
        **asdict(data),
        budgets=o.budgets_of(budget),
        policy=policy,
        match=o.names_of(match),
        allow_skipped=o.share_of(allow_skipped),
    )
    timing = 0.0 if no_timing else o.seconds_of(time)
    settings = VerificationSettings(
        metrics=tuple(map(_choose_metric, metric or [])),
        seed=seed,
        timing=timing,
        floor=floor,
        workers=o.workers_of(workers),
    )
    folder = o.folder_for(model.stem, study)
    try:
        with prepare_folder(folder, numbered=study is None) as scratch:
            folder = folder_of(scratch)
            document = _verify_document(request, before, settings, labels, quiet=told.quiet)
            write_study(scratch, document, FORMS.as_html)
    except KeyboardInterrupt as interrupt:
        # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
        raise typer.Abort from interrupt
    told.hand_over(FORMS, document)
    if not told.quiet:
        said = "so on every sample tried" if has_succeeded(document) else document["verdict"]
        print(f"{said}; the report is {folder / 'report.html'}", file=sys.stderr)
    # What was asked for and not judged leaves the proof open, however good the rest is.
    unjudged = any(skip["asked"] for skip in document["skipped"])
    status = Exit.WITHIN if has_succeeded(document) else _EXITS[document["verdict"]]
    return Exit.INCOMPLETE if status == Exit.WITHIN and unjudged else status


def _choose_metric(text: str) -> Chosen:
    """A metric of ours by name, or a function of the user's."""
    from parityscope.case.formats.loader import is_function
    from parityscope.verification import chosen_metric, user_metric

    return user_metric(text) if is_function(text.partition("?")[0]) else chosen_metric(text)


def _verify_document(
    request: Request, before: str, settings: VerificationSettings, labels: Path | None, *, quiet: bool
) -> dict[str, Any]:
    from dataclasses import replace

    from parityscope.backends.targets import parse_target
    from parityscope.report.verification import verification_document
    from parityscope.study import open_request
    from parityscope.verification import Targets, load_labels, verify
    from parityscope.version import __version__

    first = parse_target(before)
    with open_request(request) as asked, scratch_folder("verify") as scratch:
        inputs = asked.case.inputs
        if labels is not None or settings.metrics:
            limited = request.samples is not None
            settings = replace(settings, labels=load_labels(labels, inputs, limited=limited))
        found = verify(
            asked.case,
            Targets(reference=asked.reference, before=first, after=asked.candidate),
            settings,
            folder=Path(scratch),
            progress=progress_for(quiet=quiet),
        )
        return verification_document(found, asked.case, version=__version__, command=command_line())
