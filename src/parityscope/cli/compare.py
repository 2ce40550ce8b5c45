"""`parityscope compare`: outputs side by side, or every tensor with --all-tensors; no causes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._requesting import answer_request

if TYPE_CHECKING:
    from parityscope.cli._delivery import Delivery
    from parityscope.request import Depth, Request

__all__ = ["NAME", "command"]

NAME = "compare"


def command(
    request: Request,
    delivery: Delivery,
    *,
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Compare every tensor, not only outputs.")] = False,
    workers: o.WorkersOption = "",
) -> int:
    """Compares the outputs of two targets (or what was saved of them) on the same samples."""
    depth: Depth = "tensors" if all_tensors or delivery.ladder else "outputs"
    return answer_request(replace(request, depth=depth, workers=o.workers_of(workers)), delivery)
