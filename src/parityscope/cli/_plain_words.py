"""Words that need no conversion are taken as they are.

typer converts each through pydantic, whose import takes an eighth of a short command. What needs a conversion, or is wrong,
goes typer's own way, with its own messages.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from typer import core

_ITEMS = {str: str, Path: Path, list[str]: str, list[Path]: Path}


@functools.cache
def take_plain_words() -> None:
    """From now on in this process parameters take text, paths and numbers that are numbers already without a conversion."""
    for kind in (core.TyperOption, core.TyperArgument):
        build = getattr(kind, "get_runtime_param", None)
        if build is not None:  # another typer: as it does it itself
            kind.get_runtime_param = functools.partialmethod(_converter, build)  # type: ignore[method-assign, assignment]


def _converter(parameter: Any, build: Any) -> Any:  # typer's own, which has no public types
    form = parameter.type_descriptor.annotation
    return _Plain(form, parameter, build) if form in {*_ITEMS, bool, int, float} else build(parameter)


class _Plain:
    """Stands where the converter of a parameter does, which `build` makes when it is needed."""

    def __init__(self, form: Any, parameter: Any, build: Any) -> None:
        self.form, self.parameter, self.build = form, parameter, build

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The converted value."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        item = _ITEMS.get(self.form)
        if item is None and type(value) is self.form:
            return value
        if item is self.form and _is_plain(value, item):
            return item(value)
        if (
            item not in {None, self.form}
            and isinstance(value, list | tuple)
            and all(_is_plain(one, item) for one in value)
        ):
            return [item(one) for one in value]
        return self.build(self.parameter).coerce(value, param=param, ctx=ctx)


def _is_plain(value: object, form: Any) -> bool:
    if form is str:
        return isinstance(value, str)
    return isinstance(value, Path) or (
        isinstance(value, str) and (os.access(value, os.R_OK) or not os.path.lexists(value))
    )
