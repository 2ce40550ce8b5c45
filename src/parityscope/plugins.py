"""Finds plug-ins: every module of a folder that ends in a registered constant, then entry points of the same group.

A plug-in is one file whose last line is a value (`BACKEND = Backend(...)`). The folder's own files and outside
packages (entry points of group "parityscope.<folder>") look exactly alike. A package that a plug-in imports from may say in
`FORMER` what stands for names that it once had: name -> what to write now.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")


def discover_plugins(package: str, constant: str, kind: type[T]) -> dict[str, tuple[T, ModuleType]]:
    """Plug-ins of `package` ("parityscope.checks") by module name, in the order of their names.

    Raises:
        ParityError: a plug-in cannot be imported, or its constant is not of type `kind`.
    """
    found: dict[str, tuple[T, ModuleType]] = {}
    for name, path in plugin_modules(package).items():
        value, module = _load_plugin(path, constant, kind)
        if value is not None:
            found[name] = (value, module)
    return found


def find_plugin(package: str, constant: str, kind: type[T], name: str) -> T | None:
    """The plug-in whose `name` is `name`, or None; the file of that name ("html", "as_html") is all that is imported.

    Raises:
        ParityError: the file cannot be imported, or its constant is not of type `kind`.
    """
    modules = plugin_modules(package)
    for candidate in (name, f"as_{name}"):
        if candidate in modules:
            value, _ = _load_plugin(modules[candidate], constant, kind)
            if value is not None and getattr(value, "name", None) == name:
                return value
    named = {getattr(value, "name", None): value for value, _ in discover_plugins(package, constant, kind).values()}
    return named.get(name)


def plugin_modules(package: str) -> dict[str, str]:
    """The modules that may hold plug-ins, by name; the folder's own come before outside packages' of the same name."""
    return _list_modules(package, tuple(sys.path))


@functools.cache
def _list_modules(package: str, path: tuple[str, ...]) -> dict[str, str]:
    folder = importlib.import_module(package)
    modules = {info.name: f"{package}.{info.name}" for info in pkgutil.iter_modules(folder.__path__)}
    for point in _read_entry_points(path).select(group=package):
        modules.setdefault(point.name, point.value.partition(":")[0])
    return {name: path for name, path in sorted(modules.items()) if not name.startswith("_")}


@functools.lru_cache(maxsize=1)  # every look reads the records of all packages that are installed
def _read_entry_points(_path: tuple[str, ...]) -> Any:  # EntryPoints, for which Python 3.11 has another name
    return entry_points()


def _load_plugin(path: str, constant: str, kind: type[T]) -> tuple[T | None, ModuleType]:
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        former = getattr(sys.modules.get(error.name or ""), "FORMER", {})
        now = (told for name, told in former.items() if f"name {name!r} from" in str(error))
        raise ParityError(
            f"the plug-in {path} cannot be imported: {error}",
            fix=next(now, "mend or uninstall the package that brings it"),
        ) from error
    except TypeError as error:  # its value was made for another version
        takes = ", ".join(inspect.signature(kind).parameters)
        raise ParityError(
            f"the plug-in {path} does not fit this version: {error}",
            fix=f"end the file with {constant} = {kind.__name__}(...), which takes {takes}",
        ) from error
    value = getattr(module, constant, None)
    if value is None:
        return None, module
    if not isinstance(value, kind):
        raise ParityError(
            f"{constant} in {path} is a {type(value).__name__}, not a {kind.__name__}",
            where=str(module.__file__),
            fix=f"end the file with {constant} = {kind.__name__}(...)",
        )
    return value, module
