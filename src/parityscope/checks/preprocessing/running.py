"""A preprocessing of the user's -> its steps on one image: arrays by the name of the step, in order.

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
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.case.formats.loader import UserFunction

    # An image (uint8, height x width x 3, RGB) and what it is called -> the arrays of every step, by name, in order.
    Stages = Callable[[np.ndarray, str], dict[str, np.ndarray]]

__all__ = ["END", "stages_of"]

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
