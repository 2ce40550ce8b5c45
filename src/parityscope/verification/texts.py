"""Texts as sequences of symbols, from strings, token numbers or CTC scores; and the edit distance between them.

* strings: an array of one string (or of several, joined by line ends);
* token numbers: integers, in order;
* CTC scores, (1, steps, symbols): the best symbol of each step, repetitions merged, blanks dropped (greedy decoding;
  Graves et al. 2006, section 3.2). With `charset=FILE` (one symbol a line, the first is number 1, as blank is 0) the
  numbers become characters.

The edit distance is Levenshtein's (1966): insertions, deletions and substitutions, each counting 1.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.regular_files import read_text_file
from parityscope.verification.task_metrics import label_of, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from parityscope.verification.task_metrics import States, TaskAnswer

    Units = Callable[[Sequence[Hashable], Mapping[str, str]], Sequence[Hashable]]

_CHARSET_NBYTES = 16 << 20  # of a file of symbols (chosen): Unicode has about a million

OPTIONS = {
    "blank": "the blank of CTC scores (0)",
    "charset": "a file of one symbol a line; the first has number 1, or 0 if the blank comes last",
    "space": "the number of the symbol between words, without a charset",
}


def error_counts(units: Units) -> Callable[[Iterable[TaskAnswer], Mapping[str, str]], np.ndarray]:
    """The `score` of an error rate: (edits, length) of each sample in these units of its symbols, float64 (n, 2)."""

    def score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
        return np.array([count(answer, options) for answer in answers], np.float64)

    def count(answer: TaskAnswer, options: Mapping[str, str]) -> tuple[int, int]:
        right, found = (units(text, options) for text in truth_and_text(answer, options))
        return edit_distance(right, found), len(right)

    return score


def error_rate(counts: States) -> float:
    """Its `combine`: all edits over all of the length; without any, 0 for no edits and infinite otherwise."""
    wrong, length = np.asarray(counts).sum(axis=0)
    return float(wrong / length) if length else 0.0 if wrong == 0 else math.inf


def truth_and_text(answer: TaskAnswer, options: Mapping[str, str]) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """The symbols that are right (labels, or the reference's) and those of the candidate.

    Raises:
        ParityError: the output is no text, or the charset is too short.
    """
    name = output_name(answer, options)
    label = label_of(answer, options, name)
    truth = answer.reference[name] if label is None else label
    return symbols_of(truth, options, answer.name), symbols_of(answer.outputs[name], options, answer.name)


def symbols_of(array: np.ndarray, options: Mapping[str, str], where: str) -> Sequence[Hashable]:
    """The symbols of one sample: characters, or numbers where there is no charset.

    Args:
        array: Strings, integers of any shape in order, or scores (..., steps, symbols) of any float dtype.
        options: Those of the metric: `blank`, `charset`.
        where: The sample's name, for messages.

    Raises:
        ParityError: the array is none of these, or a symbol is not in the charset.
    """
    if array.dtype.kind in "OUS":
        return "\n".join(_item_as_text(item) for item in array.ravel().tolist())
    if array.dtype.kind in "iu":
        numbers = [int(number) for number in array.ravel().tolist()]
    elif array.ndim >= 2 and array.shape[-1] > 1:
        numbers = _greedy_decode(array, int(number_option(options, "blank", 0)))
    else:
        raise ParityError(
            f"an array of {array.dtype} of shape {list(array.shape)} is no text: neither strings, token numbers nor CTC scores",
            where=where,
            fix="choose another with ?output=NAME or ?label=NAME",
        )
    if not options.get("charset"):
        return numbers
    table = _read_charset(options["charset"])
    first = 0 if int(number_option(options, "blank", 0)) > 0 else 1
    places = [number - first for number in numbers]
    if places and not 0 <= min(places) <= max(places) < len(table):
        raise ParityError(
            f"symbol {max(numbers)} is not in a charset of {len(table)}",
            where=options["charset"],
            fix="give the model's own",
        )
    return "".join(table[place] for place in places)


def words_of(symbols: Sequence[Hashable], options: Mapping[str, str]) -> list[Hashable]:
    """The words of a text: parted by white space, or by the symbol `space`.

    Raises:
        ParityError: the symbols are numbers, and none is said to be the space.
    """
    if isinstance(symbols, str):
        return list(symbols.split())
    if "space" not in options:
        raise ParityError(
            "words cannot be told in token numbers", fix="add ?space=NUMBER or ?charset=FILE to the metric, or use cer"
        )
    space = int(number_option(options, "space", 0))
    words: list[list[Hashable]] = [[]]
    for symbol in symbols:
        if symbol == space:
            words.append([])
        else:
            words[-1].append(symbol)
    return [tuple(word) for word in words if word]


def edit_distance(truth: Sequence[Hashable], text: Sequence[Hashable]) -> int:
    """The least number of insertions, deletions and substitutions that make `truth` of `text`."""
    row = list(range(len(text) + 1))
    for i, expected in enumerate(truth, start=1):
        above, row[0] = row[0], i
        for j, found in enumerate(text, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (expected != found))
    return row[-1]


def _greedy_decode(scores: np.ndarray, blank: int) -> list[int]:
    """Greedy CTC decoding of (..., steps, symbols), in order of the steps; a step with a NaN is a symbol of its own."""
    rows = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
    chosen = np.where(np.isnan(rows).any(axis=1), -1, rows.argmax(axis=1))
    kept = np.ones(len(chosen), bool)
    kept[1:] = chosen[1:] != chosen[:-1]
    return [int(number) for number in chosen[kept] if number != blank]


def _item_as_text(item: object) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


@functools.cache
def _read_charset(path: str) -> tuple[str, ...]:
    lines = read_text_file(path, "the charset", limit=_CHARSET_NBYTES).split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)
