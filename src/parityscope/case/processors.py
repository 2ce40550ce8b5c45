"""The folder of a Hugging Face processor or tokenizer, read as data: no code of it is run, and nothing is loaded over a network.

* `tokenizer.json`: the whole tokenizer as data, run by the package `tokenizers` (extra `text`). Texts are cut and padded to
  the length that the model declares, with the padding token of `tokenizer_config.json`; a model of open length gets them as
  long as they are.
* `preprocessor_config.json` of an image processor: resize, centre crop, rescale and normalize as Hugging Face's processors on
  Pillow do them, turned into a recipe (`case.imaging`). What it asks for beyond those is refused by name.

A tokenizer that is only code or vocabulary files (no `tokenizer.json`), and feature extractors of sound, are for
`file.py:function`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import UnreadableError
from parityscope.case.imaging.kernels import MOST_PIXELS
from parityscope.case.imaging.recipe import Placing, Recipe
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_documents import read_json_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from parityscope.records import ValueInfo

_MOST_NBYTES = 64 << 20  # of a file; chosen: the tokenizers of large language models have 10 to 20 MB
_TOKENIZER, _IMAGES = "tokenizer.json", "preprocessor_config.json"
_FUNCTION = "write it as file.py:function, which may call the processor itself"
# Pillow's numbers of filters (PIL.Image.Resampling), which the files hold.
_KERNELS = {0: "nearest", 1: "lanczos", 2: "bilinear-antialias", 3: "bicubic-antialias", 4: "box", 5: "hamming"}
# What a tokenizer gives, by what inputs are called.
_PARTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
_RECIPE_STEPS = frozenset({"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A recipe for images, or what turns a text into arrays by input name."""

    recipe: Recipe | None = None
    tokenize: Callable[[str], dict[str, np.ndarray]] = lambda _: {}


def read_processor(folder: Path, inputs: Sequence[ValueInfo]) -> Processor:
    """The processor in `folder` for a model with these inputs.

    Raises:
        ParityError: it holds none, or one that cannot be told by data alone.
    """
    if (folder / _TOKENIZER).is_file():
        return Processor(tokenize=_read_tokenizer(folder, inputs))
    if (folder / _IMAGES).is_file():
        return Processor(recipe=_read_image_processor(folder / _IMAGES, inputs))
    raise ParityError(
        f"{folder.name} holds neither {_TOKENIZER} nor {_IMAGES}",
        where=str(folder),
        fix="save it there: processor.save_pretrained(FOLDER), or " + _FUNCTION,
    )


def _read_tokenizer(folder: Path, inputs: Sequence[ValueInfo]) -> Callable[[str], dict[str, np.ndarray]]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ParityError(
            "a tokenizer needs the package tokenizers, which is not installed", fix="pip install 'parityscope[text]'"
        ) from error
    path = folder / _TOKENIZER
    read_json_file(path, _TOKENIZER, limit=_MOST_NBYTES)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises Exception itself
        raise ParityError(f"{path.name} is no tokenizer: {error}", where=str(path), fix=_FUNCTION) from error
    unknown = [value.name for value in inputs if value.name not in _PARTS]
    if unknown:
        raise ParityError(
            f"the tokenizer gives {', '.join(_PARTS)}, and the model takes {unknown[0]!r}",
            where=str(path),
            fix=_FUNCTION,
        )
    length = next((one for one in map(_length_of, inputs) if one), 0)
    if length:
        token, number = _padding_of(folder, tokenizer)
        tokenizer.enable_truncation(max_length=length)
        tokenizer.enable_padding(length=length, pad_token=token, pad_id=number)
    return functools.partial(_tokenize, tokenizer, tuple(inputs))


def _tokenize(tokenizer: Any, inputs: Sequence[ValueInfo], text: str) -> dict[str, np.ndarray]:
    try:
        encoded = tokenizer.encode(text)
    except Exception as error:  # the package raises Exception itself
        raise UnreadableError(f"a text cannot be read: {error}", fix=_FUNCTION) from error
    return {value.name: np.array([getattr(encoded, _PARTS[value.name])], dtype=value.dtype) for value in inputs}


