"""`parityscope diagnose`: the whole chain up to the report."""

from __future__ import annotations

from parityscope.cli import _options as o
from parityscope.cli._shared import Shared, examined

__all__ = ["NAME", "command"]

NAME = "diagnose"


def command(
    shared: Shared,
    *,
    time: o.TimeOption = "",
    peer: o.PeerOption = "",
    ladder: o.LadderOption = False,
) -> int:
    """Says whether the candidate differs, where that begins, why, and what would repair it."""
    from parityscope.backends.targets import parse_target
    from parityscope.study import Settings

    settings = Settings(seconds=o.seconds_of(time), peer=parse_target(peer) if peer else None)
    return examined(shared, settings, ladder=ladder)
