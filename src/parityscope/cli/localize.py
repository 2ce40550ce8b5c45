"""`parityscope localize`: introduced and inherited error of every layer or region; no causes."""

from __future__ import annotations

from parityscope.cli import _options as o
from parityscope.cli._shared import Shared, examined

__all__ = ["NAME", "command"]

NAME = "localize"


def command(shared: Shared, *, ladder: o.LadderOption = False) -> int:
    """Tells the error that each layer introduces from the error that it inherits."""
    from parityscope.study import Settings

    return examined(shared, Settings(causes=False), ladder=ladder)
