"""`file.py:function`: samples, or the preprocessing of images, from the user's own Python.

As a loader, the function takes nothing and returns, or yields, dicts of arrays by input name, each alone or in a pair with a
dict of what is right for it (its truths). This runs code that the user names; what it prints goes to stderr, since stdout
carries the result. While it runs, its folder is importable, so that it may import its neighbours.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.arrays import as_array
from parityscope.case.formats import Streamed
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FORM = re.compile(r"^(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)$", re.DOTALL)
_END = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A function of the user's: `text` is `file.py:function` as it was written."""

    text: str
    folder: Path
    function: Callable[..., Any]  # the user's own: nothing is known of what it takes and gives


def is_function(text: str) -> bool:
    """Whether `text` has the form `file.py:function`."""
    return _FORM.match(text) is not None


def handed_function(function: Callable[..., Any]) -> UserFunction:
    """A function that a program hands over, called by its own name in messages."""
    name = getattr(function, "__name__", type(function).__name__)
    return UserFunction(text=name, folder=Path.cwd(), function=function)


def find_function(text: str) -> UserFunction:
    """Imports the file of `file.py:function` and finds the function in it.

    Raises:
        ParityError: the text has another form, the file is missing or fails, or it has no such function.
    """
    form = _FORM.match(text)
    if form is None:
        raise ParityError(f"{text!r} is not of the form file.py:function", fix="write it like load.py:samples")
    path = Path(form["path"])
    if not path.is_file():
        raise ParityError(f"there is no file {path}", where=text, fix="give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"_parityscope_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ParityError(f"{path.name} cannot be imported as Python", where=text, fix="give the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up there
    load = UserFunction(text=text, folder=path.parent.resolve(), function=spec.loader.exec_module)
    call_user_code(load, load.function, module, doing=f"importing {path.name}")
    function = getattr(module, form["name"], None)
    if not callable(function):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise ParityError(
            f"{path.name} has no function {form['name']!r}", where=text, fix=f"use one of: {', '.join(names) or 'none'}"
        )
    return UserFunction(text=text, folder=load.folder, function=function)


def call_user_code(user: UserFunction, function: Callable[..., Any], *arguments: Any, doing: str) -> Any:
    """Calls into the user's code; whatever it raises becomes a ParityError that says what was being done."""
    sys.path.insert(0, str(user.folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return function(*arguments)
    except ParityError as error:
        raise ParityError(f"{doing} failed: {error.problem}", where=user.text, fix=error.fix) from error
    # The user's code may raise anything; an exit from it is no exit of ours.
    except (Exception, SystemExit) as error:
        raise ParityError(
            f"{doing} failed: {type(error).__name__}: {error}",
            where=user.text,
            fix=f"mend it; `python -c` with a call of {user.text.rpartition(':')[2]}() shows the whole traceback",
        ) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(user.folder))


def as_arrays(value: object, user: UserFunction, where: str) -> dict[str, np.ndarray]:
    """A dict of arrays by name, as the user's function gave it.

    Raises:
        ParityError: it is no such dict.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ParityError(
            f"{user.text} gave a {type(value).__name__}, not a dict of arrays by input name",
            where=where,
            fix='let it yield dicts: yield {"input": array}',
        )
    return {
        name: call_user_code(user, as_array, array, where, doing=f"turning {name!r} of {where} into an array")
        for name, array in value.items()
    }


def split_truths(value: object) -> tuple[object, Mapping[Any, Any]]:
    """(arrays, truths) where a sample was given with what is right for it; (value, {}) otherwise."""
    match value:
        case (Mapping() as arrays, Mapping() as truths):
            return arrays, truths
    return value, {}


def read_loader(text: str) -> Iterator[Streamed]:
    """The samples that `file.py:function` yields, as it yields them."""
    user = find_function(text)
    made = call_user_code(user, user.function, doing=f"calling {text}")
    if isinstance(made, Mapping | str | np.ndarray):
        raise ParityError(
            f"{text} returned a {type(made).__name__}, not an iterable of samples",
            where=text,
            fix="let it yield one dict a sample, or return a list of dicts",
        )
    samples = call_user_code(user, iter, made, doing=f"iterating over what {text} returned")
    index = 0
    while (sample := call_user_code(user, next, samples, _END, doing=f"making sample {index}")) is not _END:
        given, right = split_truths(sample)
        arrays, truths = as_arrays(given, user, f"sample {index}"), as_arrays(right, user, f"sample {index}")
        yield Streamed(label=f"item {index} of {text}", arrays=arrays, truths=truths)
        index += 1
