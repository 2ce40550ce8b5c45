"""The inputs and outputs of an engine as plain facts, and whether what a sample gives fits them.

All of it is about names, types, shapes, formats and profiles: no memory is touched here. An array is never cast, never
reshaped and never taken by its place; int64 and int32 are different types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.backends.tensorrt.api import shape_of
from parityscope.backends.tensorrt.profiles import ShapeRange, flags_for
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends.tensorrt.api import Engine

# TensorRT's names of types -> ours, and those of numpy and ml_dtypes.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8_e4m3fn",
    "FP4": "float4_e2m1fn",
    "E8M0": "float8_e8m0fnu",
    "INT4": "int4",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IOFact:
    """An input or output: `dtype` by numpy's name, `shape` with -1 for dynamic sizes, `covered` the profile of an input.

    `linear` says that elements lie in C order; `layout` is TensorRT's description of it. `host` tensors are read by the CPU.
    """

    name: str
    is_input: bool
    dtype: str
    shape: tuple[int, ...]
    linear: bool = True
    layout: str = ""
    host: bool = False
    covered: ShapeRange | None = None


def io_facts(engine: Engine, profile: int = 0) -> tuple[IOFact, ...]:
    """The inputs and outputs of `engine`, in its order, as its optimization profile of that number covers them."""
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        shape = shape_of(engine.get_tensor_shape(name))
        is_input = engine.get_tensor_mode(name).name == "INPUT"
        values = engine.is_shape_inference_io(name)
        word = engine.get_tensor_dtype(name).name
        found.append(
            IOFact(
                name=name,
                is_input=is_input,
                dtype=DTYPES.get(word, word.lower()),
                shape=shape,
                linear=engine.get_tensor_format(name).name == "LINEAR",
                layout=engine.get_tensor_format_desc(name),
                host=engine.get_tensor_location(name).name == "HOST",
                covered=_range_in_profile(engine, name, profile) if is_input and -1 in shape and not values else None,
            )
        )
    return tuple(found)


def _range_in_profile(engine: Engine, name: str, number: int) -> ShapeRange:
    smallest, usual, largest = (shape_of(dims) for dims in engine.get_tensor_profile_shape(name, number))
    return ShapeRange(smallest=smallest, usual=usual, largest=largest)


def covering_profile(profiles: Sequence[Sequence[IOFact]], arrays: Mapping[str, np.ndarray]) -> int:
    """The first profile that covers a sample; 0, whose error then says why not, where none does."""
    for number, facts in enumerate(profiles):
        if all(fact.name in arrays and _fits_fact(fact, arrays[fact.name].shape) for fact in facts if fact.is_input):
            return number
    return 0


def check_engine(facts: Sequence[IOFact], inputs: Sequence[str], outputs: Sequence[str], where: str) -> None:
    """Checks that an engine has the model's inputs and outputs by name, in a layout that can be read and written.

    Raises:
        ParityError: a name is missing on one side, or the engine wants another layout than C order.
    """
    for title, is_input, model in (("input", True, inputs), ("output", False, outputs)):
        engine = [fact.name for fact in facts if fact.is_input == is_input]
        missing = [name for name in engine if name not in model]
        extra = [name for name in model if name not in engine]
        # An output that only the engine has is harmless: it may have been marked on purpose.
        if (missing and is_input) or extra:
            raise ParityError(
                (
                    f"the engine's {title}s are {_list_names(engine)}, the model's are {_list_names(model)}: nothing is "
                    "matched by place"
                ),
                where=where,
                fix="build the engine from this model, or give the model that it was built from",
            )
    for fact in facts:
        if not fact.linear:
            raise ParityError(
                f"{fact.name!r} has the layout {fact.layout or 'of another format'}, and only C order can be fed and read",
                where=where,
                fix=f"build the engine with linear inputs and outputs: trtexec --inputIOFormats={_io_format_word(fact)} "
                f"--outputIOFormats={_io_format_word(fact)} (or leave both flags out)",
            )


def check_sample(facts: Sequence[IOFact], arrays: Mapping[str, np.ndarray], sample: str, where: str) -> None:
    """Checks that a sample has every input of the engine, in its type, and in a shape that its profile covers.

    Raises:
        ParityError: it has not; the fix names the flags of a build that would take it.
    """
    inputs = [fact for fact in facts if fact.is_input]
    for fact in inputs:
        if fact.name not in arrays:
            raise ParityError(
                f"sample {sample} has no input {fact.name!r}",
                where=where,
                fix=f"the engine wants {_list_names([each.name for each in inputs])}",
            )
        _check_type(fact, arrays[fact.name], where)
    outside = [fact for fact in inputs if not _fits_fact(fact, arrays[fact.name].shape)]
    if not outside:
        return
    first = outside[0]
    given = list(arrays[first.name].shape)
    if first.covered is None:
        raise ParityError(
            f"input {first.name!r} is {list(first.shape)} in the engine, sample {sample} has {given}",
            where=where,
            fix=f"give {first.name!r} in the shape {list(first.shape)}, or build the engine from a model with dynamic sizes",
        )
    wanted = {fact.name: _widen_range(fact, arrays[fact.name].shape) for fact in inputs if fact.covered}
    low, high = list(first.covered.smallest), list(first.covered.largest)
    raise ParityError(
        f"the engine's profile covers {low} to {high} of input {first.name!r}, sample {sample} has {given}",
        where=where,
        fix=f"build it for these shapes: trtexec --onnx=model.onnx {flags_for(wanted)}",
    )


def check_fixed(fixed: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], sample: str, where: str) -> None:
    """Checks that a sample has the values for which inputs became constants of the engine.

    Raises:
        ParityError: it has others, and the engine would compute something else.
    """
    for name, value in fixed.items():
        if name in arrays and not (arrays[name] == value).all():
            raise ParityError(
                f"the engine was built for {name} = {value.tolist()}, sample {sample} has {arrays[name].tolist()}",
                where=where,
                fix=f"build another engine for it: fix={name}:VALUE",
            )


def narrow_inputs(
    facts: Sequence[IOFact], arrays: Mapping[str, np.ndarray], sample: str, where: str
) -> dict[str, np.ndarray]:
    """A sample's arrays, int64 made int32 where the engine wants that (TensorRT before 10 builds it so from int64 in a file).

    Raises:
        ParityError: a number does not fit.
    """
    found = dict(arrays)
    for fact in facts:
        array = arrays.get(fact.name)
        if not fact.is_input or array is None or (array.dtype.name, fact.dtype) != ("int64", "int32"):
            continue
        small = array.astype("int32")
        if not (small == array).all():
            raise ParityError(
                f"input {fact.name!r} of sample {sample} has numbers beyond int32, which the engine wants",
                where=where,
                fix="use TensorRT 10 or newer, which keeps int64, or smaller numbers",
            )
        found[fact.name] = small
    return found


def widen_outputs(arrays: Mapping[str, np.ndarray], declared: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Outputs by name, int32 made int64 where the model declares that; nothing else is changed."""
    return {
        name: array.astype("int64") if (array.dtype.name, declared.get(name)) == ("int32", "int64") else array
        for name, array in arrays.items()
    }


