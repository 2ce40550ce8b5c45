"""Loads libraries with plugins, and says of one that does not work why.

A library registers its plugins when it is loaded (`REGISTER_TENSORRT_PLUGIN`), or hands them over when the registry asks for
its `getCreators`; both ways are tried. It stays loaded as long as the process lives, as the engines that use it need.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from parityscope.backends.tensorrt.api import Registry


def load_plugins(registry: Registry, libraries: Iterable[Path]) -> tuple[str, ...]:
    """Loads `libraries` into TensorRT's `registry`; gives the names of the plugins that came with them.

    Raises:
        ParityError: a library is not there, cannot be loaded, or registers nothing.
    """
    found: list[str] = []
    for path in libraries:
        if not path.is_file():
            raise ParityError(
                f"there is no plugin library at {path}", fix="give the path of a .so file: plugins=lib.so"
            )
        before = _creators_of_plugins(registry)
        try:
            ctypes.CDLL(str(path.resolve()), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ParityError(
                f"{path.name} cannot be loaded: {error}",
                where=str(path),
                fix=f"look at what it needs (ldd {path}), and build it against the TensorRT that is installed",
            ) from error
        if _creators_of_plugins(registry) == before and registry.load_library(str(path.resolve())) is None:
            raise ParityError(
                f"{path.name} registers no plugin",
                where=str(path),
                fix="it must call REGISTER_TENSORRT_PLUGIN, or export getCreators and setLoggerFinder",
            )
        found.extend(sorted(_creators_of_plugins(registry) - before))
    return tuple(found)


def register_standard_plugins(trt: Any, logger: Any) -> None:
    """Registers the plug-ins that come with TensorRT, which its parser does not do by itself.

    Exists because parsers up to 8.6 map InstanceNormalization to a plug-in of NVIDIA's, and engines that hold one of theirs are
    refused without it. `trtexec` and Polygraphy call the same function first.
    """
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")


def _creators_of_plugins(registry: Any) -> set[str]:
    held = getattr(registry, "all_creators", None)
    if held is None:
        held = registry.plugin_creator_list  # before TensorRT 10
    return {f"{creator.plugin_namespace}/{creator.name}:{creator.plugin_version}" for creator in held}
