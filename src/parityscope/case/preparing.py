"""What data holds -> what the model reads: the model's own preprocessing, `--preprocess`, behind one function.

It is a function of the user's (`file.py:function`), a recipe for images (`file.toml`, `case.imaging`), the folder of a
Hugging Face processor or tokenizer (`case.processors`: read as data, no code of it is run), or nothing, where fields have the
inputs' names. What a sample holds beside its inputs are its truths: numbers and texts that task metrics may ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.conformance import count_nan
from parityscope.case.formats import NO_ARRAYS, Alike, Streamed, UnreadableError
from parityscope.case.formats.loader import as_arrays, call_user_code, find_function, is_function, split_truths
from parityscope.case.imaging.recipe import prepare_image
from parityscope.case.imaging.recipe_file import read_recipe
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parityscope.case.imaging.recipe import Recipe
    from parityscope.records import ValueInfo

_RGB = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSample:
    """One sample before its preprocessing, by field.

    `alone` is what a function of the user's gets of a sample that is one thing (an image; a sound and its rate; a text); of
    others it gets the fields.
    """

    label: str
    fields: Mapping[str, Any]
    alone: tuple[Any, ...] = ()
    original: Path | None = None
    truths: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_ARRAYS)


Prepare = Callable[[RawSample], Streamed]


def preparation_of(preprocess: str, inputs: Sequence[ValueInfo]) -> Prepare:
    """The preprocessing that `preprocess` names ("": none) for a model with these inputs.

    Raises:
        ParityError: it cannot be read.
    """
    names = [value.name for value in inputs]
    if not preprocess:
        return lambda example: _take_fields(example, inputs)
    if is_function(preprocess):
        return _prepare_by_function(preprocess, names)
    if preprocess.endswith(".toml"):
        return _prepare_by_recipe(read_recipe(Path(preprocess), names))
    if Path(preprocess).is_dir():
        from parityscope.case.processors import read_processor

        processor = read_processor(Path(preprocess), inputs)
        if processor.recipe is not None:
            return _prepare_by_recipe(processor.recipe)
        tokenize = processor.tokenize
        return lambda example: _finish(example, tokenize(_sole_text(example)))
    raise ParityError(
        f"{preprocess!r} is no preprocessing",
        fix="give file.py:function, a recipe (file.toml), or the folder of a Hugging Face processor or tokenizer",
    )


def fit_to_declared(array: np.ndarray, shape: Sequence[int | str | None] | None) -> np.ndarray:
    """A row of a table in the shape that a model declares: a batch axis of 1 is put in front, a flat list is folded.

    Elements are neither converted nor moved; what does not fit so stays as it is.
    """
    if shape is None or array.ndim == len(shape):
        return array
    first = () if not shape else (shape[0] if isinstance(shape[0], int) else 1,)
    if array.ndim == len(shape) - 1 and first == (1,):
        return array[np.newaxis]
    wanted = [size if isinstance(size, int) and size > 0 else -1 for size in (*first, *shape[1:])]
    known = -int(np.prod(wanted)) if -1 in wanted else int(np.prod(wanted))
    if (
        array.ndim > 1
        or wanted.count(-1) > 1
        or not known
        or (array.size != known and (-1 not in wanted or array.size % known))
    ):
        return array
    return array.reshape(wanted)


def _prepare_by_function(preprocess: str, names: Sequence[str]) -> Prepare:
    user = find_function(preprocess)

    def prepare(example: RawSample) -> Streamed:
        given = example.alone or (dict(example.fields),)
        made, right = split_truths(call_user_code(user, user.function, *given, doing=f"preprocessing {example.label}"))
        if isinstance(made, np.ndarray):
            if len(names) != 1:
                raise ParityError(
                    f"{preprocess} gave one array, and the model has {len(names)} inputs: {', '.join(names)}",
                    where=example.label,
                    fix="return a dict of arrays by input name",
                )
            made = {names[0]: made}
        told = {**example.truths, **as_arrays(right, user, example.label)}
        return _finish(replace(example, truths=told), as_arrays(made, user, example.label))

    return prepare


def _prepare_by_recipe(recipe: Recipe) -> Prepare:
    def prepare(example: RawSample) -> Streamed:
        images = [
            value
            for value in example.fields.values()
            if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape[2:] == (_RGB,)
        ]
        if len(images) != 1:
            raise ParityError(
                f"{example.label} holds {len(images)} images, and a recipe is for one",
                where=example.label,
                fix="write a function, file.py:function, that takes the sample as a dict",
            )
        return _finish(example, {recipe.input: prepare_image(recipe, images[0])})

    return prepare


def _sole_text(example: RawSample) -> str:
    texts = [value for value in example.fields.values() if isinstance(value, str)]
    if len(texts) != 1:
        raise ParityError(
            f"{example.label} holds {len(texts)} texts, and a tokenizer is for one",
            where=example.label,
            fix="write a function, file.py:function, that takes the sample as a dict",
        )
    return texts[0]


def take_columns(
    columns: Mapping[str, np.ndarray], start: int, label: Callable[[int], str], inputs: Sequence[ValueInfo]
) -> Iterator[Streamed]:
    """Samples of whole columns, arrays (samples, ...) by field: what `preparation_of("", inputs)` gives of each row.

    `start` is the number of the first, by which `label` names it.

    Raises:
        ParityError: no field has the name of an input.
    """
    count = len(next(iter(columns.values())))
    first = {name: column[0, ...] for name, column in columns.items()}
    taken = _fields_of_inputs(first, inputs, label(start))
    shapes = {value.name: value.shape for value in inputs}
    stacks = {}
    for own, its in taken.items():
        shape = fit_to_declared(first[its], shapes[own]).shape
        stacks[own] = np.ascontiguousarray(columns[its]).reshape(count, *shape)
    alike = Alike(nan=any(map(count_nan, stacks.values())))
    right = {
        name: column
        for name, column in columns.items()
        if name not in taken.values() and (column.dtype.kind == "O" or _is_truth(first[name]))
    }
    for row in range(count):
        yield Streamed(
            label=label(start + row),
            arrays={name: stack[row, ...] for name, stack in stacks.items()},
            truths={
                name: np.asarray(column[row]) if column.dtype.kind == "O" else column[row, ...]
                for name, column in right.items()
            },
            alike=alike,
        )


def _take_fields(example: RawSample, inputs: Sequence[ValueInfo]) -> Streamed:
    """The fields that have the inputs' names; the only array, where the model has one input."""
    found: dict[str, np.ndarray] = {}
    taken = _fields_of_inputs(example.fields, inputs, example.label)
    for value in inputs:
        if value.name not in taken:
            continue
        given = example.fields[taken[value.name]]
        if given is None:
            raise UnreadableError(
                f"{value.name!r} is empty", where=example.label, fix="fill the gap, or leave the sample out"
            )
        found[value.name] = fit_to_declared(_as_array(given), value.shape)
    left = {name: each for name, each in example.fields.items() if name not in taken.values()}
    return _finish(replace(example, fields=left), found)


