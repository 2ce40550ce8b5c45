"""The arguments of a verb by name: what it does not have is told with the nearest that it has, a lone text is a list of one."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from parityscope.api import options
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")

_OF_TEXTS = ("Sequence[str]", "tuple[str, ...]")
# What the command line calls otherwise, or what is said for it.
_CALLED = {"time": "seconds", "map": "mapping", "state": "states", "candidate": "target", "tolerance": "budgets"}


def with_checked_arguments(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, which raises a `ParityError` for an argument that it does not have, and takes one text where it takes several."""
    taken = _arguments_of(verb)

    @functools.wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in taken:
                raise ParityError(f"{verb.__name__} has no argument {name!r}", fix=_nearest(name, taken))
        alone = {
            name: (value,) for name, value in kwargs.items() if isinstance(value, str) and taken[name] in _OF_TEXTS
        }
        return verb(*args, **{**kwargs, **alone})  # type: ignore[arg-type]

    return called


def _arguments_of(verb: Callable[..., object]) -> Mapping[str, str]:
    """Each argument that can be given by name, those of its options too, with its annotation."""
    found: dict[str, str] = {}
    for name, parameter in inspect.signature(verb).parameters.items():
        told = str(parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            held = getattr(options, told.removeprefix("Unpack[").removesuffix("]"))
            found |= {key: getattr(kind, "__forward_arg__", str(kind)) for key, kind in held.__annotations__.items()}
        else:
            found[name] = told
    return found


def _nearest(name: str, taken: Mapping[str, str]) -> str:
    close = [_CALLED[name]] if _CALLED.get(name) in taken else difflib.get_close_matches(name, taken, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(taken)}"