def _length_of(value: ValueInfo) -> int:
    last = value.shape[-1] if value.shape else None
    return last if isinstance(last, int) else 0


def _padding_of(folder: Path, tokenizer: Any) -> tuple[str, int]:
    """The padding token and its number: what the tokenizer is set to, else what its settings name."""
    if tokenizer.padding:
        return str(tokenizer.padding["pad_token"]), int(tokenizer.padding["pad_id"])
    path = folder / "tokenizer_config.json"
    settings = read_json_file(path, path.name, limit=_MOST_NBYTES) if path.is_file() else None
    told = settings.get("pad_token") if isinstance(settings, dict) else None
    token = told.get("content", "") if isinstance(told, dict) else told
    number = tokenizer.token_to_id(token) if isinstance(token, str) else None
    if number is None:
        raise ParityError(
            "the model has a fixed length, and the tokenizer says no padding token",
            where=str(folder),
            fix='write "pad_token" into tokenizer_config.json',
        )
    return str(token), int(number)


def _read_image_processor(path: Path, inputs: Sequence[ValueInfo]) -> Recipe:
    found = read_json_file(path, path.name, limit=_MOST_NBYTES)
    if not isinstance(found, dict) or "feature_size" in found or len(inputs) != 1:
        raise ParityError(f"{path.name} is no image processor for a model of one input", where=str(path), fix=_FUNCTION)
    more = [key for key, value in found.items() if key.startswith("do_") and value and key not in _RECIPE_STEPS]
    if more or found.get("crop_pct"):
        raise ParityError(
            f"{path.name} asks for {(more or ['crop_pct'])[0]!r}, which a recipe cannot say",
            where=str(path),
            fix=_FUNCTION,
        )
    try:
        placing = _placing_of(found)
        scale = 1 / float(found.get("rescale_factor", 1 / 255)) if found.get("do_rescale", True) else 1.0
        normalized = found.get("do_normalize", True)
        mean = tuple(map(float, found["image_mean"])) if normalized else (0.0,)
        deviation = tuple(map(float, found["image_std"])) if normalized else (1.0,)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ParityError(f"{path.name} does not say {error}", where=str(path), fix=_FUNCTION) from error
    return Recipe(input=inputs[0].name, placing=placing, scale=scale, mean=mean, deviation=deviation)


def _placing_of(found: dict[str, Any]) -> Placing:
    """How the image is put on its size.

    Raises:
        KeyError, TypeError, ValueError: it does not say that in a form that is known.
    """
    if not found.get("do_resize", True):
        raise ValueError("what size images are resized to")
    kernel = _KERNELS[int(found.get("resample", 2))]
    size = found["size"]
    crop = found.get("crop_size") if found.get("do_center_crop") else None
    if isinstance(size, int):
        size = {"shortest_edge": size} if crop else {"height": size, "width": size}
    if set(size) == {"height", "width"}:
        whole = _pair_of(size)
        if crop is not None and _pair_of(crop) != whole:
            raise ValueError("a crop that a recipe can do")
        return Placing(size=whole, fit="stretch", kernel=kernel)
    if set(size) != {"shortest_edge"} or crop is None:
        raise ValueError("a size that is the same for every image")
    return Placing(size=_pair_of(crop), fit="shorter", kernel=kernel, shorter=_checked(size["shortest_edge"]))


def _pair_of(size: Any) -> tuple[int, int]:
    return (
        (_checked(size), _checked(size))
        if isinstance(size, int)
        else (_checked(size["height"]), _checked(size["width"]))
    )


def _checked(side: Any) -> int:
    if not isinstance(side, int) or not 0 < side <= MOST_PIXELS >> 10:
        raise ValueError(f"a side that can be: {side!r}")
    return side
