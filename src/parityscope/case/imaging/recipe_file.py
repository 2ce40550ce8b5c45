"""A recipe in a file, `--preprocess prepare.toml`, in place of a function: the same for every program that reads it.

    input = "images"                  # the model's input; not needed where it has one
    size = [320, 320]                 # height, width
    fit = "stretch"                   # stretch, letterbox, shorter or central
    kernel = "bilinear-antialias"     # what Pillow's BILINEAR is; others in case/imaging/kernels.py
    whole = true                      # resized pixels are rounded to bytes
    fill = [114, 114, 114]            # of a letterbox
    side = "middle"                   # where the image lies in a letterbox: middle, first (upper left) or last
    corner = false                    # the same as side = "first"
    shorter = 366                     # of shorter and central: what the shorter side would become
    channels = "RGB"                  # or "BGR"
    scale = 255                       # x / scale, then
    mean = [0.485, 0.456, 0.406]      # - mean
    deviation = [0.229, 0.224, 0.225] # / deviation
    layout = "NCHW"                   # or "NHWC"

Only `size` has to be there; the others are as above, with mean 0 and deviation 1. Unknown keys are errors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

from parityscope.case.imaging.kernels import KERNELS, MOST_PIXELS
from parityscope.case.imaging.recipe import Fitting, Placing, Recipe, Side
from parityscope.errors import ParityError
from parityscope.plain_documents import read_toml_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_ORDERS = {"RGB": (0, 1, 2), "BGR": (2, 1, 0)}
_LAYOUTS = ("NCHW", "NHWC")
_FILL = (114.0, 114.0, 114.0)
_KEYS = (
    *("input", "size", "fit", "kernel", "whole", "fill", "side", "corner", "shorter"),
    *("channels", "scale", "mean", "deviation", "layout"),
)


def read_recipe(path: Path, inputs: Sequence[str]) -> Recipe:
    """The recipe in a file; `inputs` are the model's.

    Raises:
        ParityError: it cannot be read, or says something that has no meaning.
    """
    found = read_toml_file(path, "the recipe")
    where = str(path)
    unknown = sorted(set(found) - set(_KEYS))
    if unknown:
        raise ParityError(f"there is no key {unknown[0]!r}", where=where, fix=f"use some of: {', '.join(_KEYS)}")
    size = _read_numbers(found, "size", (0.0,), where)
    if len(size) != 2 or min(size) < 1 or any(side % 1 for side in size):
        raise ParityError("size is not [height, width]", where=where, fix="write size = [320, 320]")
    if size[0] * size[1] > MOST_PIXELS:
        raise ParityError(
            f"size has {size[0] * size[1]:.3g} pixels, more than {MOST_PIXELS}",
            where=where,
            fix="write size = [320, 320]",
        )
    fill = _read_numbers(found, "fill", _FILL, where)
    fill = fill * 3 if len(fill) == 1 else fill
    deviation, mean = _read_numbers(found, "deviation", (1.0,), where), _read_numbers(found, "mean", (0.0,), where)
    scale = _read_numbers(found, "scale", (255.0,), where)
    for key, numbers, counts in (("fill", fill, {3}), ("mean", mean, {1, 3}), ("deviation", deviation, {1, 3})):
        if len(numbers) not in counts:
            raise ParityError(f"{key} has {len(numbers)} numbers", where=where, fix=f"give {key} one number or three")
    if not 0 <= min(fill) <= max(fill) <= 255:
        raise ParityError("fill is no colour", where=where, fix="give it numbers from 0 to 255")
    fit = _choose_word(found, "fit", get_args(Fitting), where)
    shorter = _read_numbers(found, "shorter", (0.0,), where)[0]
    if shorter % 1 or (shorter and not max(size) <= shorter <= MOST_PIXELS):
        raise ParityError(
            f"shorter = {shorter:g} is no side that the image is cut from",
            where=where,
            fix=f"write shorter = {max(size):.0f} or more",
        )
    if 0.0 in (*deviation, *scale) or len(scale) != 1:
        raise ParityError("scale and deviation divide, and may not be 0", where=where, fix="write scale = 255")
    placing = Placing(
        size=(int(size[0]), int(size[1])),
        fit=fit,
        kernel=_choose_word(found, "kernel", KERNELS, where),
        whole=_read_flag(found, "whole", where, default=True),
        fill=(fill[0], fill[1], fill[2]),
        side="first"
        if _read_flag(found, "corner", where, default=False)
        else _choose_word(found, "side", get_args(Side), where),
        shorter=int(shorter),
    )
    return Recipe(
        input=_read_input(found, inputs, where),
        placing=placing,
        channels=_ORDERS[_choose_word(found, "channels", tuple(_ORDERS), where)],
        scale=scale[0],
        mean=mean,
        deviation=deviation,
        layout=_choose_word(found, "layout", _LAYOUTS, where),
    )


def _choose_word(found: dict[str, Any], key: str, known: Sequence[str], where: str) -> Any:
    """One of the `known` words, the first where none is given."""
    value = found.get(key, known[0])
    if value not in known:
        raise ParityError(f"{key} = {value!r} is not known", where=where, fix=f"use one of: {', '.join(known)}")
    return value


def _read_flag(found: dict[str, Any], key: str, where: str, *, default: bool) -> bool:
    value = found.get(key, default)
    if not isinstance(value, bool):
        raise ParityError(f"{key} = {value!r} is neither true nor false", where=where, fix=f"write {key} = true")
    return value


def _read_numbers(found: dict[str, Any], key: str, default: tuple[float, ...], where: str) -> tuple[float, ...]:
    value = found.get(key, list(default))
    items = value if isinstance(value, list) else [value]
    if not items or not all(type(item) in {int, float} and math.isfinite(item) for item in items):
        raise ParityError(
            f"{key} = {value!r} is not a number or a list of them", where=where, fix=f"write {key} = [1.0]"
        )
    return tuple(float(item) for item in items)


def _read_input(found: dict[str, Any], inputs: Sequence[str], where: str) -> str:
    name = found.get("input", inputs[0] if len(inputs) == 1 else "")
    if name not in inputs:
        raise ParityError(
            f"input = {name!r} is none of the model's" if name else "nothing says which input the image is for",
            where=where,
            fix=f"write input = {inputs[0]!r}; the model has {', '.join(inputs)}",
        )
    return str(name)
