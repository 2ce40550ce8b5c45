"""Dataclasses that are quickly made: whatever can be asked of one, the library's own gives the same answer."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest

from parityscope import light_dataclasses

if TYPE_CHECKING:
    from collections.abc import Callable

FROZEN = {"frozen": True, "slots": True, "kw_only": True}
OPTIONS = {
    "frozen": FROZEN,
    "in order": {"frozen": True, "slots": True},
    "by identity": {**FROZEN, "eq": False, "weakref_slot": True},
    "without words": {**FROZEN, "repr": False},
    "with a dictionary": {"frozen": True},
    "to be changed": {"slots": True, "kw_only": True},
    "to be changed, by identity": {"slots": True, "eq": False},
}


def described(make: Callable[..., Any], options: dict[str, bool]) -> list[type]:
    """Some classes of the same words: with fields of every kind, without fields, with one, and one made of another."""

    @make(**options)
    class Kinds:
        """Fields of every kind."""

        a: int
        b: float = 2.0
        c: list[int] = light_dataclasses.field(default_factory=list)
        d: object = light_dataclasses.field(default=7, repr=False, compare=False)
        e: str = light_dataclasses.field(default="told", init=False)
        f: dict[str, int] = light_dataclasses.field(default_factory=dict, init=False)
        g: int = light_dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "g", self.a + 1)

    @make(**options)
    class Nothing:
        """No field."""

    @make(**options)
    class One:  # noqa: PLW1641 - as somebody may write it
        """A field, of which what is asked is said here."""

        a: object
        _: light_dataclasses.KW_ONLY
        b: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __repr__(self) -> str:
            return "one"

    @make(**options)
    class More(Kinds):
        """A class made of another."""

        h: tuple[int, ...] = ()
        b: float = 3.0

    return [Kinds, Nothing, One, More]


def outcome(ask: Callable[[], object]) -> object:
    """What an action gives, or the error that it ends with."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        return type(error), str(error)


def answers(kind: type, given: tuple[object, ...], named: dict[str, object]) -> list[object]:
    """What a class and what is made of these arguments say."""
    one: Any = outcome(lambda: kind(*given, **named))
    if isinstance(one, tuple):
        return [one]
    twin: Any = kind(*given, **named)
    setattr(sys.modules[__name__], kind.__name__, kind)  # where pickle looks for it
    kind.__qualname__ = kind.__name__
    names: list[str] = [field.name for field in dataclasses.fields(kind)]
    return [
        repr(one) if "object at" not in repr(one) else "",
        [one == one, one == twin, one == 3],  # noqa: PLR0124 - itself
        [outcome(lambda name=name: one == dataclasses.replace(one, **{name: "else"})) for name in names],
        one.__eq__(3),
        outcome(lambda: hash(one) == hash(twin)),
        [getattr(one, name) for name in names],
        [[getattr(other, name) for name in names] for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one))],  # noqa: S301 - our own
        dataclasses.asdict(one),
        kind.__match_args__,  # type: ignore[attr-defined]
        [outcome(lambda name=name: setattr(one, name, 5)) for name in names],
        [outcome(lambda name=name: delattr(twin, name)) for name in names],
    ]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_each_answer_is_the_librarys(options: dict[str, bool]) -> None:
    pairs = zip(described(dataclasses.dataclass, options), described(light_dataclasses.dataclass, options), strict=True)
    for whole, light in pairs:
        assert str(inspect.signature(light)) == str(inspect.signature(whole))
        for given, named in (
            ((), {}),
            ((1,), {}),
            ((), {"a": 1}),
            ((), {"a": 1, "b": 4.0}),
            ((1, 2), {}),
            ((), {"x": 1}),
        ):
            assert answers(light, given, dict(named)) == answers(whole, given, dict(named))


def test_what_holds_itself_is_told() -> None:
    kinds, *_ = described(light_dataclasses.dataclass, FROZEN)
    one = kinds(a=1, c=[])
    one.c.append(one)
    assert "..." in repr(one)
