"""Packages that another package imports and hardly ever uses: imported where something of them is first asked for.

`onnx_ir` imports sympy for arithmetic with symbolic dimensions, which nothing here asks for: half of the time that a command
took to start. numba imports YAML for a file of settings that is hardly ever there. The place that each has in `sys.modules` is
an empty module, which fills itself at the first look into it.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

_LOADING = threading.RLock()
_PENDING = "__pending__"  # the real loader and the search path of submodules, until the module is filled

if hasattr(os, "register_at_fork"):  # what another thread loads is loaded whole first
    os.register_at_fork(before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release)


def import_late(*names: str) -> None:
    """From now on in this process, an `import` of these modules loads nothing before something of them is used."""
    sys.meta_path.insert(0, _Finder({name for name in names if name not in sys.modules}))


class _Late(ModuleType):
    """A module that runs its file when something is looked up that it does not hold yet."""

    def __getattr__(self, name: str) -> Any:
        with _LOADING:
            pending = vars(self).pop(_PENDING, None)
            if pending is not None:
                loader, path = pending
                if path is not None:
                    self.__path__ = path
                self.__loader__ = loader
                if self.__spec__ is not None:
                    self.__spec__.loader = loader
                loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


class _Loader:
    """Makes a `_Late` module of what `loader` would load."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Late(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        # Without a path nothing below it is imported before itself.
        vars(module)[_PENDING] = self.loader, vars(module).pop("__path__", None)


class _Finder:
    """Finds the modules `names`, each once."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.names:
            return None
        self.names.discard(name)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec
