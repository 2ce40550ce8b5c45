"""`parityscope verify`: before and after a repair on the undisturbed deployment; is it really repaired?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller
from parityscope.request import Data, Judged

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "verify"

_METRIC_HELP = "NAME[?key=value&...] or file.py:function, which runs that code; repeatable (docs/verify.md)."


def command(
    model: o.ModelArgument,
    *,
    before: Annotated[str, typer.Option(help="The deployment as it was: backend[:precision][?key=value&...].")],
    after: Annotated[str, typer.Option(help="The repaired one, e.g. 'openvino:f16?model=FIXED.onnx'.")],
    data: Data,
    metric: Annotated[list[str] | None, typer.Option(help=_METRIC_HELP)] = None,
    labels: Annotated[
        Path | None, typer.Option(help="An .npz with a row a sample, or a folder of .npz [what DATA brings].")
    ] = None,
    budget: o.BudgetOption = None,
    judged: Judged,
    floor: Annotated[float | None, typer.Option(help="Absolute floor of rel_l2 budgets, a root mean square.")] = None,
    reference: o.ReferenceOption = "ort",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap, and of generated inputs.")] = 0,
    time: Annotated[str, typer.Option(help="Time for measuring latency, e.g. 20s.")] = "20s",
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Measure no latency.")] = False,
    workers: o.WorkersOption = "",
    study: o.StudyOption = None,
    told: Answer,
) -> int:
    """Proves a repair: 0 improved or within budget, also on every sample tried; 1 worse or a budget missed; 3 not proved."""
    from parityscope.api.shared.verifications import report_verification
    from parityscope.report.verification import FORMS, has_succeeded
    from parityscope.study import folder_of, prepare_folder, write_study
    from parityscope.verification import VerificationSettings, metric_asked

    told.claim(FORMS)
    request = data.make_request(
        model,
        after,
        reference=reference,
        budgets=o.budgets_of(budget),
        policy=judged.policy,
        match=judged.match,
        decide=judged.decide,
    )
    settings = VerificationSettings(
        metrics=tuple(map(metric_asked, metric or [])),
        seed=seed,
        timing=0.0 if no_timing else o.seconds_of(time),
        floor=floor,
        workers=o.workers_of(workers),
    )
    folder = o.folder_for(model.stem, study)
    with prepare_folder(folder, numbered=study is None) as scratch:
        folder = folder_of(scratch)
        found = report_verification(request, before, settings, labels, caller=name_caller(quiet=told.quiet))
        write_study(scratch, found.document, FORMS.as_html)
    told.hand_over(FORMS, found.document)
    if not told.quiet:
        said = "so on every sample tried" if has_succeeded(found.document) else found.verdict
        print(f"{said}; the report is {folder / 'report.html'}", file=sys.stderr)
    return found.exit
