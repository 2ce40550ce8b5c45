"""What a task metric is: one file of `verification/metrics/` whose last line is `TASK_METRIC = TaskMetric(...)`.

`score(answers, options)` looks at the samples one by one and keeps of each what the metric needs (a state: a row of
float64, or any object); `combine(states)` makes the number of all, or of any samples drawn from them. So every metric
has a pooled value, per-sample values where they mean something, and a bootstrap interval, whether or not it is a mean.

`--metric` takes `NAME[?key=value&...]`, for example `top1?output=logits&label=class`. Common options: `output` (which
output is judged), `label` (which array of the labels). Without labels the reference's answer takes their place: the
number then is agreement with the reference's decisions.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plain_numbers import plain_number
from parityscope.plugins import discover_plugins
from parityscope.verification.intervals import States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "COMMON_OPTIONS",
    "Chosen",
    "States",
    "TaskAnswer",
    "TaskMetric",
    "chosen_metric",
    "label_of",
    "mean_of_numbers",
    "number_option",
    "output_name",
    "split_options",
    "task_metrics",
]

COMMON_OPTIONS = {
    "output": "the output that is judged (default: the only one)",
    "label": "the array of the labels (default: the output's name, or the only one)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """One sample: what a side gave, what the reference gave, and its labels (None when there are none)."""

    name: str
    outputs: Mapping[str, np.ndarray]
    reference: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetric:
    """A number about how well a task is done.

    `uses_labels` says that it takes labels when there are some. `single` says that it has a meaning for one sample.
    `resamples` is how often the bootstrap draws (fewer for a `combine` that is slow).
    """

    name: str
    title: str
    better: Literal["lower", "higher"]
    score: Callable[[Iterable[TaskAnswer], Mapping[str, str]], States]
    combine: Callable[[States], float]
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    uses_labels: bool = True
    single: bool = True
    resamples: int = 2000


def mean_of_numbers(numbers: States) -> float:
    """The `combine` of a metric that is the mean of one number a sample: float64, (n,)."""
    return float(np.mean(numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A metric as it was asked for: `text` is how it was written."""

    text: str
    metric: TaskMetric
    options: Mapping[str, str]


def task_metrics() -> dict[str, TaskMetric]:
    """Every built-in or installed task metric, by name."""
    found = discover_plugins("parityscope.verification.metrics", "TASK_METRIC", TaskMetric)
    return {metric.name: metric for metric, _ in found.values()}


def chosen_metric(text: str) -> Chosen:
    """The metric that `NAME[?key=value&...]` asks for.

    Raises:
        ParityError: there is none of that name, or it has no such option.
    """
    name, options = split_options(text)
    known = task_metrics()
    if name not in known:
        fix = f"use one of: {', '.join(sorted(known))}; or a function of your own: --metric file.py:function"
        raise ParityError(f"there is no task metric {name!r}", fix=fix)
    metric = known[name]
    takes = {**COMMON_OPTIONS, **metric.options}
    for key in options:
        if key not in takes:
            raise ParityError(
                f"the metric {name} has no option {key!r}", where=text, fix=f"use one of: {', '.join(sorted(takes))}"
            )
    return Chosen(text=text, metric=metric, options=options)


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """`NAME?key=value&key=value` as the name and its options; values are percent-decoded.

    Raises:
        ParityError: an option is not key=value.
    """
    name, _, query = text.partition("?")
    options = {}
    for item in query.split("&") if query else []:
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise ParityError(
                f"{item!r} in metric {text!r} is not key=value", fix="write --metric 'top1?output=logits'"
            )
        options[key] = unquote(value)
    return name, options


def output_name(answer: TaskAnswer, options: Mapping[str, str], option: str = "output") -> str:
    """The output that a metric looks at.

    Raises:
        ParityError: there is no such output, or several and none is chosen.
    """
    names = list(answer.reference)
    wanted = options.get(option, names[0] if len(names) == 1 else "")
    if wanted not in names:
        problem = f"there is no output {wanted!r}" if wanted else "the model has several outputs"
        raise ParityError(problem, fix=f"add ?{option}=NAME to the metric, with one of: {', '.join(names)}")
    return wanted


def label_of(answer: TaskAnswer, options: Mapping[str, str], output: str) -> np.ndarray | None:
    """The labels of one sample for `output`, in their own dtype and shape; None when there are none.

    Raises:
        ParityError: there are several arrays and none of them is chosen.
    """
    if answer.labels is None:
        return None
    names = list(answer.labels)
    fallback = output if output in names else names[0] if len(names) == 1 else ""
    wanted = options.get("label", fallback)
    if wanted not in names:
        problem = (
            f"the labels hold no {wanted!r}" if wanted else f"the labels hold several arrays, none named {output!r}"
        )
        raise ParityError(problem, where=answer.name, fix=f"add ?label=NAME, with one of: {', '.join(names)}")
    return answer.labels[wanted]


def number_option(options: Mapping[str, str], key: str, default: float, *, least: float = 0.0) -> float:
    """An option that is a number of at least `least`.

    Raises:
        ParityError: it is not.
    """
    text = options.get(key, "")
    value = plain_number(text) if text else default
    if not value >= least:
        raise ParityError(f"{key}={text!r} is not a number of at least {least:g}", fix=f"write {key}={default:g}")
    return value
