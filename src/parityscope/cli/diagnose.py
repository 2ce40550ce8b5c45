"""`parityscope diagnose`: the whole chain up to the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.cli import _options as o
from parityscope.cli._requesting import answer_request

if TYPE_CHECKING:
    from parityscope.cli._delivery import Delivery
    from parityscope.request import Request

NAME = "diagnose"


def command(
    request: Request,
    delivery: Delivery,
    *,
    time: o.TimeOption = "",
    peer: o.PeerOption = "",
    real: o.RealOption = "",
    state: o.StateOption = None,
    loop: o.LoopOption = "",
    steps: o.StepsOption = 0,
    thorough: o.ThoroughOption = False,
) -> int:
    """Says whether the candidate differs, where that begins, why, and what would repair it."""
    fed, calls, drive = o.loop_of(loop)
    request = replace(
        request,
        seconds=o.seconds_of(time),
        peer=peer,
        real=real,
        states=o.states_of(state, steps, driven=bool(loop)) or fed,
        steps=steps or calls,
        drive=drive,
        # Which tensors exceed which tolerance is a question about all of them.
        thorough=thorough or delivery.ladder,
    )
    return answer_request(request, delivery)
