"""The verbs that need no model: logs of builds, two preprocessings, this machine, the pages of codes, and what there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.api.arguments import with_checked_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.api.results import Report
    from parityscope.checks.preparing import Parting
    from parityscope.logs import Log, LogPair


@with_checked_arguments
def log(
    file: str | Path,
    other: str | Path | None = None,
    *,
    profiles: Sequence[str | Path] = (),
    node_times: str | Path | None = None,
) -> Report[Log | LogPair]:
    """What logs of TensorRT, trtexec and Polygraphy say, of one build or of two; `exit` is BEYOND where there is a cause.

    Args:
        file: A log, or an engine's layers (`trtexec --exportLayerInfo`).
        other: Another build's, to compare with.
        profiles: Times of layers (`trtexec --exportProfile`), one for each log.
        node_times: With two builds: where the times of each node are written, for `repair`'s `profile` (.json).

    Raises:
        ParityError: a file cannot be read or written.
    """
    from parityscope.api.saving import refuse_file
    from parityscope.api.shared.files import report_log

    times = None if node_times is None else Path(node_times)
    if times is not None:
        refuse_file(times)
    second = None if other is None else Path(other)
    return report_log(Path(file), second, profiles=[Path(one) for one in profiles], node_times=times)


@with_checked_arguments
def preprocessing(
    reference: str | Path | Callable[..., Any],
    candidate: str | Path | Callable[..., Any],
    *,
    images: str | Path,
    samples: int | None = None,
) -> Report[Parting]:
    """At which step two preprocessings part, and what is done differently there; `exit` is BEYOND if they part.

    Each is "file.py:function", a recipe (.toml), or a function of one image (uint8, height x width x 3, RGB) that gives the
    array, or yields each step's. `images` is a folder, of which the first `samples` are taken.

    Raises:
        ParityError: there are no images, or a preprocessing is missing or fails.
    """
    from parityscope.api.shared.machine import report_preprocessing
    from parityscope.case.formats.loader import handed_function

    sides = [handed_function(one) if callable(one) else str(one) for one in (reference, candidate)]
    return report_preprocessing(sides[0], sides[1], Path(images), samples)


def doctor() -> Report[dict[str, Any]]:
    """What can run here and in what arithmetic, what is missing and how to get it, and the facts that change results."""
    from parityscope.api.shared.machine import report_machine

    return report_machine()


def explain(code: str | None = None) -> Report[str]:
    """The page of a code that a finding can have ("RNG001"), as `record`; without one the table of all.

    Raises:
        ParityError: there is no such code.
    """
    from parityscope.api.shared.machine import report_page

    return report_page(code)


def list_plugins(kind: str | None = None) -> Report[dict[str, dict[str, str]]]:
    """What there is of a kind of plug-in, or of every kind: what each is, by name.

    `kind` is "backends", "checks", "rules", "metrics", "repairs" or "formats". It is the command `list`.

    Raises:
        ParityError: there is no such kind.
    """
    from parityscope.api.shared.machine import report_plugins

    return report_plugins(kind)
