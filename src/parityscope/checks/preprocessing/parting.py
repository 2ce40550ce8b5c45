"""Two preprocessings on the same images, step by step: where they part, and what is done differently there.

Steps are paired by name where both sides have the same names, by place where they have as many, and else only the ends are
compared. What a step does differently is named by comparing what it gave, and, where the step before gave both the same image,
by how each made its result of that image. Of the steps behind the first that differs nothing is said but that they differ.

A preprocessing of the user's -> its steps on one image: arrays by the name of the step, in order.

Three kinds are known:

* a function that returns what the model reads: an array or a dict of arrays; only that end is seen;
* a generator function that yields each stage, an array or a pair (name, array); the last is the end;
* a function with an attribute `steps`, a list of functions that are called one after the other; their names name the stages.

`file.toml` is a recipe (`case.imaging`), whose steps are "place" and "normalize".
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats.loader import as_arrays, call_user_code, find_function
from parityscope.case.imaging.recipe import place_image, prepare_image
from parityscope.case.imaging.recipe_file import read_recipe
from parityscope.checks.preprocessing.naming import SAME, NamedDifference, input_distance, name_difference
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    Arrays = Mapping[str, np.ndarray]
    from collections.abc import Callable

    from parityscope.case.formats.loader import UserFunction

    # An image (uint8, height x width x 3, RGB) and what it is called -> the arrays of every step, by name, in order.
    Stages = Callable[[np.ndarray, str], dict[str, np.ndarray]]

END = "result"  # the last step of a function that says nothing of its steps
_LAST = object()


def stages_of(asked: str | UserFunction) -> Stages:
    """The stages of `file.py:function`, of `file.toml`, or of a function.

    Raises:
        ParityError: there is no such file or function. What it gives raises ParityError where the user's code fails.
    """
    if isinstance(asked, str) and asked.endswith(".toml"):
        recipe = read_recipe(Path(asked), ["input"])
        return lambda image, name: {  # noqa: ARG005 - a recipe cannot fail on an image that could be read
            "place": place_image(recipe.placing, image),
            "normalize": prepare_image(recipe, image),
        }
    user = find_function(asked) if isinstance(asked, str) else asked
    declared = getattr(user.function, "steps", None)
    if isinstance(declared, list | tuple) and declared and all(map(callable, declared)):
        return lambda image, name: _run_declared_steps(user, tuple(declared), image, name)
    return lambda image, name: _run_whole_function(user, image, name)


def _run_declared_steps(
    user: UserFunction, functions: tuple[Any, ...], image: np.ndarray, name: str
) -> dict[str, np.ndarray]:
    stages: dict[str, np.ndarray] = {}
    held: Any = image.copy()
    for place, function in enumerate(functions):
        called = getattr(function, "__name__", f"step {place}")
        held = call_user_code(user, function, held, doing=f"step {called} on {name}")
        _add_stage(stages, called, held, user, name)
    return stages


def _run_whole_function(user: UserFunction, image: np.ndarray, name: str) -> dict[str, np.ndarray]:
    made = call_user_code(user, user.function, image.copy(), doing=f"preprocessing {name}")
    stages: dict[str, np.ndarray] = {}
    if not inspect.isgenerator(made):
        _add_stage(stages, END, made, user, name)
        return stages
    while (given := call_user_code(user, next, made, _LAST, doing=f"step {len(stages)} on {name}")) is not _LAST:
        pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
        _add_stage(stages, given[0] if pair else f"step {len(stages)}", given[1] if pair else given, user, name)
    if not stages:
        raise ParityError(f"{user.text} yielded nothing for {name}", where=user.text, fix="yield each step's array")
    return stages


def _add_stage(stages: dict[str, np.ndarray], called: str, value: Any, user: UserFunction, name: str) -> None:
    """Adds a step's array, or each of its arrays by name; copied, because the user's code may go on writing into it."""
    arrays = as_arrays(value if isinstance(value, Mapping) else {"": value}, user, f"{called} of {name}")
    for part, array in arrays.items():
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise ParityError(
                f"step {called!r} of {name} gave {type(value).__name__}, not numbers",
                where=user.text,
                fix="give numpy arrays: np.asarray(image)",
            )
        key = f"{called} {part}".strip()
        if key in stages:
            raise ParityError(
                f"{user.text} has two steps {key!r}", where=user.text, fix="give each step a name of its own"
            )
        stages[key] = np.array(array)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One step over all images: what it gave on the first, in how many it was the same, and what differs.

    `words` complete "the candidate ..." for the first image that differs; `left` is the part of the variance that they do not
    explain.
    """

    name: str
    candidate_name: str
    reference: str
    candidate: str
    images: int
    same: int
    words: str
    left: float

    @property
    def is_same(self) -> bool:
        """Whether it was the same on every image."""
        return self.same == self.images


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The steps in order; `paired` says how ("name", "place" or "end"); `alone` are steps that only one side has."""

    stages: tuple[StageResult, ...]
    images: int
    paired: str
    alone: tuple[str, ...] = ()

    @property
    def first(self) -> StageResult | None:
        """The first step that differs on some image; None where the preprocessings agree."""
        return next((stage for stage in self.stages if not stage.is_same), None)


def compare_preprocessings(reference: Stages, candidate: Stages, pictures: Iterable[tuple[str, np.ndarray]]) -> Parting:
    """Runs both on every picture (name; uint8, height x width x 3, RGB) and compares them.

    Raises:
        ParityError: a preprocessing fails.
    """
    held: dict[tuple[str, str], StageResult] = {}
    paired, count = "end", 0
    alone: tuple[str, ...] = ()
    for name, picture in pictures:
        mine, its = reference(picture, name), candidate(picture, name)
        pairs, paired, alone = _pair_stages(mine, its)
        before: np.ndarray | None = picture
        parted = False
        for pair in pairs:
            arrays = mine[pair[0]], its[pair[1]]
            known = parted or (pair in held and bool(held[pair].words))
            found = _say_whether_different(*arrays) if known else _name_stage_difference(*arrays, before)
            held[pair] = _merge_stage_result(held.get(pair), pair, arrays, found)
            parted = parted or bool(found.words)
            before = arrays[0] if before is not None and not found.words and _is_picture(arrays[0]) else None
        count += 1
    return Parting(stages=tuple(held.values()), images=count, paired=paired, alone=alone)


def _pair_stages(reference: Arrays, candidate: Arrays) -> tuple[list[tuple[str, str]], str, tuple[str, ...]]:
    if set(reference) == set(candidate):
        return [(name, name) for name in reference], "name", ()
    if len(reference) == len(candidate):
        return list(zip(reference, candidate, strict=True)), "place", ()
    ends = list(reference)[-1], list(candidate)[-1]
    return [ends], "end", (*list(reference)[:-1], *list(candidate)[:-1])


def _name_stage_difference(reference: np.ndarray, candidate: np.ndarray, before: np.ndarray | None) -> NamedDifference:
    """The difference of two steps' arrays; pictures of rank 3 are looked at as a batch of one."""
    batched = [each[None] if each.ndim == 3 else each for each in (reference, candidate)]
    return name_difference({"": batched[0]}, {"": batched[1]}, others={}, picture=before)


