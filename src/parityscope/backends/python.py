"""A Python function as a deployment: `python?call=deploy.py:infer`, or any callable that a program hands over.

The function is given one sample, a dict of arrays by input name, and gives the outputs: a dict by name, a sequence in the order
of the model's outputs, or one array where there is one. Arrays may be numpy's or of any library whose arrays numpy
takes (`__array__`, DLPack). It runs in this process, and shows its outputs only.

This backend runs code that you name. A study names none that is run: `call_user_code` is to be given again by whoever repeats it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parityscope.backends import Backend, Capture, Session
from parityscope.case.arrays import as_array
from parityscope.case.formats.loader import call_user_code, find_function
from parityscope.case.opened_values import owner_of_output, tensors_of_value
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.records import Target

# What this process handed over: number -> a function of a sample. Others know no number of it.
_HANDED: dict[str, Callable[[Sample], object]] = {}
_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def handed_over(function: Callable[[Sample], object]) -> Iterator[str]:
    """The target that runs `function`, as text, while the block lasts; it takes a `Sample` and gives outputs as above."""
    number = str(next(_NUMBERS))
    _HANDED[number] = function
    try:
        yield f"python?number={number}"
    finally:
        del _HANDED[number]


@contextlib.contextmanager
def _open_session(model: Model, target: Target, _capture: Capture) -> Iterator[Session]:
    run, where = _function_of(target)
    names = [value.name for value in model.outputs]
    yield Session(run=lambda sample: _name_outputs(run(sample), names, f"{where}, sample {sample.index}"))


def _function_of(target: Target) -> tuple[Callable[[Sample], object], str]:
    """What the target runs, and what it is called in messages."""
    number, text = target.option("number"), target.option("call")
    if bool(number) == bool(text):
        raise ParityError("python needs the function to call", fix="write python?call=deploy.py:infer")
    if number:
        if number not in _HANDED:
            fix = "number= is the program's own that handed the function over; write python?call=deploy.py:infer"
            raise ParityError(f"no function {number!r} was handed over in this process", fix=fix)
        return _HANDED[number], "the function"
    user = find_function(text)

    def run(sample: Sample) -> object:
        doing = f"running {text} on sample {sample.index}"
        try:
            return call_user_code(user, user.function, dict(sample.arrays), doing=doing)
        except ParityError as error:
            raise ParityError(error.problem, where=error.where, fix=error.fix, failing=True) from error.__cause__

    return run, text


def _name_outputs(given: Any, names: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """The outputs by name.

    Raises:
        ParityError: they are of another number than the model's, or no arrays.
    """
    fix = f"give a dict by name, or in this order: {', '.join(names)}"
    owners = list(dict.fromkeys(map(owner_of_output, names)))
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    else:
        values = list(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else [given]
        wanted = owners if len(values) == len(owners) else names
        if len(values) != len(wanted):
            raise ParityError(f"it gave {len(values)} outputs, and the model has {len(names)}", where=where, fix=fix)
        named = dict(zip(wanted, values, strict=True))
    opened = {key: one for name, value in named.items() for key, one in tensors_of_value(name, value, names).items()}
    return {name: as_array(value, f"{where}, output {name!r}") for name, value in opened.items()}


BACKEND = Backend(
    name="python",
    title="a Python function",
    options={"call": "the function, as file.py:name", "number": "of a function that a Python program handed over"},
    precisions=(),
    observes=False,
    open=_open_session,
    called=("function", "callable"),
    words="a Python function",
    runs_program=True,
    reads_model=False,
    onnxruntime="perhaps",
    tensorrt="perhaps",
)
