"""The shapes that an engine covers: one optimization profile, (smallest, usual, largest) for each dynamic input.

`shapes=x:1x3x224x224` is one shape, `shapes=x:1x3x8x8..4x3x16x16..8x3x32x32` a range with the usual shape in its middle. Without
it the shapes of the samples decide: the smallest and the largest size of each dimension, and the first sample's as usual.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from parityscope.backends.tensorrt.api import Builder, BuilderConfig, OptimizationProfile
    from parityscope.backends.tensorrt.layers import NetworkTensor

Shape = tuple[int, ...]
_EXAMPLE = "shapes=x:1x3x224x224, or with a range shapes=x:1x3x8x8..1x3x64x64..1x3x224x224"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRange:
    """The smallest, the usual and the largest shape of an input."""

    smallest: Shape
    usual: Shape
    largest: Shape

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether `shape` is within."""
        return len(shape) == len(self.usual) and all(
            low <= size <= high for low, size, high in zip(self.smallest, shape, self.largest, strict=True)
        )


def ranges_of(text: str) -> dict[str, ShapeRange]:
    """`x:1x3x8x8,y:1..2..4` as ranges by input.

    Raises:
        ParityError: it is not of that form, or not smallest <= usual <= largest.
    """
    found = {}
    for item in text.split(",") if text else ():
        name, _, dims = item.rpartition(":")
        shapes = [_parse_shape(part) for part in dims.split("..")]
        if not name or None in shapes or len(shapes) not in {1, 3}:
            raise ParityError(f"shapes={item!r} is not name:1x3x224x224", fix=f"write {_EXAMPLE}")
        given = [shape for shape in shapes if shape is not None]
        one = ShapeRange(smallest=given[0], usual=given[len(given) // 2], largest=given[-1])
        if not (one.covers(one.usual) and all(a <= b for a, b in zip(one.smallest, one.largest, strict=True))):
            raise ParityError(f"shapes={item!r} is not smallest..usual..largest", fix=f"write {_EXAMPLE}")
        if name in found:
            raise ParityError(f"shapes= names {name!r} twice", fix=f"write it once, with a range: {_EXAMPLE}")
        found[name] = one
    return found


def ranges_of_samples(samples: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, ShapeRange]:
    """The range of each input over the shapes that samples have, by input; the first sample's shape is the usual one."""
    found: dict[str, ShapeRange] = {}
    for shapes in samples:
        for name, given in shapes.items():
            shape = tuple(given)
            before = found.get(name)
            if before is None:
                found[name] = ShapeRange(smallest=shape, usual=shape, largest=shape)
            elif len(shape) == len(before.usual):
                found[name] = ShapeRange(
                    smallest=tuple(map(min, before.smallest, shape)),
                    usual=before.usual,
                    largest=tuple(map(max, before.largest, shape)),
                )
    return found


def usual_shapes(ranges: Mapping[str, ShapeRange]) -> dict[str, Shape]:
    """The usual shape of each input."""
    return {name: one.usual for name, one in ranges.items()}


def flags_for(ranges: Mapping[str, ShapeRange]) -> str:
    """The flags of trtexec for these ranges."""
    parts = []
    for flag, pick in (("min", "smallest"), ("opt", "usual"), ("max", "largest")):
        listed = ",".join(f"{name}:{'x'.join(map(str, getattr(one, pick)))}" for name, one in ranges.items())
        parts.append(f"--{flag}Shapes={listed}")
    return " ".join(parts)


def check_names(ranges: Mapping[str, ShapeRange], inputs: Sequence[str]) -> None:
    """Checks that each range is an input's.

    Raises:
        ParityError: one is of another name, which would leave the input that was meant with other shapes.
    """
    unknown = [name for name in ranges if name not in inputs]
    if unknown:
        near = difflib.get_close_matches(unknown[0], inputs, n=1)
        raise ParityError(
            f"the model has no input {unknown[0]!r}; it has {', '.join(inputs)}",
            fix=f"write {near[0] if near else inputs[0] if inputs else 'no'}:... in --shapes or shapes=",
        )


def check_covered(ranges: Mapping[str, ShapeRange], samples: Iterable[Mapping[str, Sequence[int]]]) -> None:
    """Checks that the profile covers samples, given by the shape of each input.

    Raises:
        ParityError: it does not; with the flags that would.
    """
    held = list(samples)
    for number, shapes in enumerate(held):
        for name, shape in shapes.items():
            if name in ranges and not ranges[name].covers(shape):
                wider = {one: found for one, found in ranges_of_samples(held).items() if one in ranges}
                raise ParityError(
                    (
                        f"the shapes asked for are {_describe_range(ranges[name])} of input {name!r}, sample {number} "
                        f"has {list(shape)}"
                    ),
                    fix=f"leave the shapes out, so that the samples' are taken, or write shapes={_target_words(wider)}",
                )


def _target_words(ranges: Mapping[str, ShapeRange]) -> str:
    """Ranges as `ranges_of` reads them."""
    parts = []
    for name, one in ranges.items():
        shapes = (one.smallest,) if one.smallest == one.largest else (one.smallest, one.usual, one.largest)
        parts.append(f"{name}:" + "..".join("x".join(map(str, shape)) for shape in shapes))
    return ",".join(parts)


def _describe_range(one: ShapeRange) -> str:
    if one.smallest == one.largest:
        return str(list(one.smallest))
    return f"{list(one.smallest)} to {list(one.largest)}"


def add_profile(
    builder: Builder, config: BuilderConfig, inputs: Sequence[NetworkTensor], ranges: Mapping[str, ShapeRange]
) -> None:
    """Adds the profile of the dynamic ones among `inputs` to `config`.

    Raises:
        ParityError: a dynamic input has no range, or its range does not fit it.
    """
    dynamic = [tensor for tensor in inputs if -1 in tensor.shape]
    missing = [tensor for tensor in dynamic if tensor.name not in ranges]
    if missing:
        forms = (
            f"--shapes {each.name}:{'x'.join(str(size) if size >= 0 else '1' for size in each.shape)}"
            for each in missing
        )
        raise ParityError(
            f"input {missing[0].name!r} has dynamic dimensions and no shape",
            fix=" ".join(forms) + " (with the sizes that you use), or --inputs DATA; in a target shapes=NAME:SIZES",
        )
    for tensor in inputs:
        _check_fit(tensor, ranges.get(tensor.name))
    if not dynamic:
        return
    profile: OptimizationProfile = builder.create_optimization_profile()
    for tensor in dynamic:
        one = ranges[tensor.name]
        profile.set_shape(tensor.name, one.smallest, one.usual, one.largest)
    config.add_optimization_profile(profile)


def _check_fit(tensor: NetworkTensor, one: ShapeRange | None) -> None:
    if one is None:
        return
    for shape in (one.smallest, one.largest):
        fits = len(shape) == len(tensor.shape) and all(
            declared in {-1, size} for declared, size in zip(tensor.shape, shape, strict=True)
        )
        if not fits:
            wanted = "x".join("?" if size < 0 else str(size) for size in tensor.shape)
            raise ParityError(
                f"input {tensor.name!r} is {wanted} in the model, {'x'.join(map(str, shape)) or 'a scalar'} was asked for",
                fix=f"give {tensor.name!r} a shape of that form",
            )


def _parse_shape(text: str) -> Shape | None:
    parts = text.split("x") if text else []
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None
