"""Finds plug-ins: every module of a folder that ends in a registered constant, then entry points of the same group.

A plug-in is one file whose last line is a value (`BACKEND = Backend(...)`). The folder's own files and outside
packages (entry points of group "parityscope.<folder>") look exactly alike.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, TypeVar

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["discover"]

T = TypeVar("T")


def discover(package: str, constant: str, kind: type[T]) -> dict[str, tuple[T, ModuleType]]:
    """Plug-ins of `package` ("parityscope.checks") by module name, in the order of their names.

    Raises:
        ParityError: a plug-in cannot be imported, or its constant is not of type `kind`.
    """
    folder = importlib.import_module(package)
    modules = {info.name: f"{package}.{info.name}" for info in pkgutil.iter_modules(folder.__path__)}
    for point in entry_points(group=package):
        modules.setdefault(point.name, point.value.partition(":")[0])
    found: dict[str, tuple[T, ModuleType]] = {}
    for name, path in sorted(modules.items()):
        if name.startswith("_"):
            continue
        try:
            module = importlib.import_module(path)
        except ImportError as error:
            raise ParityError(
                f"the plug-in {path} cannot be imported: {error}", fix="mend or uninstall the package that brings it"
            ) from error
        value = getattr(module, constant, None)
        if value is None:
            continue
        if not isinstance(value, kind):
            raise ParityError(
                f"{constant} in {path} is a {type(value).__name__}, not a {kind.__name__}",
                where=str(module.__file__),
                fix=f"end the file with {constant} = {kind.__name__}(...)",
            )
        found[name] = (value, module)
    return found
