"""A recipe in a file, `--preprocess prepare.toml`, in place of a function: the same for every program that reads it.

    input = "images"                  # the model's input; not needed where it has one
    size = [320, 320]                 # height, width
    fit = "stretch"                   # stretch, letterbox, shorter or central
    kernel = "bilinear-antialias"     # what Pillow's BILINEAR is; others in case/imaging/kernels.py
    whole = true                      # resized pixels are rounded to bytes
    fill = [114, 114, 114]            # of a letterbox
    corner = false                    # a letterbox filled on the right and below only
    shorter = 366                     # of shorter and central: what the shorter side would become
    channels = "RGB"                  # or "BGR"
    scale = 255                       # x / scale, then
    mean = [0.485, 0.456, 0.406]      # - mean
    deviation = [0.229, 0.224, 0.225] # / deviation
    layout = "NCHW"                   # or "NHWC"

Only `size` has to be there; the others are as above, with mean 0 and deviation 1. Unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, get_args

from parityscope.case.imaging.kernels import KERNELS
from parityscope.case.imaging.recipe import Fitting, Placing, Recipe
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["read_recipe"]

_ORDERS = {"RGB": (0, 1, 2), "BGR": (2, 1, 0)}
_LAYOUTS = ("NCHW", "NHWC")
_FILL = (114.0, 114.0, 114.0)
_KEYS = (
    *("input", "size", "fit", "kernel", "whole", "fill", "corner", "shorter"),
    *("channels", "scale", "mean", "deviation", "layout"),
)


def read_recipe(path: Path, inputs: Sequence[str]) -> Recipe:
    """The recipe in a file; `inputs` are the model's.

    Raises:
        ParityError: it cannot be read, or says something that has no meaning.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParityError(
            f"{path} cannot be read: {error.strerror}", where=str(path), fix="give a .toml file"
        ) from error
    except ValueError as error:  # of the syntax or the encoding
        raise ParityError(
            f"{path.name} is not TOML: {error}", where=str(path), fix="write KEY = VALUE lines"
        ) from error
    where = str(path)
    unknown = sorted(set(found) - set(_KEYS))
    if unknown:
        raise ParityError(f"there is no key {unknown[0]!r}", where=where, fix=f"use some of: {', '.join(_KEYS)}")
    size = _numbers(found, "size", (), where)
    if len(size) != 2 or min(size) < 1:
        raise ParityError("size is not [height, width]", where=where, fix="write size = [320, 320]")
    fill = _numbers(found, "fill", _FILL, where)
    fill = fill * 3 if len(fill) == 1 else fill
    deviation, mean = _numbers(found, "deviation", (1.0,), where), _numbers(found, "mean", (0.0,), where)
    scale = _numbers(found, "scale", (255.0,), where)
    for key, numbers, counts in (("fill", fill, {3}), ("mean", mean, {1, 3}), ("deviation", deviation, {1, 3})):
        if len(numbers) not in counts:
            raise ParityError(f"{key} has {len(numbers)} numbers", where=where, fix=f"give {key} one number or three")
    if 0.0 in (*deviation, *scale) or len(scale) != 1:
        raise ParityError("scale and deviation divide, and may not be 0", where=where, fix="write scale = 255")
    placing = Placing(
        size=(int(size[0]), int(size[1])),
        fit=_chosen(found, "fit", get_args(Fitting), where),
        kernel=_chosen(found, "kernel", KERNELS, where),
        whole=_flag(found, "whole", where, default=True),
        fill=(fill[0], fill[1], fill[2]),
        corner=_flag(found, "corner", where, default=False),
        shorter=int(_numbers(found, "shorter", (0.0,), where)[0]),
    )
    return Recipe(
        input=_input(found, inputs, where),
        placing=placing,
        channels=_ORDERS[_chosen(found, "channels", tuple(_ORDERS), where)],
        scale=scale[0],
        mean=mean,
        deviation=deviation,
        layout=_chosen(found, "layout", _LAYOUTS, where),
    )


def _chosen(found: dict[str, Any], key: str, known: Sequence[str], where: str) -> Any:
    """One of the `known` words, the first where none is given."""
    value = found.get(key, known[0])
    if value not in known:
        raise ParityError(f"{key} = {value!r} is not known", where=where, fix=f"use one of: {', '.join(known)}")
    return value


def _flag(found: dict[str, Any], key: str, where: str, *, default: bool) -> bool:
    value = found.get(key, default)
    if not isinstance(value, bool):
        raise ParityError(f"{key} = {value!r} is neither true nor false", where=where, fix=f"write {key} = true")
    return value


def _numbers(found: dict[str, Any], key: str, default: tuple[float, ...], where: str) -> tuple[float, ...]:
    value = found.get(key, list(default))
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
        raise ParityError(
            f"{key} = {value!r} is not a number or a list of them", where=where, fix=f"write {key} = [1.0]"
        )
    return tuple(float(item) for item in items)


def _input(found: dict[str, Any], inputs: Sequence[str], where: str) -> str:
    name = found.get("input", inputs[0] if len(inputs) == 1 else "")
    if name not in inputs:
        raise ParityError(
            f"input = {name!r} is none of the model's" if name else "nothing says which input the image is for",
            where=where,
            fix=f"write input = {inputs[0]!r}; the model has {', '.join(inputs)}",
        )
    return str(name)
