"""Inputs when no data was given: of the declared types, in ranges that the graph itself gives away.

Such inputs answer whether an engine computes what the model says, not whether it does on real data; whoever uses them
says so. Sample i is drawn by `Generator(PCG64(SeedSequence([seed, i])))`, input after input in the model's order, so
that it does not depend on how many samples are drawn.

| input | drawn |
| --- | --- |
| name contains "mask" | all ones: nothing is masked. As an additive mask a constant changes no softmax |
| integers that look rows of a table up (Gather, OneHot, EmbedLayerNormalization) | uniform over the rows |
| ... and whose name contains "token_type" or "segment" | zeros: one segment |
| ... and whose name contains "position" | 0, 1, 2, ... along the last axis |
| other int8 and uint8 | uniform over the whole type: quantized values, pixels |
| other integers | uniform over 0 to 9 (chosen: small enough to be an index into most things) |
| bool | fair coin |
| float of rank 4 with 1, 3 or 4 channels (or an unknown number) | uniform in [0, 1): an image that was scaled |
| other float | standard normal: a normalised feature |

Sizes that the model leaves open: 1 for a batch (the first axis, and symbols named like one), 3 for channels, 224 for
the height and width of images (7 * 32, so that five halvings fit), 16 for anything else. A symbol has one size
everywhere; `shapes` goes first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.conformance import declared_text, sizes_of_symbols
from parityscope.case.formats import Announced, Stored, dtype_of
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.operators import MOVING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import onnx_ir as ir

    from parityscope.case.model import Model
    from parityscope.records import ValueInfo

    Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

_MOST_SAMPLES = 1_000_000  # chosen: nobody waits for more runs of a network
_IMAGE_SIDE = 224
_CHANNELS = 3
_OTHER = 16
_SMALL = 10
_CHANNEL_COUNTS = frozenset({1, 3, 4})
_BATCH_NAMES = frozenset({"n", "b", "batch", "batch_size", "batchsize", "bs"})
# Operators that pass indices on: their input 0 reaches the table through them unchanged.
_PASS = MOVING | {"Concat"}
# Operators that look rows up, by (operator, input): where the table is.
_LOOKUPS = {
    ("Gather", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """How one input is drawn, and the words for it."""

    value: ValueInfo
    shape: tuple[int, ...]
    words: str
    draw: Draw


def generate_inputs(model: Model, samples: int, seed: int, shapes: Mapping[str, tuple[int, ...]]) -> Stored:
    """`samples` samples for `model`; `shapes` (checked already) fixes the shapes of some inputs.

    Raises:
        ParityError: an input is text or of unknown rank, which nobody can guess.
    """
    if seed < 0:
        raise ParityError(f"{seed} cannot be a seed", fix="use --seed 0 or more")
    if samples > _MOST_SAMPLES:
        raise ParityError(
            f"{samples} generated samples are more than {_MOST_SAMPLES:,}",
            fix=f"use --samples {_MOST_SAMPLES} or fewer",
        )
    sizes = generated_shapes(model, shapes)
    rows = table_rows(model)
    recipes = [_recipe_for_input(value, sizes[value.name], rows.get(value.name)) for value in model.inputs]

    def read(index: int, wanted: Collection[str]) -> dict[str, np.ndarray]:
        numbers = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, index])))
        drawn = {recipe.value.name: _draw_array(recipe, numbers) for recipe in recipes}
        return {name: drawn[name] for name in wanted}

    sizes_told = {recipe.value.name: _announce_generated(recipe) for recipe in recipes}
    told = "; ".join(f"{recipe.value.name} {list(recipe.shape)} {recipe.words}" for recipe in recipes)
    names = tuple(value.name for value in model.inputs)
    return Stored(
        origin=f"generated with seed {seed}: {told}",
        labels=tuple(f"generated {index}" for index in range(samples)),
        names=lambda _: names,
        read=read,
        announced=lambda _: sizes_told,
    )


def generated_shapes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shape of each input: as asked for in `shapes`, as declared, and the sizes above for what is left open.

    Raises:
        ParityError: the model does not say how many axes an input has, and `shapes` does not either.
    """
    symbols = sizes_of_symbols(model.inputs, shapes)
    found = {}
    for value in model.inputs:
        if value.name in shapes:
            found[value.name] = shapes[value.name]
            continue
        if value.shape is None:
            raise ParityError(
                f"the model does not say how many axes input {value.name!r} has",
                where=str(model.path),
                fix=f"say it: --shapes {value.name}:1x16, or give data: --inputs DATA",
            )
        found[value.name] = tuple(
            dim
            if isinstance(dim, int)
            else _open_size(value, axis)
            if dim is None
            else symbols.setdefault(dim, _open_size(value, axis))
            for axis, dim in enumerate(value.shape)
        )
    return found


def table_rows(model: Model) -> dict[str, int]:
    """For each input that looks up rows of tables: the number of rows of the smallest one."""
    graph = model.shared_graph().graph
    found = {}
    for value in graph.inputs:
        rows = _rows_behind(value)
        if value.name and rows:
            found[value.name] = min(rows)
    return found


def _rows_behind(start: ir.Value) -> list[int]:
    rows: list[int] = []
    seen = {id(start)}
    waiting = [start]
    while waiting:
        for node, index in waiting.pop().uses():
            if count := _rows_of(node, index):
                rows.append(count)
            elif node.op_type in _PASS and (index == 0 or node.op_type == "Concat"):
                waiting.extend(value for value in node.outputs if id(value) not in seen)
                seen.update(id(value) for value in node.outputs)
    return rows


def _rows_of(node: ir.Node, index: int) -> int | None:
    """The number of rows that `node` looks up with its input `index`; None if it does not, or nobody knows."""
    import onnx_ir as ir

    if node.op_type == "OneHot" and index == 0:
        depth = ir.convenience.get_const_tensor(node.inputs[1]) if node.inputs[1] is not None else None
        return None if depth is None else int(np.asarray(depth.numpy()).reshape(-1)[0])
    where = _LOOKUPS.get((node.op_type, index))
    table = None if where is None or where >= len(node.inputs) else node.inputs[where]
    if table is None or table.shape is None:
        return None
    attribute = node.attributes.get("axis")
    axis = attribute.as_int() if attribute is not None else 0
    size = table.shape[axis] if -len(table.shape) <= axis < len(table.shape) else None
    return size if isinstance(size, int) and size > 0 else None


def _open_size(value: ValueInfo, axis: int) -> int:
    dims = value.shape or ()
    dim = dims[axis]
    if axis == 0 or (isinstance(dim, str) and dim.lower() in _BATCH_NAMES):
        return 1
    if _is_image(value):
        channels_last = dims[3] in _CHANNEL_COUNTS and dims[1] not in _CHANNEL_COUNTS
        return _CHANNELS if axis == (3 if channels_last else 1) else _IMAGE_SIDE
    return _OTHER


def _is_image(value: ValueInfo) -> bool:
    dims = value.shape
    if dims is None or len(dims) != 4:
        return False
    return not isinstance(dims[1], int) or bool({dims[1], dims[3]} & _CHANNEL_COUNTS)


def _recipe_for_input(value: ValueInfo, shape: tuple[int, ...], rows: int | None) -> _Recipe:
    name = value.name.lower()
    dtype = dtype_of(value.dtype)
    if dtype is None:
        raise ParityError(
            f"input {value.name!r} ({declared_text(value)}) cannot be generated", fix="give data: --inputs DATA"
        )
    integer = "int" in value.dtype
    draw: Draw
    if "mask" in name:
        words, draw = "all ones", _draw_ones
    elif value.dtype == "bool":
        words, draw = "fair coin", _draw_integers(0, 2)
    elif integer and rows is not None and ("token_type" in name or "segment" in name):
        words, draw = "zeros (one segment)", _draw_zeros
    elif integer and rows is not None and "position" in name:
        words, draw = f"counting up, below {rows}", _count_up(rows)
    elif integer and rows is not None:
        words, draw = f"uniform over the {rows} rows of the table that it indexes", _draw_integers(0, rows)
    elif value.dtype in {"int8", "uint8"}:
        low, high = _integer_limits(dtype)
        words, draw = f"uniform over {low} to {high}", _draw_integers(low, high + 1)
    elif integer:
        high = min(_SMALL - 1, _integer_limits(dtype)[1])
        words, draw = f"uniform over 0 to {high}", _draw_integers(0, high + 1)
    elif _is_image(value):
        words, draw = "uniform in [0, 1)", _draw_uniform
    else:
        words, draw = "standard normal", _draw_normal
    return _Recipe(value=value, shape=shape, words=words, draw=draw)


def _announce_generated(recipe: _Recipe) -> Announced:
    dtype = dtype_of(recipe.value.dtype)
    nbytes = math.prod(recipe.shape) * (1 if dtype is None else dtype.itemsize)
    return Announced(dtype=recipe.value.dtype, shape=recipe.shape, nbytes=nbytes)


def _integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    import ml_dtypes

    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _draw_array(recipe: _Recipe, numbers: np.random.Generator) -> np.ndarray:
    dtype = dtype_of(recipe.value.dtype)
    return np.asarray(recipe.draw(numbers, recipe.shape)).astype(dtype)


def _draw_ones(_: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


def _draw_zeros(_: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def _draw_uniform(numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return numbers.random(shape, dtype=np.float32)


def _draw_normal(numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return numbers.standard_normal(shape)


def _draw_integers(low: int, high: int) -> Draw:
    return lambda numbers, shape: numbers.integers(low, high, shape)


def _count_up(rows: int) -> Draw:
    return lambda _, shape: np.broadcast_to(np.arange(shape[-1] if shape else 1) % rows, shape)