def _say_whether_different(reference: np.ndarray, candidate: np.ndarray) -> NamedDifference:
    """Whether two arrays differ, where it is said already what differs first."""
    same = (
        reference.shape == candidate.shape
        and reference.dtype == candidate.dtype
        and input_distance({"": reference}, {"": candidate}) <= SAME
    )
    return NamedDifference(words="" if same else "differs because of a step before", given=None, left=0.0)


def _is_picture(array: np.ndarray) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] == 3


def _merge_stage_result(
    held: StageResult | None, names: tuple[str, str], arrays: tuple[np.ndarray, np.ndarray], found: NamedDifference
) -> StageResult:
    same = int(not found.words)
    if held is None:
        reference, candidate = (_describe_array(each) for each in arrays)
        return StageResult(
            name=names[0],
            candidate_name=names[1],
            reference=reference,
            candidate=candidate,
            images=1,
            same=same,
            words=found.words,
            left=found.left,
        )
    return StageResult(
        name=held.name,
        candidate_name=held.candidate_name,
        reference=held.reference,
        candidate=held.candidate,
        images=held.images + 1,
        same=held.same + same,
        words=held.words or found.words,
        left=held.left if held.words else found.left,
    )


def _describe_array(array: np.ndarray) -> str:
    """dtype, shape and range in words."""
    if not array.size:
        return f"{array.dtype} {list(array.shape)}"
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    bounds = f", {finite.min():.4g} to {finite.max():.4g}" if finite.size else ", nothing finite"
    return f"{array.dtype} {list(array.shape)}{bounds}"
