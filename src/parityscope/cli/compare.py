"""`parityscope compare`: outputs side by side, or every tensor with --all-tensors; no causes. Two recordings need no model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._requesting import answer_request
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from parityscope.cli._delivery import Delivery
    from parityscope.request import Depth, Request

NAME = "compare"


def command(
    request: Request,
    delivery: Delivery,
    *,
    other: Annotated[str, typer.Argument(help="A recording, an .onnx or a target to hold beside it.")] = "",
    candidate: o.CandidateOption = "",
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Compare every tensor, not only outputs.")] = False,
    workers: o.WorkersOption = "",
) -> int:
    """Compares the outputs of two targets on the same samples, or two recordings of outputs (a.json b.json) without a model."""
    if bool(other) == bool(candidate):
        said = "say the candidate once" if other else "nothing is given to compare it with"
        raise ParityError(
            said, fix="parityscope compare a.json b.json, or parityscope compare MODEL --candidate TARGET"
        )
    depth: Depth = "tensors" if all_tensors or delivery.ladder else "outputs"
    return answer_request(
        replace(request, candidate=other or candidate, depth=depth, workers=o.workers_of(workers)), delivery
    )