def _check_type(fact: IOFact, array: np.ndarray, where: str) -> None:
    if array.dtype.name == fact.dtype:
        return
    note = "a wrong type is never cast silently"
    if {array.dtype.name, fact.dtype} == {"int64", "int32"}:
        note = (
            "TensorRT before 10 makes int32 of int64 inputs, 10 and newer keep int64; narrow=on in the target, the default "
            "before 10, converts numbers that fit; a buffer of the other type is read as other numbers"
        )
    raise ParityError(
        f"input {fact.name!r} is {array.dtype.name}, the engine wants {fact.dtype}",
        where=where,
        fix=f"give {fact.name!r} as {fact.dtype}, or build the engine from a model that declares {array.dtype.name} ({note})",
    )


def _fits_fact(fact: IOFact, shape: Sequence[int]) -> bool:
    if fact.covered is not None:
        return fact.covered.covers(shape)
    return len(shape) == len(fact.shape) and all(
        wanted in {-1, size} for wanted, size in zip(fact.shape, shape, strict=True)
    )


def _widen_range(fact: IOFact, shape: Sequence[int]) -> ShapeRange:
    before = fact.covered
    given = tuple(shape)
    if before is None or len(before.usual) != len(given):
        return ShapeRange(smallest=given, usual=given, largest=given)
    return ShapeRange(
        smallest=tuple(map(min, before.smallest, given)),
        usual=before.usual,
        largest=tuple(map(max, before.largest, given)),
    )


def _io_format_word(fact: IOFact) -> str:
    words = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}
    return f"{words.get(fact.dtype, fact.dtype)}:chw"


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
