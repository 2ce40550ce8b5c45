"""`parityscope localize`: introduced and inherited error of every layer or region; no causes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.cli._requesting import answer_request

if TYPE_CHECKING:
    from parityscope.cli._delivery import Delivery
    from parityscope.request import Request

NAME = "localize"


def command(request: Request, delivery: Delivery) -> int:
    """Tells the error that each layer introduces from the error that it inherits."""
    return answer_request(replace(request, depth="layers"), delivery)
