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
    real: o.RealOption = "",
    state: o.StateOption = None,
    steps: o.StepsOption = 0,
) -> int:
    """Says whether the candidate differs, where that begins, why, and what would repair it."""
    from parityscope.backends.targets import parse_target
    from parityscope.study import Settings

    settings = Settings(
        seconds=o.seconds_of(time),
        peer=parse_target(peer) if peer else None,
        real=real,
        stacked=shared.stacked,
        preprocess=shared.preprocess,
        states=o.states_of(state, steps),
        steps=steps,
    )
    return examined(shared, settings, ladder=ladder)
