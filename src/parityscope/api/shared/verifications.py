"""Before and after a repair on the undisturbed deployment: what `verify` asks and tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.api.asking import PYTHON, Caller
from parityscope.api.results import Report
from parityscope.errors import Exit
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from parityscope.request import Request
    from parityscope.verification import Verification, VerificationSettings

_EXITS = {
    "improved": Exit.WITHIN,
    "within": Exit.WITHIN,
    "worse": Exit.BEYOND,
    "beyond": Exit.BEYOND,
    "not proved": Exit.INCOMPLETE,
}


def report_verification(
    request: Request, before: str, settings: VerificationSettings, labels: Path | None, *, caller: Caller = PYTHON
) -> Report[Verification]:
    """Runs the deployment `before` and the request's candidate, and judges the paired differences.

    `labels` are an `.npz` with a row a sample or a folder; with metrics and none, they are the truths that the data brings.

    Raises:
        ParityError: bad input, a missing runtime, or a side that cannot run.
    """
    from parityscope.backends.targets import parse_target
    from parityscope.report.verification import FORMS, has_succeeded, verification_document
    from parityscope.study import open_request
    from parityscope.verification import Targets, load_labels, verify

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
            progress=caller.progress,
        )
        document = verification_document(found, asked.case, command=caller.command)
    # What was asked for and not judged leaves the proof open, however good the rest is.
    unjudged = any(skip["asked"] for skip in document["skipped"])
    status = Exit.WITHIN if has_succeeded(document) else _EXITS[document["verdict"]]
    status = Exit.INCOMPLETE if status == Exit.WITHIN and unjudged else status
    return Report(document=document, record=found, forms=FORMS, exit=status)
