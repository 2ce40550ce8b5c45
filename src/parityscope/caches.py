"""Where what may be used again lies: in the user's own cache."""

from __future__ import annotations

import os
from pathlib import Path

_NOWHERE = Path(os.devnull)  # nothing is below it, and nobody can change that


def user_cache() -> Path:
    """`$XDG_CACHE_HOME`, else `~/.cache`, whether it is there or not.

    Who has no home (a container's user without a name) keeps nothing: no file can be made where this says then. Relative
    places are none, as in the XDG specification.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises where this gives back what it was given
    for place in (Path(os.environ.get("XDG_CACHE_HOME", "")), Path(home, ".cache")):
        if place.is_absolute():
            return place
    return _NOWHERE
