"""`parityscope diagnose`: the whole chain up to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.cli import _options as o
from parityscope.cli._shared import Shared, examined

if TYPE_CHECKING:
    from parityscope.records import Target

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
    thorough: o.ThoroughOption = False,
) -> int:
    """Says whether the candidate differs, where that begins, why, and what would repair it."""
    from parityscope.study import Settings

    settings = Settings(
        seconds=o.seconds_of(time),
        peer=_peer(peer),
        real=real,
        stacked=shared.stacked,
        preprocess=shared.preprocess,
        states=o.states_of(state, steps),
        steps=steps,
        # Which tensors exceed which tolerance is a question about all of them.
        thorough=thorough or ladder,
    )
    return examined(shared, settings, ladder=ladder)


def _peer(text: str) -> Target | None:
    """The target that is named; refused here, since a candidate that is within is held against none."""
    if not text:
        return None
    from parityscope.backends import backend
    from parityscope.backends.targets import check_target, parse_target

    target = parse_target(text)
    check_target(target, backend(target.backend))
    return target
