"""Which libraries of custom operators ONNX Runtime's sessions get.

An operator belongs to the model: whatever graph is derived from it (with outputs marked, severed, injected, simulated)
needs the operator as the model itself does. The library that the reference was given therefore serves every session that is
opened while it is in use, in any thread, beside the one that a target names for itself. It is state of the process
because sessions are opened at a dozen places that know the model and not the target which brought the library.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_in_use: list[str] = []


@contextlib.contextmanager
def library_in_use(path: str) -> Iterator[None]:
    """Gives the library at `path` to every session that is opened inside the block; an empty path changes nothing."""
    if not path:
        yield
        return
    _in_use.append(path)
    try:
        yield
    finally:
        _in_use.remove(path)


def libraries_in_use() -> tuple[str, ...]:
    """What `library_in_use` was given by those blocks that are open."""
    return tuple(_in_use)


def libraries_for_session(own: str) -> tuple[str, ...]:
    """The libraries that a session gets which names `own` for itself (empty: none), each once."""
    return tuple(dict.fromkeys(_locate_library(path) for path in (*_in_use, own) if path))


def _locate_library(path: str) -> str:
    """A name without a slash is sought on the loader's path only, so a file that is here is named in full."""
    return str(Path(path).resolve()) if Path(path).is_file() else path
