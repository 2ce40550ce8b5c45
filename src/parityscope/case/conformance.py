"""Checks one sample against the inputs that a model declares; nothing is converted, guessed or matched loosely.

A sample of one array for a model of one input needs no name: there is nothing that it could be mistaken for.

Names, dtypes, ranks and fixed dimensions must be as declared, and a symbolic dimension must have one size throughout
the sample. A lossless conversion (int32 where int64 is declared) is an error too: the deployment that is judged would
not get it for free. Each error says which sample, which tensor, what was expected, what was found, and how to mend it.
"""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import dtype_of, to_plain_array, view_as_declared
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from parityscope.case.formats import Announced
    from parityscope.records import ValueInfo

Dims = tuple[int | str | None, ...]

# Forms of whole samples (declaration, dtype, shape, shape asked for) that fitted: of thousands alike one is looked at closely.
_FITTING: set[tuple[tuple[ValueInfo, np.dtype[Any], tuple[int, ...], tuple[int, ...] | None], ...]] = set()
_REMEMBERED = 256

_MOST_AXES = 64  # numpy's own limit
# What exporters write for "unknown" (Paddle2ONNX "?" and -1, Keras "None"): not one symbol that stands twice.
_NO_NAMES = frozenset({"", "?", "None", "-1"})
# As exporters write names: "input.1", "serving_default_x:0", "model/in-0"; 200 characters are chosen.
_PLAIN_NAME = re.compile(r"(?!.*\.\.)\w[\w.:/-]{0,199}")


def settle_declarations(values: Sequence[ValueInfo]) -> tuple[ValueInfo, ...]:
    """The declarations with None for every dimension that says nothing: negative numbers and names that are none."""
    return tuple(
        value if value.shape is None else replace(value, shape=tuple(_settle_dimension(dim) for dim in value.shape))
        for value in values
    )


def _settle_dimension(dim: int | str | None) -> int | str | None:
    return None if dim in _NO_NAMES or (isinstance(dim, int) and dim < 0) else dim


def sole_names(declared: Sequence[ValueInfo], names: Collection[str]) -> dict[str, str]:
    """The model's name of each of a sample's tensors -> the sample's own: a sole array is the sole input under any plain name.

    Everything else is matched by name; whether the array fits is checked as that of any other. A name that no exporter writes
    (control characters, markup, a way out of a folder, thousands of letters) is a stranger's, and refused as such.
    """
    if len(declared) == 1 and len(names) == 1 and _is_plain(next(iter(names))):
        return {declared[0].name: next(iter(names))}
    return {name: name for name in names}


@functools.lru_cache(maxsize=1024)
def _is_plain(name: str) -> bool:
    return _PLAIN_NAME.fullmatch(name) is not None


def check_names(declared: Sequence[ValueInfo], names: Collection[str], where: str) -> None:
    """The sample has every declared input and no other.

    Raises:
        ParityError: an input is missing, or a tensor is none of the model's inputs (close names are suggested).
    """
    wanted = [value.name for value in declared]
    unknown = sorted(set(names) - set(wanted))
    missing = [name for name in wanted if name not in names]
    if missing:
        close = difflib.get_close_matches(missing[0], unknown, n=1)
        raise ParityError(
            f"input {missing[0]!r} is missing; the sample has {', '.join(map(repr, sorted(names))) or 'no tensors'}",
            where=where,
            fix=f"rename {close[0]!r} to {missing[0]!r} in the data"
            if close
            else f"add an array called {missing[0]!r}",
        )
    if unknown:
        raise ParityError(
            f"{unknown[0]!r} is no input of the model; its inputs are {', '.join(map(repr, wanted))}",
            where=where,
            fix=f"leave {unknown[0]!r} out of the data",
        )


def check_announced(declared: Sequence[ValueInfo], announced: Mapping[str, Announced], where: str, memory: int) -> None:
    """What a file says of a sample's tensors fits the model and the memory, before an element is read.

    `memory` is in bytes.

    Raises:
        ParityError: a shape is not as declared, or the tensors take more than `memory`.
    """
    for value in declared:
        said = announced.get(value.name)
        if said is not None and said.dtype == value.dtype:  # of another type more can be said once it is read
            _check_shape(value, said.shape, f"{where}, input {value.name!r}")
        if said is not None and len(said.shape) > _MOST_AXES:
            raise ParityError(
                f"input {value.name!r} has {len(said.shape)} axes, more than the {_MOST_AXES} that an array may have",
                where=where,
                fix="export the model with fewer axes",
            )
    total = sum(one.nbytes for one in announced.values())
    if total > memory:
        raise ParityError(
            f"the sample takes {-(-total >> 20):,} MiB in memory, more than the {memory >> 20:,} MiB of --memory",
            where=where,
            fix=f"check the data, or give more: --memory {-(-total >> 30) + 1}GiB",
        )


def conform_arrays(
    declared: Sequence[ValueInfo],
    arrays: Mapping[str, np.ndarray],
    where: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, np.ndarray]:
    """The arrays in the order of the model's inputs, in C order; `shapes` are further demands, by input name.

    Raises:
        ParityError: a dtype, rank or dimension is not as declared.
    """
    sizes: dict[str, tuple[int, str]] = {}
    found = {}
    given = [(value, arrays[value.name], shapes.get(value.name)) for value in declared]
    forms = tuple((value, array.dtype, array.shape, wanted) for value, array, wanted in given)
    if forms in _FITTING and all(type(array) is np.ndarray and array.flags.c_contiguous for _, array, _ in given):
        return {value.name: array for value, array, _ in given}
    for value in declared:
        place = f"{where}, input {value.name!r}"
        array = view_as_declared(to_plain_array(arrays[value.name]), value.dtype)
        _check_dtype(value, array, place)
        _check_shape(value, array.shape, place)
        _check_symbols(value, array.shape, sizes, place)
        if value.name in shapes and array.shape != shapes[value.name]:
            raise ParityError(
                f"the shape is {list(array.shape)} and {list(shapes[value.name])} was asked for",
                where=place,
                fix=f"correct --shapes {value.name}:{'x'.join(map(str, array.shape))}",
            )
        found[value.name] = array
    if len(_FITTING) < _REMEMBERED and all(found[value.name].dtype == array.dtype for value, array, _ in given):
        _FITTING.add(forms)
    return found


def check_shapes_option(declared: Sequence[ValueInfo], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """The shapes asked for are of inputs that exist, and of shapes that they may have.

    Raises:
        ParityError: one of them is not.
    """
    sizes: dict[str, tuple[int, str]] = {}
    known = {value.name: value for value in declared}
    for name, shape in shapes.items():
        place = f"--shapes, input {name!r}"
        if name not in known:
            raise ParityError(
                f"there is no input {name!r}", where="--shapes", fix=f"use one of: {', '.join(known) or 'none'}"
            )
        if any(dim < 0 for dim in shape):
            raise ParityError(f"{list(shape)} is not a shape", where=place, fix="use dimensions of 0 and more")
        _check_shape(known[name], shape, place)
        _check_symbols(known[name], shape, sizes, place)


def count_nan(array: np.ndarray) -> int:
    """How many elements are NaN; 0 for what has none (integers, booleans, text)."""
    if array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name):
        return int(np.count_nonzero(np.isnan(array)))
    return 0


def declared_text(value: ValueInfo) -> str:
    """What the model declares, for a reader: "float32 [N, 3, ?, ?]"."""
    return f"{value.dtype} {_dims_text(value.shape)}"


def _check_dtype(value: ValueInfo, array: np.ndarray, where: str) -> None:
    if array.dtype.kind == "O":
        raise ParityError(
            f"expected {declared_text(value)}, found an array of Python objects",
            where=where,
            fix=f"give all its rows the same length and a dtype: np.asarray(rows, dtype=np.{value.dtype})",
        )
    found = "str" if array.dtype.kind == "U" else array.dtype.name
    if found != value.dtype:
        known = dtype_of(value.dtype) is not None
        module = "np" if known and value.dtype in np.sctypeDict else "ml_dtypes"
        raise ParityError(
            f"expected {declared_text(value)}, found {found} {list(array.shape)}",
            where=where,
            fix=f"convert it in the data: .astype({module}.{value.dtype})"
            if known
            else "give an array of text (dtype U)",
        )


def _check_shape(value: ValueInfo, shape: tuple[int, ...], where: str) -> None:
    if value.shape is None:
        return
    fits = len(shape) == len(value.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, shape, strict=True)
    )
    if not fits:
        raise ParityError(
            f"expected {declared_text(value)}, found the shape {list(shape)}",
            where=where,
            fix=_shape_fix(value.shape, shape),
        )


def _shape_fix(declared: Dims, shape: tuple[int, ...]) -> str:
    """The usual mistakes: a batch axis left out, NHWC for NCHW or the reverse, samples stacked along axis 0."""
    rank = len(declared)
    if (
        len(shape) == rank - 1
        and fits_declared(declared[1:], shape)
        and declared[0] in {1, None} | _symbolic_dimensions(declared)
    ):
        return "add the batch axis: array[np.newaxis]"
    if len(shape) == rank == 4:
        for axes in ((0, 3, 1, 2), (0, 2, 3, 1)):
            if fits_declared(declared, tuple(shape[axis] for axis in axes)):
                return f"exchange its layout: array.transpose{axes}"
    if len(shape) == rank and rank and fits_declared(declared[1:], shape[1:]) and declared[0] == 1:
        return f"if axis 0 counts {shape[0]} samples, add --stacked; otherwise give one sample a file"
    return f"give it the shape {_dims_text(declared)}"


def fits_declared(declared: Dims | None, shape: tuple[int, ...]) -> bool:
    """Whether a value that is declared so may have that shape; of None nothing is known."""
    return declared is None or (
        len(declared) == len(shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True))
    )


def sizes_of_symbols(values: Iterable[ValueInfo], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes that names of dimensions have where the values have these shapes."""
    return {
        dim: size
        for value in values
        for dim, size in zip(value.shape or (), shapes.get(value.name, ()), strict=False)
        if isinstance(dim, str)
    }


def _symbolic_dimensions(declared: Dims) -> set[int | str | None]:
    return {dim for dim in declared if isinstance(dim, str)}


def _check_symbols(value: ValueInfo, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]], where: str) -> None:
    for axis, (dim, size) in enumerate(zip(value.shape or (), shape, strict=False)):
        if not isinstance(dim, str):
            continue
        known, place = sizes.setdefault(dim, (size, f"axis {axis} of {value.name!r}"))
        if known != size:
            raise ParityError(
                f"the dimension {dim!r} is {known} at {place} and {size} at axis {axis} of {value.name!r}",
                where=where,
                fix=f"give both inputs the same size along {dim!r}",
            )


def _dims_text(dims: Dims | None) -> str:
    return "of any shape" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
