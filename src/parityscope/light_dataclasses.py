"""The standard library's dataclasses, made in a fifth of the time.

The library has up to six methods of each class compiled, a millisecond of a processor, and a diagnosis imports 460 classes. Here
that is one, `__init__`; the others ask for the values of the fields when they are called. Whoever reads a module (mypy, an
editor) finds the library's own decorator, and all that the library has for its classes (`fields`, `replace`) takes these.
"""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, MISSING, FrozenInstanceError, asdict, field, fields, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass

__all__ = ["KW_ONLY", "asdict", "dataclass", "field", "fields", "replace"]

if not TYPE_CHECKING:

    def dataclass(
        *,
        frozen: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002
        **options: bool,
    ) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, of which `order`, `unsafe_hash` and fields that are `InitVar` are left out."""

        def finish(described: type) -> type:
            own = {name for name, value in vars(described).items() if value is not None}  # what it defines itself stays
            made = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(described)
            methods = {"__init__": _compile_init(made)}
            if repr:
                methods["__repr__"] = _tell_fields
            if eq:
                methods |= _comparing([one.name for one in fields(made) if one.compare], hashed=frozen)
            if frozen:
                methods |= _FROZEN
            for name in methods.keys() - own:
                setattr(made, name, methods[name])
            return made

        return finish


class _MadeAnew:
    """What stands in a signature for a value that is made anew for each."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _MadeAnew()


def _compile_init(made: Any) -> Callable[..., None]:
    known: dict[str, Any] = {"__name__": made.__module__, "_set": object.__setattr__, "_MADE": _MADE}
    plain, named, body = ["self"], list[str](), list[str]()
    every = fields(made)
    for one in every:
        name = value = one.name
        known[f"_default_{name}"], known[f"_make_{name}"] = one.default, one.default_factory
        given = name
        if one.default_factory is not MISSING:
            given = f"{name}=_MADE"
            value = f"_make_{name}() if {name} is _MADE else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            given = f"{name}=_default_{name}"
            value = name if one.init else f"_default_{name}"
        elif not one.init:
            continue  # `__post_init__` sets it
        if one.init:
            (named if one.kw_only else plain).append(given)
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    words = ", ".join([*plain, "*", *named] if named else plain)
    exec("\n".join([f"def __init__({words}):", *(body or [" pass"])]), known)  # noqa: S102 - of names of fields
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in every if one.init} | {"return": None}
    return init


@recursive_repr()
def _tell_fields(self: Any) -> str:
    told = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({told})"


def _comparing(names: Sequence[str], *, hashed: bool) -> dict[str, Callable[..., Any] | None]:
    """Equality by the values of these fields, and a hash of them."""
    if len(names) > 1:
        values: Callable[[object], object] = attrgetter(*names)
    else:
        values = lambda one: tuple(getattr(one, name) for name in names)  # noqa: E731

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(values(self))) if hashed else None}


def _refuse_set(_self: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _give_state(self: Any) -> list[object]:
    return [getattr(self, one.name) for one in fields(self)]


def _take_state(self: Any, state: list[object]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_FROZEN = {
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _give_state,  # of slots, which pickle would set
    "__setstate__": _take_state,
}
