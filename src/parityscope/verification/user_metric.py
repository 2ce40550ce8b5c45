"""A metric of the user's own: `--metric file.py:function`. This runs the code of the file.

`function(outputs, labels)` gets dicts of arrays by name (labels None when there are none) and gives a float or one value a
sample. It is called once with all samples, concatenated along their first axis; labels are stacked, a row a sample. Where
outputs are scalars or their shapes differ from sample to sample, it is called once for each sample, with what that sample
gave. Higher is better unless `?better=lower` is added.

From one value a sample (or one for every row of a batch, averaged over the sample's rows) come per-sample values and a
paired interval. A single float for all samples is computed again on drawn samples for its interval.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.case.formats.loader import UserFunction, call_user_code, find_function, handed_function, is_function
from parityscope.errors import ParityError
from parityscope.verification.task_metrics import Chosen, States, TaskAnswer, TaskMetric, chosen_metric, split_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_RESAMPLES = 200  # chosen: how often a function of all samples is called again, twice each
_FIX = "let it give a number for every sample, the worst one where outputs are NaN or of no use"

_Part = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray] | None]


def user_metric(text: str) -> Chosen:
    """The metric that `file.py:function[?better=lower]` names.

    Raises:
        ParityError: the file or the function cannot be had, or there is another option.
    """
    name, options = split_options(text)
    wanted = options.pop("better", "higher")
    if options or wanted not in {"higher", "lower"}:
        raise ParityError(f"{text!r} has an option that a function does not take", fix="use ?better=lower, or none")
    better: Literal["lower", "higher"] = "lower" if wanted == "lower" else "higher"
    return _metric_of_function(find_function(name), text, name.rpartition(":")[2], better)


def metric_asked(asked: str | Callable[..., Any]) -> Chosen:
    """A metric of ours by `NAME[?key=value&...]`, a function of the user's by `file.py:function`, or that function itself.

    Raises:
        ParityError: there is none of that name, or an option is not known.
    """
    if not isinstance(asked, str):
        user = handed_function(asked)
        return _metric_of_function(user, user.text, user.text, "higher")
    return user_metric(asked) if is_function(asked.partition("?")[0]) else chosen_metric(asked)


def _metric_of_function(user: UserFunction, text: str, name: str, better: Literal["lower", "higher"]) -> Chosen:
    metric = TaskMetric(
        name=name,
        title=name,
        better=better,
        score=functools.partial(_score_answers, user),
        combine=functools.partial(_combine_states, user),
        single=False,
        resamples=_RESAMPLES,
    )
    return Chosen(text=text, metric=metric, options={})


def _score_answers(user: UserFunction, answers: Iterable[TaskAnswer], _: Mapping[str, str]) -> States:
    """One value a sample, float64 (n,), or what the function needs to be called again."""
    answers = list(answers)
    parts: list[_Part] = [({k: np.asarray(v) for k, v in one.outputs.items()}, one.labels) for one in answers]
    if not _can_be_stacked(parts):
        return np.array(
            [_value_of_sample(user, part, answer.name) for part, answer in zip(parts, answers, strict=True)]
        )
    found = _call_metric(user, *_stack_samples(parts), "all samples")
    if found.size == 1 and (found.ndim == 0 or len(parts) > 1):
        return parts
    rows = [next(iter(outputs.values())).shape[0] for outputs, _ in parts]
    if found.size == sum(rows):
        ends = np.cumsum(rows)
        return np.array([found[end - count : end].mean() for end, count in zip(ends, rows, strict=True)])
    if found.size != len(parts):
        raise ParityError(
            f"{user.text} gave {found.size} values for {len(parts)} samples",
            where=user.text,
            fix="give one a sample, or a float",
        )
    return found


def _combine_states(user: UserFunction, states: States) -> float:
    if isinstance(states, np.ndarray):
        return float(states.mean())
    found = _call_metric(user, *_stack_samples(states), "samples")
    if found.size != 1:
        raise ParityError(f"{user.text} gives now one value and now {found.size}", where=user.text, fix=_FIX)
    return float(found.reshape(-1)[0])


def _value_of_sample(user: UserFunction, part: _Part, name: str) -> float:
    found = _call_metric(user, *part, name)
    if found.size != 1:
        raise ParityError(
            f"{user.text} gave {found.size} values for one sample", where=name, fix="give a float for the sample"
        )
    return float(found.reshape(-1)[0])


def _call_metric(
    user: UserFunction, outputs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray] | None, where: str
) -> np.ndarray:
    """What the function gives: float64, () or (values,).

    Raises:
        ParityError: it raises, gives no numbers, or a NaN.
    """
    given = call_user_code(
        user, user.function, dict(outputs), None if labels is None else dict(labels), doing=f"the metric on {where}"
    )
    try:
        found = np.asarray(given).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ParityError(f"{user.text} gave a {type(given).__name__}, not numbers", where=where, fix=_FIX) from error
    if np.isnan(found).any():
        place = "" if found.ndim == 0 else f" at place {int(np.flatnonzero(np.isnan(found.ravel()))[0])}"
        raise ParityError(f"{user.text} gave NaN{place}", where=where, fix=_FIX)
    return found if found.ndim == 0 else found.ravel()


def _can_be_stacked(parts: Sequence[_Part]) -> bool:
    """Whether all arrays of the samples have the same shapes behind their first axis, and labels the same shapes."""
    kinds = {
        (
            tuple((name, array.ndim, array.shape[1:]) for name, array in outputs.items()),
            tuple((name, array.shape) for name, array in (labels or {}).items()),
        )
        for outputs, labels in parts
    }
    return len(kinds) == 1 and all(array.ndim for array in parts[0][0].values())


def _stack_samples(parts: Sequence[_Part]) -> _Part:
    outputs = {name: np.concatenate([one[name] for one, _ in parts]) for name in parts[0][0]}
    labels = [labels for _, labels in parts if labels is not None]
    return outputs, {name: np.stack([one[name] for one in labels]) for name in labels[0]} if labels else None