def _fields_of_inputs(fields: Mapping[str, Any], inputs: Sequence[ValueInfo], label: str) -> dict[str, str]:
    """The field that each input is taken from, as far as there is one.

    Raises:
        ParityError: there is none.
    """
    found = {value.name: value.name for value in inputs if value.name in fields}
    if not found and len(inputs) == 1:
        arrays = [name for name, each in fields.items() if isinstance(each, np.ndarray) and each.ndim]
        if len(arrays) == 1:
            found[inputs[0].name] = arrays[0]
    if not found:
        raise ParityError(
            f"no field of {label} has the name of an input ({', '.join(value.name for value in inputs)}); "
            f"they are {', '.join(map(repr, fields)) or 'none'}",
            where=label,
            fix="rename them, or add --preprocess file.py:function: the fields as a dict -> arrays by input name",
        )
    return found


def _as_array(value: Any) -> np.ndarray:
    """Lists of several lengths are an array of objects, which no input and no truth is."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(value, dtype=object)


def _finish(example: RawSample, arrays: Mapping[str, np.ndarray]) -> Streamed:
    truths = dict(example.truths)
    for name, value in example.fields.items():
        if name in arrays or value is None or isinstance(value, bytes) or any(value is one for one in example.alone):
            continue
        array = _as_array(value)
        if _is_truth(array):
            truths[name] = array
    return Streamed(label=example.label, arrays=arrays, original=example.original, truths=truths)


def _is_truth(array: np.ndarray) -> bool:
    """Numbers and texts, but no image."""
    return array.dtype.kind in "biufU" and not (array.dtype == np.uint8 and array.ndim == _RGB)
