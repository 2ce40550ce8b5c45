"""`parityscope compare`: outputs side by side, or every tensor with --all-tensors; no causes."""

from __future__ import annotations

from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli._shared import Shared, examined

__all__ = ["NAME", "command"]

NAME = "compare"


def command(
    shared: Shared,
    *,
    all_tensors: Annotated[bool, typer.Option("--all-tensors", help="Compare every tensor, not only outputs.")] = False,
    ladder: o.LadderOption = False,
) -> int:
    """Compares the outputs of two targets (or what was saved of them) on the same samples."""
    from parityscope.study import Settings

    return examined(shared, Settings(layers=all_tensors or ladder, localize=False, causes=False), ladder=ladder)
