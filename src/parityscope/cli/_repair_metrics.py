"""What `parityscope repair --metric` takes: a function of the user's, or a task metric of `verify`, as a function of one sample.

A task metric is asked about one sample at a time, with the reference's own answer for the right one: it is agreement with
the reference's decisions, which `verify` measures without labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.case.formats.loader import UserFunction
    from parityscope.verification import Chosen

__all__ = ["functions_of"]


def functions_of(items: list[str] | None) -> dict[str, UserFunction]:
    """The metrics by name: of the user's function, or of the task metric.

    Raises:
        ParityError: there is no such function or metric.
    """
    from parityscope.case.formats.loader import find_function, is_function
    from parityscope.verification import chosen_metric

    found: dict[str, UserFunction] = {}
    for item in items or []:
        if is_function(item):
            found[item.rpartition(":")[2]] = find_function(item)
        else:
            chosen = chosen_metric(item)
            found[chosen.metric.name] = _agreement_of(chosen)
    return found


def _agreement_of(chosen: Chosen) -> UserFunction:
    from parityscope.case.formats.loader import UserFunction
    from parityscope.verification import TaskAnswer

    metric = chosen.metric

    def value(reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
        answer = TaskAnswer(name="a sample", outputs=candidate, reference=reference, labels=None)
        return float(metric.combine(metric.score([answer], chosen.options)))

    return UserFunction(text=chosen.text, folder=Path.cwd(), function=value)
